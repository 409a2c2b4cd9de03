"""A table of which a step reads few rows: only those have gradients, and only those are written back.

Shapes: R rows of the table, U distinct rows of a step, D dimension, N points, T rows of each, E entries of
all bags.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from owlmine.model.compiled_rows import compiled_move, is_compiled_for
from owlmine.model.row_gradients import RowEntries, TouchedRows, dot_rows, sum_bags

_BLOCK_ROWS = 1 << 16


class RowTable:
    """One dense copy of a table, without a gradient of its own.

    Within a step each row may be read through one call only, so that its gradient is whole.
    """

    def __init__(self, weight_RD: Tensor, *, unit_rows: bool = False) -> None:
        self.weight = weight_RD.detach()
        self.unit_rows = unit_rows
        self._leaves: list[tuple[Tensor, Tensor]] = []
        self._gathered: list[RowEntries] = []

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
            self._leaves.append((ids_U, values_UD))
        return values_UD

    def sum_bags(self, ids_E: Tensor, offsets_N: Tensor, values_E: Tensor) -> Tensor:
        """[N, D]: for each bag of ids the sum of its rows, each times its value; the rows are never copied."""
        return sum_bags(self.weight, ids_E, offsets_N, values_E, gather=self._gather)

    def dots(self, queries_ND: Tensor, ids_NT: Tensor) -> Tensor:
        """[N, T]: the dot product of each query with rows of its own; ids may repeat."""
        return dot_rows(self.weight, queries_ND, ids_NT, gather=self._gather)

    def take_touched(self) -> list[TouchedRows | RowEntries]:
        """What was read, and reached by ``backward``, since the last call."""
        touched: list[TouchedRows | RowEntries] = [
            TouchedRows(ids, leaf.grad) for ids, leaf in self._leaves if leaf.grad is not None
        ]
        touched += self._gathered
        self._leaves, self._gathered = [], []
        return touched

    def _gather(self, touched: RowEntries) -> None:
        self._gathered.append(touched)

    def descend(self, touched: TouchedRows | RowEntries, rate: float) -> None:
        """``move`` by -rate * gradient; where it can, without writing the gradient down."""
        if isinstance(touched, RowEntries) and is_compiled_for(self.weight, touched.values_E, touched.vectors_ND):
            entries = (touched.points_E, touched.values_E, touched.vectors_ND)
            compiled_move(self.weight, touched.ids_U, touched.starts_U, entries, factor=-rate, unit_rows=self.unit_rows)
        else:
            self.move(touched, touched.gradient_UD, -rate)

    def move(self, touched: TouchedRows | RowEntries, steps_UD: Tensor, factor: float) -> None:
        """row += factor * step for the touched rows; rows of a table of unit rows are scaled back to length 1."""
        if not self.unit_rows:
            _add_rows(self.weight, touched.ids_U, steps_UD, factor)
            return
        moved_UD = self.weight.index_select(0, touched.ids_U).add_(steps_UD, alpha=factor)
        scale_to_unit(moved_UD)
        self.weight.index_copy_(0, touched.ids_U, moved_UD)


def _add_rows(weight_RD: Tensor, ids_U: Tensor, steps_UD: Tensor, factor: float) -> None:
    """weight[ids] += factor * steps for distinct ids."""
    if weight_RD.device.type != "cpu":
        weight_RD.index_add_(0, ids_U, steps_UD, alpha=factor)
        return
    # On a CPU index_add_ goes through the rows one by one; adding a coalesced sparse tensor uses every core.
    with torch.sparse.check_sparse_tensor_invariants(False):  # type: ignore[no-untyped-call]
        steps = torch.sparse_coo_tensor(ids_U[None], steps_UD, weight_RD.shape, is_coalesced=True)
        weight_RD.add_(steps, alpha=factor)


def random_rows(
    num_rows: int, dim: int, *, std: float, unit_rows: bool, generator: torch.Generator, device: torch.device
) -> Tensor:
    """Normal rows made in place: no second copy of a table that may fill most of the memory."""
    weight = _empty_table(num_rows, dim, device)
    for start in range(0, num_rows, _BLOCK_ROWS):
        weight[start : start + _BLOCK_ROWS].normal_(0, std, generator=generator)
    if unit_rows:
        scale_to_unit(weight)
    return weight


def _empty_table(num_rows: int, dim: int, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.empty(num_rows, dim, device=device)
    # NumPy asks Linux for pages of 2 MiB where PyTorch takes 4 KiB: rows picked from all over a table of some GiB are
    # then found a fifth faster.
    return torch.from_numpy(np.empty((num_rows, dim), np.float32))


def scale_to_unit(weight: Tensor) -> None:
    """Rows to length 1, in place and block by block; rows of zeros stay."""
    for start in range(0, len(weight), _BLOCK_ROWS):
        block = weight[start : start + _BLOCK_ROWS]
        block.div_(block.norm(dim=1, keepdim=True).clamp_min(1e-12))
