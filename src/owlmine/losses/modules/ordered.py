"""The paper's losses as modules: on all classes, and mined from a pool.

Legend: N points, K classes, B pool.
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from owlmine.losses.checks import Kind, check_options
from owlmine.losses.members import OrderedLoss
from owlmine.losses.mined import mined_loss
from owlmine.losses.modules.base import ClassLoss, CommonOptions, PoolLoss
from owlmine.losses.rank_weights import RankWeights, negative_sampling
from owlmine.losses.surrogates import Surrogate, surrogate


class OrderedWeightedLoss(ClassLoss):
    """POWL or BOWL on the scores of all classes: ``forward(scores_NK, positives_N)``.

    ``member`` is one of the constructors of ``owlmine.losses.members`` or ``OrderedLoss(kind, theta)``. Where all
    scores are too many, ``MinedLoss`` estimates the same from a pool.

        loss = OrderedWeightedLoss(top_k_loss(5), phi="logistic")
    """

    def __init__(self, member: OrderedLoss, *, phi: str | Surrogate = "hinge", **common: Unpack[CommonOptions]) -> None:
        super().__init__(**common)
        check_options(member.kind, self.reduction)
        self.member, self.phi = member, surrogate(phi)

    def of_each_point(self, scores_NK: Tensor, positives: Tensor) -> Tensor:
        return self.member(
            scores_NK, positives, phi=self.phi, scale=self.scale, reduction="none", validate=self.validate
        )

    def options(self) -> dict[str, object]:
        return {"kind": self.member.kind, "num_weights": len(self.member.theta), "phi": self.phi}


class MinedLoss(PoolLoss):
    """Stochastic negative mining, Algorithm 1: ``forward(positive_scores_N, pool_scores_NB, mask=None)``.

    loss = MinedLoss(top_k(1, pool_size=512), kind="bowl")
    """

    def __init__(
        self,
        weights: RankWeights,
        *,
        kind: Kind = "bowl",
        phi: str | Surrogate = "hinge",
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(**common)
        check_options(kind, self.reduction)
        self.weights, self.kind, self.phi = weights, kind, surrogate(phi)

    def of_each_point(self, positive_scores_N: Tensor, pool_scores_NB: Tensor, mask: Tensor | None = None) -> Tensor:
        return mined_loss(
            positive_scores_N,
            pool_scores_NB,
            mask,
            weights=self.weights,
            kind=self.kind,
            phi=self.phi,
            scale=self.scale,
            reduction="none",
            validate=self.validate,
        )

    def options(self) -> dict[str, object]:
        kept, size = self.weights.kept, self.weights.pool_size
        return {"kind": self.kind, "kept": kept, "pool_size": size, "phi": self.phi}


def negative_sampling_loss(
    *, pool_size: int, kind: Kind = "bowl", phi: str | Surrogate = "hinge", **common: Unpack[CommonOptions]
) -> MinedLoss:
    """Every negative of the pool with the same weight, 1/B."""
    return MinedLoss(negative_sampling(pool_size=pool_size), kind=kind, phi=phi, **common)
