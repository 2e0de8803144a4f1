"""[T, in] → [T, out]: x @ weight + bias, by the kernel that reads the weights fastest.

To make one token is to read every weight once, so the time goes into memory, not arithmetic; `examples/benchmark.py`
measures what that makes. Each class below is one way to hold the weights, and says where it wins. Where rows stand
alone, each is, to the last bit, what it would be without the others; most products of matrices add up in another
order when there are more rows to do, and then a text would depend on its neighbours in a batch.
"""

import math
from mmap import mmap
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

# Of the arithmetic. int8 rounds the matrices alone; what they are multiplied by stays float32.
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.float32}
FEW = 32  # rows; for more, other kernels may be faster


class Projection(Protocol):
    rows_stand_alone: bool  # FEW of them, at least

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] → [T, out]"""


def projection(weight: Tensor, bias: Tensor | None, dtype: str) -> Projection:
    """weight: [in, out], of any float type. bias: [out]. dtype: a name of DTYPES.

    The caller may let go of the weight: what is kept is often a copy.
    """
    if dtype == "int8":
        return Int8(weight, bias)
    weight = weight.to(DTYPES[dtype])
    if _can_pack(weight):
        return Packed(weight, bias)
    if _has_half_bags(weight):
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

    From two rows on its rows stand alone, with AVX2 from one on. With AVX-512 four take less time than one.
    """

    rows_stand_alone = True
    FEWEST = {"AVX512": 4, "AVX2": 1}.get(torch.backends.cpu.get_cpu_capability(), 2)  # fewer rows are filled up

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        rows = weight.T  # [out, in], as oneDNN wants it
        if not rows.is_contiguous():
            # A copy in pages of its own goes back to the system at once, and leaves no hole.
            rows = torch.frombuffer(mmap(-1, weight.nbytes), dtype=weight.dtype).view(rows.shape).copy_(rows)
        self._weight, self._bias = torch.ops.mkldnn._reorder_linear_weight(rows), bias

    def __call__(self, x: Tensor) -> Tensor:
        rows = x if len(x) >= self.FEWEST else F.pad(x, (0, 0, 0, self.FEWEST - len(x)))
        out: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return out[: len(x)]


class Half:
    """float16 and bfloat16 on a processor that cannot multiply them by the matrix.

    Few rows: x @ weight is a sum of the weight's rows, each times a number, which is what an embedding bag computes,
    and its kernel fetches in advance what it will add next. Each bag here is one row of x times a block of columns.
    More rows are faster in float32, and the weights are made float32 for them, a block at a time.
    """

    rows_stand_alone = True
    WIDTH = 448  # columns of a block: so many float32 sums fit into the registers of AVX-512

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        n_in, self._outputs = weight.shape
        blocks = max(2, math.ceil(self._outputs / self.WIDTH))  # two, so that two threads have work
        width = math.ceil(self._outputs / blocks / 16) * 16
        self._blocks = weight.new_zeros(blocks, n_in, width)
        for block, columns in zip(self._blocks, torch.split(weight, width, dim=1), strict=False):
            block[:, : columns.shape[1]] = columns
        self._bias = bias
        self._row_numbers = torch.arange(blocks * n_in, dtype=torch.int32).view(blocks, 1, n_in)
        self._ends = torch.arange(0, blocks * FEW * n_in + 1, n_in, dtype=torch.int32)

    def __call__(self, x: Tensor) -> Tensor:
        out = self._bags(x) if len(x) <= FEW else self._in_float32(x)
        out = out.transpose(0, 1).flatten(1)[:, : self._outputs]  # [blocks, T, width] → [T, out]
        return out if self._bias is None else out + self._bias

    def _bags(self, x: Tensor) -> Tensor:
        """[T, in] → [blocks, T, width]. The bags of a block follow each other, so that it is read once."""
        blocks, n_in, width = self._blocks.shape
        bags = blocks, len(x), n_in
        rows, factors = self._row_numbers.expand(bags).flatten(), x.expand(bags).flatten()
        ends = self._ends[: blocks * len(x) + 1]
        sums = torch.embedding_bag(
            self._blocks.flatten(0, 1), rows, ends, per_sample_weights=factors, include_last_offset=True
        )[0]
        return sums.view(blocks, len(x), width)

    def _in_float32(self, x: Tensor) -> Tensor:
        """[T, in] → [blocks, T, width]"""
        rows = x.float()
        return torch.stack([(rows @ block.float()).to(x.dtype) for block in self._blocks])


class Int8:
    """Weights as whole numbers from −127 to 127, with one scale per output: half the bytes of float16.

    The rows are float32, and keep 14 bits: each is split into a high and a low part of 7 bits, two rows of a product
    of whole numbers. That is exact, so rows stand alone, and a second row costs little where reading the weights takes
    the time. (7 bits, since processors without VNNI add pairs of products in 16 bits, which 8 would overflow.)

    The product is oneDNN's, as torch's own quantized tensors are being removed, and torchao makes the weights float32
    again for each product with float32 rows.
    """

    rows_stand_alone = True
    PIECE = 1024  # outputs that are rounded at a time, so that a float32 copy of the whole is never held

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        n_in, self._outputs = weight.shape
        # A number of outputs that is no multiple of 64, as GPT-2's vocabulary, would take twice as long.
        n_out = self._outputs + -self._outputs % 64
        rows, self._scale = torch.zeros(n_out, n_in, dtype=torch.int8), torch.ones(n_out)
        for start in range(0, self._outputs, self.PIECE):
            whole, scale = round_columns(weight[:, start : start + self.PIECE].float())
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


def _has_half_bags(weight: Tensor) -> bool:
    on_cpu = weight.device.type == "cpu" and weight.dtype in (torch.float16, torch.bfloat16)
    return on_cpu and "fbgemm" in torch.backends.quantized.supported_engines


def _can_pack(weight: Tensor) -> bool:
    mkldnn = torch.ops.mkldnn
    if weight.device.type != "cpu" or not _has_onednn() or not hasattr(mkldnn, "_linear_pointwise"):
        return False
    if weight.dtype == torch.bfloat16:
        return bool(mkldnn._is_mkldnn_bf16_supported())
    if weight.dtype == torch.float16:
        return bool(mkldnn._is_mkldnn_fp16_supported())
    return weight.dtype == torch.float32
