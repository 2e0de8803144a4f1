"""Random settings on small vocabularies: what is kept and drawn, against plain Python; records, against the schema."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import torch
from conftest import Cli
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpt2cli.records import SamplingOptions
from gpt2cli.sampling import adjust_logits, choose_token, cut_logits, greedy, sample_rng

# Quarters tie often, and are the same numbers in float32.
LOGITS = st.lists(st.one_of(st.integers(-32, 32).map(lambda n: n / 4), st.just(-math.inf)), min_size=1, max_size=12)
OPTIONS = st.builds(
    SamplingOptions,
    temperature=st.sampled_from([0.25, 0.7, 1.0, 1.5, 4.0]),
    top_k=st.integers(0, 14),
    top_p=st.one_of(st.just(1.0), st.floats(1e-9, 1.0)),
    min_p=st.one_of(st.just(0.0), st.floats(0.0, 1.0)),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.2, 3.0]),
)


def softmax(logits: dict[int, float]) -> dict[int, float]:
    largest = max(logits.values())
    shares = {n: math.exp(x - largest) for n, x in logits.items()}
    return {n: share / math.fsum(shares.values()) for n, share in shares.items()}


def reference(logits: Sequence[float], options: SamplingOptions, seen: set[int]) -> dict[int, float]:
    """Token id → probability, as the words of the manual say it, step by step."""
    penalty = options.repetition_penalty
    adjusted = {
        n: ((x / penalty if x > 0 else x * penalty) if n in seen else x) / options.temperature
        for n, x in enumerate(logits)
    }
    if options.top_k:
        kth = sorted(adjusted.values(), reverse=True)[: options.top_k][-1]
        adjusted = {n: x for n, x in adjusted.items() if x >= kth}
    if options.top_p < 1:
        kept, reached = {}, 0.0
        for n, p in sorted(softmax(adjusted).items(), key=lambda pair: (-pair[1], pair[0])):
            assume(abs(reached - options.top_p) > 1e-9)  # rounding decides
            if reached >= options.top_p:
                break
            kept[n], reached = adjusted[n], reached + p
        adjusted = kept
    if options.min_p:
        probabilities = softmax(adjusted)
        ratios = {n: p / max(probabilities.values()) for n, p in probabilities.items()}
        assume(all(ratio == 1 or abs(ratio - options.min_p) > 1e-9 for ratio in ratios.values()))
        adjusted = {n: x for n, x in adjusted.items() if ratios[n] >= options.min_p}
    return {n: p for n, p in softmax(adjusted).items() if p > 0}


@settings(max_examples=200, deadline=None)
@given(logits=LOGITS, options=OPTIONS, seen=st.sets(st.integers(0, 11)), seed=st.integers(0, 2**63 - 1))
def test_cuts_and_draws_are_those_of_plain_python(
    logits: list[float], options: SamplingOptions, seen: set[int], seed: int
) -> None:
    assume(max(logits) > -math.inf)
    seen = {n for n in seen if n < len(logits)}
    expected = reference(logits, options, seen)
    row = torch.tensor(logits)
    drawn = cut_logits(adjust_logits(row, options, seen), options).softmax(0)
    assert {n for n, p in enumerate(drawn.tolist()) if p > 0} == expected.keys()
    assert drawn.tolist() == pytest.approx([expected.get(n, 0.0) for n in range(len(logits))], abs=1e-12)
    assert choose_token(row, options, seen, sample_rng(seed, 0)) in expected
    assert greedy(row) == logits.index(max(logits))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.tiny(tmp_path_factory.mktemp("tiny"))


RUN = st.fixed_dictionaries(
    {"--max-new-tokens": st.integers(0, 40), "--seed": st.integers(0, 2**63 - 1)},
    optional={
        "--temperature": st.one_of(st.just(0.0), st.floats(0.01, 100)),
        "--top-k": st.integers(0, 300),
        "--top-p": st.floats(1e-6, 1),
        "--min-p": st.floats(0, 1),
        "--repetition-penalty": st.floats(0.1, 10),
        "--show-logits": st.integers(0, 300),
        "--stop": st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=2),
        "--context-overflow": st.sampled_from(["slide", "stop"]),
    },
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=RUN, prompt=st.text(st.characters(codec="utf-8"), max_size=8))
def test_records_of_any_run_fit_the_schema_and_each_other(
    cli: Cli, tiny: Path, options: dict[str, Any], prompt: str
) -> None:
    given_options = [f"{name}={value}" for name, value in options.items()]
    *steps, result = cli("generate", "-m", tiny, *given_options, "--format", "jsonl", stdin=prompt.encode()).jsonl
    (whole,) = cli("generate", "-m", tiny, *given_options, "--json", stdin=prompt.encode()).jsonl
    assert whole == result
    assert result.get("steps", steps) == steps
    made = [step["token_id"] for step in steps]
    assert made == result["token_ids"] + [checkpoints.BYTE_VOCAB - 1] * (result["finish_reason"] == "eos")
    assert len(result["token_ids"]) == result["usage"]["completion_tokens"] <= options["--max-new-tokens"]
    text = b"".join(bytes(step["bytes"]) for step in steps if step["token_id"] < 256).decode(errors="replace")
    if "--stop" in options and options["--stop"] in text:
        assert result["finish_reason"] == "stop"
        assert result["text"] == text[: text.index(options["--stop"])]
    else:
        assert result["text"] == text
    out = cli("generate", "-m", tiny, *given_options, "--quiet", stdin=prompt.encode()).out
    assert out == result["text"] + "\n" or options.get("--show-logits")
