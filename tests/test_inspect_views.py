"""inspect-logits: penalty and cuts, several temperatures, a scaled hidden state, and which options go together."""

import math
import re
from pathlib import Path

import checkpoints
import pytest
import torch
from conftest import Cli
from transformers import (
    GPT2LMHeadModel,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from gpt2cli.commands.view_options import READS
from gpt2cli.tokenizer import Tokenizer

TEXT = "one two three two one"
VIEWS = {
    "--all": [],
    "--heat": [],
    "--steps": ["2"],
    "--token": ["11"],
    "--compare-temperatures": ["0.5,1"],
    "--scale": ["2"],
    "--lens": [],
    "--verify": [],
}


def records(text: str) -> list[dict[str, str]]:
    header, *lines = (line.split("\t") for line in text.splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


@pytest.mark.parametrize(
    ("options", "processors"),
    [
        (["--repetition-penalty", "1.7", "-t", "1"], [RepetitionPenaltyLogitsProcessor(1.7)]),
        (["-t", "0.6"], [TemperatureLogitsWarper(0.6)]),
        (["-k", "7"], [TopKLogitsWarper(7)]),
        (["-p", "0.8"], [TopPLogitsWarper(0.8)]),
        (["--min-p", "0.05"], [MinPLogitsWarper(0.05)]),
        (
            ["--repetition-penalty", "1.3", "-t", "0.7", "-k", "40", "-p", "0.9", "--min-p", "0.02"],
            [
                RepetitionPenaltyLogitsProcessor(1.3),
                TemperatureLogitsWarper(0.7),
                TopKLogitsWarper(40),
                TopPLogitsWarper(0.9),
                MinPLogitsWarper(0.02),
            ],
        ),
    ],
)
def test_penalty_and_cuts_are_those_of_transformers(
    cli: Cli, tmp_path: Path, options: list[str], processors: list
) -> None:
    model = checkpoints.random(tmp_path / "m", scale=0.4)
    rows = 400
    result = cli("inspect-logits", "-m", model, "--json", "--rows", str(rows), *options, TEXT).json
    ids = torch.tensor([result["prompt_token_ids"]])
    with torch.inference_mode():
        raw = GPT2LMHeadModel.from_pretrained(model)(ids).logits[:, -1]
    cut = raw.double()
    for processor in processors:
        cut = processor(ids, cut)
    probabilities = cut.softmax(1)[0]
    assert len(result["candidates"]) == rows
    for candidate in result["candidates"]:
        token_id = candidate["token_id"]
        assert candidate["logit"] == pytest.approx(float(raw[0, token_id]), abs=1e-4)
        assert candidate["sampling_probability"] == pytest.approx(float(probabilities[token_id]), rel=1e-3, abs=1e-12)
        assert candidate["kept"] == (float(cut[0, token_id]) > -math.inf)
        if candidate["kept"]:
            assert candidate["adjusted_logit"] == pytest.approx(float(cut[0, token_id]), abs=1e-4)


def test_temperatures_by_hand(cli: Cli, tmp_path: Path, gpt2_tokenizer: Tokenizer) -> None:
    a, b = gpt2_tokenizer.encode(" a b")
    model = checkpoints.flat(tmp_path / "m", {a: 2.0, b: 1.0})
    arguments = ("inspect-logits", "-m", model, "--compare-temperatures", "0,0.5,1", "--rows", "2", "x")
    result = cli(*arguments, "--json").json
    assert (result["type"], result["temperatures"], result["position"]) == ("temperatures", [0.0, 0.5, 1.0], 0)
    # e⁻² and e⁻¹ to one; the 50,255 others are at −32 and −64 below the first.
    half, one = 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(-1) + 50_255 * math.exp(-32))
    assert [c["token_id"] for c in result["candidates"]] == [a, b]
    assert result["candidates"][0]["probabilities"] == pytest.approx([1.0, half, one], rel=1e-12)
    assert result["candidates"][1]["probabilities"] == pytest.approx([0.0, 1 - half, one * math.exp(-1)], rel=1e-9)
    entropy = -half * math.log(half) - (1 - half) * math.log(1 - half)
    assert result["entropies"][:2] == pytest.approx([0.0, entropy], rel=1e-9)
    assert result["candidates"][0]["probability"] == result["candidates"][0]["probabilities"][2]

    first = records(cli(*arguments, "--format", "tsv").ok().out)[0]
    assert [float(first[f"probability_at_{t}"]) for t in ("0", "0.5", "1")] == result["candidates"][0]["probabilities"]
    table = cli(*arguments, "--format", "table").ok().out
    assert re.search(rf"1 +{a} +␣a +2\.0000 +1\.000000 +{half:.6f} +{one:.6f}\b", table), table


def test_many_temperatures_become_tables_that_fit(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path / "m", scale=1.0)
    temperatures = [f"{n / 10}" for n in range(1, 21)]
    options = ("--compare-temperatures", ",".join(temperatures), "--format", "table")
    out = cli("inspect-logits", "-m", model, *options, TEXT).ok().out
    table = out[out.index("rank") :].splitlines()
    assert max(len(line.rstrip()) for line in table) <= 80
    assert [n for line in table if line.startswith("rank") for n in re.findall(r"T ([\d.]+)", line)] == [
        f"{float(t):g}" for t in temperatures
    ]


def test_scale_multiplies_every_logit_and_leaves_the_order(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path / "m")
    plain = cli("inspect-logits", "-m", model, "--json", TEXT).json
    scaled = cli("inspect-logits", "-m", model, "--json", "--scale", "2", TEXT).json
    assert (scaled["type"], scaled["scale"]) == ("row", 2.0)
    assert scaled["hidden_norm"] == pytest.approx(2 * plain["hidden_norm"], rel=1e-6)
    assert [c["token_id"] for c in scaled["candidates"]] == [c["token_id"] for c in plain["candidates"]]
    for before, after in zip(plain["candidates"], scaled["candidates"], strict=True):
        assert after["logit"] == pytest.approx(2 * before["logit"], rel=1e-6)
        assert (after["unscaled_logit"], after["unscaled_probability"]) == (before["logit"], before["probability"])
    # Twice the hidden state is half the temperature.
    half = cli("inspect-logits", "-m", model, "--json", "--compare-temperatures", "0.5", TEXT).json
    expected = [c["probabilities"][0] for c in half["candidates"]]
    assert [c["probability"] for c in scaled["candidates"]] == pytest.approx(expected, rel=1e-5)
    reversed_ = cli("inspect-logits", "-m", model, "--json", "--rows", "1", "--scale", "-1", TEXT).json
    last = cli("inspect-logits", "-m", model, "--json", "--rows", "50257", TEXT).json["candidates"][-1]
    assert reversed_["candidates"][0]["token_id"] == last["token_id"]


def test_token_geometry_is_that_of_transformers(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path / "m", tie_word_embeddings=False)
    result = cli("inspect-logits", "-m", model, "--json", "--token", "11", "--token", " two", TEXT).json
    theirs = GPT2LMHeadModel.from_pretrained(model)
    with torch.inference_mode():
        hidden = theirs.transformer(torch.tensor([result["prompt_token_ids"]])).last_hidden_state[0, -1]
        for token in result["tokens"]:
            w = theirs.lm_head.weight[token["token_id"]]
            assert token["hidden_norm"] == pytest.approx(float(hidden.norm()), rel=1e-5)
            assert token["unembedding_norm"] == pytest.approx(float(w.norm()), rel=1e-5)
            assert token["cosine"] == pytest.approx(float(torch.cosine_similarity(hidden, w, dim=0)), abs=1e-5)


@pytest.mark.parametrize("first", VIEWS)
def test_two_views_are_a_usage_error(cli: Cli, first: str) -> None:
    for second in VIEWS:
        if second != first:
            ran = cli("inspect-logits", first, *VIEWS[first], second, *VIEWS[second], "x")
            assert ran.code == 2, (first, second)
            assert first in ran.err
            assert second in ran.err


@pytest.mark.parametrize("view", VIEWS)
def test_options_that_a_view_does_not_use_are_refused(cli: Cli, tmp_path: Path, view: str) -> None:
    values = {"rows": "3", "stride": "4", "seed": "1", "save": str(tmp_path / "x.npz")}
    options = sorted(set().union(*READS.values()) - READS[view])
    assert options
    for name in options:
        option = f"--{name.replace('_', '-')}"
        ran = cli("inspect-logits", view, *VIEWS[view], option, values.get(name, "1"), "x")
        assert ran.code == 2, option
        assert option in ran.err
    assert not (tmp_path / "x.npz").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--scale", "nan"],
        ["--scale", "inf"],
        ["--compare-temperatures", ""],
        ["--compare-temperatures", "1,nan"],
        ["--compare-temperatures", "1,-1"],
        ["--compare-temperatures", "warm"],
        ["--save", "x.bin"],
        ["--export", "x"],
        ["--rows", "0"],
        ["--all", "--stride", "0"],
    ],
)
def test_bad_values_are_usage_errors(cli: Cli, options: list[str]) -> None:
    ran = cli("inspect-logits", *options, "x")
    assert (ran.code, ran.out) == (2, "")
    assert options[-2] in ran.err


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("style", ["table", "json", "jsonl", "csv", "tsv"])
def test_every_view_has_every_format(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: str, style: str
) -> None:
    checkpoints.random(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    ran = cli("inspect-logits", "-m", "./m", view, *VIEWS[view], "--format", style, TEXT).ok()
    lines = ran.out.splitlines()
    if style == "table":
        assert max(map(len, lines)) <= 80
    elif style == "json":
        assert ran.json["type"]
    elif style == "jsonl":
        assert all(line["type"] for line in ran.jsonl)
    elif style == "tsv":
        assert len({line.count("\t") for line in lines}) == 1
        assert len(lines) > 1
