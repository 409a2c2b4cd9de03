"""Exact top k over all classes in blocks: the ground truth of retrieval.

Shapes: N queries, K classes, C classes of a block, D dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.losses.ranking import hardest

# Scores held at once. Larger blocks gain nothing; N x K is never held.
_BLOCK_SCORES = 1 << 24


@torch.no_grad()
def exact_top(queries_ND: Tensor, classes_KD: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` highest scores of each query and their class ids, best first; among equal scores the smaller id."""
    num_classes = len(classes_KD)
    if not 1 <= k <= num_classes:
        raise ValueError(f"k is {k}; wanted 1 to the {num_classes} classes")
    width = max(_BLOCK_SCORES // max(len(queries_ND), 1), k)
    best_scores, best_ids = queries_ND.new_empty(len(queries_ND), 0), queries_ND.new_empty(len(queries_ND), 0).long()
    for start in range(0, num_classes, width):
        scores_NC = queries_ND @ classes_KD[start : start + width].T
        places = hardest(scores_NC, min(k, scores_NC.shape[1]))
        best_scores = torch.cat([best_scores, scores_NC.gather(1, places)], dim=1)
        best_ids = torch.cat([best_ids, places + start], dim=1)
        best_scores, best_ids = _best_first(best_scores, best_ids, k)
    return best_scores, best_ids


def _best_first(scores: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Sorted by id, then stably by score: ties end with the smaller id first."""
    ids, order = ids.sort(dim=1)
    scores, places = scores.gather(1, order).sort(dim=1, descending=True, stable=True)
    return scores[:, :k], ids.gather(1, places)[:, :k]
