"""The sums of a loss over many classes, tile by tile, without writing out the scores.

softmax:        log Σ_y exp(c s_y) of the classes y of a tile; their log-sum-exp is that of all classes
anything else:  Σ_y of what class y adds (``negative_terms``), log(1 + exp(c s_y)) for one-vs-all; their sum is that
                of all classes

A matrix product whose tiles are reduced before they leave the chip, as in ``block_maxima``. Classes that a query
excludes are rare: the product counts them, and the few tiles with one are recomputed without them. Subtracting them
would leave the rounding errors of possibly the largest terms.

Shapes: N queries, K classes, D dimension, M = ceil(K / TILE_K) tiles of classes.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.launch import INTERPRETED, num_processors
from owlmine.mining.kernels.negative_terms import NegativeTerms, tile_slopes, tile_sums
from owlmine.mining.kernels.tile_scores import Tiling, described, tile_scores

# Programs that share the list of one query: with a long list, a single program would still run after all others are
# done.
_MAX_SPLITS = 8


@triton.jit
def _class_sums(
    queries_desc,
    classes_desc,
    offsets_ptr,
    scale_ptr,
    sums_ptr,
    slope_sums_ptr,
    num_queries,
    num_classes,
    D: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    TILE_D: tl.constexpr,
    KIND: tl.constexpr,
    HAS_OFFSETS: tl.constexpr,
    HAS_SLOPE_SUMS: tl.constexpr,
    NUM_PROGRAMS: tl.constexpr,
    UPCAST: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    scale = tl.load(scale_ptr)
    tiles_n = tl.cdiv(num_queries, TILE_N)
    num_tiles = tiles_n * tl.cdiv(num_classes, TILE_K)
    for tile in tl.range(tl.program_id(0), num_tiles, NUM_PROGRAMS, flatten=FLATTEN):
        # Neighbouring programs take the same classes and different queries: each class comes from memory once.
        first_n = (tile % tiles_n) * TILE_N
        first_k = (tile // tiles_n) * TILE_K
        scores = tile_scores(queries_desc, classes_desc, first_n, first_k, D, TILE_N, TILE_K, TILE_D, UPCAST, "tf32x3")
        if first_k + TILE_K > num_classes:
            ids = first_k + tl.arange(0, TILE_K)
            scores = tl.where((ids < num_classes)[None, :], scores, float("-inf"))
        rows = first_n + tl.arange(0, TILE_N)
        here = rows < num_queries
        offsets = scale
        if HAS_OFFSETS:
            offsets = tl.load(offsets_ptr + rows, mask=here, other=0.0)
        places = (first_k // TILE_K).to(tl.int64) * num_queries + rows
        tl.store(sums_ptr + places, tile_sums(scores, offsets, scale, KIND, HAS_OFFSETS), mask=here)
        if HAS_SLOPE_SUMS:
            slopes = tile_slopes(scores, offsets, scale, KIND, HAS_OFFSETS)
            tl.store(slope_sums_ptr + places, tl.sum(slopes, axis=1), mask=here)


@triton.jit
def _recount(
    queries_ptr,
    classes_ptr,
    positives_ptr,
    offsets_ptr,
    scale_ptr,
    excluded_rows_ptr,
    excluded_offsets_ptr,
    excluded_ids_ptr,
    sums_ptr,
    slope_sums_ptr,
    num_queries,
    num_classes,
    first_class,
    D: tl.constexpr,
    TILE_K: tl.constexpr,
    TILE_D: tl.constexpr,
    TILE_E: tl.constexpr,
    KIND: tl.constexpr,
    HAS_POSITIVES: tl.constexpr,
    HAS_OFFSETS: tl.constexpr,
    HAS_SLOPE_SUMS: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    # A negative number is not a place.
    positive = tl.full((), -1, tl.int64)
    if HAS_POSITIVES:
        positive = tl.load(positives_ptr + query) - first_class
    scale = tl.load(scale_ptr)
    one = tl.zeros((1,), dtype=tl.int64)
    offsets = scale
    if HAS_OFFSETS:
        offsets = tl.load(offsets_ptr + query + one)
    row = tl.load(excluded_rows_ptr + query)
    start = tl.load(excluded_offsets_ptr + row)
    end = tl.load(excluded_offsets_ptr + row + 1)
    for entry in range(start + tl.program_id(1), end, tl.num_programs(1)):
        place = tl.load(excluded_ids_ptr + entry).to(tl.int64) - first_class
        if (place >= 0) & (place < num_classes) & (place != positive):
            tile = place // TILE_K
            places = tile * TILE_K + tl.arange(0, TILE_K)
            inside = places < num_classes
            scores = tl.zeros((TILE_K,), dtype=tl.float32)
            for first_d in range(0, D, TILE_D):
                dims = first_d + tl.arange(0, TILE_D)
                here = dims < D
                part = tl.load(queries_ptr + query * D + dims, mask=here, other=0.0).to(tl.float32)
                rows = tl.load(
                    classes_ptr + places[:, None] * D + dims[None, :], mask=inside[:, None] & here[None, :], other=0.0
                )
                scores += tl.sum(rows.to(tl.float32) * part[None, :], axis=1)
            # Every excluded class of the tile goes, so entries that share a tile all write the same number.
            hits = tl.zeros((TILE_K,), dtype=tl.int32)
            for first_e in range(start, end, TILE_E):
                entries = first_e + tl.arange(0, TILE_E)
                others = tl.load(excluded_ids_ptr + entries, mask=entries < end, other=-1) - first_class
                hits += tl.sum((places[:, None] == others[None, :]).to(tl.int32), axis=1)
            counts = inside & ((hits == 0) | (places == positive))
            scores = tl.where(counts, scores, float("-inf"))[None, :]
            target = tile * num_queries + query + one
            tl.store(sums_ptr + target, tile_sums(scores, offsets, scale, KIND, HAS_OFFSETS))
            if HAS_SLOPE_SUMS:
                slopes = tile_slopes(scores, offsets, scale, KIND, HAS_OFFSETS)
                tl.store(slope_sums_ptr + target, tl.sum(slopes, axis=1))


def class_sums(
    queries_ND: Tensor,
    classes_KD: Tensor,
    terms: NegativeTerms,
    sums_MN: Tensor,
    *,
    tiling: Tiling,
    slope_sums_MN: Tensor | None = None,
) -> None:
    """Fills ``sums_MN`` and, if requested, the sums of the slopes by x (float32). Both operands of one type, rows of
    whole 16 bytes."""
    num_queries, dim = queries_ND.shape
    num_classes = len(classes_KD)
    tiles_k = triton.cdiv(num_classes, tiling.tile_k)
    for sums in (sums_MN, sums_MN if slope_sums_MN is None else slope_sums_MN):
        assert sums.shape == (tiles_k, num_queries), (sums.shape, tiles_k, num_queries)
        assert sums.is_contiguous()
    tiles = triton.cdiv(num_queries, tiling.tile_n) * tiles_k
    programs = min(tiles, num_processors(queries_ND.device) * tiling.per_processor)
    _class_sums[(programs,)](
        described(queries_ND, [tiling.tile_n, tiling.tile_d]),
        described(classes_KD, [tiling.tile_k, tiling.tile_d]),
        sums_MN if terms.offsets_N is None else terms.offsets_N,
        terms.scale,
        sums_MN,
        sums_MN if slope_sums_MN is None else slope_sums_MN,
        num_queries,
        num_classes,
        D=dim,
        TILE_N=tiling.tile_n,
        TILE_K=tiling.tile_k,
        TILE_D=tiling.tile_d,
        KIND=terms.kind,
        HAS_OFFSETS=terms.offsets_N is not None,
        HAS_SLOPE_SUMS=slope_sums_MN is not None,
        NUM_PROGRAMS=programs,
        UPCAST=INTERPRETED,
        FLATTEN=tiling.flatten,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
    )


def recount_without(
    excluded: Exclusions,
    queries_ND: Tensor,
    classes_KD: Tensor,
    terms: NegativeTerms,
    sums_MN: Tensor,
    *,
    first: int,
    tile_k: int,
    but_for_N: Tensor | None = None,
    slope_sums_MN: Tensor | None = None,
) -> None:
    """Removes the excluded classes from the sums, except one of each query that still counts. The rows are those of the
    classes from ``first`` on."""
    if excluded.most == 0:
        return
    num_queries, dim = queries_ND.shape
    _recount[(num_queries, min(excluded.most, _MAX_SPLITS))](
        queries_ND,
        classes_KD,
        excluded.rows_N if but_for_N is None else but_for_N,
        sums_MN if terms.offsets_N is None else terms.offsets_N,
        terms.scale,
        excluded.rows_N,
        excluded.offsets,
        excluded.ids,
        sums_MN,
        sums_MN if slope_sums_MN is None else slope_sums_MN,
        num_queries,
        len(classes_KD),
        first,
        D=dim,
        TILE_K=tile_k,
        TILE_D=min(triton.next_power_of_2(dim), 64),
        TILE_E=16,
        KIND=terms.kind,
        HAS_POSITIVES=but_for_N is not None,
        HAS_OFFSETS=terms.offsets_N is not None,
        HAS_SLOPE_SUMS=slope_sums_MN is not None,
        num_warps=4,
    )
