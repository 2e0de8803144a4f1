"""inspect-logits --all: given text, scored. Expected values by hand, or from transformers."""

import csv
import io
import math
import subprocess
import sys
from pathlib import Path

import checkpoints
import pytest
import torch
from conftest import Cli, Ran
from transformers import GPT2LMHeadModel

from gpt2cli.scoring import Window, windows
from gpt2cli.tokenizer import Tokenizer

TEXT = "The quick brown fox jumps over the lazy dog, naïvely 😀."


def transformers_logits(model: Path, token_ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return GPT2LMHeadModel.from_pretrained(model)(torch.tensor([token_ids])).logits[0]


def tsv(ran: Ran) -> list[dict[str, str]]:
    header, *lines = (line.split("\t") for line in ran.ok().out.splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


def test_scores_by_hand(cli: Cli, tmp_path: Path, gpt2_tokenizer: Tokenizer) -> None:
    # Every row is the same: " a" 2, " b" 1, and 50,255 others at −30, which weigh nothing in six digits.
    a, b = gpt2_tokenizer.encode(" a b")
    model = checkpoints.flat(tmp_path / "flat", {a: 2.0, b: 1.0})
    result = cli("inspect-logits", "-m", model, "--all", "--json", " a b a !").json
    p_a, p_b = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))
    rest = 50_255 * math.exp(-32) / (1 + math.exp(-1))  # of the total, relative to e² + e
    p_a, p_b = p_a / (1 + rest), p_b / (1 + rest)
    targets = [row["target"] for row in result["rows"]]
    assert [row["text"] for row in result["rows"]] == [" a", " b", " a", " !"]
    assert targets[3] is None
    assert [t["text"] for t in targets[:3]] == [" b", " a", " !"]
    assert [t["rank"] for t in targets[:2]] == [2, 1]
    # Ties go to the lower id: before " !" are " a", " b", and every lower id at −30.
    exclamation = gpt2_tokenizer.encode(" !")[0]
    assert targets[2]["rank"] == 3 + exclamation - sum(n < exclamation for n in (a, b))
    assert [t["logit"] for t in targets[:3]] == [1.0, 2.0, -30.0]
    assert [t["probability"] for t in targets[:2]] == pytest.approx([p_b, p_a], rel=1e-12)
    surprisals = [-math.log(p_b), -math.log(p_a), -math.log(p_a) + 32]
    assert [t["surprisal"] for t in targets[:3]] == pytest.approx(surprisals, rel=1e-12)
    assert result["mean_loss"] == pytest.approx(sum(surprisals) / 3, rel=1e-12)
    assert result["perplexity"] == pytest.approx(math.exp(sum(surprisals) / 3), rel=1e-12)
    assert result["scored_tokens"] == 3
    assert [[c["text"] for c in row["candidates"]] for row in result["rows"]] == [[" a"]] * 4


def test_loss_is_that_of_transformers_labels(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path / "m", n_layer=2)
    result = cli("inspect-logits", "-m", model, "--all", "--json", "--rows", "3", TEXT).json
    ids = torch.tensor([result["prompt_token_ids"]])
    with torch.inference_mode():
        theirs = GPT2LMHeadModel.from_pretrained(model)(ids, labels=ids)
    assert result["mean_loss"] == pytest.approx(float(theirs.loss), rel=1e-5)
    log_p = theirs.logits[0].double().log_softmax(1)
    for row, scores, after in zip(result["rows"], log_p, [*result["prompt_token_ids"][1:], None], strict=True):
        assert [c["token_id"] for c in row["candidates"]] == scores.topk(3).indices.tolist()
        assert [c["probability"] for c in row["candidates"]] == pytest.approx(scores.topk(3).values.exp(), rel=1e-4)
        if after is not None:
            assert row["target"]["surprisal"] == pytest.approx(-float(scores[after]), rel=1e-5)
            assert row["target"]["rank"] == 1 + int((scores > scores[after]).sum())
    scored = [row["target"]["surprisal"] for row in result["rows"][:-1]]
    assert result["mean_loss"] == pytest.approx(sum(scored) / len(scored), rel=1e-14)
    assert result["perplexity"] == pytest.approx(math.exp(result["mean_loss"]), rel=1e-14)


def test_bos_scores_the_first_token(cli: Cli, tmp_path: Path, gpt2_tokenizer: Tokenizer) -> None:
    model = checkpoints.random(tmp_path / "m")
    ids = gpt2_tokenizer.encode("Hello world")
    with_bos = cli("inspect-logits", "-m", model, "--all", "--json", "--bos", "Hello world").json
    assert with_bos["prompt_token_ids"] == [checkpoints.EOS, *ids]
    assert [row["target"] and row["target"]["token_id"] for row in with_bos["rows"]] == [*ids, None]
    log_p = transformers_logits(model, [checkpoints.EOS, *ids]).double().log_softmax(1)
    expected = -float(log_p[0, ids[0]] + log_p[1, ids[1]]) / 2
    assert with_bos["mean_loss"] == pytest.approx(expected, rel=1e-5)
    alone = cli("inspect-logits", "-m", model, "--all", "--json", "Hello").json
    assert (alone["mean_loss"], alone["perplexity"], alone["scored_tokens"]) == (None, None, 0)
    assert [row["target"] for row in alone["rows"]] == [None]


@pytest.mark.parametrize(
    ("seq_len", "stride", "expected"),
    [
        (8, 4, [Window(0, 0, 8)]),
        (9, 4, [Window(0, 0, 8), Window(4, 8, 9)]),
        (13, 4, [Window(0, 0, 8), Window(4, 8, 12), Window(8, 12, 13)]),
        (17, 8, [Window(0, 0, 8), Window(8, 8, 16), Window(16, 16, 17)]),
        (10, 1, [Window(0, 0, 8), Window(1, 8, 9), Window(2, 9, 10)]),
    ],
)
def test_windows(seq_len: int, stride: int, expected: list[Window]) -> None:
    assert list(windows(seq_len, 8, stride)) == expected


@pytest.mark.parametrize("stride", [None, 3, 16])
def test_long_texts_score_each_token_once_with_the_context_they_say(
    cli: Cli, tmp_path: Path, gpt2_tokenizer: Tokenizer, stride: int | None
) -> None:
    model = checkpoints.random(tmp_path / "m", n_positions=16)
    text = TEXT * 3
    ids = gpt2_tokenizer.encode(text)
    options = [] if stride is None else ["--stride", stride]
    result = cli("inspect-logits", "-m", model, "--all", "--json", *map(str, options), text).json
    rows = result["rows"]
    assert result["stride"] == (8 if stride is None else stride)
    assert [row["token_id"] for row in rows] == ids
    assert [row["position"] for row in rows] == list(range(len(ids)))
    assert [row["target"]["token_id"] for row in rows[:-1]] == ids[1:]
    assert result["scored_tokens"] == len(ids) - 1
    assert [row["context"] for row in rows[:16]] == list(range(1, 17))
    assert min(row["context"] for row in rows[16:]) == 16 - result["stride"] + 1
    for row in rows[:-1]:
        end = row["position"] + 1
        log_p = transformers_logits(model, ids[end - row["context"] : end])[-1].double().log_softmax(0)
        assert row["target"]["surprisal"] == pytest.approx(-float(log_p[ids[end]]), rel=1e-4), row["position"]


def test_the_table_of_a_long_text_says_what_each_row_saw(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path / "m", n_positions=8)
    run = ("inspect-logits", "-m", model, "--all", "--stride", "3", TEXT)
    rows = cli(*run, "--json").json["rows"]
    out = cli(*run, "--format", "table").ok().out
    lines = out[out.index("row ") :].splitlines()
    assert lines[0].split()[:2] == ["row", "seen"]
    shown = [line.split()[:2] for line in lines[2 : 2 + len(rows)]]
    assert shown == [[str(row["position"]), str(row["context"])] for row in rows]


def test_long_texts_need_a_view_that_can_read_them(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path / "m", n_positions=16)
    ran = cli("inspect-logits", "-m", model, TEXT * 3)
    assert ran.code == 1
    assert "more than the 16" in ran.err
    assert cli("inspect-logits", "-m", model, "--all", "--stride", "17", TEXT).code == 2
    kept = cli("inspect-logits", "-m", model, "--all", "--json", "--truncate-prompt", TEXT * 3).json
    assert len(kept["rows"]) == 16


def test_every_format_has_the_same_numbers(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path / "m", scale=0.1)
    text = "one\ttwo\nthree \\ four"

    def run(style: str) -> Ran:
        return cli("inspect-logits", "-m", model, "--all", "--rows", "2", "--format", style, text).ok()

    result, lines = run("json").json, run("jsonl").jsonl
    assert lines[:-1] == [{"type": "scored_row", **row} for row in result["rows"]]
    assert lines[-1] == {key: value for key, value in result.items() if key != "rows"}
    records = tsv(run("tsv"))
    assert [r["text"] for r in records[1:3]] == ["\\t", "two"]
    assert list(csv.DictReader(io.StringIO(run("csv").out)))[1]["text"] == "\t"
    table = run("table").out
    for row, record in zip(result["rows"], records, strict=True):
        assert (int(record["position"]), int(record["context"])) == (row["position"], row["context"])
        for n, c in enumerate(row["candidates"], start=1):
            assert float(record[f"top{n}_logit"]) == c["logit"]
            assert float(record[f"top{n}_probability"]) == c["probability"]
        if target := row["target"]:
            assert int(record["target_token_id"]) == target["token_id"]
            assert int(record["rank"]) == target["rank"]
            for name in ("logit", "probability", "surprisal"):
                assert float(record[name]) == target[name]
                assert (f"{target[name]:.4f}" if name != "probability" else f"{target[name]:.6f}") in table or (
                    f"{target[name]:.2e}" in table
                )
        else:
            assert record["surprisal"] == record["rank"] == ""
    assert f"mean loss {result['mean_loss']:.4f} nats · perplexity {result['perplexity']:.4f}" in table


def test_the_table_keeps_its_numbers_and_fits_80_columns(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path / "m", scale=1.0)  # logits of three digits
    text = "Supercalifragilisticexpialidocious misunderstandings " + " 50256" * 1000
    out = cli("inspect-logits", "-m", model, "--all", "--format", "table", "--truncate-prompt", text).ok().out
    result = cli("inspect-logits", "-m", model, "--all", "--json", "--truncate-prompt", text).json
    lines = out[out.index("row ") :].splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    for row, line in zip(result["rows"][:-1], map(str.split, lines[2:]), strict=False):
        assert line[0] == str(row["position"])
        assert f"{row['target']['logit']:.4f}" in line
        assert f"{row['target']['surprisal']:.4f}" in line
        assert str(row["target"]["rank"]) in line


def test_numbers_that_are_none_are_null(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.scripted(tmp_path / "m", [1, 2, 3], 1, nan_at=1)
    result = cli("inspect-logits", "-m", model, "--all", "--json", "a b c d").json
    assert result["rows"][1]["target"]["surprisal"] is None
    assert (result["mean_loss"], result["perplexity"]) == (None, None)


def test_a_thousand_tokens_need_little_more_memory_than_ten(tmp_path: Path) -> None:
    # GPT-2 small's width and vocabulary; its [T, V] logits in whole would be 200 MB, their softmax 400 MB.
    model = checkpoints.random(tmp_path / "m", n_embd=768, n_head=12, n_layer=2, scale=0.02)
    program = (
        "import resource, sys; from gpt2cli.cli import run\n"
        "assert run(sys.argv[1:]) == 0\n"
        "sys.stderr.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))"
    )
    peaks = []
    for tokens in (10, 1000):
        command = [sys.executable, "-c", program, "inspect-logits", "-m", str(model), "--all", "--json"]
        ran = subprocess.run(command, capture_output=True, input=b" the" * tokens)
        assert len(ran.stdout.split(b'"context"')) == tokens + 1
        peaks.append(int(ran.stderr) / 1024)
    assert peaks[1] - peaks[0] < 100


def test_a_reader_that_goes_ends_it_quietly(tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path / "m")
    command = f"{sys.executable} -m gpt2cli inspect-logits -m {model} --all --format jsonl '{TEXT * 20}' </dev/null"
    ran = subprocess.run(["bash", "-c", f"{command} | head -1; exit ${{PIPESTATUS[0]}}"], capture_output=True)
    assert ran.returncode in (0, 141)
    assert (len(ran.stdout.splitlines()), ran.stderr) == (1, b"")
