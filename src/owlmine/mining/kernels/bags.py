"""The sparse side of the encoder: sums of table rows over the entries of each point, and their update.

Points are rows of a dataset that is entirely on the device, so a batch is a list of row indices, and nothing is copied
for it.

Shapes: F rows of the table, D dimension, N points of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from owlmine.mining.kernels.launch import assert_contiguous


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """Compressed sparse rows on a device; ``values`` None means ones."""

    offsets: Tensor
    ids: Tensor
    values: Tensor | None

    def __len__(self) -> int:
        return len(self.offsets) - 1


@triton.jit
def _sum_bags(
    table_ptr,
    points_ptr,
    offsets_ptr,
    ids_ptr,
    values_ptr,
    sums_ptr,
    D: tl.constexpr,
    TILE_E: tl.constexpr,
    TILE_D: tl.constexpr,
    HAS_VALUES: tl.constexpr,
    RELU: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)
    point = tl.load(points_ptr + number)
    first = tl.load(offsets_ptr + point)
    end = tl.load(offsets_ptr + point + 1)
    dims = tl.program_id(1) * TILE_D + tl.arange(0, TILE_D)
    here = dims < D
    sums = tl.zeros((TILE_D,), dtype=tl.float32)
    for start in range(first, end, TILE_E):
        entries = start + tl.arange(0, TILE_E)
        inside = entries < end
        ids = tl.load(ids_ptr + entries, mask=inside, other=0).to(tl.int64)
        rows = tl.load(table_ptr + ids[:, None] * D + dims[None, :], mask=inside[:, None] & here[None, :], other=0.0)
        rows = rows.to(tl.float32)
        if HAS_VALUES:
            rows *= tl.load(values_ptr + entries, mask=inside, other=0.0).to(tl.float32)[:, None]
        sums += tl.sum(rows, axis=0)
    if RELU:
        # Not a maximum, which would turn NaN into 0 and hide it.
        sums = tl.where(sums < 0.0, 0.0, sums)
    tl.store(sums_ptr + number * D + dims, sums, mask=here)


@triton.jit
def _add_to_bags(
    table_ptr,
    points_ptr,
    offsets_ptr,
    ids_ptr,
    values_ptr,
    steps_ptr,
    factor_ptr,
    D: tl.constexpr,
    TILE_E: tl.constexpr,
    TILE_D: tl.constexpr,
    HAS_VALUES: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)
    point = tl.load(points_ptr + number)
    first = tl.load(offsets_ptr + point)
    end = tl.load(offsets_ptr + point + 1)
    dims = tl.program_id(1) * TILE_D + tl.arange(0, TILE_D)
    here = dims < D
    step = tl.load(factor_ptr) * tl.load(steps_ptr + number * D + dims, mask=here, other=0.0)
    for start in range(first, end, TILE_E):
        entries = start + tl.arange(0, TILE_E)
        inside = entries < end
        ids = tl.load(ids_ptr + entries, mask=inside, other=0).to(tl.int64)
        moves = tl.broadcast_to(step[None, :], (TILE_E, TILE_D))
        if HAS_VALUES:
            moves *= tl.load(values_ptr + entries, mask=inside, other=0.0).to(tl.float32)[:, None]
        tl.atomic_add(
            table_ptr + ids[:, None] * D + dims[None, :], moves, mask=inside[:, None] & here[None, :], sem="relaxed"
        )


def sum_bags(table_FD: Tensor, rows: DeviceRows, points_N: Tensor, *, relu: bool) -> Tensor:
    """[N, D] float32: for each point the sum of its table rows times their values; with ``relu``, its positive part."""
    dim = table_FD.shape[1]
    assert_contiguous(table_FD, points_N)
    sums_ND = torch.empty(len(points_N), dim, dtype=torch.float32, device=table_FD.device)
    tile_d = min(triton.next_power_of_2(dim), 512)
    _sum_bags[(len(points_N), triton.cdiv(dim, tile_d))](
        table_FD,
        points_N,
        rows.offsets,
        rows.ids,
        rows.offsets if rows.values is None else rows.values,
        sums_ND,
        D=dim,
        TILE_E=16,
        TILE_D=tile_d,
        HAS_VALUES=rows.values is not None,
        RELU=relu,
    )
    return sums_ND


def add_to_bags(table_FD: Tensor, rows: DeviceRows, points_N: Tensor, steps_ND: Tensor, factor: Tensor) -> None:
    """table[id] += factor * value * step for every entry of every point. ``factor``: one float32 on the device.

    Rows shared by several points are summed in no fixed order, so the last bits differ from run to run.
    """
    dim = table_FD.shape[1]
    assert table_FD.dtype == torch.float32
    assert_contiguous(table_FD, points_N, steps_ND)
    tile_d = min(triton.next_power_of_2(dim), 512)
    _add_to_bags[(len(points_N), triton.cdiv(dim, tile_d))](
        table_FD,
        points_N,
        rows.offsets,
        rows.ids,
        rows.offsets if rows.values is None else rows.values,
        steps_ND,
        factor,
        D=dim,
        TILE_E=16,
        TILE_D=tile_d,
        HAS_VALUES=rows.values is not None,
    )
