"""The hardest classes in plain PyTorch, on any device: what the kernels are held against.

Shapes: N queries, R rows to score, C rows of a block, D dimension, E excluded places in all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.mining.ranking import highest

# Scores held at once. Larger blocks gain nothing; N x K is never held.
_BLOCK_SCORES = 1 << 24
# On a CPU so many queries at a time: with some ten thousand classes their scores are looked through while still in the
# cache.
_CPU_QUERIES = 128


@torch.no_grad()
def hardest_plain(
    queries_ND: Tensor, rows_RD: Tensor, k: int, excluded: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """The ``k`` highest scores of each query and their rows, highest first; among equal scores the smaller row.

    ``excluded``: numbers of queries and rows [E] that do not count. Where fewer than ``k`` are left: -inf and -1.
    """
    if queries_ND.device.type == "cpu" and len(queries_ND) > _CPU_QUERIES:
        parts = [
            hardest_plain(queries_ND[start : start + _CPU_QUERIES], rows_RD, k, _of_queries(excluded, start))
            for start in range(0, len(queries_ND), _CPU_QUERIES)
        ]
        return torch.cat([scores for scores, _ in parts]), torch.cat([places for _, places in parts])
    num_queries, num_rows = len(queries_ND), len(rows_RD)
    width = max(_BLOCK_SCORES // max(num_queries, 1), k)
    scores_Nk, places_Nk = queries_ND.new_empty(num_queries, 0), queries_ND.new_empty(num_queries, 0).long()
    for start in range(0, num_rows, width):
        scores_NC = queries_ND @ rows_RD[start : start + width].T
        here_E = (excluded[1] >= start) & (excluded[1] < start + width)
        scores_NC[excluded[0][here_E], excluded[1][here_E] - start] = -torch.inf
        best_Nk = highest(scores_NC, min(k, scores_NC.shape[1]))
        scores_Nk = torch.cat([scores_Nk, scores_NC.gather(1, best_Nk)], dim=1)
        places_Nk = torch.cat([places_Nk, best_Nk + start], dim=1)
        scores_Nk, places_Nk = _best_first(scores_Nk, places_Nk, k)
    return scores_Nk, torch.where(scores_Nk == -torch.inf, -1, places_Nk)


def _of_queries(excluded: tuple[Tensor, Tensor], start: int) -> tuple[Tensor, Tensor]:
    """What is excluded for the block of queries that begins there, numbered anew."""
    here_E = (excluded[0] >= start) & (excluded[0] < start + _CPU_QUERIES)
    return excluded[0][here_E] - start, excluded[1][here_E]


def _best_first(scores: Tensor, places: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Sorted by place, then stably by score: ties end with the smaller place first."""
    places, order = places.sort(dim=1)
    scores, best = scores.gather(1, order).sort(dim=1, descending=True, stable=True)
    return scores[:, :k], places.gather(1, best)[:, :k]
