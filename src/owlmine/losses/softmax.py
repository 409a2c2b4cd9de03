"""Softmax over all classes, and sampled softmax over a pool.

Both have one form: one positive against the log of a sum over negatives.

ℓ = log(e^a + Σ_j e^{b_j}) - a = log(1 + e^{L - a})    with a = s v_y and L = log Σ_j e^{b_j}

The softmaxes differ in what enters L. In terms of L - a, a loss near 0 keeps its precision, and rounding cannot make it
negative.

Legend: N points, B negatives of each.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from owlmine.losses.inputs import Reduction, as_one_pool, check_form, check_log_q, check_pool, reduce
from owlmine.losses.ordered import widened


def scaled(scores: Tensor, scale: float | Tensor, dtype: torch.dtype) -> Tensor:
    """s v, widened to ``dtype`` before the product."""
    scores = scores.to(dtype)
    if isinstance(scale, Tensor):
        return scores * scale.reshape(()).to(scores)
    return scores if scale == 1 else scores * scale


def log_sum(logits_NB: Tensor, hidden_NB: Tensor | None) -> Tensor:
    """log Σ e^b over visible entries; -inf if there are none."""
    if hidden_NB is not None:
        # Entries are hidden right before the sum, so that they get gradient 0 whatever their value, even NaN.
        logits_NB = logits_NB.masked_fill(hidden_NB, -torch.inf)
    return torch.logsumexp(logits_NB, dim=1)


def against(positive_N: Tensor, log_negatives_N: Tensor) -> Tensor:
    """log(1 + e^{L - a}); 0 where there are no negatives."""
    # softplus switches to a straight line at 20, which costs float64 half of its digits.
    return -functional.logsigmoid(positive_N - log_negatives_N)


# Softmax cross entropy over all classes.
#
# ℓ(v, y) = -log( e^{s v_y} / Σ_j e^{s v_j} )
#
# Strictly proper: for identical queries, the minimum has e^{s v_j} proportional to D(j | x), so the order of scores is
# the order of probabilities and retrieving any number of classes is calibrated.
#
# Legend: N points, K classes.


def softmax_loss(
    scores_NK: Tensor,
    positives_N: Tensor,
    *,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """Half-precision scores are summed, and the loss returned, in float32."""
    check_form(reduction, scale, validate=validate)
    positive_N, scores_NK, is_positive_NK = as_one_pool(scores_NK, positives_N, validate=validate)
    dtype = widened(scores_NK)
    log_negatives_N = log_sum(scaled(scores_NK, scale, dtype), is_positive_NK)
    return reduce(against(scaled(positive_N, scale, dtype), log_negatives_N), reduction)


def softmax_loss_reference(
    scores_NK: Tensor, positives_N: Tensor, *, scale: float | Tensor = 1.0, reduction: Reduction = "mean"
) -> Tensor:
    """The definition: the negative logarithm of the positive's probability."""
    losses = []
    for scores_K, positive in zip(scores_NK, positives_N.tolist(), strict=True):
        odds_K = torch.exp(scale * scores_K)
        losses.append(-torch.log(odds_K[positive] / odds_K.sum()))
    return reduce(torch.stack(losses), reduction)


# Softmax over the positive and a pool, corrected for how the pool was drawn.
#
# ℓ = -log( e^{s v_y} / Ẑ ),    Ẑ = e^{s v_y} + Σ_{j in the pool} e^{s v_j - log Q_j}
#
# Q_j is the expected number of times that class j is in the pool. Dividing by it makes Ẑ an unbiased estimate of the
# full sum Z: E Σ_{j in pool} e^{s v_j} / Q_j = Σ_{j ≠ y} e^{s v_j}. So log Q is subtracted, after the scale. For pools
# drawn uniformly without replacement from all classes but the positive, Q_j = B / (K - 1) for every negative, which
# ``uniform_log_q`` gives; the positive is always present: its Q is 1, and it is not corrected.
#
# Ẑ is unbiased, its logarithm is not: E log Ẑ <= log Z, so the expected loss is below the full one, by about
# Var(Ẑ) / (2 Z²). Without correction (log Q = 0) a uniform pool gives another loss with the same best answer: given the
# classes shown, the chance that y is the positive is proportional to D(y | x), as every pool is equally likely, so
# e^{s v_j} proportional to D(j | x) is best. ``docs/mined-softmax.md`` has the proofs.
#
# Legend: N points, B pool.


def uniform_log_q(*, num_classes: int, pool_size: int) -> float:
    """log(B / (K - 1)): the log-probability of each negative to be in a uniform pool that leaves out the positive.

    ``pool_size`` is the number drawn for each point, before known positives are masked: ``BatchPool.pool_size`` for one
    pool per batch. Masked entries do not count as classes, and the estimate is of the sum over the others.
    """
    if not 1 <= pool_size <= num_classes - 1:
        wanted = f"1 to {num_classes - 1}, as the positive is left out of {num_classes} classes"
        raise ValueError(f"pool_size: given {pool_size}; wanted {wanted}")
    return math.log(pool_size / (num_classes - 1))


def sampled_softmax_loss(
    positive_scores_N: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    *,
    log_q: float | Tensor,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """``log_q``: log Q_j of each entry, one number or a tensor [B] or [N, B]; 0 for no correction.

    ``mask`` is True where an entry must not count. Half precision is summed, and the loss returned, in float32.
    """
    check_form(reduction, scale, validate=validate)
    check_pool(positive_scores_N, pool_scores_NB, mask, validate=validate)
    num_points, width = pool_scores_NB.shape
    check_log_q(log_q, shape=(num_points, width), validate=validate)
    dtype = widened(positive_scores_N, pool_scores_NB)
    if isinstance(log_q, Tensor):
        log_q = log_q.to(dtype)
    log_negatives_N = log_sum(scaled(pool_scores_NB, scale, dtype) - log_q, mask)
    return reduce(against(scaled(positive_scores_N, scale, dtype), log_negatives_N), reduction)


def sampled_softmax_loss_reference(
    positive_scores_N: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    *,
    log_q: float | Tensor,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """The definition: each negative's share of the sum divided by Q."""
    expected_counts_NB = torch.exp(torch.as_tensor(log_q, dtype=pool_scores_NB.dtype)).expand_as(pool_scores_NB)
    losses = []
    for n, positive in enumerate(positive_scores_N):
        own = torch.exp(scale * positive)
        shares_B = torch.exp(scale * pool_scores_NB[n]) / expected_counts_NB[n]
        counted = shares_B if mask is None else shares_B[~mask[n]]
        losses.append(-torch.log(own / (own + counted.sum())))
    return reduce(torch.stack(losses), reduction)
