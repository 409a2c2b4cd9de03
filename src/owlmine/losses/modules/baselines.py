"""One-vs-all, semi-hard mining, and several positives, as modules.

Legend: N points, K classes, B pool, P positives of a point at most.
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from owlmine.losses.inputs import reduce
from owlmine.losses.modules.base import ClassLoss, CommonOptions, PoolLoss, ScaledLoss
from owlmine.losses.modules.softmax import check_width
from owlmine.losses.multi_positive import (
    SoftmaxForm,
    check_softmax_form,
    multi_positive_loss,
    multi_positive_softmax_loss,
)
from owlmine.losses.one_vs_all import one_vs_all_loss, pooled_one_vs_all_loss
from owlmine.losses.semi_hard import check_margin, semi_hard_loss
from owlmine.losses.softmax import uniform_log_q


class OneVsAll(ClassLoss):
    """Logistic one-vs-all: ``forward(scores_NK, positives)``, one positive per point or several ([N, P], -1 filled)."""

    def of_each_point(self, scores_NK: Tensor, positives: Tensor) -> Tensor:
        return one_vs_all_loss(scores_NK, positives, scale=self.scale, reduction="none", validate=self.validate)


class PooledOneVsAll(PoolLoss):
    """Logistic one-vs-all on a pool: ``forward(positive_scores_N, pool_scores_NB, mask=None)``.

    With ``num_classes`` and ``pool_size`` an unbiased estimate of the loss on all classes; without, each negative of
    the pool counts once.
    """

    def __init__(
        self, *, num_classes: int | None = None, pool_size: int | None = None, **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(**common)
        if (num_classes is None) != (pool_size is None):
            given = f"num_classes = {num_classes}, pool_size = {pool_size}"
            raise ValueError(f"PooledOneVsAll: given {given}; wanted both or neither")
        self.log_q = 0.0
        if num_classes is not None and pool_size is not None:
            self.log_q = uniform_log_q(num_classes=num_classes, pool_size=pool_size)
        self.num_classes, self.pool_size = num_classes, pool_size

    def of_each_point(self, positive_scores_N: Tensor, pool_scores_NB: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.pool_size is not None:
            check_width(pool_scores_NB, mask, pool_size=self.pool_size)
        return pooled_one_vs_all_loss(
            positive_scores_N,
            pool_scores_NB,
            mask,
            log_q=self.log_q,
            scale=self.scale,
            reduction="none",
            validate=self.validate,
        )

    def options(self) -> dict[str, object]:
        return {} if self.pool_size is None else {"num_classes": self.num_classes, "pool_size": self.pool_size}


class SemiHard(PoolLoss):
    """The hardest negative below the positive: ``forward(positive_scores_N, pool_scores_NB, mask=None)``."""

    def __init__(self, *, margin: float = 0.2, **common: Unpack[CommonOptions]) -> None:
        super().__init__(**common)
        check_margin(margin)
        self.margin = margin

    def of_each_point(self, positive_scores_N: Tensor, pool_scores_NB: Tensor, mask: Tensor | None = None) -> Tensor:
        return semi_hard_loss(
            positive_scores_N,
            pool_scores_NB,
            mask,
            margin=self.margin,
            scale=self.scale,
            reduction="none",
            validate=self.validate,
        )

    def options(self) -> dict[str, object]:
        return {"margin": self.margin}


class MultiPositiveSoftmax(ClassLoss):
    """Softmax over all classes with several positives: ``forward(scores_NK, positives_NP)``, filled up with -1."""

    def __init__(self, *, form: SoftmaxForm = "decoupled", **common: Unpack[CommonOptions]) -> None:
        super().__init__(**common)
        check_softmax_form(form)
        self.form = form

    def of_each_point(self, scores_NK: Tensor, positives: Tensor) -> Tensor:
        return multi_positive_softmax_loss(
            scores_NK, positives, form=self.form, scale=self.scale, reduction="none", validate=self.validate
        )

    def options(self) -> dict[str, object]:
        return {"form": self.form}


class MultiPositive(ScaledLoss):
    """The mean of a pool loss over the positives of each point; scale and reduction are those of ``loss``.

    ``forward(positive_scores_NP, pool_scores_NB, mask=None, padding_NP=None)``; the mask hides a point's positives.

        loss = MultiPositive(MinedLoss(top_k(1, pool_size=512)))
    """

    def __init__(self, loss: PoolLoss) -> None:
        super().__init__(reduction=loss.reduction, validate=loss.validate)
        self.loss = loss

    @property
    def scale(self) -> float | Tensor:
        return self.loss.scale

    def of_each_point(
        self,
        positive_scores_NP: Tensor,
        pool_scores_NB: Tensor,
        mask: Tensor | None = None,
        padding_NP: Tensor | None = None,
    ) -> Tensor:
        return multi_positive_loss(
            self.loss.of_each_point,
            positive_scores_NP,
            pool_scores_NB,
            mask,
            padding_NP,
            reduction="none",
            validate=self.validate,
        )

    def forward(
        self,
        positive_scores_NP: Tensor,
        pool_scores_NB: Tensor,
        mask: Tensor | None = None,
        padding_NP: Tensor | None = None,
    ) -> Tensor:
        return reduce(self.of_each_point(positive_scores_NP, pool_scores_NB, mask, padding_NP), self.reduction)

    def extra_repr(self) -> str:
        return ""
