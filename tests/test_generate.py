"""gpt2cli generate, through the command line, on models whose output is known beforehand."""

import json
from collections.abc import Callable
from pathlib import Path

import checkpoints
import pytest
from conftest import Cli

from gpt2cli.tokenizer import Tokenizer

P5 = "The capital of France is"  # 5 tokens
Scripted = Callable[..., Path]


@pytest.fixture
def scripted(tmp_path: Path, gpt2_tokenizer: Tokenizer) -> Scripted:
    """A model that writes the given text, or tokens, after P5."""

    def build(text: str | list[int], **options: int) -> Path:
        tokens = gpt2_tokenizer.encode(text) if isinstance(text, str) else text
        return checkpoints.scripted(tmp_path / "scripted", tokens, 5, **options)

    return build


@pytest.fixture(scope="module")
def ruler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.ruler(tmp_path_factory.mktemp("ruler"))


@pytest.fixture(scope="module")
def short_ruler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A context of 8 tokens."""
    return checkpoints.ruler(tmp_path_factory.mktemp("short"), context_length=8)


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five tokens that differ by one logit each; all others are out of reach."""
    logits = {464: 2.0, 317: 1.0, 383: 0.0, 257: -1.0, 262: -2.0}
    return checkpoints.flat(tmp_path_factory.mktemp("five"), logits, floor=-100)


@pytest.mark.parametrize(
    "text",
    [
        " y is ? can 't do n't . !",
        " [/] [bold]x[/bold] arr[0] [i] [/usr/bin] \\[y]",
        " 😀 日本語 👨‍👩‍👧 “ok” é",
        "\ttab\r\nCRLF\n\n  indented\x1b[31mred\x00",
    ],
)
def test_the_bytes_of_the_tokens_come_out_in_every_format(cli: Cli, scripted: Scripted, text: str) -> None:
    model = scripted(text)
    assert cli("generate", "-m", model, P5).ok().out == text + "\n"
    assert cli("generate", "-m", model, P5, "--echo").ok().out == P5 + text + "\n"
    assert cli("generate", "-m", model, P5, "--json").json["text"] == text
    steps = cli("generate", "-m", model, P5, "--format", "jsonl").jsonl
    assert b"".join(bytes(step["bytes"]) for step in steps[:-2]).decode() == text
    assert steps[-2]["token_id"] == checkpoints.EOS
    assert steps[-1]["text"] == text


def test_bytes_that_are_no_character_are_shown_as_such(cli: Cli, scripted: Scripted) -> None:
    smile = [30325, 222]  # a space and the bytes f0 9f 98, then 80
    model = scripted([smile[0], 64, *smile, smile[0]])
    assert cli("generate", "-m", model, P5).ok().out == " \ufffda 😀 \ufffd\n"


def test_the_text_ends_at_end_of_text_which_is_a_step_but_no_text(cli: Cli, scripted: Scripted) -> None:
    model = scripted([995, checkpoints.EOS, 15496, 15496])
    assert cli("generate", "-m", model, "-n", "10", P5).ok().out == " world\n"
    *steps, result = cli("generate", "-m", model, "-n", "10", "--format", "jsonl", P5).jsonl
    assert [step["token_id"] for step in steps] == [995, checkpoints.EOS]
    assert (result["finish_reason"], result["text"], result["token_ids"]) == ("eos", " world", [995])
    assert result["usage"] == {"prompt_tokens": 5, "completion_tokens": 1}


def test_ignore_eos_makes_it_a_token_like_any_other(cli: Cli, scripted: Scripted) -> None:
    model = scripted([995, checkpoints.EOS, 15496, 15496])
    result = cli("generate", "-m", model, "-n", "4", "--ignore-eos", "--json", P5).json
    assert result["text"] == " world<|endoftext|>HelloHello"
    assert (result["finish_reason"], result["usage"]["completion_tokens"]) == ("length", 4)


@pytest.mark.parametrize(
    ("stops", "expected"),
    [
        (["beta gamma"], " alpha "),
        (["a g"], " alpha bet"),
        (["pha"], " al"),
        (["gamma", "beta"], " alpha "),
        ([P5], " alpha beta gamma delta"),
        (["delta\n"], " alpha beta gamma delta"),
    ],
)
def test_stop_texts_end_the_completion(cli: Cli, scripted: Scripted, stops: list[str], expected: str) -> None:
    arguments = ["generate", "-m", scripted(" alpha beta gamma delta"), P5]
    for stop in stops:
        arguments += ["--stop", stop]
    assert cli(*arguments).ok().out == expected + "\n"
    result = cli(*arguments, "--json").json
    assert result["text"] == expected
    assert result["finish_reason"] == ("eos" if expected.endswith("delta") else "stop")


@pytest.mark.parametrize(("text", "stop", "expected"), [(" one\ntwo", "\n", " one"), (" ok 😀!", "😀", " ok ")])
def test_stop_texts_of_any_characters(cli: Cli, scripted: Scripted, text: str, stop: str, expected: str) -> None:
    assert cli("generate", "-m", scripted(text), P5, "--stop", stop).ok().out == expected + "\n"


def test_max_new_tokens_counts_new_tokens_alone(cli: Cli, ruler: Path) -> None:
    prompt = b" world" * 60
    result = cli("generate", "-m", ruler, "-n", "10", "--json", stdin=prompt).json
    assert result["token_ids"] == list(range(1059, 1069))
    assert result["finish_reason"] == "length"
    assert cli("generate", "-m", ruler, "-n", "0", P5).ok().out == "\n"
    assert cli("generate", "-m", ruler, "-n", "0", P5, "--json").json["token_ids"] == []


def test_a_full_context_slides(cli: Cli, short_ruler: Path) -> None:
    # 5 prompt tokens, then 3 until 8 are held; the older 4 go and the newest is run as the fifth: position 4 again.
    steps = cli("generate", "-m", short_ruler, "-n", "9", "--format", "jsonl", P5).jsonl[:-1]
    positions = [4, 5, 6, 7, 4, 5, 6, 7, 4]
    assert [step["position"] for step in steps] == positions
    assert [step["token_id"] for step in steps] == [1000 + q for q in positions]


def test_a_full_context_stops_if_asked_to(cli: Cli, short_ruler: Path) -> None:
    result = cli("generate", "-m", short_ruler, "-n", "9", "--context-overflow", "stop", "--json", P5).json
    assert result["token_ids"] == [1004, 1005, 1006, 1007]
    assert result["finish_reason"] == "context"


def test_a_context_of_one_token_still_slides(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.ruler(tmp_path, context_length=1)
    assert cli("generate", "-m", model, "-n", "3", "--json", "a").json["token_ids"] == [1000] * 3


def test_logits_that_are_no_numbers_are_an_error_that_names_the_position(cli: Cli, scripted: Scripted) -> None:
    ran = cli("generate", "-m", scripted([995] * 20, nan_at=7), P5)
    assert (ran.code, ran.out) == (1, " world world world\n"[:-1])
    assert "position 7 " in ran.err
    ran = cli("generate", "-m", scripted([995] * 20, nan_at=7), "--format", "jsonl", P5)
    assert [json.loads(line)["type"] for line in ran.out.splitlines()] == ["step"] * 3


# Sampling


@pytest.mark.parametrize("temperature", ["0", "0.0", "-0.0"])
def test_temperature_zero_is_greedy(cli: Cli, five: Path, temperature: str) -> None:
    for seed in ("0", "1"):
        result = cli("generate", "-m", five, "-n", "8", "-t", temperature, "-p", "0.9", "-s", seed, "--json", P5).json
        assert result["token_ids"] == [464] * 8
        assert result["sampling"]["greedy"] is True
        assert result["sampling"]["temperature"] == 0


@pytest.mark.parametrize(
    ("arguments", "greedy", "temperature"),
    [
        ([], True, 0),
        (["-k", "0"], True, 0),
        (["-t", "2"], False, 2),
        (["-k", "5"], False, 1),
        (["-p", "0.9"], False, 1),
        (["--min-p", "0.1"], False, 1),
        (["-t", "0", "-k", "5"], True, 0),
    ],
)
def test_what_switches_to_sampling(
    cli: Cli, five: Path, arguments: list[str], greedy: bool, temperature: float
) -> None:
    sampling = cli("generate", "-m", five, "-n", "1", "--json", *arguments, P5).json["sampling"]
    assert (sampling["greedy"], sampling["temperature"]) == (greedy, temperature)


def test_a_seed_repeats_a_text_and_another_gives_another(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.flat(tmp_path, {464: 0.2, 317: 0.1, 383: 0.0, 257: -0.1, 262: -0.2}, floor=-100)

    def ids(seed: int) -> tuple[int, ...]:
        run = ("generate", "-m", model, "-n", "20", "-t", "1", "-s", str(seed), "--json", P5)
        return tuple(cli(*run).json["token_ids"])

    texts = [ids(seed) for seed in range(10)]
    assert len(set(texts)) >= 8
    assert texts[7] == ids(7)


def test_the_seed_that_was_drawn_is_reported_and_repeats_the_text(cli: Cli, five: Path) -> None:
    first = cli("generate", "-m", five, "-n", "20", "-t", "1", "--json", P5).json
    again = cli("generate", "-m", five, "-n", "20", "-t", "1", "--json", "-s", str(first["seed"]), P5).json
    assert again == first


def test_samples_do_not_depend_on_how_many_are_asked_for(cli: Cli, five: Path) -> None:
    def texts(count: int) -> list[str]:
        arguments = ("generate", "-m", five, "-n", "12", "-t", "1", "-s", "3", "--num-samples", str(count), P5)
        assert [r["sample"] for r in cli(*arguments, "--json").jsonl] == list(range(count))
        return cli(*arguments, "--separator", "====").ok().out.split("\n====\n")

    one, three = texts(1), texts(3)
    assert three[0] == one[0].removesuffix("\n") or three[0] + "\n" == one[0]
    assert len(set(three)) == 3


def test_top_k_of_one_draws_among_those_tied_for_first(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.flat(tmp_path, {464: 2.0, 317: 2.0, 383: 1.0})
    result = cli("generate", "-m", model, "-n", "64", "-k", "1", "-s", "0", "--json", P5).json
    assert set(result["token_ids"]) == {317, 464}


def test_greedy_with_a_repetition_penalty_takes_the_largest_adjusted_logit(cli: Cli, five: Path) -> None:
    *steps, _ = cli("generate", "-m", five, "-n", "3", "--repetition-penalty", "4", "--format", "jsonl", "x").jsonl
    assert [s["token_id"] for s in steps] == [464, 317, 464]  # 2; then 2/4 < 1; then 0.5 > 1/4
    assert [s["adjusted_logit"] for s in steps] == [2.0, 1.0, 0.5]
    assert [s["logit"] for s in steps] == [2.0, 1.0, 2.0]
    assert [s["sampling_probability"] for s in steps] == [None] * 3


# Records


def test_raw_and_adjusted_numbers_of_a_step(cli: Cli, five: Path) -> None:
    run = ("generate", "-m", five, "-n", "1", "-t", "0.5", "-k", "2", "-s", "1", "--show-logits", "3", "--json", P5)
    (step,) = cli(*run).json["steps"]
    first, second, third = step["candidates"]
    assert [c["rank"] for c in step["candidates"]] == [1, 2, 3]
    assert [c["logit"] for c in step["candidates"]] == [2, 1, 0]
    assert [c["adjusted_logit"] for c in step["candidates"]] == [4, 2, 0]
    assert [c["probability"] for c in step["candidates"]] == pytest.approx([0.636409, 0.234122, 0.086129], abs=1e-6)
    assert [c["sampling_probability"] for c in step["candidates"]] == pytest.approx([0.880797, 0.119203, 0], abs=1e-6)
    assert [c["kept"] for c in step["candidates"]] == [True, True, False]
    (choice,) = [c for c in step["candidates"] if c["chosen"]]
    assert choice in (first, second)
    assert third["chosen"] is False
    shared = ("token_id", "text", "bytes", "rank", "logit", "probability", "adjusted_logit", "sampling_probability")
    assert {name: step[name] for name in shared} == {name: choice[name] for name in shared}
    # ln 11.610378, less the mean logit: 2.451914 - (2 p1 + p2 - p4 - 2 p5) = 2.451914 - 1.451943
    assert step["entropy"] == pytest.approx(0.999971, abs=3e-6)
    assert step["margin"] == 1


def test_greedy_records_no_adjusted_numbers(cli: Cli, five: Path) -> None:
    (step,) = cli("generate", "-m", five, "-n", "1", "--show-logits", "2", "--json", P5).json["steps"]
    for record in (step, *step["candidates"]):
        assert record["adjusted_logit"] is None
        assert record["sampling_probability"] is None
    assert step["rank"] == 1


def test_the_fields_of_a_result(cli: Cli, five: Path) -> None:
    result = cli("generate", "-m", five, "-n", "2", "-t", "1", "-s", "5", "--json", "The dog").json
    assert {k: result[k] for k in result if k not in ("text", "token_ids")} == {
        "type": "result",
        "schema": 1,
        "model": str(five),
        "backend": "native",
        "dtype": "float32",
        "device": "cpu",
        "prompt": "The dog",
        "prompt_token_ids": [464, 3290],
        "sample": 0,
        "finish_reason": "length",
        "sampling": {
            "temperature": 1.0,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "greedy": False,
        },
        "seed": 5,
        "usage": {"prompt_tokens": 2, "completion_tokens": 2},
    }


def test_show_logits_writes_tsv_to_a_standard_error_that_is_no_terminal(cli: Cli, five: Path) -> None:
    ran = cli("generate", "-m", five, "-n", "2", "--show-logits", "2", P5)
    assert (ran.code, ran.out) == (0, "TheThe\n")
    header, *lines = (line.split("\t") for line in ran.err.splitlines())
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    assert [(r["step"], r["rank"], r["token_id"], r["logit"], r["chosen"]) for r in rows] == [
        ("0", "1", "464", "2.0", "true"),
        ("0", "2", "317", "1.0", "false"),
        ("1", "1", "464", "2.0", "true"),
        ("1", "2", "317", "1.0", "false"),
    ]


# Usage


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-t", "-1"], "--temperature"),
        (["-t", "nan"], "--temperature"),
        (["-t", "inf"], "--temperature"),
        (["-t", "warm"], "--temperature"),
        (["-k", "-1"], "--top-k"),
        (["-k", "5.0"], "--top-k"),
        (["-p", "0"], "--top-p"),
        (["-p", "1.5"], "--top-p"),
        (["-p", "-0.1"], "--top-p"),
        (["--min-p", "2"], "--min-p"),
        (["--repetition-penalty", "0"], "--repetition-penalty"),
        (["-s", "-1"], "--seed"),
        (["-s", str(2**63)], "--seed"),
        (["-s", "abc"], "--seed"),
        (["-n", "-1"], "--max-new-tokens"),
        (["--stop", ""], "--stop"),
        (["--num-samples", "2"], "--num-samples"),
        (["--num-samples", "0", "-t", "1"], "--num-samples"),
        (["--json", "--format", "jsonl"], "--json"),
        (["--json", "--echo"], "--echo"),
        (["--json", "--separator", "x"], "--separator"),
        (["-q", "--show-logits", "3"], "--show-logits"),
        (["--device", "tpu"], "--device"),
        (["--dtype", "int3"], "--dtype"),
        (["--threads", "0"], "--threads"),
        (["--no-such-option"], "--no-such-option"),
        (["two", "prompts"], "prompts"),
    ],
)
def test_a_usage_error_is_one_line_that_names_the_option(cli: Cli, arguments: list[str], named: str) -> None:
    ran = cli("generate", *arguments, P5)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("gpt2cli: error: ")
    assert named in ran.err


@pytest.mark.parametrize("k", ["1", "2", "50256", "50257", "50258", "1000000000"])
def test_any_top_k_at_or_above_one_works(cli: Cli, five: Path, k: str) -> None:
    result = cli("generate", "-m", five, "-n", "3", "-k", k, "-s", "0", "--json", P5).json
    assert set(result["token_ids"]) <= ({464} if k == "1" else {464, 317} if k == "2" else {464, 317, 383, 257, 262})
