"""The products beneath the model: each kind of weights against float64, and each row against the row alone."""

import pytest
import torch
from conftest import need_lone_rows
from torch import Tensor

from gpt2cli.projection import DTYPES, FEW, Half, Int8, Packed, Plain, can_round, projection, round_columns

needs_int8 = pytest.mark.skipif(not can_round(), reason="this build of torch has no oneDNN")
SHAPES = [(768, 2304), (3072, 768), (192, 50257), (3, 5)]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kind", "dtype", "tolerance"), [
    (Plain, torch.float32, 1e-5),
    (Packed, torch.float32, 1e-5),
    (Packed, torch.bfloat16, 0.1),
    (Half, torch.bfloat16, 0.1),
    (Half, torch.float16, 0.02),
])  # fmt: skip
def test_a_projection_is_a_product_and_a_bias(bias: bool, kind: type, dtype: torch.dtype, tolerance: float) -> None:
    if dtype == torch.bfloat16 and kind is Packed and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this processor cannot multiply bfloat16 by the matrix")
    weight, b = random(33, 2050).to(dtype), random(2050, seed=1).to(dtype) if bias else None
    project = kind(weight, b)
    for rows in (1, 3, 4, 17):
        x = random(rows, 33, seed=rows).to(dtype)
        expected = x.double() @ weight.double() + (b.double() if b is not None else 0)
        assert project(x).dtype == dtype
        torch.testing.assert_close(project(x).double(), expected, atol=tolerance, rtol=tolerance)


@needs_int8
@pytest.mark.parametrize("bias", [True, False])
def test_int8_multiplies_the_rounded_weights_by_rows_of_14_bits(bias: bool) -> None:
    weight, b = random(33, 1070), random(1070, seed=1) if bias else None
    whole, scale = round_columns(weight)
    assert whole.equal(whole.round())
    assert whole.abs().amax(0).tolist() == [127.0] * 1070
    assert float((whole * scale - weight).abs().max()) <= float(scale.max()) / 2 * 1.001
    for rows in (1, 2, 17):
        x = random(rows, 33, seed=rows)
        # Each number of x is off by at most half a unit of 1/8064 of the row's largest.
        error = x.abs().amax(1, keepdim=True) / 8064 / 2 * (whole * scale).abs().sum(0)
        expected = x.double() @ (whole * scale).double() + (b if b is not None else 0)
        assert bool(((Int8(weight, b)(x) - expected).abs() <= error + 1e-4).all())


@needs_int8
def test_int8_is_exact_at_its_limits() -> None:
    """The largest products and sums: 16 bits in between, as processors without VNNI have, would not hold them."""
    weight = torch.ones(4096, 64)
    x = torch.stack([torch.ones(4096), -torch.ones(4096), torch.ones(4096) * torch.tensor([1.0, -1.0]).repeat(2048)])
    assert Int8(weight, None)(x)[:, 0].tolist() == pytest.approx([4096.0, -4096.0, 0.0])


@needs_int8
def test_int8_of_nothing_is_nothing_and_of_no_number_no_number() -> None:
    project = Int8(torch.cat([random(8, 4), torch.zeros(8, 1)], dim=1), None)
    rows = torch.stack([torch.zeros(8), torch.full((8,), float("nan")), torch.full((8,), 1e-35)])
    nothing, no_number, tiny = project(rows)
    assert nothing.tolist() == [0.0] * 5
    assert bool(no_number.isnan().all())
    assert bool((tiny.abs() < 1e-30).all())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", pytest.param("int8", marks=needs_int8)])
def test_rows_that_stand_alone_do_not_depend_on_how_many_there_are(shape: tuple[int, int], dtype: str) -> None:
    project = projection(random(*shape), None, dtype)
    need_lone_rows(project)
    x = random(100, shape[0], seed=1).to(DTYPES[dtype])
    together = project(x[:FEW] if isinstance(project, Half) else x)
    for rows in (1, 2, 3, 4, 5, 16, 63):
        assert torch.equal(project(x[:rows])[: len(together)], together[:rows]) or rows > len(together), rows
