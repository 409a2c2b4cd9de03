"""Updates class rows by their gradients and rescales them to length 1: consecutive ones, or those with given ids.

Shapes: K rows of a table, C that move, D dimension.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _move_rows(
    rows_ptr,
    copy_ptr,
    ids_ptr,
    gradients_ptr,
    factor_ptr,
    key_ptr,
    num_rows,
    first_row,
    gradient_stride,
    D: tl.constexpr,
    TILE_C: tl.constexpr,
    TILE_D: tl.constexpr,
    HAS_IDS: tl.constexpr,
    HAS_COPY: tl.constexpr,
    ROUND_AT_RANDOM: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * TILE_C + tl.arange(0, TILE_C)
    dims = tl.arange(0, TILE_D)
    here = (rows < num_rows)[:, None] & (dims < D)[None, :]
    gradients = tl.load(gradients_ptr + rows[:, None] * gradient_stride + dims[None, :], mask=here, other=0.0)
    if HAS_IDS:
        rows = tl.load(ids_ptr + rows, mask=rows < num_rows, other=0)
    places = rows[:, None] * D + dims[None, :]
    steps = tl.load(factor_ptr) * gradients
    # A row without an update is not rescaled or rounded again. NaN differs from 0, so it shows in the table.
    moves = tl.max((steps != 0.0).to(tl.int32), axis=1) > 0
    vectors = tl.load(rows_ptr + places, mask=here, other=0.0).to(tl.float32) + steps
    vectors /= tl.maximum(tl.sqrt(tl.sum(vectors * vectors, axis=1)), 1e-12)[:, None]
    if ROUND_AT_RANDOM:
        # One call of the generator gives four numbers of 32 bits, eight of 16.
        counters = (first_row + rows)[:, None] * (TILE_D // 8) + tl.arange(0, TILE_D // 8)[None, :]
        first, second, third, fourth = tl.randint4x(tl.load(key_ptr), counters.to(tl.int32))
        words = tl.join(tl.join(first, second), tl.join(third, fourth)).to(tl.uint32)
        noise = tl.reshape(tl.join(words & 0xFFFF, words >> 16), (TILE_C, TILE_D))
        # bfloat16 is the upper half of a float32: with random noise below the cut, the rounded number is unbiased. NaN
        # stays as it is: all its bits may be set, and a carry would turn it into 0.
        bits = vectors.to(tl.uint32, bitcast=True) + tl.where(vectors == vectors, noise, 0)  # noqa: PLR0124
        vectors = (bits & 0xFFFF0000).to(tl.float32, bitcast=True)
    here = here & moves[:, None]
    tl.store(rows_ptr + places, vectors.to(rows_ptr.dtype.element_ty), mask=here)
    if HAS_COPY:
        tl.store(copy_ptr + places, vectors.to(copy_ptr.dtype.element_ty), mask=here)


def move_rows(
    rows_KD: Tensor,
    gradients_CD: Tensor,
    factor: Tensor,
    *,
    copy_KD: Tensor | None = None,
    ids_C: Tensor | None = None,
    key: Tensor | None,
    first: int = 0,
) -> None:
    """row += factor * gradient, scaled back to length 1; the rows are those of the classes from ``first`` on.

    ``ids_C`` (int64, distinct): the classes of the gradients, if these are not consecutive.
    """
    num_rows, dim = len(gradients_CD), rows_KD.shape[1]
    assert num_rows == (len(rows_KD) if ids_C is None else len(ids_C)), (num_rows, len(rows_KD))
    tile_d = max(triton.next_power_of_2(dim), 8)
    tile_c = max(1, 4096 // tile_d)
    _move_rows[(triton.cdiv(num_rows, tile_c),)](
        rows_KD,
        rows_KD if copy_KD is None else copy_KD,
        factor if ids_C is None else ids_C,
        gradients_CD,
        factor,
        factor if key is None else key,
        num_rows,
        first,
        gradients_CD.stride(0),
        D=dim,
        TILE_C=tile_c,
        TILE_D=tile_d,
        HAS_IDS=ids_C is not None,
        HAS_COPY=copy_KD is not None,
        ROUND_AT_RANDOM=rows_KD.dtype == torch.bfloat16,
        num_warps=4,
    )
