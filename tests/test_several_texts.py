"""Several texts in one pass: the numbers of each are those that it has alone."""

from pathlib import Path

import checkpoints
import pytest
import torch

import gpt2cli

TEXTS = [[5], [7, 8, 9], list(range(100, 160)), [5]]


@pytest.mark.parametrize("backend", ["native", "transformers"])
@pytest.mark.parametrize("fields", [{}, {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True}])
def test_packed_texts_have_the_hidden_states_of_texts_alone(tmp_path: Path, backend: str, fields: dict) -> None:
    folder = checkpoints.random(tmp_path / "random", n_layer=2, n_positions=64, **fields)
    model = gpt2cli.load(str(folder), backend=backend).model
    caches = [model.new_cache() for _ in TEXTS]
    so_far: list[list[int]] = [[] for _ in TEXTS]
    with torch.inference_mode():
        # Whole prompts of several lengths; a token after each; a token after one, and three after another.
        for texts in (TEXTS, [[1], [2], [3], [4]], [[1], [5, 6, 7], [2], [3]]):
            together = model.last_hidden_states(texts, caches)
            so_far = [a + b for a, b in zip(so_far, texts, strict=True)]
            alone = torch.stack([model.hidden_states(text)[-1] for text in so_far])
            torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)
    assert [cache.length for cache in caches] == [3, 7, 62, 3]
