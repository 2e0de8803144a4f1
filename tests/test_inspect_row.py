"""inspect-logits, the last row: raw numbers, what sampling does to them, tokens taken apart, every format."""

import csv
import io
import math
from pathlib import Path

import checkpoints
import pytest
from conftest import Cli

P5 = "The capital of France is"
SOFTMAX = [0.636409, 0.234122, 0.086129, 0.031685, 0.011656]  # of 2, 1, 0, -1, -2
IDS = [464, 317, 383, 257, 262]


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logits = dict(zip(IDS, [2.0, 1.0, 0.0, -1.0, -2.0], strict=True))
    return checkpoints.flat(tmp_path_factory.mktemp("five"), logits, floor=-100)


def test_raw_numbers_never_change_with_the_options(cli: Cli, five: Path) -> None:
    for options in ([], ["-t", "0.5"], ["-k", "2"], ["-t", "0"], ["-p", "0.7", "--repetition-penalty", "2"]):
        row = cli("inspect-logits", "-m", five, "--rows", "5", "--json", *options, P5).json
        assert [c["token_id"] for c in row["candidates"]] == IDS
        assert [c["rank"] for c in row["candidates"]] == [1, 2, 3, 4, 5]
        assert [c["logit"] for c in row["candidates"]] == [2, 1, 0, -1, -2]
        assert [c["probability"] for c in row["candidates"]] == pytest.approx(SOFTMAX, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "adjusted", "drawn"),
    [
        (["-t", "1"], [2, 1, 0, -1, -2], SOFTMAX),
        (["-t", "0.5"], [4, 2, 0, -2, -4], [0.864704, 0.117025, 0.015838, 0.002143, 0.000290]),
        (["-k", "2"], [2, 1, 0, -1, -2], [0.731059, 0.268941, 0, 0, 0]),
        (["-t", "0.5", "-k", "2"], [4, 2, 0, -2, -4], [0.880797, 0.119203, 0, 0, 0]),
    ],
)
def test_what_sampling_options_do(
    cli: Cli, five: Path, options: list[str], adjusted: list[float], drawn: list[float]
) -> None:
    candidates = cli("inspect-logits", "-m", five, "--rows", "5", "--json", *options, P5).json["candidates"]
    assert [c["adjusted_logit"] for c in candidates] == adjusted
    assert [c["sampling_probability"] for c in candidates] == pytest.approx(drawn, abs=1e-6)
    assert [c["kept"] for c in candidates] == [p > 0 for p in drawn]
    assert not any(c["chosen"] for c in candidates)


def test_the_row_itself(cli: Cli, five: Path) -> None:
    row = cli("inspect-logits", "-m", five, "--json", P5).json
    assert row["prompt_token_ids"] == [464, 3139, 286, 4881, 318]
    assert (row["position"], row["shape"], row["margin"]) == (4, [5, 50257], 1)
    assert row["hidden_norm"] == 1  # the hidden state is (1, 0) by construction
    assert row["entropy"] == pytest.approx(0.999971, abs=3e-6)
    assert len(row["candidates"]) == 10
    # Of the tokens that tie at the floor, the lower ids come first.
    assert [c["token_id"] for c in row["candidates"][5:]] == [0, 1, 2, 3, 4]


def test_more_rows_than_the_vocabulary_means_all_of_it(cli: Cli, five: Path) -> None:
    row = cli("inspect-logits", "-m", five, "--rows", "1000000000", "--json", P5).json
    assert sorted(c["token_id"] for c in row["candidates"]) == list(range(50257))
    assert math.fsum(c["probability"] for c in row["candidates"]) == pytest.approx(1)


def test_impossible_values_are_null(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.flat(tmp_path, {464: 2.0, 383: -math.inf})
    for options in ([], ["-t", "0"], ["-t", "1", "-k", "3"]):
        row = cli("inspect-logits", "-m", model, "--rows", "50257", "--json", *options, "a").json
        last = row["candidates"][-1]
        assert (last["token_id"], last["logit"], last["probability"]) == (383, None, 0)
    ran = cli("inspect-logits", "-m", model, "--rows", "50257", "--format", "tsv", "a").ok()
    assert ran.out.splitlines()[-1].split("\t")[:4] == ["50257", "383", " The", ""]


def test_a_token_taken_apart(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path, n_embd=16, n_head=2)
    row = cli("inspect-logits", "-m", model, "--token", " time", "--token", "40000", "--json", P5).json
    assert [t["token_id"] for t in row["tokens"]] == [640, 40000]
    for token in row["tokens"]:
        product = token["hidden_norm"] * token["unembedding_norm"] * token["cosine"]
        assert product == pytest.approx(token["logit"], abs=1e-4)
        assert token["hidden_norm"] == row["hidden_norm"]
    best = row["candidates"][0]
    again = cli("inspect-logits", "-m", model, "--token", str(best["token_id"]), "--json", P5).json["tokens"][0]
    assert {name: again[name] for name in best} == best


@pytest.mark.parametrize(
    ("token", "reason"),
    [("50257", "0 to 50256"), ("once upon", "' upon' (2402)"), ("", "not one token but 0")],
)
def test_a_token_that_is_none_is_a_usage_error(cli: Cli, five: Path, token: str, reason: str) -> None:
    ran = cli("inspect-logits", "-m", five, "--token", token, P5)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert reason in ran.err


def test_tsv_csv_table_and_json_hold_the_same_numbers(cli: Cli, five: Path) -> None:
    run = ("inspect-logits", "-m", five, "--rows", "5", "-t", "0.5", "-k", "3", P5)
    candidates = cli(*run, "--json").json["candidates"]
    for style, delimiter in (("tsv", "\t"), ("csv", ",")):
        rows = list(csv.DictReader(io.StringIO(cli(*run, "--format", style).ok().out), delimiter=delimiter))
        for name in ("rank", "token_id", "logit", "probability", "adjusted_logit", "sampling_probability"):
            assert [float(r[name]) for r in rows] == [c[name] for c in candidates]
        assert [r["text"] for r in rows] == [c["text"] for c in candidates]
        assert [r["kept"] for r in rows] == ["true"] * 3 + ["false"] * 2
        assert float(rows[-1]["cumulative_probability"]) == pytest.approx(1)
    shown = [line.split() for line in cli(*run, "--format", "table").ok().out.splitlines()[-6:-1]]
    for cells, c in zip(shown, candidates, strict=True):
        assert [int(cells[0]), int(cells[1])] == [c["rank"], c["token_id"]]
        assert [float(cells[3]), float(cells[4])] == [c["logit"], pytest.approx(c["probability"], abs=5e-7)]
        assert float(cells[6]) == c["adjusted_logit"]
        expected = f"{c['sampling_probability']:.6f}" if c["kept"] else "cut"
        assert cells[7] == expected


def test_tsv_is_one_line_per_row_whatever_the_tokens(cli: Cli, tmp_path: Path) -> None:
    # newline, tab, carriage return, a lone continuation byte, a backslash
    tokens = {198: 9.0, 197: 8.0, 201: 7.0, 222: 6.0, 59: 5.0}
    model = checkpoints.flat(tmp_path, tokens)
    lines = cli("inspect-logits", "-m", model, "--rows", "5", "a").ok().out.splitlines()
    assert [line.split("\t")[2] for line in lines[1:]] == ["\\n", "\\t", "\\r", "\\x80", "\\\\"]


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_a_table_never_cuts_a_number_short(cli: Cli, five: Path, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    out = cli("inspect-logits", "-m", five, "-t", "0.5", "--rows", "6", "--format", "table", P5).ok().out
    for number in ("0.636409", "0.864704", "-4.0000", "-100.0000", "3.20e-45"):
        assert number in out
    assert "…" not in out
    if columns != "40":
        assert max(map(len, out.splitlines()[-8:])) <= int(columns)


def test_steps_show_the_row_of_each_choice(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.scripted(tmp_path, [995, 318, checkpoints.EOS], 5)
    record = cli("inspect-logits", "-m", model, "--steps", "9", "--rows", "2", "--json", P5).json
    assert [s["token_id"] for s in record["steps"]] == [995, 318, checkpoints.EOS]
    assert [s["position"] for s in record["steps"]] == [4, 5, 6]
    assert all(len(s["candidates"]) == 2 for s in record["steps"])
    assert (
        cli("inspect-logits", "-m", model, "--steps", "9", "--rows", "2", "--format", "jsonl", P5).jsonl
        == record["steps"]
    )


def test_generate_and_inspect_agree(cli: Cli, five: Path) -> None:
    options = ("-t", "0.5", "-k", "3", "-s", "9", P5)
    generated = cli("generate", "-m", five, "-n", "6", "--show-logits", "4", "--json", *options).json
    inspected = cli("inspect-logits", "-m", five, "--steps", "6", "--rows", "4", "--json", *options).json
    assert inspected["steps"] == generated["steps"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rows", "0"], "--rows"),
        (["--rows", "x"], "--rows"),
        (["--steps", "0"], "--steps"),
        (["--steps", "2", "--token", "a"], "--token"),
        (["--seed", "3"], "--seed"),
        (["--json", "--format", "csv"], "--json"),
        (["--format", "xml"], "--format"),
        (["-t", "-1"], "--temperature"),
    ],
)
def test_usage_errors_name_the_option(cli: Cli, five: Path, arguments: list[str], named: str) -> None:
    ran = cli("inspect-logits", "-m", five, *arguments, P5)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert named in ran.err
