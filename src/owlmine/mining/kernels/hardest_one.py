"""Each query's hardest class that it does not exclude, from the maxima of blocks.

Blocks are visited from the largest maximum down, until the best score found is at least the next maximum: one visit if
the hardest class is not excluded, and always as many blocks as necessary, however many classes are excluded.

Shapes: N queries, K rows of the class table, D dimension, G classes of a block, M blocks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.launch import assert_contiguous
from owlmine.mining.kernels.select_largest import MAX_WIDTH


@triton.jit
def _hardest_one(
    maxima_ptr,
    queries_ptr,
    classes_ptr,
    ids_ptr,
    excluded_rows_ptr,
    excluded_offsets_ptr,
    excluded_ids_ptr,
    best_ids_ptr,
    best_scores_ptr,
    num_blocks,
    num_classes,
    D: tl.constexpr,
    G: tl.constexpr,
    ROW: tl.constexpr,
    TILE_D: tl.constexpr,
    HAS_IDS: tl.constexpr,
    HAS_EXCLUDED: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, ROW)
    maxima = tl.load(maxima_ptr + query * num_blocks + columns, mask=columns < num_blocks, other=float("-inf"))
    first_excluded = tl.full((), 0, tl.int64)
    end_excluded = tl.full((), 0, tl.int64)
    if HAS_EXCLUDED:
        row = tl.load(excluded_rows_ptr + query)
        first_excluded = tl.load(excluded_offsets_ptr + row)
        end_excluded = tl.load(excluded_offsets_ptr + row + 1)
    best = float("-inf")
    best_id = tl.full((), -1, tl.int64)
    highest, block = tl.max(maxima, axis=0, return_indices=True)
    while highest > best:
        places = block.to(tl.int64) * G + tl.arange(0, G)
        inside = places < num_classes
        scores = tl.zeros((G,), dtype=tl.float32)
        for first_d in tl.static_range(0, D, TILE_D):
            dims = first_d + tl.arange(0, TILE_D)
            here = dims < D
            part = tl.load(queries_ptr + query * D + dims, mask=here, other=0.0).to(tl.float32)
            rows = tl.load(
                classes_ptr + places[:, None] * D + dims[None, :], mask=inside[:, None] & here[None, :], other=0.0
            )
            scores += tl.sum(rows.to(tl.float32) * part[None, :], axis=1)
        ids = places
        if HAS_IDS:
            ids = tl.load(ids_ptr + places, mask=inside, other=-1).to(tl.int64)
        scores = tl.where(inside, scores, float("-inf"))
        for entry in range(first_excluded, end_excluded):
            scores = tl.where(ids == tl.load(excluded_ids_ptr + entry), float("-inf"), scores)
        found, place = tl.max(scores, axis=0, return_indices=True)
        if found > best:
            best = found
            best_id = tl.sum(tl.where(tl.arange(0, G) == place, ids, 0), axis=0)
        maxima = tl.where(columns == block, float("-inf"), maxima)
        highest, block = tl.max(maxima, axis=0, return_indices=True)
    tl.store(best_ids_ptr + query, best_id)
    tl.store(best_scores_ptr + query, best)


def hardest_one(
    maxima_NM: Tensor,
    queries_ND: Tensor,
    classes_KD: Tensor,
    *,
    block: int,
    ids: Tensor | None,
    exclude: Exclusions | None,
) -> tuple[Tensor, Tensor]:
    """[N] scores (float32) and class ids (int64; -1 where every class is excluded).

    ``ids`` names the rows of the class table where those are a pool.
    """
    num_queries, dim = queries_ND.shape
    num_blocks = maxima_NM.shape[1]
    assert num_blocks <= MAX_WIDTH, num_blocks
    assert_contiguous(maxima_NM, queries_ND, classes_KD)
    best_ids = torch.empty(num_queries, dtype=torch.int64, device=queries_ND.device)
    best_scores = torch.empty(num_queries, dtype=torch.float32, device=queries_ND.device)
    padded = triton.next_power_of_2(num_blocks)
    none = best_ids
    _hardest_one[(num_queries,)](
        maxima_NM,
        queries_ND,
        classes_KD,
        none if ids is None else ids,
        none if exclude is None else exclude.rows_N,
        none if exclude is None else exclude.offsets,
        none if exclude is None else exclude.ids,
        best_ids,
        best_scores,
        num_blocks,
        len(classes_KD),
        D=dim,
        G=block,
        ROW=padded,
        TILE_D=min(triton.next_power_of_2(dim), max(16, 8192 // block)),
        HAS_IDS=ids is not None,
        HAS_EXCLUDED=exclude is not None,
        num_warps=max(4, min(16, padded // 1024)),
    )
    return best_scores, best_ids
