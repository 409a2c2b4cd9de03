"""Softmax cross entropy over all classes.

ℓ(v, y) = -log( e^{s v_y} / Σ_j e^{s v_j} )

Strictly proper: over queries alike, the minimum has e^{s v_j} proportional to D(j | x), so the order of scores is the
order of probabilities and retrieving any number of classes is calibrated.

Legend: N points, K classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.losses.checks import Reduction, reduce
from owlmine.losses.partition import against, log_sum, scaled
from owlmine.losses.pool_inputs import as_one_pool, check_form
from owlmine.losses.rank_sum import widened


def softmax_loss(
    scores_NK: Tensor,
    positives_N: Tensor,
    *,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """Half-precision scores are added up, and the loss returned, in float32."""
    check_form(reduction, scale, validate=validate)
    positive_N, scores_NK, is_positive_NK = as_one_pool(scores_NK, positives_N, validate=validate)
    dtype = widened(scores_NK)
    log_negatives_N = log_sum(scaled(scores_NK, scale, dtype), is_positive_NK)
    return reduce(against(scaled(positive_N, scale, dtype), log_negatives_N), reduction)


def softmax_loss_reference(
    scores_NK: Tensor, positives_N: Tensor, *, scale: float | Tensor = 1.0, reduction: Reduction = "mean"
) -> Tensor:
    """As it is written: the probability of the positive, and minus its logarithm."""
    losses = []
    for scores_K, positive in zip(scores_NK, positives_N.tolist(), strict=True):
        odds_K = torch.exp(scale * scores_K)
        losses.append(-torch.log(odds_K[positive] / odds_K.sum()))
    return reduce(torch.stack(losses), reduction)
