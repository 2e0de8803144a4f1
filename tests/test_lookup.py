"""Drafts copied from the text so far: the same tokens and numbers, from fewer passes of the model."""

from pathlib import Path
from typing import Any

import checkpoints
import pytest
import torch

import gpt2cli
from gpt2cli.model import GPT2

# The pass over several tokens.


def need_lone_rows(model: Any) -> None:
    if not model.rows_stand_alone:
        pytest.skip("this processor's product of matrices adds up by the number of rows")


@pytest.mark.parametrize(
    "fields",
    [
        {"n_inner": 3072, "n_embd": 192, "n_layer": 3},
        {"n_inner": 50},  # not a whole number of vectors
        {"n_inner": 100, "activation_function": "silu", "n_embd": 60, "n_head": 5},
        {"n_inner": 33, "activation_function": "quick_gelu", "tie_word_embeddings": False},
        {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True},
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_pass_over_several_tokens_gives_what_one_after_another_gives(
    tmp_path: Path, fields: dict[str, Any], threads: int
) -> None:
    model = gpt2cli.load(str(checkpoints.random(tmp_path, **{"n_layer": 2, "n_positions": 128} | fields))).model
    assert isinstance(model, GPT2)
    need_lone_rows(model)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            for past, count in [(1, 1), (5, 2), (5, 4), (90, 7), (60, 16), (1, 33)]:
                together, alone = model.new_cache(), model.new_cache()
                for cache in (together, alone):
                    model.hidden_states(list(range(past)), cache)
                token_ids = list(range(1000, 1000 + count))
                each = [model.hidden_states([token_id], alone) for token_id in token_ids]
                rows = model.hidden_states_one_by_one(token_ids, together)
                assert rows.shape == (count, model.config.n_embd)
                assert torch.equal(rows, torch.cat(each)), (past, count)
                assert torch.equal(model.logits(rows), torch.stack([model.logits(row[0]) for row in each]))
                assert together.length == alone.length == past + count
                for a, b in ((together.keys, alone.keys), (together.values, alone.values)):
                    assert torch.equal(a[:, :, : past + count], b[:, :, : past + count])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("backend", ["native", "transformers"])
def test_a_shortened_cache_is_that_of_the_shorter_text(tmp_path: Path, backend: str) -> None:
    model = gpt2cli.load(str(checkpoints.tiny(tmp_path)), backend=backend).model
    cache, shorter = model.new_cache(), model.new_cache()
    with torch.inference_mode():
        model.hidden_states([1, 2, 3], cache)
        model.hidden_states_one_by_one([4, 5, 6, 7], cache)
        assert cache.length == 7
        cache.shorten(5)
        model.hidden_states([1, 2, 3, 4, 5], shorter)
        rows = model.hidden_states_one_by_one([8, 9], cache)
        torch.testing.assert_close(rows, model.hidden_states([8, 9], shorter))
    assert cache.length == shorter.length == 7


def test_rows_of_other_types_and_backends_do_not_stand_alone(tmp_path: Path) -> None:
    folder = str(checkpoints.tiny(tmp_path))
    assert not gpt2cli.load(folder, backend="transformers").model.rows_stand_alone
    assert gpt2cli.load(folder).model.rows_stand_alone == torch.backends.mkldnn.is_available()
