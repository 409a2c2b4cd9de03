"""The slopes of a loss over many classes, for consecutive classes: its derivative with respect to each score.

softmax:     c (exp(c s_y - log Σ_j exp(c s_j)) - [y is the positive])
one-vs-all:  c (1 / (1 + exp(-c s_y)) - [y is the positive])

and so on for the other kinds of ``negative_terms``. The product treats every class as a negative. A few entries of each
row are overwritten afterwards: the positive, whose slope from its loss is exact where 1 - probability would cancel, and
0 at excluded classes.

If the slopes do not depend on the sums of the loss, the same pass can compute those sums too.

Shapes: N queries, C consecutive classes, D dimension, M = ceil(C / TILE_K) tiles of classes.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.launch import INTERPRETED, num_processors
from owlmine.mining.kernels.negative_terms import NegativeTerms, tile_slopes, tile_sums
from owlmine.mining.kernels.tile_scores import Tiling, described, tile_scores


@triton.jit
def _class_slopes(
    queries_desc,
    classes_desc,
    slopes_desc,
    offsets_ptr,
    scale_ptr,
    weight_ptr,
    sums_ptr,
    num_queries,
    num_classes,
    D: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    TILE_D: tl.constexpr,
    KIND: tl.constexpr,
    HAS_OFFSETS: tl.constexpr,
    HAS_SUMS: tl.constexpr,
    NUM_PROGRAMS: tl.constexpr,
    UPCAST: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    scale = tl.load(scale_ptr)
    weight = tl.load(weight_ptr)
    tiles_n = tl.cdiv(num_queries, TILE_N)
    num_tiles = tiles_n * tl.cdiv(num_classes, TILE_K)
    for tile in tl.range(tl.program_id(0), num_tiles, NUM_PROGRAMS, flatten=FLATTEN):
        # Neighbouring programs take the same classes and different queries: each class comes from memory once.
        first_n = (tile % tiles_n) * TILE_N
        first_k = (tile // tiles_n) * TILE_K
        scores = tile_scores(queries_desc, classes_desc, first_n, first_k, D, TILE_N, TILE_K, TILE_D, UPCAST, "tf32x3")
        rows = first_n + tl.arange(0, TILE_N)
        offsets = scale
        if HAS_OFFSETS:
            offsets = tl.load(offsets_ptr + rows, mask=rows < num_queries, other=0.0)
        if HAS_SUMS:
            if first_k + TILE_K > num_classes:
                ids = first_k + tl.arange(0, TILE_K)
                scores = tl.where((ids < num_classes)[None, :], scores, float("-inf"))
            places = (first_k // TILE_K).to(tl.int64) * num_queries + rows
            sums = tile_sums(scores, offsets, scale, KIND, HAS_OFFSETS)
            tl.store(sums_ptr + places, sums, mask=rows < num_queries)
        slopes = weight * tile_slopes(scores, offsets, scale, KIND, HAS_OFFSETS)
        # In two halves: with a buffer for the whole tile, a second program would not fit on the processor.
        left, right = tl.split(tl.permute(tl.reshape(slopes, (TILE_N, 2, TILE_K // 2)), (0, 2, 1)))
        slopes_desc.store([first_n, first_k], left.to(slopes_desc.dtype))
        slopes_desc.store([first_n, first_k + TILE_K // 2], right.to(slopes_desc.dtype))


@triton.jit
def _set_known(
    slopes_ptr,
    positives_ptr,
    positive_slopes_ptr,
    excluded_rows_ptr,
    excluded_offsets_ptr,
    excluded_ids_ptr,
    row_stride,
    num_classes,
    first_class,
    TILE_E: tl.constexpr,
    HAS_EXCLUDED: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    slopes_ptr += query * row_stride
    positive = tl.load(positives_ptr + query) - first_class
    if HAS_EXCLUDED:
        row = tl.load(excluded_rows_ptr + query)
        start = tl.load(excluded_offsets_ptr + row)
        end = tl.load(excluded_offsets_ptr + row + 1)
        for first_e in range(start, end, TILE_E):
            entries = first_e + tl.arange(0, TILE_E)
            places = tl.load(excluded_ids_ptr + entries, mask=entries < end, other=-1).to(tl.int64) - first_class
            # Negative ids are ignored; they stay negative after subtracting the first class.
            inside = (places >= 0) & (places < num_classes) & (places != positive)
            tl.store(slopes_ptr + places, tl.zeros((TILE_E,), dtype=slopes_ptr.dtype.element_ty), mask=inside)
    slope = tl.load(positive_slopes_ptr + query).to(slopes_ptr.dtype.element_ty)
    tl.store(slopes_ptr + positive, slope, mask=(positive >= 0) & (positive < num_classes))


def class_slopes(
    queries_ND: Tensor,
    classes_CD: Tensor,
    terms: NegativeTerms,
    weight: Tensor,
    slopes_NC: Tensor,
    *,
    tiling: Tiling,
    sums_MN: Tensor | None = None,
) -> None:
    """Fills ``slopes_NC``, in its own type, as if every class were a negative: ``weight`` (one float32 on the device)
    times the slopes by x. A slope by the score has the scale in its weight.

    Operands as in ``class_sums``; the offsets of softmax are the logarithms of its sums. ``slopes_NC`` may be part of
    wider rows, each of whole 16 bytes. ``sums_MN`` gets what ``class_sums`` gives; not for softmax.
    """
    num_queries, dim = queries_ND.shape
    num_classes = len(classes_CD)
    assert slopes_NC.shape == (num_queries, num_classes), (slopes_NC.shape, num_queries, num_classes)
    tiles_k = triton.cdiv(num_classes, tiling.tile_k)
    if sums_MN is not None:
        assert terms.kind != "softmax"
        assert sums_MN.shape == (tiles_k, num_queries), (sums_MN.shape, tiles_k, num_queries)
        assert sums_MN.is_contiguous()
    tiles = triton.cdiv(num_queries, tiling.tile_n) * tiles_k
    programs = min(tiles, num_processors(queries_ND.device) * tiling.per_processor)
    _class_slopes[(programs,)](
        described(queries_ND, [tiling.tile_n, tiling.tile_d]),
        described(classes_CD, [tiling.tile_k, tiling.tile_d]),
        described(slopes_NC, [tiling.tile_n, tiling.tile_k // 2]),
        terms.scale if terms.offsets_N is None else terms.offsets_N,
        terms.scale,
        weight,
        terms.scale if sums_MN is None else sums_MN,
        num_queries,
        num_classes,
        D=dim,
        TILE_N=tiling.tile_n,
        TILE_K=tiling.tile_k,
        TILE_D=tiling.tile_d,
        KIND=terms.kind,
        HAS_OFFSETS=terms.offsets_N is not None,
        HAS_SUMS=sums_MN is not None,
        NUM_PROGRAMS=programs,
        UPCAST=INTERPRETED,
        FLATTEN=tiling.flatten,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
    )


def set_known_slopes(
    slopes_NC: Tensor,
    positives_N: Tensor,
    positive_slopes_N: Tensor,
    *,
    first: int,
    excluded: Exclusions | None,
) -> None:
    """Writes each positive's slope, and 0 at the query's excluded classes, for those among the classes from ``first``
    on. A positive that is excluded too stays a positive."""
    num_queries, num_classes = slopes_NC.shape
    _set_known[(num_queries,)](
        slopes_NC,
        positives_N,
        positive_slopes_N,
        positives_N if excluded is None else excluded.rows_N,
        positives_N if excluded is None else excluded.offsets,
        positives_N if excluded is None else excluded.ids,
        slopes_NC.stride(0),
        num_classes,
        first,
        TILE_E=32,
        HAS_EXCLUDED=excluded is not None,
        num_warps=1,
    )
