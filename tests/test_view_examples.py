"""The examples that read the JSON of inspect-logits."""

import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import checkpoints
import pytest
from conftest import Cli

from gpt2cli.tokenizer import Tokenizer

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_likelier_by_hand(cli: Cli, tmp_path: Path, gpt2_tokenizer: Tokenizer) -> None:
    # Each " a" costs ln(1 + 1/e), each " b" one nat more, whatever came before.
    a, b = gpt2_tokenizer.encode(" a b")
    model = checkpoints.flat(tmp_path / "m", {a: 1.0, b: 0.0}, floor=-100)
    for name, text in (("short", " b"), ("long", " a a a a a")):
        result = cli("inspect-logits", "-m", model, "--all", "--bos", "--json", text).ok().out
        (tmp_path / name).write_text(result)
    ran = run("likelier.py", Path("short"), Path("long"), folder=tmp_path)
    of_a = math.log(1 + math.exp(-1))
    of_b = of_a + 1
    assert ran.stdout.splitlines() == [
        f"short: log p = {-of_b:.4f} over 1 tokens, {of_b:.4f} nats each",
        f"long: log p = {-5 * of_a:.4f} over 5 tokens, {of_a:.4f} nats each",
        f"likelier as a whole: short, by {5 * of_a - of_b:.4f} nats",
        "likelier per token:  long, by 1.0000 nats",
    ]


def test_likelier_refuses_what_was_not_scored(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path / "m")
    (tmp_path / "a").write_text(cli("inspect-logits", "-m", model, "--all", "--json", "a").ok().out)
    ran = run("likelier.py", Path("a"), Path("a"), folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "--bos" in ran.stderr
    assert run("likelier.py", folder=tmp_path).returncode == 1


@pytest.mark.parametrize("rows", ["3", "10"])
def test_the_lens_heat_map_is_a_picture_of_every_layer(cli: Cli, tmp_path: Path, rows: str) -> None:
    model = checkpoints.random(tmp_path / "<m>", n_layer=3)
    (tmp_path / "lens").write_text(
        cli("inspect-logits", "-m", model, "--lens", "--json", "--rows", rows, "a b").ok().out
    )
    lens = json.loads((tmp_path / "lens").read_text())
    ran = run("lens_heat_map.py", Path("lens"), folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    texts = [e.text or "" for e in ElementTree.fromstring(ran.stdout).iter("{http://www.w3.org/2000/svg}text")]
    assert [t for t in texts if t.startswith("layer ") or t == "embed"] == ["layer 3", "layer 2", "layer 1", "embed"]
    shown = [f"{c['probability']:.3f}" for layer in lens["layers"][::-1] for c in layer["candidates"][:6]]
    assert [t.split()[-1] for t in texts if t[-4:-3] == "."] == shown
    framed = sum(c["chosen"] for layer in lens["layers"] for c in layer["candidates"][:6])
    assert ran.stdout.count('stroke="#c00"') == framed > 0
