"""inspect-logits --save and --export: files that other programs read, whole or not at all."""

import json
import signal
import subprocess
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import checkpoints
import numpy as np
import pytest
import torch
from conftest import Cli, program
from safetensors.numpy import load_file
from transformers import GPT2LMHeadModel

from gpt2cli import saving
from gpt2cli.scoring import SLICE

TEXT = "The quick brown fox jumps over the lazy dog and <b>\x1b[31m & 中文\n"
VIEWS = [[], ["--all"], ["--heat"], ["--lens"], ["--compare-temperatures", "0.5,1"], ["--verify"], ["--steps", "2"]]


@pytest.mark.parametrize("name", ["out.npz", "out.safetensors", "[/].npz"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saved_logits_are_those_of_transformers(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, dtype: str
) -> None:
    model = checkpoints.random(tmp_path / "m", n_layer=2)
    monkeypatch.chdir(tmp_path)
    Path("[").mkdir()
    row = cli("inspect-logits", "-m", model, "--save", name, "--dtype", dtype, "--json", TEXT * 2).json
    ids = row["prompt_token_ids"]
    assert len(ids) > SLICE
    arrays = dict(np.load(name)) if name.endswith("npz") else load_file(name)
    assert list(arrays["token_ids"]) == ids
    assert (arrays["token_ids"].dtype, arrays["logits"].dtype, arrays["hidden_states"].dtype) == ("i8", "f4", "f4")
    assert arrays["logits"].shape == (len(ids), 50257)
    theirs = GPT2LMHeadModel.from_pretrained(model)
    with torch.inference_mode():
        output = theirs(torch.tensor([ids]), output_hidden_states=True)
    tolerance = 1e-3 if dtype == "float32" else 1.0
    np.testing.assert_allclose(arrays["logits"], output.logits[0].numpy(), atol=tolerance)
    np.testing.assert_allclose(arrays["hidden_states"], output.hidden_states[-1][0].numpy(), atol=tolerance)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_failure_leaves_the_old_file(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = checkpoints.random(tmp_path / "m")
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / "x.safetensors"
    target.write_bytes(b"old")

    def full_disk(file, arrays) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving, "write_safetensors", full_disk)
    ran = cli("inspect-logits", "-m", model, "--save", target, "x")
    assert ran.code == 1
    assert "No space left" in ran.err
    assert [p.name for p in target.parent.iterdir()] == ["x.safetensors"]
    assert target.read_bytes() == b"old"


def test_a_file_keeps_its_permissions(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.tiny(tmp_path / "m")
    target = tmp_path / "x.npz"
    target.touch(0o600)
    assert cli("inspect-logits", "-m", model, "--save", target, "x").code == 0
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.stat().st_size


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_while_saving_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, code: int) -> None:
    model = checkpoints.scripted(tmp_path / "m", [], 1)
    (tmp_path / "out").mkdir()
    command = ["inspect-logits", "-m", model, "--json", "--save", tmp_path / "out" / "x.npz", " world" * 1000]
    with subprocess.Popen(
        [*program(), *map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        while not list((tmp_path / "out").iterdir()):
            assert process.poll() is None
        process.send_signal(number)
        out, errors = process.communicate()
    assert (process.returncode, errors) == (code, b"")
    assert json.loads(out)["shape"] == [1000, 50257]
    assert list((tmp_path / "out").iterdir()) == []


def test_a_link_stays_a_link(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path / "m")
    (tmp_path / "link.npz").symlink_to(tmp_path / "real.npz")
    assert cli("inspect-logits", "-m", model, "--save", tmp_path / "link.npz", "x").code == 0
    assert (tmp_path / "link.npz").is_symlink()
    assert "logits" in np.load(tmp_path / "real.npz")


def test_places_where_no_file_can_be_are_told_before_any_work(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    for option, path in (("--save", tmp_path / "no" / "x.npz"), ("--export", tmp_path / "folder.svg")):
        ran = cli("inspect-logits", "-m", tmp_path / "no model", option, path, "x")
        assert (ran.code, ran.out) == (1, "")
        assert str(path) in ran.err


class Page(HTMLParser):
    """The text of an HTML page, and everything that it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.fetched, self.tags = "", [], set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: " ".join(view) or "row")
def test_exports_stand_alone_and_say_what_the_table_says(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: list[str]
) -> None:
    checkpoints.random(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    Path("[").mkdir()
    run = ("inspect-logits", "-m", "./m", *view, "--format", "table", TEXT)
    table = cli(*run, "--export", "x.html").ok().out
    assert cli(*run, "--export", "[/].svg").ok().out == table
    html, svg = Path("x.html").read_text(), Path("[/].svg").read_text()
    page = Page()
    page.feed(html)
    assert page.fetched == []
    assert page.tags <= {"html", "head", "meta", "title", "style", "body", "pre", "code", "span"}
    picture = ElementTree.fromstring(svg)
    assert "url(" not in svg
    assert "url(" not in html
    texts = "".join(e.text or "" for e in picture.iter("{http://www.w3.org/2000/svg}text"))
    for text in (page.text, texts):
        assert "\x1b" not in text
        words = text.replace("─", " ").split()
        if view == ["--heat"]:
            assert "<b>" in text
            assert "中文" in text
        else:
            numbers = [word for word in table.split() if "." in word and word[0].isdigit()]
            assert numbers
            joined = "".join(words)
            assert all(number in joined for number in numbers)
