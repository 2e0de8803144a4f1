"""inspect-logits --lens against transformers' hidden states, with the final norm and the head applied by hand."""

from pathlib import Path

import checkpoints
import pytest
import torch
from conftest import Cli
from transformers import GPT2LMHeadModel, OPTConfig, OPTForCausalLM

from gpt2cli.model import GPT2

TEXT = "The quick brown fox jumps over"


@pytest.mark.parametrize("backend", ["native", "transformers"])
@pytest.mark.parametrize("tied", [True, False])
def test_layers_are_those_of_transformers(cli: Cli, tmp_path: Path, backend: str, tied: bool) -> None:
    model = checkpoints.random(tmp_path / "m", n_layer=3, tie_word_embeddings=tied)
    lens = cli("inspect-logits", "-m", model, "--backend", backend, "--lens", "--json", "--rows", "5", TEXT).json
    theirs = GPT2LMHeadModel.from_pretrained(model)
    with torch.inference_mode():
        output = theirs(torch.tensor([lens["prompt_token_ids"]]), output_hidden_states=True)
        streams = [state[0, -1] for state in output.hidden_states]
        assert len(streams) == 4
        # The last entry is already after ln_f; the others are not.
        normed = [*(theirs.transformer.ln_f(stream) for stream in streams[:-1]), streams[-1]]
        rows = torch.stack([theirs.lm_head(state) for state in normed]).double()
    final = int(rows[-1].argmax())
    assert [layer["layer"] for layer in lens["layers"]] == [0, 1, 2, 3]
    for layer, row in zip(lens["layers"], rows, strict=True):
        top = row.topk(5)
        assert [c["token_id"] for c in layer["candidates"]] == top.indices.tolist()
        assert [c["logit"] for c in layer["candidates"]] == pytest.approx(top.values.tolist(), abs=1e-4)
        choice = layer["final_choice"]
        assert choice["token_id"] == final
        assert choice["rank"] == 1 + int((row > row[final]).sum())
        assert choice["logit"] == pytest.approx(float(row[final]), abs=1e-4)
        assert choice["probability"] == pytest.approx(float(row.softmax(0)[final]), rel=1e-3)
    own = cli("inspect-logits", "-m", model, "--backend", backend, "--json", TEXT).json["candidates"]
    last = lens["layers"][-1]["candidates"]
    assert [c["token_id"] for c in last] == [c["token_id"] for c in own[:5]]
    assert [c["chosen"] for c in last] == [True, False, False, False, False]
    assert lens["self_check"]["passed"] is True
    assert lens["self_check"]["figure"] < 1e-4


def test_the_embedding_layer_by_hand(cli: Cli, tmp_path: Path) -> None:
    # A ruler's blocks add nothing, so every layer reads the same row: that of token 1000 + position.
    model = checkpoints.ruler(tmp_path / "m")
    lens = cli("inspect-logits", "-m", model, "--lens", "--json", "--rows", "1", TEXT).json
    expected = 1000 + len(lens["prompt_token_ids"]) - 1
    assert [layer["candidates"][0]["token_id"] for layer in lens["layers"]] == [expected, expected]


def test_the_self_check_catches_a_lens_without_norm(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = checkpoints.random(tmp_path / "m", n_layer=2)
    monkeypatch.setattr(
        GPT2, "layer_states", lambda self, ids, cache: torch.stack([s[-1] for s in self.residual_streams(ids, cache)])
    )
    ran = cli("inspect-logits", "-m", model, "--lens", "--format", "table", TEXT)
    assert ran.code == 1
    assert "FAIL" in ran.out


def test_formats_agree(cli: Cli, tmp_path: Path) -> None:
    model = checkpoints.random(tmp_path / "m", n_layer=2)
    arguments = ("inspect-logits", "-m", model, "--lens", "--rows", "3", TEXT)
    lens = cli(*arguments, "--json").json
    lines = cli(*arguments, "--format", "jsonl").jsonl
    assert lines[:-1] == [{"type": "layer", **layer} for layer in lens["layers"]]
    assert lines[-1] == {key: value for key, value in lens.items() if key != "layers"}
    header, *rows = (line.split("\t") for line in cli(*arguments, "--format", "tsv").ok().out.splitlines())
    records = [dict(zip(header, row, strict=True)) for row in rows]
    table = cli(*arguments, "--format", "table").ok().out
    for layer in lens["layers"]:
        mine = [r for r in records if r["layer"] == str(layer["layer"])]
        (chosen,) = [r for r in mine if r["chosen"] == "true"]
        assert float(chosen["logit"]) == layer["final_choice"]["logit"]
        assert int(chosen["rank"]) == layer["final_choice"]["rank"]
        assert [float(r["logit"]) for r in mine[:3]] == [c["logit"] for c in layer["candidates"]]
        assert f"{layer['final_choice']['logit']:.4f}" in table


def test_a_model_without_final_norm_says_that_it_has_no_lens(cli: Cli, tmp_path: Path) -> None:
    config = OPTConfig(
        vocab_size=50257,
        hidden_size=32,
        ffn_dim=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        word_embed_proj_dim=16,
        do_layer_norm_before=False,
    )
    torch.manual_seed(0)
    OPTForCausalLM(config).save_pretrained(tmp_path / "opt")
    ran = cli("inspect-logits", "-m", tmp_path / "opt", "--backend", "transformers", "--lens", TEXT)
    assert (ran.code, ran.out) == (1, "")
    assert "no lens" in ran.err
