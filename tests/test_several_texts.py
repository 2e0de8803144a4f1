"""Several texts in one pass: the numbers of each are those that it has alone."""

from pathlib import Path

import checkpoints
import pytest
import torch

import gpt2cli
from gpt2cli.projection import Projection

TEXTS = [[5], [7, 8, 9], list(range(100, 160)), [5]]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_projection_is_a_product_and_a_bias(bias: bool, dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(0)
    weight = torch.randn(33, 50, generator=rng, dtype=dtype)
    b = torch.randn(50, generator=rng, dtype=dtype) if bias else None
    project = Projection(weight, b)
    for rows in (1, 3, 4, 17):
        x = torch.randn(rows, 33, generator=rng, dtype=dtype)
        expected = x.double() @ weight.double() + (b.double() if b is not None else 0)
        tolerance = 1e-5 if dtype == torch.float32 else 0.1
        torch.testing.assert_close(project(x).double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("shape", [(768, 2304), (3072, 768), (192, 50257), (3, 5)])
def test_a_projected_row_does_not_depend_on_how_many_there_are(shape: tuple[int, int]) -> None:
    project = Projection(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    if not project._packed:
        pytest.skip("this processor's product of matrices adds up by the number of rows")
    x = torch.randn(100, shape[0], generator=torch.Generator().manual_seed(1))
    together = project(x)
    for rows in (1, 2, 3, 4, 5, 16, 63):
        assert torch.equal(project(x[:rows]), together[:rows]), rows


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
