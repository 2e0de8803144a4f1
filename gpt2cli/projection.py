"""[T, in] → [T, out]: x @ weight + bias, by the kernel that reads the weights fastest.

To make one token is to read every weight once, so the time goes into memory, not arithmetic; `examples/benchmark.py`
measures what that makes. Each class below is one way to hold the weights, and says where it wins. Where rows stand
alone, each is, to the last bit, what it would be without the others; most products of matrices add up in another
order when there are more rows to do, and then a text would depend on its neighbours in a batch.
"""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

PIECE = 1024  # outputs that are converted at a time, so that a converted copy of the whole is never held


class Projection(Protocol):
    rows_stand_alone: bool

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] → [T, out]"""


def projection(weight: Tensor, bias: Tensor | None = None, *, int8: bool = False) -> Projection:
    """weight: [in, out]. bias: [out]. The caller may let go of the weight: what is kept is often a copy."""
    if int8:
        return Int8(weight, bias)
    if _can_pack(weight):
        return Packed(weight, bias)
    if weight.device.type == "cpu" and weight.dtype in (torch.float16, torch.bfloat16):
        return Half(weight, bias)
    return Plain(weight, bias)


class Plain:
    """The product as it is written. For GPUs, and processors for which the others have no kernel."""

    rows_stand_alone = False

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self._weight if self._bias is None else torch.addmm(self._bias, x, self._weight)


class Packed:
    """oneDNN's product, with the weights laid out in advance in the order in which it reads them.

    From two rows on its rows stand alone. It reads at the memory's full speed from four rows on, and fewer, filled up
    to four, take no longer.
    """

    rows_stand_alone = True

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = torch.ops.mkldnn._reorder_linear_weight(weight.T), bias

    def __call__(self, x: Tensor) -> Tensor:
        rows = x if len(x) >= 4 else F.pad(x, (0, 0, 0, 4 - len(x)))
        out: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return out[: len(x)]


class Half:
    """float16 and bfloat16 on a processor that cannot multiply them by the matrix.

    For one row torch has a kernel that reads them at the memory's full speed. More rows are far faster in float32,
    and the weights are made float32 for them, a piece at a time.
    """

    rows_stand_alone = False

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight.T.contiguous(), bias

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) == 1:
            return F.linear(x, self._weight, self._bias)
        rows = x.float()
        pieces = torch.split(self._weight, PIECE)
        out = torch.cat([F.linear(rows, piece.float()) for piece in pieces], dim=1)
        return (out if self._bias is None else out + self._bias).to(x.dtype)


class Int8:
    """Weights as whole numbers from −127 to 127, with one scale per output: half the bytes of float16.

    The rows are float32, and keep 14 bits: each is split into a high and a low part of 7 bits, two rows of a product
    of whole numbers. That is exact, so rows stand alone, and a second row costs little where reading the weights takes
    the time. (7 bits, since processors without VNNI add pairs of products in 16 bits, which 8 would overflow.)
    """

    rows_stand_alone = True

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        n_in, self._outputs = weight.shape
        # A number of outputs that is no multiple of 64, as GPT-2's vocabulary, would take twice as long.
        n_out = self._outputs + -self._outputs % 64
        rows, self._scale = torch.zeros(n_out, n_in, dtype=torch.int8), torch.ones(n_out)
        for start in range(0, self._outputs, PIECE):
            whole, scale = round_columns(weight[:, start : start + PIECE].float())
            rows[start : start + len(scale)], self._scale[start : start + len(scale)] = whole.T, scale
        self._weight = torch.ops.onednn.qlinear_prepack(rows, None)
        self._zero_points = torch.zeros(n_out, dtype=torch.int64)
        self._bias = torch.zeros(()) if bias is None else bias

    def __call__(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(1, keepdim=True).div_(63 * 128)
        # In each part 64 stands for zero: 64 · 128 + 64. Half more makes the conversion round.
        whole = (x / scale).add_(64 * 128 + 64.5).to(torch.int16)
        parts = torch.cat([whole >> 7, whole.bitwise_and_(127)]).to(torch.uint8)  # [2T, in]
        out = torch.ops.onednn.qlinear_pointwise(
            parts, 1.0, 64, self._weight, self._scale, self._zero_points, None, 1.0, 0, torch.float32, "none", [], ""
        )
        high, low = out[:, : self._outputs].chunk(2)
        return torch.addcmul(self._bias, low.add_(high, alpha=128), scale)


def round_columns(weight: Tensor) -> tuple[Tensor, Tensor]:
    """[in, out] → whole numbers from −127 to 127 [in, out] and scales [out], whose product is about the weight."""
    scale = weight.abs().amax(0).clamp_min(1e-30) / 127
    return (weight / scale).round(), scale


def can_round() -> bool:
    """Whether this build of torch has the kernel of Int8."""
    return _has_onednn() and hasattr(torch.ops.onednn, "qlinear_pointwise")


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call, no-any-return]


def _can_pack(weight: Tensor) -> bool:
    mkldnn = torch.ops.mkldnn
    if weight.device.type != "cpu" or not _has_onednn() or not hasattr(mkldnn, "_linear_pointwise"):
        return False
    if weight.dtype == torch.bfloat16:
        return bool(mkldnn._is_mkldnn_bf16_supported())
    if weight.dtype == torch.float16:
        return bool(mkldnn._is_mkldnn_fp16_supported())
    return weight.dtype == torch.float32
