"""The places of the T largest values of each row, in time that does not depend on T.

The T-th largest value is found bit by bit, from the highest: a bit is set if at least T values are then as large.
Meanwhile, each row stays in the registers of one program. Places are in ascending order; of equal values, the first
ones are taken.

Shapes: N rows, M values of each, T wanted, C chosen blocks of G values each.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.launch import padded_width

MAX_WIDTH = 1 << 15
"""Values of a row that are looked at."""
_WIDTHS = (1 << 10, 1 << 12, 1 << 13, 1 << 14, MAX_WIDTH)


@triton.jit(do_not_specialize=["width", "num_chosen", "k", "T"])
def _select_largest(
    values_ptr,
    blocks_ptr,
    excluded_rows_ptr,
    excluded_offsets_ptr,
    places_ptr,
    width,
    num_chosen,
    k,
    T,
    ROW: tl.constexpr,
    G: tl.constexpr,
    HAS_BLOCKS: tl.constexpr,
    HAS_EXCLUDED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    slots = tl.arange(0, ROW)
    if HAS_BLOCKS:
        blocks = tl.load(blocks_ptr + row * num_chosen + slots // G, mask=slots < num_chosen * G, other=-1)
        columns = blocks * G + slots % G
        inside = (blocks >= 0) & (columns < width)
    else:
        columns = slots
        inside = columns < width
    wanted = T
    if HAS_EXCLUDED:
        excluded = tl.load(excluded_rows_ptr + row)
        more = tl.load(excluded_offsets_ptr + excluded + 1) - tl.load(excluded_offsets_ptr + excluded)
        wanted = tl.minimum(k + more.to(tl.int32), T)
    values = tl.load(values_ptr + row * width + columns, mask=inside, other=float("-inf"))
    # Bits of a float, transformed so that they sort like the values as unsigned numbers; missing values are lowest.
    # Adding 0 turns -0 into 0, since it would rank below 0.
    bits = (values + 0.0).to(tl.int32, bitcast=True)
    keys = (bits ^ ((bits >> 31) | -2147483648)).to(tl.uint32, bitcast=True)
    keys = tl.where(inside, keys, 0)
    # All keys share the bits above the first in which the largest and the smallest differ.
    largest = tl.max(keys, axis=0)
    differ = largest ^ tl.min(tl.where(inside, keys, largest), axis=0)
    bit = 31
    while (bit >= 0) & (((differ >> bit) & 1) == 0):
        bit -= 1
    threshold = tl.where(bit == 31, 0, (largest >> (bit + 1)) << (bit + 1)).to(tl.uint32)
    found = tl.sum(inside.to(tl.int32), axis=0)
    while (bit >= 0) & (found > wanted):
        candidate = threshold | (tl.full((), 1, tl.uint32) << bit)
        count = tl.sum((keys >= candidate).to(tl.int32), axis=0)
        if count >= wanted:
            threshold = candidate
            found = count
        bit -= 1
    above = (keys > threshold) & inside
    equal = (keys == threshold) & inside
    spare = wanted - tl.sum(above.to(tl.int32), axis=0)
    taken = above | (equal & (tl.cumsum(equal.to(tl.int32), axis=0) <= spare))
    target = tl.cumsum(taken.to(tl.int32), axis=0) - 1
    tl.store(places_ptr + row * T + target, columns, mask=taken)
    tl.store(places_ptr + row * T + slots, -1, mask=(slots >= tl.sum(taken.to(tl.int32), axis=0)) & (slots < T))


def select_largest(
    values_NM: Tensor,
    k: int,
    *,
    exclude: Exclusions | None = None,
    blocks_NC: Tensor | None = None,
    block: int = 1,
) -> Tensor:
    """[N, T] int32 places in the rows of contiguous float32 values without NaN; -1 where a row has no more.

    T is ``k``; with ``exclude`` it is k plus the most that a query excludes, and each row gets k plus as many as it
    excludes. ``blocks_NC`` (int32): only these blocks of ``block`` values are read; negative ones are ignored. At most
    ``MAX_WIDTH`` values per row are read.
    """
    num_rows, width = values_NM.shape
    looked_at = width if blocks_NC is None else blocks_NC.shape[1] * block
    assert 1 <= looked_at <= MAX_WIDTH, looked_at
    assert values_NM.dtype == torch.float32
    assert values_NM.is_contiguous()
    count = min(k if exclude is None else k + exclude.most, looked_at)
    places_NT = torch.empty(num_rows, count, dtype=torch.int32, device=values_NM.device)
    padded = padded_width(looked_at, _WIDTHS)
    _select_largest[(num_rows,)](
        values_NM,
        places_NT if blocks_NC is None else blocks_NC,
        places_NT if exclude is None else exclude.rows_N,
        places_NT if exclude is None else exclude.offsets,
        places_NT,
        width,
        0 if blocks_NC is None else blocks_NC.shape[1],
        k,
        count,
        ROW=padded,
        G=block,
        HAS_BLOCKS=blocks_NC is not None,
        HAS_EXCLUDED=exclude is not None,
        num_warps=max(1, min(16, padded // 1024)),
    )
    return places_NT
