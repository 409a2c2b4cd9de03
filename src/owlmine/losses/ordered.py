"""Ordered weighted losses on the scores of all classes (paper, definitions 3 and 4).

POWL   ℓ(v, y) = Σ_j θ_j φ(s (v_y - v^{-y}_[j]))
BOWL   ℓ(v, y) = φ(s v_y) + Σ_j θ_j φ(-s v^{-y}_[j])

v^{-y}_[j] is the j-th highest score once the positive's is left out, s the scale (1 in the paper). Among
equal scores the smaller class id ranks first; the value of a loss does not depend on that, its gradient does.

Legend: N points, K classes, J ranks that have a weight, T of them with a weight of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from owlmine.losses.checks import (
    Kind,
    Reduction,
    check_options,
    check_scale,
    check_scores,
    reduce,
)
from owlmine.losses.rank_sum import Form, rank_sum, widened
from owlmine.losses.surrogates import Surrogate, surrogate
from owlmine.mining.checks import check_class_ids, may_look

Theta = Sequence[float] | Tensor


def powl(
    scores_NK: Tensor,
    positives_N: Tensor,
    *,
    theta: Theta,
    phi: str | Surrogate = "hinge",
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """Pairwise ordered weighted loss; ``theta``: K - 1 weights by rank, or the first of them (rest 0)."""
    return ordered_loss(
        scores_NK,
        positives_N,
        theta=theta,
        kind="powl",
        phi=phi,
        scale=scale,
        reduction=reduction,
        validate=validate,
    )


def bowl(
    scores_NK: Tensor,
    positives_N: Tensor,
    *,
    theta: Theta,
    phi: str | Surrogate = "hinge",
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """Binary ordered weighted loss; ``theta``: K - 1 weights by rank, or the first of them (rest 0)."""
    return ordered_loss(
        scores_NK,
        positives_N,
        theta=theta,
        kind="bowl",
        phi=phi,
        scale=scale,
        reduction=reduction,
        validate=validate,
    )


def ordered_loss(
    scores_NK: Tensor,
    positives_N: Tensor,
    *,
    theta: Theta,
    kind: Kind,
    phi: str | Surrogate = "hinge",
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """POWL or BOWL by name. Half-precision scores are added up, and the loss returned, in float32.

    Costs one pass for the T hardest classes when theta has T leading weights and then zeros, or a constant
    that none of the T is below; a sort otherwise. What ``validate`` looks at: see ``owlmine.mining.checks``.
    """
    check_options(kind, reduction)
    _check_batch(scores_NK, positives_N, validate=validate)
    check_scale(scale, validate=validate)
    theta_J = _as_theta(theta, num_ranks=scores_NK.shape[1] - 1, validate=validate)
    prefix_T, tail = _split(theta_J, num_ranks=scores_NK.shape[1] - 1)
    positives_N1 = positives_N.to(torch.int64)[:, None]
    is_positive_NK = torch.zeros_like(scores_NK, dtype=torch.bool).scatter(1, positives_N1, True)
    positive_N = scores_NK.gather(1, positives_N1)[:, 0]
    prefix_T = prefix_T.to(device=scores_NK.device, dtype=widened(scores_NK))
    form = Form(kind, surrogate(phi), scale)
    loss_N = rank_sum(positive_N, scores_NK, is_positive_NK, prefix_T=prefix_T, tail=tail, form=form)
    return reduce(loss_N, reduction)


def ordered_loss_reference(
    scores_NK: Tensor,
    positives_N: Tensor,
    *,
    theta: Theta,
    kind: Kind,
    phi: str | Surrogate = "hinge",
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """The definitions as they are written: each row without its positive, sorted in full."""
    losses = []
    for scores_K, positive in zip(scores_NK, positives_N.tolist(), strict=True):
        others = torch.cat([scores_K[:positive], scores_K[positive + 1 :]])
        ranked = others.sort(descending=True, stable=True).values
        weights = torch.zeros_like(ranked)
        weights[: len(theta)] = torch.as_tensor(theta, dtype=ranked.dtype)
        if kind == "powl":
            losses.append((weights * surrogate(phi)(scale * (scores_K[positive] - ranked))).sum())
        else:
            own = surrogate(phi)(scale * scores_K[positive])
            losses.append(own + (weights * surrogate(phi)(-scale * ranked)).sum())
    return reduce(torch.stack(losses), reduction)


def is_non_increasing(theta: Theta) -> bool:
    """Whether no weight is above the one before: with a convex phi the loss is then convex (Theorem 2)."""
    theta_J = torch.as_tensor(theta)
    return bool((theta_J[1:] <= theta_J[:-1]).all())


def _check_batch(scores_NK: Tensor, positives_N: Tensor, *, validate: bool | None) -> None:
    check_scores("scores", scores_NK, ndim=2, validate=validate)
    num_points, num_classes = scores_NK.shape
    if num_classes < 2:
        raise ValueError(f"scores: given {num_classes} class(es); wanted at least 2")
    check_class_ids("positives", positives_N, shape=(num_points,), num_classes=num_classes, validate=validate)


def _as_theta(theta: Theta, *, num_ranks: int, validate: bool | None) -> Tensor:
    theta_J = theta if isinstance(theta, Tensor) else torch.tensor(theta, dtype=torch.float64)
    if theta_J.ndim != 1 or len(theta_J) > num_ranks:
        raise ValueError(f"theta: given shape {tuple(theta_J.shape)}; wanted up to {num_ranks} weights")
    if may_look(theta_J, validate) and not bool(((theta_J >= 0) & (theta_J < torch.inf)).all()):
        raise ValueError("theta: given a weight that is negative, infinite or NaN; wanted finite weights >= 0")
    return theta_J


def _split(theta_J: Tensor, *, num_ranks: int) -> tuple[Tensor, float]:
    """Leading weights and the constant after them; 0 if some leading weight is below that constant."""
    if len(theta_J) == 0 or not may_look(theta_J, None) or theta_J.requires_grad:
        return theta_J, 0.0
    tail = float(theta_J[-1]) if len(theta_J) == num_ranks else 0.0
    if bool((theta_J < tail).any()):
        return theta_J, 0.0
    differs = (theta_J != tail).nonzero()
    return theta_J[: int(differs[-1]) + 1 if len(differs) else 0], tail
