"""A table of which a step reads few rows: only those have gradients, and only those are written back.

Shapes: R rows of the table, U distinct rows of a step, D dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class TouchedRows:
    """Rows that a step has read, as a leaf of the graph: ``values.grad`` is their gradient after ``backward``."""

    ids_U: Tensor
    values_UD: Tensor


class RowTable:
    """One dense copy of a table, without a gradient of its own.

    Within a step each row may be read through one ``read`` only, so that its gradient is whole.
    """

    def __init__(self, weight_RD: Tensor, *, unit_rows: bool = False) -> None:
        self.weight = weight_RD.detach()
        self.unit_rows = unit_rows
        self._touched: list[TouchedRows] = []

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def dim(self) -> int:
        return self.weight.shape[1]

    def read(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Distinct rows [U, D] that gather gradients, and where each id (any shape) is among them."""
        ids_U, places = torch.unique(ids, return_inverse=True)
        return self.read_distinct(ids_U), places

    def read_distinct(self, ids_U: Tensor) -> Tensor:
        """``read`` for ids that are known to differ."""
        values_UD = self.weight.index_select(0, ids_U)
        if torch.is_grad_enabled():
            values_UD.requires_grad_()
            self._touched.append(TouchedRows(ids_U, values_UD))
        return values_UD

    def take_touched(self) -> list[TouchedRows]:
        """What was read since the last call."""
        touched, self._touched = self._touched, []
        return touched

    def write(self, ids_U: Tensor, values_UD: Tensor) -> None:
        """Puts rows back; rows of a table of unit rows are scaled to length 1 first."""
        if self.unit_rows:
            values_UD = torch.nn.functional.normalize(values_UD, dim=1)
        self.weight.index_copy_(0, ids_U, values_UD)


def random_rows(
    num_rows: int, dim: int, *, std: float, unit_rows: bool, generator: torch.Generator, device: torch.device
) -> Tensor:
    """Normal rows made in place: no second copy of a table that may fill most of the memory."""
    weight = torch.empty(num_rows, dim, device=device)
    for start in range(0, num_rows, _BLOCK_ROWS):
        weight[start : start + _BLOCK_ROWS].normal_(0, std, generator=generator)
    if unit_rows:
        scale_to_unit(weight)
    return weight


def scale_to_unit(weight: Tensor) -> None:
    """Rows to length 1, in place and block by block; rows of zeros stay."""
    for start in range(0, len(weight), _BLOCK_ROWS):
        block = weight[start : start + _BLOCK_ROWS]
        block.div_(block.norm(dim=1, keepdim=True).clamp_min(1e-12))
