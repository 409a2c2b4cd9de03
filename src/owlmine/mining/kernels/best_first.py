"""Chosen candidates in rank order, under their class ids.

Shapes: N queries, C candidate scores of each (blocks of G classes), k chosen of them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from owlmine.mining.kernels.launch import padded_width

# More than one: on a GPU, Triton 3.6 sorts a single element wrongly.
_WIDTHS = (1 << 4, 1 << 6, 1 << 8, 1 << 10, 1 << 12)


@triton.jit(do_not_specialize=["num_candidates", "num_blocks", "k"])
def _best_first(
    scores_ptr,
    slots_ptr,
    blocks_ptr,
    ids_ptr,
    best_scores_ptr,
    best_ids_ptr,
    num_candidates,
    num_blocks,
    k,
    G: tl.constexpr,
    PADDED_K: tl.constexpr,
    HAS_IDS: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    ranks = tl.arange(0, PADDED_K)
    inside = ranks < k
    slots = tl.load(slots_ptr + query * k + ranks, mask=inside, other=-1)
    scores = tl.load(scores_ptr + query * num_candidates + slots, mask=slots >= 0, other=float("-inf"))
    # One sort key: the score's bits, transformed so that they sort like the scores, then the reversed slot: among equal
    # scores, the first slot comes first.
    bits = scores.to(tl.int32, bitcast=True)
    turned = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = (turned.to(tl.int64) << 32) | (0x3FFFFFFF - slots).to(tl.int64)
    keys = tl.where(inside, keys, -9223372036854775807)
    keys = tl.sort(keys, descending=True)
    turned = (keys >> 32).to(tl.int32)
    scores = (turned ^ ((turned >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    slots = 0x3FFFFFFF - (keys & 0xFFFFFFFF).to(tl.int32)
    allowed = inside & (scores > float("-inf"))
    block = tl.load(blocks_ptr + query * num_blocks + slots // G, mask=allowed, other=0)
    ids = block.to(tl.int64) * G + slots % G
    if HAS_IDS:
        ids = tl.load(ids_ptr + ids, mask=allowed, other=-1).to(tl.int64)
    tl.store(best_ids_ptr + query * k + ranks, tl.where(allowed, ids, -1), mask=inside)
    tl.store(best_scores_ptr + query * k + ranks, scores, mask=inside)


def best_first(
    scores_NC: Tensor, slots_Nk: Tensor, blocks_NT: Tensor, *, block: int, ids: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Scores (float32) and class ids (int64) [N, k], highest first; -1 where a score is -inf.

    ``slots_Nk`` (int32): the chosen among the candidates, which are the classes of ``blocks_NT`` one after the other.
    """
    num_queries, k = slots_Nk.shape
    best_scores = torch.empty(num_queries, k, dtype=torch.float32, device=scores_NC.device)
    best_ids = torch.empty(num_queries, k, dtype=torch.int64, device=scores_NC.device)
    padded = padded_width(k, _WIDTHS)
    _best_first[(num_queries,)](
        scores_NC,
        slots_Nk,
        blocks_NT,
        blocks_NT if ids is None else ids,
        best_scores,
        best_ids,
        scores_NC.shape[1],
        blocks_NT.shape[1],
        k,
        G=block,
        PADDED_K=padded,
        HAS_IDS=ids is not None,
        num_warps=max(1, min(4, padded // 128)),
    )
    return best_scores, best_ids
