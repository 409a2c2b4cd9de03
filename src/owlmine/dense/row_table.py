"""A table of which a step reads only a few rows: only those have gradients, and only those are written back.

Reads are sums over entries (row, point, value): ``_SumBags`` sums rows for each point, ``_DotRows`` multiplies each
point's vector with its own rows. In both cases the gradient of a row is the sum of value x vector of the point over the
entries of that row, which is itself a sum of bags: one bag for each distinct row.

Shapes: R rows of the table, U distinct rows of a step, D dimension, N points, T rows of each, E entries of
all bags.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from owlmine.dense.compiled_rows import compiled_dots, compiled_move, is_compiled_for


@dataclass(frozen=True, eq=False)
class TouchedRows:
    """Distinct rows that a step has read, and their gradient."""

    ids_U: Tensor
    gradient_UD: Tensor


@dataclass(frozen=True, eq=False)
class RowEntries:
    """The same before summation: the gradient of a row is the sum of value x vector of the point over its entries.
    Those of row u start at ``starts_U``."""

    ids_U: Tensor
    starts_U: Tensor
    points_E: Tensor
    values_E: Tensor
    vectors_ND: Tensor

    @cached_property
    def gradient_UD(self) -> Tensor:
        return functional.embedding_bag(
            self.points_E, self.vectors_ND, self.starts_U, mode="sum", per_sample_weights=self.values_E
        )


GatherGradient = Callable[[RowEntries], None]


def sum_bags(
    weight_RD: Tensor, ids_E: Tensor, offsets_N: Tensor, values_E: Tensor, *, gather: GatherGradient
) -> Tensor:
    """[N, D]: ``embedding_bag`` with mode sum; ``gather`` is called in ``backward``."""
    # No input needs a gradient, so autograd would not call backward without the anchor.
    anchor = weight_RD.new_zeros((), requires_grad=True)
    summed: Tensor = _SumBags.apply(anchor, weight_RD, (ids_E, offsets_N, values_E), gather)  # type: ignore[no-untyped-call]
    return summed


def dot_rows(weight_RD: Tensor, queries_ND: Tensor, ids_NT: Tensor, *, gather: GatherGradient) -> Tensor:
    """[N, T]: <query n, row ids[n, t]>; ``gather`` is called in ``backward``, and the rows must not change before
    that."""
    anchor = weight_RD.new_zeros((), requires_grad=True)
    dots: Tensor = _DotRows.apply(anchor, queries_ND, weight_RD, ids_NT, gather)  # type: ignore[no-untyped-call]
    return dots


class _SumBags(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, weight_RD: Tensor, entries: tuple[Tensor, Tensor, Tensor], gather: GatherGradient
    ) -> Tensor:
        del anchor
        ctx.entries, ctx.gather = entries, gather
        ids_E, offsets_N, values_E = entries
        return functional.embedding_bag(ids_E, weight_RD, offsets_N, mode="sum", per_sample_weights=values_E)

    @staticmethod
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[None, ...]:
        ids_E, offsets_N, values_E = ctx.entries
        counts_N = torch.diff(offsets_N, append=offsets_N.new_tensor([len(ids_E)]))
        points_E = _repeated(torch.arange(len(offsets_N), device=ids_E.device), counts_N, len(ids_E))
        ctx.gather(row_gradient(ids_E, points_E, values_E.to(gradient_ND.dtype), gradient_ND))
        return (None,) * 4


class _DotRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, queries_ND: Tensor, weight_RD: Tensor, ids_NT: Tensor, gather: GatherGradient
    ) -> Tensor:
        del anchor
        ctx.save_for_backward(queries_ND, ids_NT)
        ctx.weight_RD, ctx.gather = weight_RD, gather
        if is_compiled_for(weight_RD, queries_ND):
            return compiled_dots(weight_RD, queries_ND, ids_NT)
        rows_NTD = weight_RD.index_select(0, ids_NT.reshape(-1)).reshape(*ids_NT.shape, -1)
        return torch.einsum("nd,ntd->nt", queries_ND, rows_NTD)

    @staticmethod
    def backward(ctx: Any, gradient_NT: Tensor) -> tuple[Tensor | None, ...]:
        queries_ND, ids_NT = ctx.saved_tensors
        points_E = torch.arange(len(ids_NT), device=ids_NT.device)[:, None].expand_as(ids_NT).reshape(-1)
        ctx.gather(row_gradient(ids_NT.reshape(-1), points_E, gradient_NT.reshape(-1), queries_ND))
        if not ctx.needs_input_grad[1]:
            return (None,) * 5
        gradient_ND = functional.embedding_bag(ids_NT, ctx.weight_RD, mode="sum", per_sample_weights=gradient_NT)
        return None, gradient_ND, None, None, None


def row_gradient(ids_E: Tensor, points_E: Tensor, values_E: Tensor, vectors_ND: Tensor) -> RowEntries:
    """The distinct rows among ``ids``, each with its entries: a value, and the point whose vector it multiplies."""
    ids_U, starts_U, order_E = group_rows(ids_E)
    return RowEntries(
        ids_U, starts_U, _picked(points_E, order_E), _picked(values_E, order_E), vectors_ND.detach().contiguous()
    )


# For some thousand entries, PyTorch wakes up its threads, which takes longer than NumPy needs, and much longer if other
# programs use the cores.


def _picked(items_E: Tensor, order_E: Tensor) -> Tensor:
    """items[order]"""
    if items_E.device.type != "cpu":
        return items_E[order_E]
    return torch.from_numpy(items_E.detach().numpy()[order_E.numpy()])


def _repeated(items_N: Tensor, counts_N: Tensor, num_entries: int) -> Tensor:
    """[E] each item as often as its count says."""
    if items_N.device.type != "cpu":
        return items_N.repeat_interleave(counts_N, output_size=num_entries)
    return torch.from_numpy(np.repeat(items_N.numpy(), counts_N.numpy()))


def group_rows(ids_E: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct ids ascending, where each one's entries start once sorted, and the order (stable) that sorts them."""
    return _group_rows_on_cpu(ids_E) if ids_E.device.type == "cpu" else group_rows_plain(ids_E)


def group_rows_plain(ids_E: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``group_rows`` in PyTorch, for any device."""
    sorted_E, order_E = torch.sort(ids_E, stable=True)
    ids_U, counts_U = torch.unique_consecutive(sorted_E, return_counts=True)
    return ids_U, counts_U.cumsum(0) - counts_U, order_E


def _group_rows_on_cpu(ids_E: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same through one key per entry, its id in front of its place: such keys differ, and NumPy sorts them alone
    several times faster than PyTorch sorts ids together with their places."""
    num_entries = len(ids_E)
    bits = num_entries.bit_length()
    keys_E = ids_E.numpy().astype(np.int64) << bits
    keys_E |= np.arange(num_entries)
    keys_E.sort()
    sorted_E = keys_E >> bits
    keys_E &= (1 << bits) - 1
    is_first_E = np.ones(num_entries, np.bool_)
    np.not_equal(sorted_E[1:], sorted_E[:-1], out=is_first_E[1:])
    starts_U = np.flatnonzero(is_first_E)
    return torch.from_numpy(sorted_E[starts_U]), torch.from_numpy(starts_U), torch.from_numpy(keys_E)


_BLOCK_ROWS = 1 << 16


class RowTable:
    """One dense copy of a table, without a gradient of its own.

    Within a step, each row may be read through one call only, so that its gradient is complete.
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
        """Distinct rows [U, D] that accumulate gradients, and the position of each id (any shape) among them."""
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
        """[N, D]: for each bag of ids, the sum of its rows times their values; the rows are never copied."""
        return sum_bags(self.weight, ids_E, offsets_N, values_E, gather=self._gather)

    def dots(self, queries_ND: Tensor, ids_NT: Tensor) -> Tensor:
        """[N, T]: the dot product of each query with rows of its own; ids may repeat."""
        return dot_rows(self.weight, queries_ND, ids_NT, gather=self._gather)

    def take_touched(self) -> list[TouchedRows | RowEntries]:
        """The rows read, and reached by ``backward``, since the last call."""
        touched: list[TouchedRows | RowEntries] = [
            TouchedRows(ids, leaf.grad) for ids, leaf in self._leaves if leaf.grad is not None
        ]
        touched += self._gathered
        self._leaves, self._gathered = [], []
        return touched

    def _gather(self, touched: RowEntries) -> None:
        self._gathered.append(touched)

    def descend(self, touched: TouchedRows | RowEntries, rate: float) -> None:
        """``move`` by -rate * gradient; if possible, without materialising the gradient."""
        if isinstance(touched, RowEntries) and is_compiled_for(self.weight, touched.values_E, touched.vectors_ND):
            entries = (touched.points_E, touched.values_E, touched.vectors_ND)
            compiled_move(self.weight, touched.ids_U, touched.starts_U, entries, factor=-rate, unit_rows=self.unit_rows)
        else:
            self.move(touched, touched.gradient_UD, -rate)

    def move(self, touched: TouchedRows | RowEntries, steps_UD: Tensor, factor: float) -> None:
        """row += factor * step for the touched rows; rows of a table of unit rows are rescaled to length 1."""
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
    # On a CPU, index_add_ processes rows one by one; adding a coalesced sparse tensor uses every core.
    with torch.sparse.check_sparse_tensor_invariants(False):  # type: ignore[no-untyped-call]
        steps = torch.sparse_coo_tensor(ids_U[None], steps_UD, weight_RD.shape, is_coalesced=True)
        weight_RD.add_(steps, alpha=factor)


def random_rows(
    num_rows: int, dim: int, *, std: float, unit_rows: bool, generator: torch.Generator, device: torch.device
) -> Tensor:
    """Fills normal rows in place: no second copy of a table that may take most of the memory."""
    weight = _empty_table(num_rows, dim, device)
    for start in range(0, num_rows, _BLOCK_ROWS):
        weight[start : start + _BLOCK_ROWS].normal_(0, std, generator=generator)
    if unit_rows:
        scale_to_unit(weight)
    return weight


def _empty_table(num_rows: int, dim: int, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.empty(num_rows, dim, device=device)
    # NumPy asks Linux for pages of 2 MiB, PyTorch for 4 KiB: random rows of a table of some GiB are then read a fifth
    # faster.
    return torch.from_numpy(np.empty((num_rows, dim), np.float32))


def scale_to_unit(weight: Tensor) -> None:
    """Rows to length 1, in place and block by block; rows of zeros stay."""
    for start in range(0, len(weight), _BLOCK_ROWS):
        block = weight[start : start + _BLOCK_ROWS]
        block.div_(block.norm(dim=1, keepdim=True).clamp_min(1e-12))
