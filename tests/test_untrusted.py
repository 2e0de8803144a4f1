"""Names and texts that are not to be trusted: shown where a terminal would obey them, exact or refused elsewhere."""

import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import checkpoints
import pytest
from conftest import Cli, refused
from test_shell import in_terminal

VIEWS = [
    [],
    ["--all"],
    ["--heat"],
    ["--steps", "2"],
    ["--token", "a"],
    ["--compare-temperatures", "0,1"],
    ["--scale", "2"],
    ["--lens"],
    ["--verify"],
]
OBEYED = "\x1b[31m\r\x9b2J\u202e\u200b"
ESCAPES = r"\x1b[31m\r\x9b2J\u202e\u200b"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def evil(tiny: Path, tmp_path: Path) -> Path:
    """The folder of a model, whose name a terminal would obey."""
    link = tmp_path / f"<b>[i]\t{OBEYED}"
    link.symlink_to(tiny)
    return link


def is_plain(text: str) -> bool:
    return all(c.isprintable() or c in "\n\t" for c in text)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: " ".join(view) or "row")
def test_a_model_may_be_called_anything(cli: Cli, evil: Path, tmp_path: Path, view: list[str]) -> None:
    run = ("inspect-logits", "-m", evil, *view, "ab")
    table = cli(*run, "--format", "table", "--export", tmp_path / "x.svg").ok().out
    assert is_plain(table)
    drawing = "".join(ElementTree.parse(tmp_path / "x.svg").getroot().itertext())
    assert is_plain(drawing)
    if view != ["--steps", "2"]:  # which names no model
        assert ESCAPES in table.replace("\n", "")
        assert ESCAPES in drawing
    assert cli(*run, "--json").json.get("model") == str(evil)


def test_a_message_in_tsv_stays_on_its_line(cli: Cli, evil: Path) -> None:
    """The other backend has none of this model's tokenizer files, and its message names them."""
    (evil / "vocab.json").rename(evil / "moved")
    try:
        out = cli("inspect-logits", "-m", evil, "--backend", "transformers", "--verify", "ab").out
    finally:
        (evil / "moved").rename(evil / "vocab.json")
    assert {line.count("\t") for line in out.splitlines()} <= {4}


def test_tsv_and_csv_on_a_terminal_are_shown_and_not_obeyed(evil: Path) -> None:
    text = f"a{OBEYED}b"
    for style in ("tsv", "csv"):
        run = ("inspect-logits", "-q", "-m", evil, "--all", "--format", style, text)
        shown = in_terminal(*run, environment={"TERM": "dumb"})
        assert is_plain(shown)
        assert r"\x1b" in shown


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("generate", ["--stop"]),
        ("generate", ["-t", "1", "--num-samples", "2", "--separator"]),
        ("inspect-logits", ["--token"]),
    ],
)
def test_text_on_the_command_line_is_utf8(cli: Cli, tiny: Path, command: str, options: list[str]) -> None:
    ran = cli(command, "-m", tiny, "ab", *options, os.fsdecode(b"caf\xe9"))
    assert (ran.code, ran.out) == (2, "")
    assert f"'{options[-1]}': 'caf\\udce9' is not UTF-8" in ran.err


def test_a_folder_whose_name_is_not_utf8_is_refused(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"mod\xe9l")
    folder.symlink_to(tiny)
    refused(cli("generate", "-m", folder, "ab"), "mod\\udce9l", "is not UTF-8; rename it")


@pytest.mark.parametrize(
    "options",
    [["--threads", "99999999999999999999"], ["--device", "cuda:007"], ["--device", "cuda:99999999999999999999"]],
)
def test_numbers_that_torch_cannot_take_are_usage_errors(cli: Cli, tiny: Path, options: list[str]) -> None:
    ran = cli("generate", "-m", tiny, *options, "ab")
    assert (ran.code, ran.out) == (2, "")
    assert options[0] in ran.err
