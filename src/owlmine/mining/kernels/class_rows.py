"""The few class rows of a step that carry gradients: their scores, the gradient of the query, and their update.

Shapes: N queries, T class ids of each (the positive and the kept negatives), K classes, D dimension.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from owlmine.mining.kernels.launch import assert_contiguous


@triton.jit
def _kept_scores(
    queries_ptr, classes_ptr, ids_ptr, scores_ptr, T, D: tl.constexpr, TILE_T: tl.constexpr, TILE_D: tl.constexpr
):
    query = tl.program_id(0).to(tl.int64)
    slots = tl.program_id(1) * TILE_T + tl.arange(0, TILE_T)
    inside = slots < T
    ids = tl.load(ids_ptr + query * T + slots, mask=inside, other=-1).to(tl.int64)
    inside = inside & (ids >= 0)
    dims = tl.arange(0, TILE_D)
    vector = tl.load(queries_ptr + query * D + dims, mask=dims < D, other=0.0)
    rows = tl.load(
        classes_ptr + ids[:, None] * D + dims[None, :], mask=inside[:, None] & (dims < D)[None, :], other=0.0
    )
    scores = tl.sum(rows.to(tl.float32) * vector[None, :], axis=1)
    tl.store(scores_ptr + query * T + slots, scores, mask=slots < T)


@triton.jit
def _query_gradients(
    classes_ptr,
    ids_ptr,
    slopes_ptr,
    gradients_ptr,
    T,
    D: tl.constexpr,
    TILE_T: tl.constexpr,
    TILE_D: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, TILE_D)
    here = dims < D
    gradient = tl.zeros((TILE_D,), dtype=tl.float32)
    for first in range(0, T, TILE_T):
        slots = first + tl.arange(0, TILE_T)
        inside = slots < T
        ids = tl.load(ids_ptr + query * T + slots, mask=inside, other=-1).to(tl.int64)
        slopes = tl.load(slopes_ptr + query * T + slots, mask=inside, other=0.0)
        # A slope of 0 needs no row: most kept negatives of an easy point.
        used = inside & (ids >= 0) & (slopes != 0.0)
        rows = tl.load(classes_ptr + ids[:, None] * D + dims[None, :], mask=used[:, None] & here[None, :], other=0.0)
        gradient += tl.sum(rows.to(tl.float32) * slopes[:, None], axis=0)
    tl.store(gradients_ptr + query * D + dims, gradient, mask=here)


@triton.jit
def _update_classes(
    classes_ptr,
    copy_ptr,
    queries_ptr,
    sorted_ids_ptr,
    order_ptr,
    slopes_ptr,
    factor_ptr,
    key_ptr,
    num_entries,
    T,
    D: tl.constexpr,
    TILE_E: tl.constexpr,
    TILE_D: tl.constexpr,
    HAS_COPY: tl.constexpr,
    ROUND_AT_RANDOM: tl.constexpr,
):
    first = tl.program_id(0)
    class_id = tl.load(sorted_ids_ptr + first).to(tl.int64)
    before = tl.load(sorted_ids_ptr + first - 1, mask=first > 0, other=-1)
    # One program per distinct class: the one at its first entry. Negative ids are ignored.
    if (class_id >= 0) & (class_id != before):
        dims = tl.arange(0, TILE_D)
        here = dims < D
        gradient = tl.zeros((TILE_D,), dtype=tl.float32)
        num_used = 0
        start = first
        going = True
        while going:
            entries = start + tl.arange(0, TILE_E)
            same = entries < num_entries
            same = same & (tl.load(sorted_ids_ptr + entries, mask=same, other=-1) == class_id)
            places = tl.load(order_ptr + entries, mask=same, other=0)
            slopes = tl.load(slopes_ptr + places, mask=same, other=0.0)
            used = same & (slopes != 0.0)
            vectors = tl.load(
                queries_ptr + (places // T)[:, None] * D + dims[None, :], mask=used[:, None] & here[None, :], other=0.0
            )
            gradient += tl.sum(vectors * slopes[:, None], axis=0)
            num_used += tl.sum(used.to(tl.int32), axis=0)
            start += TILE_E
            going = tl.sum(same.to(tl.int32), axis=0) == TILE_E
        # A row without a slope is not rescaled or rounded again.
        if num_used > 0:
            row = tl.load(classes_ptr + class_id * D + dims, mask=here, other=0.0).to(tl.float32)
            row += tl.load(factor_ptr) * gradient
            row /= tl.maximum(tl.sqrt(tl.sum(row * row, axis=0)), 1e-12)
            if ROUND_AT_RANDOM:
                # bfloat16 is the upper half of a float32: with random noise below the cut, the rounded number is
                # unbiased.
                noise = tl.randint(tl.load(key_ptr), (class_id * D + dims).to(tl.int32)).to(tl.uint32) & 0xFFFF
                # NaN stays NaN: all its bits may be set, and a carry would turn it into 0.
                bits = row.to(tl.uint32, bitcast=True) + tl.where(row == row, noise, 0)  # noqa: PLR0124
                row = (bits & 0xFFFF0000).to(tl.float32, bitcast=True)
            tl.store(classes_ptr + class_id * D + dims, row.to(classes_ptr.dtype.element_ty), mask=here)
            if HAS_COPY:
                tl.store(copy_ptr + class_id * D + dims, row.to(copy_ptr.dtype.element_ty), mask=here)


def kept_scores(queries_ND: Tensor, classes_KD: Tensor, ids_NT: Tensor) -> Tensor:
    """[N, T] float32; 0 for negative ids."""
    num_queries, dim = queries_ND.shape
    kept = ids_NT.shape[1]
    assert_contiguous(queries_ND, classes_KD, ids_NT)
    scores_NT = torch.empty(num_queries, kept, dtype=torch.float32, device=queries_ND.device)
    tile_t = min(triton.next_power_of_2(kept), 16)
    _kept_scores[(num_queries, triton.cdiv(kept, tile_t))](
        queries_ND, classes_KD, ids_NT, scores_NT, kept, D=dim, TILE_T=tile_t, TILE_D=triton.next_power_of_2(dim)
    )
    return scores_NT


def query_gradients(classes_KD: Tensor, ids_NT: Tensor, slopes_NT: Tensor) -> Tensor:
    """[N, D]: gradient of sum(slopes * scores) with respect to the queries."""
    (num_queries, kept), dim = ids_NT.shape, classes_KD.shape[1]
    assert_contiguous(classes_KD, ids_NT, slopes_NT)
    gradients_ND = torch.empty(num_queries, dim, dtype=torch.float32, device=classes_KD.device)
    _query_gradients[(num_queries,)](
        classes_KD,
        ids_NT,
        slopes_NT,
        gradients_ND,
        kept,
        D=dim,
        TILE_T=min(triton.next_power_of_2(kept), 16),
        TILE_D=triton.next_power_of_2(dim),
    )
    return gradients_ND


def update_classes(
    classes_KD: Tensor,
    queries_ND: Tensor,
    ids_NT: Tensor,
    slopes_NT: Tensor,
    factor: Tensor,
    *,
    copy_KD: Tensor | None,
    key: Tensor,
) -> None:
    """row += factor * (sum of slope * query over the entries of its class), scaled back to length 1.

    A bfloat16 table is rounded stochastically, so that the mean is kept (``key`` is the seed). ``copy_KD`` is kept
    equal to the table, in its own type. ``factor`` and ``key`` lie on the device.
    """
    dim = queries_ND.shape[1]
    assert_contiguous(classes_KD, queries_ND, slopes_NT)
    flat_ids = ids_NT.reshape(-1)
    sorted_ids, order = flat_ids.sort(stable=True)
    _update_classes[(len(flat_ids),)](
        classes_KD,
        classes_KD if copy_KD is None else copy_KD,
        queries_ND,
        sorted_ids,
        order,
        slopes_NT,
        factor,
        key,
        len(flat_ids),
        ids_NT.shape[1],
        D=dim,
        TILE_E=4,
        TILE_D=triton.next_power_of_2(dim),
        HAS_COPY=copy_KD is not None,
        ROUND_AT_RANDOM=classes_KD.dtype == torch.bfloat16,
        num_warps=4,
    )
