"""Two ways to read a few rows of a table under autograd; the rows' gradient is handed on row by row, never as a table.

Both are sums over entries (row, point, value): ``_SumBags`` adds rows up for each point, ``_DotRows`` multiplies each
point's vector with rows of its own. So the gradient of a row is in both cases the sum of value x vector of the point
over the entries of that row, which is itself a sum of bags: one bag for each distinct row.

Shapes: R rows of the table, U distinct rows of a step, D dimension, N points, T rows of each, E entries of all.
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

from owlmine.model.compiled_rows import compiled_dots, is_compiled_for


@dataclass(frozen=True, eq=False)
class TouchedRows:
    """Distinct rows that a step has read, and their gradient."""

    ids_U: Tensor
    gradient_UD: Tensor


@dataclass(frozen=True, eq=False)
class RowEntries:
    """The same before anything is added up: the gradient of a row is the sum of value x vector of the point over its
    entries. Those of row u begin at ``starts_U``."""

    ids_U: Tensor
    starts_U: Tensor
    points_E: Tensor
    values_E: Tensor
    vectors_ND: Tensor

    @cached_property
    def gradient_UD(self) -> Tensor:  # noqa: N802
        return functional.embedding_bag(
            self.points_E, self.vectors_ND, self.starts_U, mode="sum", per_sample_weights=self.values_E
        )


GatherGradient = Callable[[RowEntries], None]


def sum_bags(
    weight_RD: Tensor, ids_E: Tensor, offsets_N: Tensor, values_E: Tensor, *, gather: GatherGradient
) -> Tensor:
    """[N, D]: ``embedding_bag`` with mode sum; ``gather`` is called in ``backward``."""
    # Nothing that needs a gradient goes in, so autograd would not call backward without the anchor.
    anchor = weight_RD.new_zeros((), requires_grad=True)
    summed: Tensor = _SumBags.apply(anchor, weight_RD, (ids_E, offsets_N, values_E), gather)  # type: ignore[no-untyped-call]
    return summed


def dot_rows(weight_RD: Tensor, queries_ND: Tensor, ids_NT: Tensor, *, gather: GatherGradient) -> Tensor:
    """[N, T]: <query n, row ids[n, t]>; ``gather`` is called in ``backward``, until when the rows must not move."""
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


# For some thousand entries PyTorch wakes up its threads, which takes longer than NumPy needs; much longer where other
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
