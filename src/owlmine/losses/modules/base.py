"""The base of the loss modules: they remember options, and have a parameter only if the scale is learned.

Every module has ``of_each_point(...)``, which gives [N] losses, and ``forward(...)``, which reduces them.

Legend: N points, K classes, B pool.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TypedDict, Unpack

import torch
from torch import Tensor, nn

from owlmine.losses.inputs import Reduction, check_form, reduce


class CommonOptions(TypedDict, total=False):
    """Options of every loss module."""

    scale: float
    """Factor s > 0 on scores, 1 if not given; if it is learned, the initial value."""
    learn_scale: bool
    """Makes s a parameter. It is stored as ``log_scale``, so that s stays positive."""
    reduction: Reduction
    """Reduction of the losses of a batch: "mean" (default), "sum", or "none"."""
    validate: bool | None
    """Whether values are checked: see ``owlmine.mining.checks``."""


class ScaledLoss(nn.Module):
    """Remembers the options of every loss."""

    log_scale: nn.Parameter | None

    def __init__(self, **common: Unpack[CommonOptions]) -> None:
        super().__init__()
        unknown = set(common) - set(CommonOptions.__annotations__)
        if unknown:
            wanted = ", ".join(CommonOptions.__annotations__)
            raise ValueError(
                f"{type(self).__name__}: given {', '.join(sorted(unknown))}; wanted options among {wanted}"
            )
        self.fixed_scale = float(common.get("scale", 1.0))
        self.reduction: Reduction = common.get("reduction", "mean")
        self.validate = common.get("validate")
        check_form(self.reduction, self.fixed_scale, validate=self.validate)
        learned = nn.Parameter(torch.tensor(math.log(self.fixed_scale))) if common.get("learn_scale", False) else None
        self.register_parameter("log_scale", learned)

    @property
    def scale(self) -> float | Tensor:
        return self.fixed_scale if self.log_scale is None else self.log_scale.exp()

    def options(self) -> dict[str, object]:
        """The options of this loss alone, for ``repr``."""
        return {}

    def extra_repr(self) -> str:
        scale = f"{self.fixed_scale:g}" if self.log_scale is None else f"{self.log_scale.exp().item():g}, learned"
        own = [
            f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}"
            for name, value in self.options().items()
        ]
        return ", ".join([*own, f"scale={scale}", f"reduction={self.reduction!r}"])


class PoolLoss(ScaledLoss):
    """A loss of the positive's score and those of a pool."""

    @abstractmethod
    def of_each_point(self, positive_scores_N: Tensor, pool_scores_NB: Tensor, mask: Tensor | None = None) -> Tensor:
        """[N]; ``mask`` is True where an entry of the pool must not count."""

    def forward(self, positive_scores_N: Tensor, pool_scores_NB: Tensor, mask: Tensor | None = None) -> Tensor:
        return reduce(self.of_each_point(positive_scores_N, pool_scores_NB, mask), self.reduction)


class ClassLoss(ScaledLoss):
    """A loss of the scores of all classes."""

    @abstractmethod
    def of_each_point(self, scores_NK: Tensor, positives: Tensor) -> Tensor:
        """[N]; ``positives`` are class ids."""

    def forward(self, scores_NK: Tensor, positives: Tensor) -> Tensor:
        return reduce(self.of_each_point(scores_NK, positives), self.reduction)
