"""inspect-logits --heat: the text by the probability of each token, with and without colour."""

import itertools
import os
import re
import subprocess
from pathlib import Path

import checkpoints
import pytest
from conftest import ROOT, Cli, spawn
from rich.cells import cell_len

from gpt2cli.heat import SHADES, Piece, wrapped
from gpt2cli.tokenizer import Tokenizer

# Logits in one row with these, and a floor far below: 0.64, 0.24, 0.087 of the total, then 0.004, 0.0005, less.
LOGITS = {" a": 10.0, " b": 9.0, " c": 8.0, " d": 5.0, " e": 3.0, " f": 0.0}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpt2_tokenizer: Tokenizer) -> Path:
    checkpoints.flat(tmp_path / "m", {gpt2_tokenizer.encode(text)[0]: n for text, n in LOGITS.items()})
    monkeypatch.chdir(tmp_path)
    return Path("./m")


def text_lines(out: str) -> list[str]:
    """What stands between the head and the legend."""
    return out.split("\n\n")[1].splitlines()


def test_digits_say_the_class_of_each_token(cli: Cli, model: Path) -> None:
    out = cli("inspect-logits", "-m", model, "--heat", "--format", "table", "x a b c d e f a").ok().out
    assert text_lines(out) == ["x a b c d e f a", "· 0 1 2 3 4 5 0"]
    assert "0 ≥ 50 %  1 ≥ 10 %  2 ≥ 1 %  3 ≥ 0.1 %  4 ≥ 0.01 %  5 below  · unscored" in out
    assert "7 tokens scored" in out


def test_json_is_that_of_all(cli: Cli, model: Path) -> None:
    heat = cli("inspect-logits", "-m", model, "--heat", "--json", "x a b").json
    assert heat == cli("inspect-logits", "-m", model, "--all", "--json", "x a b").json


def test_lines_stay_lines_and_nothing_reaches_the_terminal_raw(cli: Cli, model: Path) -> None:
    text = "x a\n[red] b\t\x1b[31m\r\u202e 中文 a"
    out = cli("inspect-logits", "-m", model, "--heat", "--format", "table", text).ok().out
    lines = text_lines(out)
    assert lines[0::2] == ["x a⏎", r"[red] b\t\x1b[31m\r\u202e 中文 a"]
    assert all(c.isprintable() or c == "\n" for c in out)
    # The digit of " a" stands under its letter, though the characters before it are two cells wide.
    last = lines[3]
    assert last[-1] == "0"
    assert len(last) == cell_len(lines[2])


@pytest.mark.parametrize(
    ("terminal", "shown"),
    [
        ({"COLORTERM": "truecolor", "TERM": "xterm"}, [r"48;2;255;255;178m a\x1b", r"48;2;127;0;0m f\x1b"]),
        ({"TERM": "xterm-256color"}, [r"48;5;\d+m a\x1b", r"48;5;\d+m f\x1b"]),
        ({"TERM": "xterm"}, ["^x a f$", "· 0 5"]),  # sixteen colours cannot show six shades, so digits do
    ],
)
def test_shades_where_the_terminal_has_them(model: Path, terminal: dict[str, str], shown: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("TERM", "COLORTERM")}
    command = ("inspect-logits", "-m", model, "--heat", "--format", "table", "--color", "always", "x a f")
    ran = spawn(*command, env=environment | terminal | {"PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL)
    for pattern in shown:
        assert re.search(pattern, ran.stdout.decode(), re.MULTILINE), ran.stdout


def test_shades_differ_in_lightness_alone() -> None:
    light = [sum(int(s[-6:][n : n + 2], 16) * w for n, w in ((0, 0.299), (2, 0.587), (4, 0.114))) for s in SHADES]
    assert light == sorted(light, reverse=True)
    assert min(a - b for a, b in itertools.pairwise(light)) > 15


@pytest.mark.parametrize(
    ("texts", "lines"),
    [
        (["one", " two", " three"], ["one two", " three"]),
        (["one", " tw", "elve", "th"], ["one", " twelveth"]),
        (["x", " abcdefg", "hi"], ["x", " abcdefg", "hi"]),
        (["a\n", "\n", "b"], ["a⏎", "⏎", "b"]),
        (["abcdefghijkl"], ["abcdefghi", "jkl"]),
        (["abcdefgh", "ij"], ["abcdefgh", "ij"]),
        (["中文中文中文"], ["中文中文", "中文"]),
    ],
)
def test_wrapping(texts: list[str], lines: list[str]) -> None:
    made = wrapped([Piece(text, 0.5) for text in texts], 9)
    assert ["".join(piece.shown for piece in line) for line in made] == lines


def test_long_texts_are_read_in_windows(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.random(tmp_path / "m", n_positions=8)
    monkeypatch.chdir(tmp_path)
    words = "one two three four five six seven eight nine ten eleven twelve"
    out = cli("inspect-logits", "-m", "./m", "--heat", "--stride", "4", "--format", "table", words).ok().out
    assert text_lines(out)[0] == words
    assert "11 tokens scored" in out
