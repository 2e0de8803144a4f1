"""Where the prompt comes from, seen by what the model is given: prompt and prompt_token_ids in JSON."""

import os
import select
import subprocess
import sys
from pathlib import Path

import checkpoints
import pytest
from conftest import Cli, program, spawn

P5 = "The capital of France is"


@pytest.fixture(scope="module")
def ruler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.ruler(tmp_path_factory.mktemp("ruler"))


@pytest.fixture
def prompt_of(cli: Cli, ruler: Path):
    """The prompt text that the model was given."""

    def read(*arguments: str | Path, stdin: bytes = b"") -> str:
        return cli("generate", "-m", ruler, "-n", "0", "--json", *arguments, stdin=stdin).json["prompt"]

    return read


def test_argument_file_and_standard_input_give_the_same_prompt(prompt_of, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(P5 + "\n")
    assert prompt_of(P5) == P5
    assert prompt_of("-f", file) == P5
    assert prompt_of(stdin=P5.encode() + b"\n") == P5
    assert prompt_of("-", stdin=P5.encode()) == P5
    assert prompt_of("-f", "-", stdin=P5.encode()) == P5


def test_sources_join_in_the_order_file_standard_input_argument(prompt_of, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("from a file\n")
    assert prompt_of("TL;DR:", stdin=b"an article\n") == "an article\nTL;DR:"
    assert prompt_of("-f", file, "argument", stdin=b"piped") == "from a file\npiped\nargument"


@pytest.mark.parametrize(
    ("data", "dropped", "kept"),
    [
        (b"a\n", "a", "a\n"),
        (b"a\r\n", "a", "a\r\n"),
        (b"a\n\n", "a\n", "a\n\n"),
        (b"a\r", "a\r", "a\r"),
        (b"a \n", "a ", "a \n"),
        (b"\n", "", "\n"),
        (b"\xef\xbb\xbfa", "a", "a"),
        (b"a\x00b\r\nc", "a\x00b\r\nc", "a\x00b\r\nc"),
        ("é😀".encode(), "é😀", "é😀"),
    ],
)
def test_one_final_newline_is_dropped_unless_it_is_to_be_kept(
    prompt_of, tmp_path: Path, data: bytes, dropped: str, kept: str
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes(data)
    assert prompt_of(stdin=data) == prompt_of("-f", file) == dropped
    assert prompt_of("--keep-newline", stdin=data) == prompt_of("--keep-newline", "-f", file) == kept


@pytest.mark.parametrize(("prompt", "first"), [(P5, 1004), (P5 + " ", 1005)])
def test_a_final_space_is_a_token_of_its_own_and_never_stripped(cli: Cli, ruler: Path, prompt: str, first: int) -> None:
    for arguments, stdin in [((prompt,), b""), ((), prompt.encode() + b"\n")]:
        result = cli("generate", "-m", ruler, "-n", "1", "--json", *arguments, stdin=stdin).json
        assert result["token_ids"] == [first]


def test_an_empty_prompt_is_a_text_from_nothing(cli: Cli, ruler: Path) -> None:
    for arguments in (["", "--bos"], [""], []):
        result = cli("generate", "-m", ruler, "-n", "2", "--json", *arguments).json
        assert (result["prompt"], result["prompt_token_ids"]) == ("", [50256])
        assert result["token_ids"] == [1000, 1001]


def test_bos_is_only_there_when_asked_for_and_never_twice(cli: Cli, ruler: Path) -> None:
    def ids(*arguments: str) -> list[int]:
        return cli("generate", "-m", ruler, "-n", "0", "--json", *arguments).json["prompt_token_ids"]

    plain = [464, 3139, 286, 4881, 318]
    assert ids(P5) == plain
    assert ids(P5, "--bos") == [50256, *plain]
    assert ids("<|endoftext|>" + P5, "--bos", "--special-tokens") == [50256, *plain]


def test_end_of_text_in_a_prompt_is_ordinary_text_unless_asked_for(cli: Cli, ruler: Path, tmp_path: Path) -> None:
    text = "hi<|endoftext|>there"
    (tmp_path / "f").write_text(text)
    for arguments, stdin in [((text,), b""), ((), text.encode()), (("-f", tmp_path / "f"), b"")]:
        run = ("generate", "-m", ruler, "-n", "0", "--json", *arguments)
        assert cli(*run, stdin=stdin).json["prompt_token_ids"] == [5303, 27, 91, 437, 1659, 5239, 91, 29, 8117]
        assert cli(*run, "--special-tokens", stdin=stdin).json["prompt_token_ids"] == [5303, 50256, 8117]


@pytest.mark.parametrize("command", ["generate", "inspect-logits"])
def test_bytes_that_are_not_utf8_are_an_error_that_names_source_and_offset(
    cli: Cli, ruler: Path, tmp_path: Path, command: str
) -> None:
    data = b"caf\xe9 is open"
    (tmp_path / "latin1.txt").write_bytes(data)
    for name, arguments, stdin in [
        ("standard input", (), data),
        (str(tmp_path / "latin1.txt"), ("-f", tmp_path / "latin1.txt"), b""),
        ("the prompt argument", (os.fsdecode(data),), b""),
    ]:
        ran = cli(command, "-m", ruler, *arguments, stdin=stdin)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith(f"gpt2cli: error: {name} is not UTF-8: byte 0xe9 at offset 3; ")
        assert ran.err.count("\n") == 1


@pytest.mark.parametrize("name", ["absent.txt", ".", "nul\0", "x" * 300])
def test_a_file_that_cannot_be_read_is_named(cli: Cli, tmp_path: Path, name: str) -> None:
    ran = cli("generate", "-f", f"{tmp_path}/{name}")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "cannot read" in ran.err


def test_a_prompt_that_is_too_long_names_both_numbers(cli: Cli, ruler: Path) -> None:
    ran = cli("generate", "-m", ruler, stdin=b" world" * 1100)
    assert (ran.code, ran.out) == (1, "")
    assert "1100 tokens" in ran.err
    assert "1024" in ran.err
    assert "--truncate-prompt" in ran.err


def test_truncating_keeps_the_end(cli: Cli, ruler: Path) -> None:
    run = ("generate", "-m", ruler, "-n", "1", "--json", "--truncate-prompt")
    text = b" hello" * 100 + b" world" * 1000
    assert cli(*run, stdin=text).json["prompt_token_ids"] == [23748] * 24 + [995] * 1000
    assert cli(*run, "--bos", stdin=text).json["prompt_token_ids"] == [50256] + [23748] * 23 + [995] * 1000


def test_a_prompt_may_fill_the_context(cli: Cli, ruler: Path) -> None:
    result = cli("generate", "-m", ruler, "-n", "1", "--json", stdin=b" world" * 1024).json
    assert result["token_ids"] == [2023]


def test_a_very_long_run_of_one_character_is_too_long_and_no_crash(cli: Cli, ruler: Path) -> None:
    ran = cli("generate", "-m", ruler, stdin=b"^" * 1_000_000)
    assert (ran.code, ran.out) == (1, "")
    assert "250000 tokens" in ran.err


def test_no_source_at_all_is_a_usage_error_that_shows_three_ways() -> None:
    ran = spawn("generate", stdin=subprocess.DEVNULL, preexec_fn=lambda: os.close(0))
    assert (ran.returncode, ran.stdout) == (2, b"")
    for way in (b'gpt2cli generate "', b"--file", b"| gpt2cli generate"):
        assert way in ran.stderr


@pytest.mark.parametrize(("arguments", "noted"), [(["end"], True), ([], False), (["-"], False)])
def test_standard_input_that_stays_silent_is_waited_for_and_noted_where_it_may_not_be_meant(
    ruler: Path, arguments: list[str], noted: bool
) -> None:
    with subprocess.Popen(
        [*program(), "generate", "-m", ruler, "-n", "0", "--echo", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        if noted:
            assert b"</dev/null" in process.stderr.readline()  # type: ignore[union-attr]
        else:
            assert not select.select([process.stderr], [], [], 5)[0]
        assert not select.select([process.stdout], [], [], 0)[0]
        out, err = process.communicate(b"late\n")
    assert (process.returncode, err) == (0, b"")
    assert out == (b"late\nend\n" if noted else b"late\n")


def test_standard_input_that_never_ends_is_ended(ruler: Path) -> None:
    endless = subprocess.Popen([sys.executable, "-c", "while True: print('y' * 10000)"], stdout=subprocess.PIPE)
    ran = spawn("generate", "-m", ruler, stdin=endless.stdout)
    endless.kill()
    endless.wait()
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"standard input is longer than 64 MiB" in ran.stderr
