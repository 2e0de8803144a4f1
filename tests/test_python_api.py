"""gpt2cli from Python: light to import, and the same results as the commands."""

import subprocess
import sys
from pathlib import Path

import checkpoints
import pytest
from conftest import Cli
from readme import ROOT

import gpt2cli
from gpt2cli.errors import PromptError
from gpt2cli.records import GenerationOptions, SamplingOptions


@pytest.fixture
def ruler(tmp_path: Path):
    return gpt2cli.load(str(checkpoints.ruler(tmp_path / "ruler", context_length=8)))


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "torch", "numpy", "tiktoken", "rich", "transformers"
    code = f"import sys, gpt2cli; print([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_the_example_says_what_the_commands_say(cli: Cli) -> None:
    prompt = "Once upon a time"
    ran = subprocess.run(
        [sys.executable, "examples/python_api.py", prompt], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    text = cli("generate", "--echo", "-n", "20", "-t", "0.8", "-k", "40", "-s", "7", prompt).ok().out
    row = cli("inspect-logits", "--rows", "3", "--json", prompt).json
    lines = [f"{c['rank']}  {c['text']!r:8}  {c['logit']:.3f}  {c['probability']:.4f}\n" for c in row["candidates"]]
    assert (ran.stdout, ran.stderr) == (
        f"{text}[20 tokens, ended by length]\n\n"
        f"row 3 of logits [4, 50257], entropy {row['entropy']:.3f} nats\n{''.join(lines)}",
        "",
    )


def test_a_prompt_is_a_text_or_its_token_ids(ruler) -> None:
    options = GenerationOptions(max_new_tokens=2)
    by_text, by_ids = (list(ruler.generate(p, options=options)) for p in ("The capital of", [464, 3139, 286]))
    assert by_text == by_ids
    assert by_text[-1].token_ids == (1002, 1003)


def test_a_text_ends_at_the_models_own_end_of_text(tmp_path: Path) -> None:
    model = gpt2cli.load(str(checkpoints.scripted(tmp_path / "eos", [995], 1)))
    *_, end = model.generate("Hello", options=GenerationOptions(max_new_tokens=5))
    assert (end.token_ids, end.finish_reason) == ((995,), "eos")
    *_, end = model.generate("Hello", options=GenerationOptions(max_new_tokens=3, eos_token_ids=frozenset()))
    assert (end.token_ids, end.finish_reason) == ((995, 50256, 50256), "length")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([50257], "token id 50257 is outside the vocabulary, 0 to 50256"),
        ([-1], "token id -1 is outside"),
        ([1] * 9, "9 tokens, more than the 8"),
    ],
)
def test_a_prompt_that_the_model_cannot_run_is_refused_before_any_step(ruler, prompt, message) -> None:
    for method in (ruler.generate, ruler.inspect):
        with pytest.raises(PromptError, match=message):
            method(prompt)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, SamplingOptions(temperature=0)),
        ({"top_k": 5}, SamplingOptions(temperature=1, top_k=5)),
        ({"top_k": 0}, SamplingOptions(temperature=0)),
        ({"top_p": 1.0}, SamplingOptions(temperature=1)),
        ({"temperature": 0, "top_p": 0.5}, SamplingOptions(temperature=0, top_p=0.5)),
        ({"temperature": 0.5}, SamplingOptions(temperature=0.5)),
    ],
)
def test_sampling_is_greedy_unless_something_asks_for_a_draw(settings, expected) -> None:
    assert SamplingOptions.of(**settings) == expected
