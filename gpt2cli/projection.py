"""[T, in] → [T, out]: x @ weight + bias, each row as if it were alone.

Most matrix products add up in another order when there are other rows to do at the same time, so that in its last
bits a text would depend on its neighbours. oneDNN's product with weights packed beforehand does not, from two rows
on. It runs on the CPU in float32, where one row takes it as long as addmm, and 16 rows half as long.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

# Fewer rows are filled up to this number. They take no longer: the time goes into reading the weights.
FEWEST_ROWS = 4


class Projection:
    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """weight: [in, out]. bias: [out]. Packed weights are a copy, so the caller may let go of its own."""
        self._bias = bias
        self._packed = _can_pack(weight)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.T) if self._packed else weight

    @property
    def rows_stand_alone(self) -> bool:
        """Each row of a product is, to the last bit, what it is without the others."""
        return self._packed

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] → [T, out]"""
        if not self._packed:
            return x @ self._weight if self._bias is None else torch.addmm(self._bias, x, self._weight)
        rows = x if len(x) >= FEWEST_ROWS else F.pad(x, (0, 0, 0, FEWEST_ROWS - len(x)))
        out: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return out[: len(x)]


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
