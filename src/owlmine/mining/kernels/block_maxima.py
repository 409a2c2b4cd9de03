"""The largest score of each query in every block of consecutive classes, without writing the scores out.

A matrix product whose tiles are reduced before they leave the chip: of N x K scores only N x K / G maxima are written.
The k largest scores of a query lie in the k blocks with the largest maxima, so only those need another look.

Shapes: N queries, K classes, D dimension, G classes of a block, M = ceil(K / G) blocks, H classes of a fine block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from owlmine.mining.kernels.launch import INTERPRETED, assert_contiguous, num_processors
from owlmine.mining.kernels.tile_scores import tile_scores

TILE_K = 128
"""Classes of a tile: the largest block."""


# One variant for every size: compiling one takes a second.
@triton.jit(do_not_specialize=["num_queries", "num_classes", "num_blocks", "num_fine", "dim"])
def _block_maxima(
    queries_desc,
    classes_desc,
    maxima_ptr,
    fine_ptr,
    scores_ptr,
    num_queries,
    num_classes,
    num_blocks,
    num_fine,
    dim,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    TILE_D: tl.constexpr,
    G: tl.constexpr,
    H: tl.constexpr,
    UPCAST: tl.constexpr,
    HAS_FINE: tl.constexpr,
    HAS_SCORES: tl.constexpr,
):
    tiles_n = tl.cdiv(num_queries, TILE_N)
    num_tiles = tiles_n * tl.cdiv(num_classes, TILE_K)
    for tile in tl.range(tl.program_id(0), num_tiles, tl.num_programs(0)):
        # Neighbouring programs take the same classes and different queries: each class comes from memory once.
        first_n = (tile % tiles_n) * TILE_N
        first_k = (tile // tiles_n) * TILE_K
        scores = tile_scores(queries_desc, classes_desc, first_n, first_k, dim, TILE_N, TILE_K, TILE_D, UPCAST, "ieee")
        ids = first_k + tl.arange(0, TILE_K)
        if first_k + TILE_K > num_classes:
            scores = tl.where((ids < num_classes)[None, :], scores, float("-inf"))
        rows = first_n + tl.arange(0, TILE_N)
        here = (rows < num_queries)[:, None]
        long_rows = rows.to(tl.int64)[:, None]
        fine = tl.max(tl.reshape(scores, (TILE_N, TILE_K // H, H)), axis=2)
        if HAS_FINE:
            blocks = first_k // H + tl.arange(0, TILE_K // H)
            inside = here & (blocks < num_fine)[None, :]
            tl.store(fine_ptr + long_rows * num_fine + blocks[None, :], fine, mask=inside)
        maxima = tl.max(tl.reshape(fine, (TILE_N, TILE_K // G, G // H)), axis=2)
        blocks = first_k // G + tl.arange(0, TILE_K // G)
        inside = here & (blocks < num_blocks)[None, :]
        tl.store(maxima_ptr + long_rows * num_blocks + blocks[None, :], maxima, mask=inside)
        if HAS_SCORES:
            inside = here & (ids < num_classes)[None, :]
            tl.store(scores_ptr + long_rows * num_classes + ids[None, :], scores, mask=inside)


@dataclass(frozen=True, eq=False)
class BlockMaxima:
    """The result of ``block_maxima``; ``fine_NF`` and ``scores_NK`` on request."""

    maxima_NM: Tensor
    fine_NF: Tensor | None
    scores_NK: Tensor | None


def block_maxima(
    queries_ND: Tensor, classes_KD: Tensor, *, block: int, fine_block: int | None = None, keep_scores: bool = False
) -> BlockMaxima:
    """Maxima [N, M] in float32. Inputs of one type (16 bits for speed), contiguous, rows of a multiple of 16 bytes.

    ``fine_block`` adds the maxima of smaller blocks, ``keep_scores`` all scores [N, K].
    """
    num_queries, dim = queries_ND.shape
    num_classes = len(classes_KD)
    assert block <= TILE_K, block
    assert_contiguous(queries_ND, classes_KD)
    num_blocks = triton.cdiv(num_classes, block)
    num_fine = triton.cdiv(num_classes, fine_block) if fine_block else 0
    device, tile_n, tile_d = queries_ND.device, 128, 64
    maxima_NM = torch.empty(num_queries, num_blocks, dtype=torch.float32, device=device)
    fine_NF = torch.empty(num_queries, num_fine, dtype=torch.float32, device=device) if fine_block else None
    scores_NK = torch.empty(num_queries, num_classes, dtype=torch.float32, device=device) if keep_scores else None
    tiles = triton.cdiv(num_queries, tile_n) * triton.cdiv(num_classes, TILE_K)
    # Two programs a processor: one reduces its tile while the other multiplies.
    programs = min(tiles, num_processors(device) * 2)
    _block_maxima[(programs,)](
        TensorDescriptor.from_tensor(queries_ND, [tile_n, tile_d]),
        TensorDescriptor.from_tensor(classes_KD, [TILE_K, tile_d]),
        maxima_NM,
        maxima_NM if fine_NF is None else fine_NF,
        maxima_NM if scores_NK is None else scores_NK,
        num_queries,
        num_classes,
        num_blocks,
        num_fine,
        dim,
        TILE_N=tile_n,
        TILE_K=TILE_K,
        TILE_D=tile_d,
        G=block,
        H=fine_block or block,
        UPCAST=INTERPRETED,
        HAS_FINE=fine_NF is not None,
        HAS_SCORES=scores_NK is not None,
        num_warps=4,
        num_stages=3,
    )
    return BlockMaxima(maxima_NM, fine_NF, scores_NK)
