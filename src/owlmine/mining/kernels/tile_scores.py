"""Scores of a tile of queries with a tile of classes, on the chip: what every product here starts from.

Shapes: N queries, K classes, D dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


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
def tile_scores(
    queries_desc,
    classes_desc,
    first_n,
    first_k,
    D,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    TILE_D: tl.constexpr,
    UPCAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """[TILE_N, TILE_K] float32. Past the last query or class the rows are zeros.

    ``PRECISION`` is of float32 operands, which would be rounded to 10 bits otherwise; others are multiplied as they
    are. ``UPCAST``: for the interpreter, whose bfloat16 products are wrong. ``D`` may be known at compile time or not.
    """
    scores = tl.zeros((TILE_N, TILE_K), dtype=tl.float32)
    for first_d in range(0, D, TILE_D):
        queries = queries_desc.load([first_n, first_d])
        classes = classes_desc.load([first_k, first_d])
        if UPCAST:
            queries = queries.to(tl.float32)
            classes = classes.to(tl.float32)
        scores = tl.dot(queries, classes.T, scores, input_precision=PRECISION)
    return scores


def described(rows: Tensor, tile: list[int]) -> TensorDescriptor:
    """For the bulk copy engine, which requires each row to start at a multiple of 16 bytes."""
    # A single row may have any stride in PyTorch; nothing is read by it.
    stride = rows.stride(0) if len(rows) > 1 else triton.cdiv(rows.shape[1], 16) * 16
    return TensorDescriptor(rows, list(rows.shape), [stride, 1], tile)
