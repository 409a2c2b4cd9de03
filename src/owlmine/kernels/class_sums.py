"""What a loss over all classes adds up over the classes, tile by tile, without writing the scores out.

softmax:     log Σ_y exp(c s_y) of the classes y of a tile; their log-sum-exp is that of all classes
one-vs-all:  Σ_y log(1 + exp(c s_y)) of the classes y of a tile; their sum is that of all classes

A matrix product whose tiles are reduced before they leave the chip, as in ``block_maxima``. Classes that a query
excludes are rare: the product counts them, and the few tiles that hold one are worked out again without them.

Shapes: N queries, K classes, D dimension, M = ceil(K / TILE_K) tiles of classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from owlmine.kernels.exclusions import Exclusions
from owlmine.kernels.launch import INTERPRETED, num_processors

LOG2E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)
# Programs that share the list of one query: a long list would keep a single one busy after all others are done.
_MAX_SPLITS = 8


@dataclass(frozen=True)
class Tiling:
    """How a product over all classes is cut into tiles. The defaults are those of ``block_maxima`` on an H200."""

    tile_n: int = 128
    tile_k: int = 128
    tile_d: int = 64
    num_warps: int = 4
    num_stages: int = 3
    per_processor: int = 2
    flatten: bool = False


# Each product of float32 numbers is three of their parts, which take registers.
FLOAT32_TILING = Tiling(tile_n=64, tile_k=64, tile_d=32)


@triton.jit
def _by_halves(factors):
    """Products of the first half of each row with the second: what one thread holds, so nothing is exchanged."""
    halves = tl.reshape(factors, (factors.shape[0], 2, factors.shape[1] // 2))
    first, second = tl.split(tl.permute(halves, (0, 2, 1)))
    return first * second


@triton.jit
def tile_sums(scores, scale, SOFTMAX: tl.constexpr):
    """Of each row of scores; -inf stands for a class that does not count."""
    if SOFTMAX:
        top = tl.max(scores, axis=1)
        top = tl.where(top == float("-inf"), 0.0, top)
        factor = scale * LOG2E
        odds = tl.exp2(scores * factor - (top * factor)[:, None])
        return scale * top + _LN2 * tl.log2(tl.sum(odds, axis=1))
    else:
        # log(1 + e^x) = max(x, 0) + log(1 + rest), rest = e^-|x|. Adding 1 loses a small rest, and all of the negatives
        # may have one: a series takes its place. Eight factors of at most 2 share one logarithm.
        logits = scores * scale
        rest = tl.exp2(-LOG2E * tl.abs(logits))
        small = rest < 0.00390625
        plain = tl.maximum(logits, 0.0) + tl.where(small, rest - 0.5 * rest * rest, 0.0)
        factors = _by_halves(_by_halves(_by_halves(tl.where(small, 1.0, 1.0 + rest))))
        return tl.sum(plain, axis=1) + _LN2 * tl.sum(tl.log2(factors), axis=1)


@triton.jit
def _class_sums(
    queries_desc,
    classes_desc,
    scale_ptr,
    sums_ptr,
    num_queries,
    num_classes,
    D: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    TILE_D: tl.constexpr,
    SOFTMAX: tl.constexpr,
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
        scores = tl.zeros((TILE_N, TILE_K), dtype=tl.float32)
        for first_d in range(0, D, TILE_D):
            queries = queries_desc.load([first_n, first_d])
            classes = classes_desc.load([first_k, first_d])
            if UPCAST:
                queries = queries.to(tl.float32)
                classes = classes.to(tl.float32)
            scores = tl.dot(queries, classes.T, scores, input_precision="tf32x3")
        if first_k + TILE_K > num_classes:
            ids = first_k + tl.arange(0, TILE_K)
            scores = tl.where((ids < num_classes)[None, :], scores, float("-inf"))
        rows = first_n + tl.arange(0, TILE_N)
        places = (first_k // TILE_K).to(tl.int64) * num_queries + rows
        tl.store(sums_ptr + places, tile_sums(scores, scale, SOFTMAX), mask=rows < num_queries)


@triton.jit
def _recount(
    queries_ptr,
    classes_ptr,
    positives_ptr,
    scale_ptr,
    excluded_rows_ptr,
    excluded_offsets_ptr,
    excluded_ids_ptr,
    sums_ptr,
    num_queries,
    num_classes,
    first_class,
    D: tl.constexpr,
    TILE_K: tl.constexpr,
    TILE_D: tl.constexpr,
    TILE_E: tl.constexpr,
    SOFTMAX: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    positive = tl.load(positives_ptr + query) - first_class
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
            scores = tl.where(counts, scores, float("-inf"))
            sums = tile_sums(scores[None, :], tl.load(scale_ptr), SOFTMAX)
            tl.store(sums_ptr + tile * num_queries + query + tl.zeros((1,), dtype=tl.int64), sums)


def described(rows: Tensor, tile: list[int]) -> TensorDescriptor:
    """For the bulk copy engine, which wants each row to start at a multiple of 16 bytes."""
    # A single row may have any stride in PyTorch; nothing is read by it.
    stride = rows.stride(0) if len(rows) > 1 else triton.cdiv(rows.shape[1], 16) * 16
    return TensorDescriptor(rows, list(rows.shape), [stride, 1], tile)


def class_sums(
    queries_ND: Tensor, classes_KD: Tensor, scale: Tensor, sums_MN: Tensor, *, softmax: bool, tiling: Tiling
) -> None:
    """Fills ``sums_MN`` (float32). Both operands of one type, rows of whole 16 bytes; ``scale``: one float32 on the
    device, above 0."""
    num_queries, dim = queries_ND.shape
    num_classes = len(classes_KD)
    tiles_k = triton.cdiv(num_classes, tiling.tile_k)
    assert sums_MN.shape == (tiles_k, num_queries), (sums_MN.shape, tiles_k, num_queries)
    assert sums_MN.is_contiguous()
    tiles = triton.cdiv(num_queries, tiling.tile_n) * tiles_k
    programs = min(tiles, num_processors(queries_ND.device) * tiling.per_processor)
    _class_sums[(programs,)](
        described(queries_ND, [tiling.tile_n, tiling.tile_d]),
        described(classes_KD, [tiling.tile_k, tiling.tile_d]),
        scale,
        sums_MN,
        num_queries,
        num_classes,
        D=dim,
        TILE_N=tiling.tile_n,
        TILE_K=tiling.tile_k,
        TILE_D=tiling.tile_d,
        SOFTMAX=softmax,
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
    positives_N: Tensor,
    scale: Tensor,
    sums_MN: Tensor,
    *,
    first: int,
    softmax: bool,
    tile_k: int,
) -> None:
    """Takes the excluded classes out of ``sums_MN``, the positive apart. The rows are those of the classes from
    ``first`` on."""
    if excluded.most == 0:
        return
    num_queries, dim = queries_ND.shape
    _recount[(num_queries, min(excluded.most, _MAX_SPLITS))](
        queries_ND,
        classes_KD,
        positives_N,
        scale,
        excluded.rows_N,
        excluded.offsets,
        excluded.ids,
        sums_MN,
        num_queries,
        len(classes_KD),
        first,
        D=dim,
        TILE_K=tile_k,
        TILE_D=min(triton.next_power_of_2(dim), 64),
        TILE_E=16,
        SOFTMAX=softmax,
        num_warps=4,
    )
