"""Block maxima of a pool whose class rows are read by their ids inside the product, instead of gathered before it.

A variant to measure, not in use: ``owlmine.mining.kernels.block_maxima`` reads tiles of rows that lie side by side
through the bulk copy engine, which cannot follow ids.

Shapes: N queries, K classes, W of the pool, D dimension, G classes of a block, M = W / G blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from owlmine.mining.kernels.launch import INTERPRETED, num_processors


@dataclass(frozen=True)
class GatherTiling:
    tile_n: int
    tile_w: int
    tile_d: int
    num_warps: int
    num_stages: int
    per_processor: int


TILINGS = (
    GatherTiling(128, 128, 64, 4, 3, 2),
    # Fewer tiles of queries: each class row is read by its id half as often.
    GatherTiling(256, 128, 64, 8, 3, 1),
    GatherTiling(128, 64, 64, 4, 3, 2),
)


@triton.jit
def _gathered_maxima(
    queries_desc,
    table_ptr,
    ids_ptr,
    maxima_ptr,
    num_queries,
    width,
    num_blocks,
    D: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_W: tl.constexpr,
    TILE_D: tl.constexpr,
    G: tl.constexpr,
    NUM_PROGRAMS: tl.constexpr,
    UPCAST: tl.constexpr,
):
    tiles_n = tl.cdiv(num_queries, TILE_N)
    for tile in tl.range(tl.program_id(0), tiles_n * tl.cdiv(width, TILE_W), NUM_PROGRAMS):
        # As in block_maxima: neighbouring programs take the same classes, so all but the first find them in the cache.
        first_n = (tile % tiles_n) * TILE_N
        first_w = (tile // tiles_n) * TILE_W
        places = first_w + tl.arange(0, TILE_W)
        ids = tl.load(ids_ptr + places, mask=places < width, other=0).to(tl.int64)
        rows_ptr = table_ptr + ids[:, None] * D + tl.arange(0, TILE_D)[None, :]
        scores = tl.zeros((TILE_N, TILE_W), dtype=tl.float32)
        for first_d in range(0, D, TILE_D):
            queries = queries_desc.load([first_n, first_d])
            rows = tl.load(rows_ptr + first_d).to(queries_desc.dtype)
            if UPCAST:
                queries = queries.to(tl.float32)
                rows = rows.to(tl.float32)
            scores = tl.dot(queries, rows.T, scores)
        scores = tl.where((places < width)[None, :], scores, float("-inf"))
        maxima = tl.max(tl.reshape(scores, (TILE_N, TILE_W // G, G)), axis=2)
        numbers = first_n + tl.arange(0, TILE_N)
        blocks = first_w // G + tl.arange(0, TILE_W // G)
        inside = (numbers < num_queries)[:, None] & (blocks < num_blocks)[None, :]
        tl.store(maxima_ptr + numbers[:, None] * num_blocks + blocks[None, :], maxima, mask=inside)


def gathered_maxima(queries_ND: Tensor, table_KD: Tensor, ids_W: Tensor, *, block: int, tiling: GatherTiling) -> Tensor:
    """Maxima [N, M] of queries in 16 bits with rows of the table in any type, rounded to that of the queries."""
    (num_queries, dim), width = queries_ND.shape, len(ids_W)
    assert dim % tiling.tile_d == 0, (dim, tiling)
    num_blocks = triton.cdiv(width, block)
    maxima_NM = torch.empty(num_queries, num_blocks, dtype=torch.float32, device=queries_ND.device)
    tiles = triton.cdiv(num_queries, tiling.tile_n) * triton.cdiv(width, tiling.tile_w)
    programs = min(tiles, num_processors(queries_ND.device) * tiling.per_processor)
    _gathered_maxima[(programs,)](
        TensorDescriptor.from_tensor(queries_ND, [tiling.tile_n, tiling.tile_d]),
        table_KD,
        ids_W,
        maxima_NM,
        num_queries,
        width,
        num_blocks,
        D=dim,
        TILE_N=tiling.tile_n,
        TILE_W=tiling.tile_w,
        TILE_D=tiling.tile_d,
        G=block,
        NUM_PROGRAMS=programs,
        UPCAST=INTERPRETED,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
    )
    return maxima_NM
