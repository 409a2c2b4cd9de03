"""Losses from the literature that are ordered losses for a particular theta (paper, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from owlmine.losses.inputs import Kind, Reduction
from owlmine.losses.ordered import ordered_loss
from owlmine.losses.surrogates import Surrogate


@dataclass(frozen=True, eq=False)
class OrderedLoss:
    """A kind and its theta (the leading weights; the rest are 0)."""

    kind: Kind
    theta: Tensor

    def __call__(
        self,
        scores_NK: Tensor,
        positives_N: Tensor,
        *,
        phi: str | Surrogate = "hinge",
        scale: float | Tensor = 1.0,
        reduction: Reduction = "mean",
        validate: bool | None = None,
    ) -> Tensor:
        return ordered_loss(
            scores_NK,
            positives_N,
            theta=self.theta,
            kind=self.kind,
            phi=phi,
            scale=scale,
            reduction=reduction,
            validate=validate,
        )


def crammer_singer() -> OrderedLoss:
    """The hardest negative alone: θ_1 = 1, pairwise."""
    return OrderedLoss("powl", _equal(1, 1.0))


def weston_watkins(num_classes: int) -> OrderedLoss:
    """Every negative with weight 1, pairwise."""
    return OrderedLoss("powl", _equal(_num_negatives(num_classes), 1.0))


def lee_lin_wahba(num_classes: int) -> OrderedLoss:
    """Every negative with weight 1, binary."""
    return OrderedLoss("bowl", _equal(_num_negatives(num_classes), 1.0))


def top_k_loss(k: int, *, kind: Kind = "powl") -> OrderedLoss:
    """The average over the k hardest negatives: θ_j = 1/k for j <= k."""
    return at_most_relevant(k, k=k, kind=kind)


def every_class(num_classes: int, *, k: int, kind: Kind = "powl") -> OrderedLoss:
    """θ_j = 1/k for every j: calibrated for any distribution when phi is (condition of Theorem 4)."""
    return at_most_relevant(_num_negatives(num_classes), k=k, kind=kind)


def at_most_relevant(most: int, *, k: int, kind: Kind = "powl") -> OrderedLoss:
    """θ_j = 1/k for j <= ``most``: for data where no query has more than ``most`` relevant classes."""
    if not 1 <= k <= most:
        raise ValueError(f"ordered loss: given k = {k} of {most} weighted ranks; wanted 1 <= k <= ranks")
    return OrderedLoss(kind, _equal(most, 1 / k))


def _num_negatives(num_classes: int) -> int:
    if num_classes < 2:
        raise ValueError(f"num_classes: given {num_classes}; wanted at least 2")
    return num_classes - 1


def _equal(count: int, weight: float) -> Tensor:
    return torch.full((count,), weight, dtype=torch.float64)
