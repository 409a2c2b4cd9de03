"""Ordered weighted losses on the scores of all classes (POWL, BOWL), and the sum that they share with Algorithm 1:
weights by rank times phi of sorted negatives, for one positive.

pairwise (POWL)   Σ_i w_i φ(s (v_y - v_[i]))
binary (BOWL)     φ(s v_y) + Σ_i w_i φ(-s v_[i])

Weights are a prefix w_1 .. w_T followed by a constant tail t. With w_i >= t >= 0 the sum is Σ_{i<=T} (w_i - t) φ_[i] +
t Σ_all φ, which needs the T hardest scores and one unordered sum. Both parts are non-negative, so nothing cancels.

Legend: N points, B negatives of each, T ranks with a weight of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from owlmine.losses.inputs import (
    Kind,
    Reduction,
    check_options,
    check_scale,
    check_scores,
    reduce,
)
from owlmine.losses.surrogates import Surrogate, surrogate
from owlmine.mining.checks import check_class_ids, may_look
from owlmine.mining.hardest_classes import highest


@dataclass(frozen=True)
class Form:
    """The terms of the sum: the kind of loss, phi, and the scale s on scores."""

    kind: Kind
    phi: Surrogate
    scale: float | Tensor

    def positive_part(self, positive_N: Tensor) -> Tensor:
        """φ(s v_y) for the binary kind, 0 for the pairwise one."""
        if self.kind == "powl":
            return torch.zeros_like(positive_N)
        return self.phi(self._scaled(positive_N))

    def negative_part(
        self, positive_N: Tensor, negatives_NB: Tensor, visible_NB: Tensor | None, weights: Tensor | float
    ) -> Tensor:
        """Σ w φ(s (v_y - v_j)) or Σ w φ(-s v_j) over the visible negatives of each point."""
        margins_NB = positive_N[:, None] - negatives_NB if self.kind == "powl" else -negatives_NB
        if visible_NB is None:
            return (weights * self.phi(self._scaled(margins_NB))).sum(dim=1)
        # A hidden score may be anything. Its margin is replaced before phi as well as its loss after,
        # so that 0 x infinity cannot enter a gradient.
        margins_NB = torch.where(visible_NB, margins_NB, 0)
        losses_NB = weights * self.phi(self._scaled(margins_NB))
        return torch.where(visible_NB, losses_NB, 0).sum(dim=1)

    def _scaled(self, margins: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            return margins * self.scale.reshape(()).to(margins)
        return margins if self.scale == 1 else margins * self.scale


def widened(*scores: Tensor) -> torch.dtype:
    """The dtype of the sum: the widest given, at least float32."""
    dtype = torch.float32
    for tensor in scores:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def find_hardest(negatives_NB: Tensor, count: int, hidden_NB: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Positions of the hardest negatives that are not hidden, and which of them are real.

    A row with fewer than ``count`` visible negatives is padded with hidden ones, marked False.
    """
    if hidden_NB is None:
        return highest(negatives_NB, count), None
    ids_NT = highest(negatives_NB.detach().masked_fill(hidden_NB, -torch.inf), count)
    return ids_NT, ~hidden_NB.gather(1, ids_NT)


def rank_sum(
    positive_N: Tensor,
    negatives_NB: Tensor,
    hidden_NB: Tensor | None,
    *,
    prefix_T: Tensor,
    tail: float,
    form: Form,
) -> Tensor:
    """The loss of each point over negatives that are not hidden. No weight of the prefix is below ``tail``."""
    dtype = widened(positive_N, negatives_NB)
    positive_N = positive_N.to(dtype)
    ids_NT, visible_NT = find_hardest(negatives_NB, len(prefix_T), hidden_NB)
    hardest_NT = negatives_NB.gather(1, ids_NT).to(dtype)
    loss_N = form.positive_part(positive_N)
    loss_N = loss_N + form.negative_part(positive_N, hardest_NT, visible_NT, prefix_T - tail)
    if tail == 0:
        return loss_N
    visible_NB = None if hidden_NB is None else ~hidden_NB
    return loss_N + form.negative_part(positive_N, negatives_NB.to(dtype), visible_NB, tail)


# Ordered weighted losses on the scores of all classes (paper, definitions 3 and 4).
#
# POWL   ℓ(v, y) = Σ_j θ_j φ(s (v_y - v^{-y}_[j]))
# BOWL   ℓ(v, y) = φ(s v_y) + Σ_j θ_j φ(-s v^{-y}_[j])
#
# v^{-y}_[j] is the j-th highest score once the positive's is left out, s the scale (1 in the paper). Among
# equal scores the smaller class id ranks first; the value of a loss does not depend on that, its gradient does.
#
# Legend: N points, K classes, J ranks that have a weight, T of them with a weight of their own.


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
    """POWL or BOWL by name. Half-precision scores are summed, and the loss returned, in float32.

    Takes one pass for the T hardest classes if theta has T leading weights and then zeros, or a constant that is no
    larger than any of the T; a sort otherwise. For ``validate``, see ``owlmine.mining.checks``.
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
    """The definitions, literally: each row without its positive, fully sorted."""
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
    """Whether the weights never rise: with a convex phi the loss is then convex (Theorem 2)."""
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
