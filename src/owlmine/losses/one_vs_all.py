"""Logistic one-vs-all: one yes/no question per class.

ℓ = Σ_{y positive} log(1 + e^{-s v_y}) + Σ_{j not} log(1 + e^{s v_j})

On a pool the second sum is Σ_{j in the pool} 1/Q_j log(1 + e^{s v_j}), Q_j as in sampled softmax. Since nothing
non-linear follows, the estimate is unbiased for the loss itself. With log Q = 0, each entry of the pool counts once.
Natural logarithms, as is usual for cross entropy; with one positive, ln 2 times the BOWL of logistic phi and θ = 1.

Legend: N points, K classes, B pool, P positives of a point at most.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from owlmine.losses.inputs import Reduction, as_one_pool_of_many, check_form, check_log_q, check_pool, reduce
from owlmine.losses.ordered import widened
from owlmine.losses.softmax import scaled


def one_vs_all_loss(
    scores_NK: Tensor,
    positives: Tensor,
    *,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """``positives``: one per point, [N], or several, [N, P], distinct and filled up with -1."""
    check_form(reduction, scale, validate=validate)
    positives_NP = positives[:, None] if positives.ndim == 1 else positives
    _, scores_NK, is_positive_NK, _ = as_one_pool_of_many(scores_NK, positives_NP, validate=validate)
    logits_NK = scaled(scores_NK, scale, widened(scores_NK))
    loss_NK = -functional.logsigmoid(torch.where(is_positive_NK, logits_NK, -logits_NK))
    return reduce(loss_NK.sum(dim=1), reduction)


def one_vs_all_loss_reference(
    scores_NK: Tensor, positives: Tensor, *, scale: float | Tensor = 1.0, reduction: Reduction = "mean"
) -> Tensor:
    """The definition, class by class."""
    losses = []
    for n, scores_K in enumerate(scores_NK):
        own = set(positives[n].reshape(-1).tolist())
        signs = [1 if c in own else -1 for c in range(len(scores_K))]
        losses.append(sum(torch.log1p(torch.exp(-t * scale * v)) for t, v in zip(signs, scores_K, strict=True)))
    return reduce(torch.stack([torch.as_tensor(loss) for loss in losses]), reduction)


def pooled_one_vs_all_loss(
    positive_scores_N: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    *,
    log_q: float | Tensor = 0.0,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """One-vs-all on a pool; ``log_q`` from ``uniform_log_q`` makes it an unbiased estimate of the loss on all classes.

    ``mask`` is True where an entry must not count.
    """
    check_form(reduction, scale, validate=validate)
    check_pool(positive_scores_N, pool_scores_NB, mask, validate=validate)
    num_points, width = pool_scores_NB.shape
    check_log_q(log_q, shape=(num_points, width), validate=validate)
    dtype = widened(positive_scores_N, pool_scores_NB)
    weights = torch.exp(-log_q.to(dtype)) if isinstance(log_q, Tensor) else math.exp(-log_q)
    negatives_NB = -functional.logsigmoid(-scaled(pool_scores_NB, scale, dtype)) * weights
    if mask is not None:
        negatives_NB = negatives_NB.masked_fill(mask, 0)
    positive_N = -functional.logsigmoid(scaled(positive_scores_N, scale, dtype))
    return reduce(positive_N + negatives_NB.sum(dim=1), reduction)


def pooled_one_vs_all_loss_reference(
    positive_scores_N: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    *,
    log_q: float | Tensor = 0.0,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """The definition, point by point."""
    expected_counts_NB = torch.exp(torch.as_tensor(log_q, dtype=pool_scores_NB.dtype)).expand_as(pool_scores_NB)
    losses = []
    for n, positive in enumerate(positive_scores_N):
        each_B = torch.log1p(torch.exp(scale * pool_scores_NB[n])) / expected_counts_NB[n]
        counted = each_B if mask is None else each_B[~mask[n]]
        losses.append(torch.log1p(torch.exp(-scale * positive)) + counted.sum())
    return reduce(torch.stack(losses), reduction)
