"""Semi-hard mining: the hardest negative that still scores below the positive.

ℓ = max(0, margin - s (v_y - v_j))    with j the highest scoring of the pool's negatives that have v_j < v_y

If that one is beyond the margin, the loss is 0. If no negative scores below the positive, j is the lowest scoring one,
the closest to semi-hard. A point without negatives has loss 0.

It is a heuristic without the paper's guarantees: when v_y passes a harder negative, that one becomes semi-hard, so the
loss can jump up as the positive's score rises; it is neither continuous nor convex in the scores.

Legend: N points, B pool.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from owlmine.losses.inputs import Reduction, check_form, check_pool, reduce
from owlmine.losses.ordered import widened
from owlmine.losses.softmax import scaled


def semi_hard_loss(
    positive_scores_N: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    *,
    margin: float = 0.2,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """``margin``: how far the positive should lead, in units of scaled scores. ``mask``: True must not count."""
    check_form(reduction, scale, validate=validate)
    check_margin(margin)
    check_pool(positive_scores_N, pool_scores_NB, mask, validate=validate)
    dtype = widened(positive_scores_N, pool_scores_NB)
    ids_N1 = _semi_hard(positive_scores_N.detach(), pool_scores_NB.detach(), mask)
    lead_N = positive_scores_N.to(dtype) - pool_scores_NB.gather(1, ids_N1)[:, 0].to(dtype)
    loss_N = torch.relu(margin - scaled(lead_N, scale, dtype))
    if mask is not None:
        loss_N = loss_N.masked_fill(mask.all(dim=1), 0)
    return reduce(loss_N, reduction)


def semi_hard_loss_reference(
    positive_scores_N: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    *,
    margin: float = 0.2,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """The definition, point by point."""
    losses = []
    for n, positive in enumerate(positive_scores_N):
        negatives = list(pool_scores_NB[n] if mask is None else pool_scores_NB[n][~mask[n]])
        below = [score for score in negatives if score < positive]
        if not negatives:
            losses.append(0 * positive)
            continue
        chosen = max(below) if below else min(negatives)
        losses.append(torch.relu(margin - scale * (positive - chosen)))
    return reduce(torch.stack(losses), reduction)


def check_margin(margin: float) -> None:
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin: given {margin}; wanted a finite number >= 0")


def _semi_hard(positive_N: Tensor, pool_NB: Tensor, mask: Tensor | None) -> Tensor:
    """[N, 1] the position of the negative to use; the first of equal ones."""
    below_NB, lowest_NB = pool_NB < positive_N[:, None], pool_NB
    if mask is not None:
        below_NB, lowest_NB = below_NB & ~mask, pool_NB.masked_fill(mask, torch.inf)
    hardest_below_N1 = pool_NB.masked_fill(~below_NB, -torch.inf).max(dim=1, keepdim=True).indices
    easiest_N1 = lowest_NB.min(dim=1, keepdim=True).indices
    return torch.where(below_NB.any(dim=1, keepdim=True), hardest_below_N1, easiest_N1)
