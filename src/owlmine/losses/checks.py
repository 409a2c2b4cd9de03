"""What the losses accept at their doors; when values are looked at is told in ``owlmine.mining.checks``.

Infinite scores pass: they follow the rules of floating point, so a loss may come out infinite or NaN.

Legend: N points of the batch.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from torch import Tensor

from owlmine.mining.checks import may_look

Kind = Literal["powl", "bowl"]
Reduction = Literal["mean", "sum", "none"]


def check_options(kind: str, reduction: str) -> None:
    if kind not in get_args(Kind):
        raise ValueError(f"kind: given {kind!r}; wanted one of {', '.join(get_args(Kind))}")
    if reduction not in get_args(Reduction):
        raise ValueError(f"reduction: given {reduction!r}; wanted one of {', '.join(get_args(Reduction))}")


def check_scores(name: str, scores: Tensor, *, ndim: int, validate: bool | None) -> None:
    if scores.ndim != ndim:
        raise ValueError(f"{name}: given shape {tuple(scores.shape)}; wanted {ndim} dimension(s)")
    if not scores.is_floating_point():
        raise ValueError(f"{name}: given dtype {scores.dtype}; wanted floating point")
    if scores.shape[0] == 0:
        raise ValueError(f"{name}: given an empty batch; wanted at least one point")
    if may_look(scores, validate) and bool(scores.isnan().any()):
        raise ValueError(f"{name}: given NaN; wanted numbers")


def check_scale(scale: float | Tensor, *, validate: bool | None) -> None:
    if isinstance(scale, Tensor):
        if scale.numel() != 1 or not scale.is_floating_point():
            given = f"{scale.dtype} of shape {tuple(scale.shape)}"
            raise ValueError(f"scale: given {given}; wanted one floating-point number")
        if may_look(scale, validate) and not 0 < scale.item() < math.inf:
            raise ValueError(f"scale: given {scale.item()}; wanted a positive finite number")
    elif not 0 < scale < math.inf:
        raise ValueError(f"scale: given {scale}; wanted a positive finite number")


def reduce(loss_N: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "none":
        return loss_N
    return loss_N.mean() if reduction == "mean" else loss_N.sum()
