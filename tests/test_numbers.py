"""Rows of logits that are no numbers, or too large, in every command and view: an answer or an error, never a crash."""

import math
from collections.abc import Callable
from pathlib import Path

import checkpoints
import pytest
from conftest import Cli, parse, refused

INF, NAN = math.inf, math.nan
B = 33  # a token that the prompt does not have
ROWS: dict[str, tuple[dict[int, float], float]] = {
    "one NaN": ({5: 2.0, B: NAN}, -30.0),
    "all NaN": ({}, NAN),
    "one +inf": ({5: 2.0, B: INF}, -30.0),
    "one -inf": ({5: 2.0, B: -INF}, -30.0),
    "all -inf": ({}, -INF),
    "beyond float16": ({5: 70000.0, B: 69999.0}, -30.0),
    "at the end of float32": ({5: 3e38, B: -3e38}, -30.0),
    "all equal": ({}, 0.0),
}
HAS_A_CHOICE = {"one -inf", "beyond float16", "at the end of float32", "all equal"}
TOO_MUCH_FOR = {
    "float32": set(),
    "float16": {"beyond float16", "at the end of float32"},
    "int8": {"one -inf", "at the end of float32"},  # a weight that is no number has no scale
}
VIEWS = [
    *([], ["-t", "1e-45", "--repetition-penalty", "1e100"], ["-t", "1e100", "-p", "1e-300", "--min-p", "1"]),
    *(["--all"], ["--heat"], ["--token", "!"], ["--lens"], ["--compare-temperatures", "0,1e-100,1e100"]),
    *(["--scale", "0"], ["--scale", "-1e38"]),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a model whose rows are all the one that is called for."""
    folder = tmp_path_factory.mktemp("rows")

    def build(name: str) -> Path:
        if not (folder / name).exists():
            ends = {"bos_token_id": checkpoints.BYTE_VOCAB - 1, "eos_token_id": checkpoints.BYTE_VOCAB - 1}
            logits, floor = ROWS[name]
            checkpoints.flat(folder / name, logits, floor, vocab_size=checkpoints.BYTE_VOCAB, **ends)
            checkpoints.byte_vocabulary(folder / name)
        return folder / name

    return build


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", TOO_MUCH_FOR)
@pytest.mark.parametrize("options", [[], ["-t", "1e-100", "--repetition-penalty", "1e-100"]], ids=str)
def test_generate_draws_or_says_that_it_cannot(
    cli: Cli, model: Callable[[str], Path], name: str, dtype: str, options: list[str]
) -> None:
    run = ("generate", "-m", model(name), "--dtype", dtype, "-n", "1", *options)
    alone = cli(*run, "--show-logits", "300", "--json", "ab")
    batch = cli(*run, "--batch", "-", stdin=b'{"prompt": "ab"}\n' * 2)
    records = [parse(line) for line in batch.out.splitlines()]
    if name in HAS_A_CHOICE - TOO_MUCH_FOR[dtype]:
        (step, *_) = alone.json["steps"]
        assert sorted(c["token_id"] for c in step["candidates"]) == list(range(257))
        assert [c["rank"] for c in step["candidates"]] == list(range(1, 258))
        assert step["rank"] == 1 or "-t" in options
        assert [r["type"] for r in records] == ["result"] * 2
    else:
        refused(alone, "the logits at position 1 are not numbers to choose from", "--dtype float32")
        assert batch.code == 1
        assert [r["type"] for r in records] == ["error"] * 2


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: " ".join(view) or "row")
def test_every_view_shows_any_row(cli: Cli, model: Callable[[str], Path], name: str, view: list[str]) -> None:
    every = [] if view == ["--heat"] else ["--rows", "300"]
    for style in ("jsonl", "table", "tsv"):
        ran = cli("inspect-logits", "-m", model(name), *view, *every, "--format", style, "ab")
        assert ran.err == "", ran
        assert ran.code == 0 or view == ["--lens"], ran  # which compares the last layer with the model's own row
        assert ran.out
        for line in ran.out.splitlines() if style == "jsonl" else []:
            candidates = parse(line).get("candidates")
            if candidates and every:
                assert sorted(c["token_id"] for c in candidates) == list(range(257))
                assert [c["rank"] for c in candidates] == list(range(1, 258))


@pytest.mark.parametrize("name", ROWS)
def test_verify_passes_or_fails(cli: Cli, model: Callable[[str], Path], name: str) -> None:
    ran = cli("inspect-logits", "-m", model(name), "--verify", "--json", "ab")
    record = parse(ran.out)
    assert len(record["checks"]) == 8
    assert (ran.code, ran.err) == (0 if record["passed"] else 1, "")
    assert record["passed"] or name not in HAS_A_CHOICE - {"at the end of float32"}
    assert not record["passed"] or name in HAS_A_CHOICE
