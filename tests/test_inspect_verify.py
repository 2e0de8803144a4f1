"""inspect-logits --verify: passes on sound models, and each check catches the fault it is there for."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import torch
from conftest import Cli
from torch import Tensor
from transformers import GPTNeoConfig, GPTNeoForCausalLM

from gpt2cli import verify
from gpt2cli.model import GPT2

TEXT = "The quick brown fox jumps over the lazy dog"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_short_types_pass(cli: Cli, tmp_path: Path, dtype: str) -> None:
    model = checkpoints.random(tmp_path / "m", n_layer=2)
    result = cli("inspect-logits", "-m", model, "--dtype", dtype, "--verify", "--json", TEXT).json
    assert [check["passed"] for check in result["checks"]] == [True] * 8
    assert 1e-3 < result["checks"][7]["figure"] < result["checks"][7]["tolerance"] or dtype != "int8"


@pytest.mark.parametrize("backend", ["native", "transformers"])
@pytest.mark.parametrize("tied", [True, False])
def test_sound_models_pass(cli: Cli, tmp_path: Path, backend: str, tied: bool) -> None:
    model = checkpoints.random(tmp_path / "m", n_layer=2, tie_word_embeddings=tied)
    arguments = ("inspect-logits", "-m", model, "--backend", backend, "--verify", TEXT)
    result = cli(*arguments, "--json").json
    assert [check["passed"] for check in result["checks"]] == [True] * 8
    assert result["passed"] is True
    assert all(check["figure"] <= check["tolerance"] for check in result["checks"][1:])
    # 50257·64 of both embeddings, two blocks of 12·64² + 13·64, and the final norm's 2·64.
    matrix = 50257 * 64
    parameters = matrix * (1 if tied else 2) + 1024 * 64 + 2 * (12 * 64**2 + 13 * 64) + 2 * 64
    assert result["checks"][0]["figure"] == pytest.approx(matrix / parameters, rel=1e-12)
    assert result["checks"][0]["detail"].startswith("tied" if tied else "not tied")
    assert cli(*arguments, "--format", "jsonl").jsonl[-1]["passed"] is True


def test_one_token_leaves_the_loss_unmade(cli: Cli, tmp_path: Path) -> None:
    result = cli("inspect-logits", "-m", checkpoints.random(tmp_path / "m"), "--verify", "--json", "a").json
    assert [check["passed"] for check in result["checks"]] == [True] * 6 + [None, True]
    assert result["passed"] is True


def test_a_model_of_one_backend_only_says_so(cli: Cli, tmp_path: Path) -> None:
    config = GPTNeoConfig(
        hidden_size=32, num_layers=2, num_heads=2, attention_types=[[["global"], 2]], max_position_embeddings=64
    )
    torch.manual_seed(0)
    GPTNeoForCausalLM(config).save_pretrained(tmp_path / "neo")
    options = ("-m", tmp_path / "neo", "--backend", "transformers")
    result = cli("inspect-logits", *options, "--verify", "--json", TEXT).json
    assert [check["passed"] for check in result["checks"]] == [True] * 7 + [None]
    assert "gpt_neo" in result["checks"][7]["detail"]


logits, hidden_states, output_layer = GPT2.logits, GPT2.hidden_states, GPT2.output_layer
score = verify.score


def with_bias(self: GPT2, states: Tensor) -> Tensor:
    """Doubling h no longer doubles the logits, and the bias is a token that h alone does not choose."""
    made = logits(self, states)
    made[..., 7] += 15
    return made


def looking_ahead(self: GPT2, token_ids: list[int], cache: Any = None) -> Tensor:
    states = hidden_states(self, token_ids, cache)
    return states + states.mean(0)


def forgetful(self: GPT2, token_ids: list[int], cache: Any = None) -> Tensor:
    """Without its cache after the first tokens."""
    states = hidden_states(self, token_ids, cache)
    return states if cache is None or cache.length == len(token_ids) else 0.5 * states


def stored_twice(self: GPT2):
    ends = output_layer(self)
    return replace(ends, embedding=ends.embedding.clone())


def shifted_wrongly(model: Any, tokenizer: Any, token_ids: list[int], **options: Any):
    return score(model, tokenizer, [*token_ids[:-1], token_ids[0]], **options)


@pytest.mark.parametrize(
    ("owner", "name", "fault", "failing"),
    [
        (GPT2, "output_layer", stored_twice, {1}),
        (GPT2, "logits", with_bias, {2, 3, 8}),
        (GPT2, "logits", lambda self, states: logits(self, states).nan_to_num() * torch.nan, {2, 3, 4, 5, 6, 7, 8}),
        (GPT2, "hidden_states", looking_ahead, {5, 6, 8}),
        (GPT2, "hidden_states", forgetful, {6}),
        (verify, "score", shifted_wrongly, {7}),
        (GPT2, "_attention_scale", lambda self, layer: 1.0, {8}),
    ],
)
def test_each_check_catches_its_fault(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    fault: Callable[..., Any],
    failing: set[int],
) -> None:
    model = checkpoints.random(tmp_path / "m", n_layer=2)
    monkeypatch.setattr(owner, name, fault)
    ran = cli("inspect-logits", "-m", model, "--verify", "--format", "tsv", TEXT)
    assert (ran.code, ran.err) == (1, "")
    passed = [line.split("\t")[4] for line in ran.out.splitlines()[1:]]
    assert {n for n, value in enumerate(passed, start=1) if value == "false"} == failing
