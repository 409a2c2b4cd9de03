"""The softmaxes as modules.

Legend: N points, K classes, B pool, T kept, M others.
"""

from __future__ import annotations

from typing import Unpack, get_args

from torch import Tensor

from owlmine.losses.inputs import reduce
from owlmine.losses.mined_softmax import Tail, mined_softmax_loss, stratified_softmax_loss
from owlmine.losses.modules.base import ClassLoss, CommonOptions, PoolLoss, ScaledLoss
from owlmine.losses.softmax import sampled_softmax_loss, softmax_loss, uniform_log_q


class FullSoftmax(ClassLoss):
    """Softmax cross entropy over all classes: ``forward(scores_NK, positives_N)``."""

    def of_each_point(self, scores_NK: Tensor, positives: Tensor) -> Tensor:
        return softmax_loss(scores_NK, positives, scale=self.scale, reduction="none", validate=self.validate)


class SampledSoftmax(PoolLoss):
    """Softmax over a uniform pool with the log-Q correction: ``forward(positive_scores_N, pool_scores_NB, mask=None)``.

    For pools drawn in another way, call ``sampled_softmax_loss`` with their own ``log_q``.
    """

    def __init__(self, *, num_classes: int, pool_size: int, **common: Unpack[CommonOptions]) -> None:
        super().__init__(**common)
        self.log_q = uniform_log_q(num_classes=num_classes, pool_size=pool_size)
        self.num_classes, self.pool_size = num_classes, pool_size

    def of_each_point(self, positive_scores_N: Tensor, pool_scores_NB: Tensor, mask: Tensor | None = None) -> Tensor:
        check_width(pool_scores_NB, mask, pool_size=self.pool_size)
        return sampled_softmax_loss(
            positive_scores_N,
            pool_scores_NB,
            mask,
            log_q=self.log_q,
            scale=self.scale,
            reduction="none",
            validate=self.validate,
        )

    def options(self) -> dict[str, object]:
        return {"num_classes": self.num_classes, "pool_size": self.pool_size}


class MinedSoftmax(PoolLoss):
    """Softmax over the hardest of a pool: ``forward(positive_scores_N, pool_scores_NB, mask=None, others_NM=None)``.

    ``tail="drop"`` ignores all other classes. ``tail="estimate"`` also needs ``num_classes`` and ``pool_size``, and in
    each call the others from ``draw_others``.
    """

    def __init__(
        self,
        *,
        kept: int,
        tail: Tail = "drop",
        num_classes: int | None = None,
        pool_size: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(**common)
        if tail not in get_args(Tail):
            raise ValueError(f"tail: given {tail!r}; wanted one of {', '.join(get_args(Tail))}")
        if kept < 1 or (pool_size is not None and kept > pool_size):
            raise ValueError(f"kept: given {kept} of a pool of {pool_size}; wanted 1 to the pool's size")
        self.log_q = 0.0
        if tail == "estimate":
            if num_classes is None or pool_size is None:
                given = f"num_classes = {num_classes}, pool_size = {pool_size}"
                raise ValueError(f'tail "estimate": given {given}; wanted both, for the chance of a class to be drawn')
            self.log_q = uniform_log_q(num_classes=num_classes, pool_size=pool_size)
        self.kept, self.tail, self.num_classes, self.pool_size = kept, tail, num_classes, pool_size

    def of_each_point(
        self,
        positive_scores_N: Tensor,
        pool_scores_NB: Tensor,
        mask: Tensor | None = None,
        others_NM: Tensor | None = None,
    ) -> Tensor:
        if self.pool_size is not None:
            check_width(pool_scores_NB, mask, pool_size=self.pool_size)
        return mined_softmax_loss(
            positive_scores_N,
            pool_scores_NB,
            mask,
            others_NM,
            kept=self.kept,
            tail=self.tail,
            log_q=self.log_q,
            scale=self.scale,
            reduction="none",
            validate=self.validate,
        )

    def forward(
        self,
        positive_scores_N: Tensor,
        pool_scores_NB: Tensor,
        mask: Tensor | None = None,
        others_NM: Tensor | None = None,
    ) -> Tensor:
        return reduce(self.of_each_point(positive_scores_N, pool_scores_NB, mask, others_NM), self.reduction)

    def options(self) -> dict[str, object]:
        own: dict[str, object] = {"kept": self.kept, "tail": self.tail}
        sizes = {"num_classes": self.num_classes, "pool_size": self.pool_size}
        return own | {name: size for name, size in sizes.items() if size is not None}


class StratifiedSoftmax(ScaledLoss):
    """Kept classes exactly, all others estimated from a uniform pool.

    ``forward(positive_scores_N, kept_scores_NT, pool_scores_NB, mask=None)``, where the mask hides from the pool what
    it shares with the kept classes.
    """

    def __init__(self, *, num_classes: int, pool_size: int, **common: Unpack[CommonOptions]) -> None:
        super().__init__(**common)
        self.log_q = uniform_log_q(num_classes=num_classes, pool_size=pool_size)
        self.num_classes, self.pool_size = num_classes, pool_size

    def of_each_point(
        self, positive_scores_N: Tensor, kept_scores_NT: Tensor, pool_scores_NB: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        check_width(pool_scores_NB, mask, pool_size=self.pool_size)
        return stratified_softmax_loss(
            positive_scores_N,
            kept_scores_NT,
            pool_scores_NB,
            mask,
            log_q=self.log_q,
            scale=self.scale,
            reduction="none",
            validate=self.validate,
        )

    def forward(
        self, positive_scores_N: Tensor, kept_scores_NT: Tensor, pool_scores_NB: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        return reduce(self.of_each_point(positive_scores_N, kept_scores_NT, pool_scores_NB, mask), self.reduction)

    def options(self) -> dict[str, object]:
        return {"num_classes": self.num_classes, "pool_size": self.pool_size}


def check_width(pool_scores_NB: Tensor, mask: Tensor | None, *, pool_size: int) -> None:
    """The pool must be as wide as the one that Q was computed for; wider only with a mask, which hides the rest."""
    width = pool_scores_NB.shape[-1]
    if width < pool_size or (mask is None and width > pool_size):
        wanted = f"{pool_size}" if mask is None else f"at least {pool_size}"
        raise ValueError(f"pool_scores: given {width} wide; wanted {wanted}, the pool size of this loss")
