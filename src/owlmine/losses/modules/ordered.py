"""The paper's losses as modules: on all classes, and mined from a pool.

Legend: N points, K classes, B pool.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor

from owlmine.losses.inputs import Kind, check_options
from owlmine.losses.members import OrderedLoss
from owlmine.losses.mined import mined_loss
from owlmine.losses.modules.base import ClassLoss, CommonOptions, PoolLoss
from owlmine.losses.rank_weights import RankWeights, negative_sampling
from owlmine.losses.surrogates import Surrogate, surrogate


class OrderedWeightedLoss(ClassLoss):
    """POWL or BOWL on the scores of all classes: ``forward(scores_NK, positives_N)``.

    ``member`` is one of the constructors of ``owlmine.losses.members`` or ``OrderedLoss(kind, theta)``. If there are
    too many classes to score, ``MinedLoss`` estimates the same from a pool.

        loss = OrderedWeightedLoss(top_k_loss(5), phi="logistic")
    """

    def __init__(self, member: OrderedLoss, *, phi: str | Surrogate = "hinge", **common: Unpack[CommonOptions]) -> None:
        super().__init__(**common)
        check_options(member.kind, self.reduction)
        # Here, since values on a GPU are not checked.
        if not bool(((member.theta >= 0) & (member.theta < torch.inf)).all()):
            raise ValueError("theta: given a weight that is negative, infinite or NaN; wanted finite weights >= 0")
        self.member, self.phi = member, surrogate(phi)
        self._placed: dict[torch.device, OrderedLoss] = {}

    def of_each_point(self, scores_NK: Tensor, positives: Tensor) -> Tensor:
        member = self._member_for(scores_NK)
        return member(scores_NK, positives, phi=self.phi, scale=self.scale, reduction="none", validate=self.validate)

    def _member_for(self, scores_NK: Tensor) -> OrderedLoss:
        """With theta on the device of the scores; copied once, so that later steps do not wait for a transfer.

        A theta for every rank stays on the CPU: its values are checked there, to distinguish a constant tail from
        weights that need a sort.
        """
        device, theta = scores_NK.device, self.member.theta
        if len(theta) >= scores_NK.shape[-1] - 1 or theta.device == device or torch.compiler.is_compiling():
            return self.member
        if device not in self._placed:
            self._placed[device] = replace(self.member, theta=theta.to(device))
        return self._placed[device]

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
