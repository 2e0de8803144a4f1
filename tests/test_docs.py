"""README.md and examples/ say what is true: their commands run, and print what is shown."""

import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import readme

COMMANDS = [pair for block in readme.BLOCK.findall(readme.README.read_text()) for pair in readme.commands(block)]
SCRIPTS = sorted(p.name for p in (readme.ROOT / "examples").iterdir() if p.suffix in (".py", ".sh"))
# These take a long time, or something to work on; they have tests of their own.
TESTED_ELSEWHERE = {
    "train_story_model.py",
    "benchmark.py",
    "benchmark_engines.py",
    "make_gpt2_ranks.py",
    "likelier.py",
    "lens_heat_map.py",
    "python_api.py",
}

EXPECTED = {
    "greedy.sh": "Twice the same:",
    "logits_as_data.sh": "rank\ttoken_id\ttext\tlogit\tprobability\n1\t640\t time\t",
    "one_step_by_hand.py": "= logits [4, 50257]",
    "pipes.sh": '{"type": "result", "schema": 1',
    "temperature_and_top_k.sh": "== --temperature 2 --top-k 10\n",
    "three_temperatures.sh": "== temperature 0.5: token",
}


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[c for c, _ in COMMANDS])
def test_readme_commands_print_what_is_shown(command: str, shown: str) -> None:
    if "jq" in command and not shutil.which("jq"):
        pytest.skip("needs jq")
    assert shown, "run `python tests/readme.py` to fill in the output"
    assert_same(readme.shell(command), shown)


def test_the_python_of_the_readme_runs() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", readme.README.read_text(), re.MULTILINE | re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith(" time\n")


def test_the_picture_is_what_the_program_draws(tmp_path: Path) -> None:
    readme.draw(tmp_path / "heat.svg")
    assert_same((tmp_path / "heat.svg").read_text(), readme.PICTURE.read_text())


def assert_same(printed: str, shown: str) -> None:
    """Equal but for the last digits of measured numbers, which differ from one kind of processor to another."""
    number = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
    assert number.sub("#", re.sub(" +", " ", printed)) == number.sub("#", re.sub(" +", " ", shown))
    for a, b in zip(number.findall(printed), number.findall(shown), strict=True):
        assert math.isclose(float(a), float(b), rel_tol=2e-3, abs_tol=2e-4), (a, b)


def test_every_example_is_run_and_listed_in_the_readme() -> None:
    assert set(SCRIPTS) == set(EXPECTED) | TESTED_ELSEWHERE
    for name in SCRIPTS:
        assert f"(examples/{name})" in readme.README.read_text()


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_examples_run(name: str) -> None:
    if name == "logits_as_data.sh" and not shutil.which("jq"):
        pytest.skip("needs jq")
    assert EXPECTED[name] in readme.shell(f"{'python' if name.endswith('.py') else 'sh'} examples/{name}")


def test_the_readme_leads_to_the_files_that_are_there() -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", readme.README.read_text()):
        assert (Path(readme.ROOT) / link).exists(), link


def test_making_the_ranks_refuses_files_that_are_not_the_published_ones(tmp_path: Path) -> None:
    for name in ("vocab.bpe", "encoder.json"):
        (tmp_path / name).write_text("{}")
    script = readme.ROOT / "examples" / "make_gpt2_ranks.py"
    ran = subprocess.run(
        [sys.executable, script, tmp_path / "vocab.bpe", tmp_path / "encoder.json"], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "is not GPT-2's vocab.bpe" in ran.stderr
