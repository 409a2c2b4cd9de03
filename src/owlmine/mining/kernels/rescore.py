"""Scores of the classes in the blocks that ``select_largest`` chose by their maxima.

Shapes: N queries, K rows of the class table, D dimension, G classes of a block, T chosen blocks of each query.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.launch import assert_contiguous


@triton.jit(do_not_specialize=["T", "num_classes"])
def _rescore(
    blocks_ptr,
    queries_ptr,
    classes_ptr,
    ids_ptr,
    excluded_rows_ptr,
    excluded_offsets_ptr,
    excluded_ids_ptr,
    known_ptr,
    scores_ptr,
    T,
    num_classes,
    D,
    G: tl.constexpr,
    TILE_T: tl.constexpr,
    TILE_D: tl.constexpr,
    HAS_IDS: tl.constexpr,
    HAS_EXCLUDED: tl.constexpr,
    HAS_KNOWN: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    slots = tl.program_id(1) * TILE_T * G + tl.arange(0, TILE_T * G)
    wanted = slots < T * G
    blocks = tl.load(blocks_ptr + query * T + slots // G, mask=wanted, other=-1)
    places = blocks.to(tl.int64) * G + slots % G
    inside = (blocks >= 0) & (places < num_classes)
    if HAS_KNOWN:
        scores = tl.load(known_ptr + query * num_classes + places, mask=inside, other=0.0)
    else:
        scores = tl.zeros((TILE_T * G,), dtype=tl.float32)
        for first_d in range(0, D, TILE_D):
            dims = first_d + tl.arange(0, TILE_D)
            here = dims < D
            part = tl.load(queries_ptr + query * D + dims, mask=here, other=0.0).to(tl.float32)
            rows = tl.load(
                classes_ptr + places[:, None] * D + dims[None, :], mask=inside[:, None] & here[None, :], other=0.0
            )
            scores += tl.sum(rows.to(tl.float32) * part[None, :], axis=1)
    scores = tl.where(inside, scores, float("-inf"))
    if HAS_EXCLUDED:
        ids = places
        if HAS_IDS:
            ids = tl.load(ids_ptr + places, mask=inside, other=-1).to(tl.int64)
        row = tl.load(excluded_rows_ptr + query)
        for entry in range(tl.load(excluded_offsets_ptr + row), tl.load(excluded_offsets_ptr + row + 1)):
            scores = tl.where(ids == tl.load(excluded_ids_ptr + entry), float("-inf"), scores)
    tl.store(scores_ptr + query * T * G + slots, scores, mask=wanted)


def rescore(
    blocks_NT: Tensor,
    queries_ND: Tensor,
    classes_KD: Tensor,
    *,
    block: int,
    ids: Tensor | None,
    exclude: Exclusions | None,
    known_NK: Tensor | None = None,
) -> Tensor:
    """[N, T * G] float32: scores of the classes of each query's blocks.

    -inf past the last class, in blocks with a negative number, and where excluded. ``known_NK``: all scores, if those
    were kept; then nothing is multiplied.
    """
    num_queries, dim = queries_ND.shape
    num_chosen = blocks_NT.shape[1]
    assert_contiguous(blocks_NT, queries_ND, classes_KD)
    scores = torch.empty(num_queries, num_chosen * block, dtype=torch.float32, device=queries_ND.device)
    tile_t = max(1, (64 if known_NK is None else 1024) // block)
    _rescore[(num_queries, triton.cdiv(num_chosen, tile_t))](
        blocks_NT,
        queries_ND,
        classes_KD,
        blocks_NT if ids is None else ids,
        blocks_NT if exclude is None else exclude.rows_N,
        blocks_NT if exclude is None else exclude.offsets,
        blocks_NT if exclude is None else exclude.ids,
        scores if known_NK is None else known_NK,
        scores,
        num_chosen,
        len(classes_KD),
        dim,
        G=block,
        TILE_T=tile_t,
        TILE_D=128,
        HAS_IDS=ids is not None,
        HAS_EXCLUDED=exclude is not None,
        HAS_KNOWN=known_NK is not None,
        num_warps=4,
    )
    return scores
