"""Checks of the inputs to losses. ``owlmine.mining.checks`` says when values are checked.

Infinite scores pass: they follow the rules of floating point, so a loss may come out infinite or NaN.

Legend: N points of the batch.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from owlmine.mining.checks import check_class_ids, may_look

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


# What losses on a pool accept, and all classes as one pool.
#
# Legend: N points, B pool, K classes, P positives of a point at most.


def check_form(reduction: str, scale: float | Tensor, *, validate: bool | None) -> None:
    if reduction not in get_args(Reduction):
        raise ValueError(f"reduction: given {reduction!r}; wanted one of {', '.join(get_args(Reduction))}")
    check_scale(scale, validate=validate)


def check_pool(
    positive_scores_N: Tensor, pool_scores_NB: Tensor, mask: Tensor | None, *, validate: bool | None
) -> None:
    check_scores("positive_scores", positive_scores_N, ndim=1, validate=validate)
    check_scores("pool_scores", pool_scores_NB, ndim=2, validate=validate)
    given = tuple(pool_scores_NB.shape)
    if given[0] != len(positive_scores_N) or given[1] == 0:
        wanted = f"{len(positive_scores_N)} rows of at least one negative"
        raise ValueError(f"pool_scores: given shape {given}; wanted {wanted}")
    if mask is not None and (mask.dtype != torch.bool or tuple(mask.shape) != given):
        raise ValueError(f"mask: given {mask.dtype} of shape {tuple(mask.shape)}; wanted bool of shape {given}")


def check_class_scores(scores_NK: Tensor, *, validate: bool | None) -> None:
    check_scores("scores", scores_NK, ndim=2, validate=validate)
    if scores_NK.shape[1] < 2:
        raise ValueError(f"scores: given {scores_NK.shape[1]} class(es); wanted at least 2")


def check_log_q(log_q: float | Tensor, *, shape: tuple[int, int], validate: bool | None) -> None:
    """``log_q``: one number, or one for each entry of the pool ([B] or [N, B])."""
    if isinstance(log_q, Tensor):
        if not log_q.is_floating_point() or tuple(log_q.shape) not in ((), shape[1:], shape):
            given = f"{log_q.dtype} of shape {tuple(log_q.shape)}"
            raise ValueError(f"log_q: given {given}; wanted floating point of shape {shape[1:]} or {shape}")
        if may_look(log_q, validate) and not bool(log_q.isfinite().all()):
            raise ValueError("log_q: given a value that is not finite; wanted finite logarithms")
    elif not abs(log_q) < float("inf"):
        raise ValueError(f"log_q: given {log_q}; wanted a finite logarithm")


def as_one_pool(
    scores_NK: Tensor, positives_N: Tensor, *, validate: bool | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """All classes as the pool of each point: positive scores [N], the scores as they are, and the mask [N, K].

    With it, losses on pools mine from all classes: ``loss(*as_one_pool(scores, positives))``.
    """
    check_class_scores(scores_NK, validate=validate)
    num_points, num_classes = scores_NK.shape
    check_class_ids("positives", positives_N, shape=(num_points,), num_classes=num_classes, validate=validate)
    positives_N1 = positives_N.to(torch.int64)[:, None]
    is_positive_NK = torch.zeros_like(scores_NK, dtype=torch.bool).scatter(1, positives_N1, True)
    return scores_NK.gather(1, positives_N1)[:, 0], scores_NK, is_positive_NK


def as_one_pool_of_many(
    scores_NK: Tensor, positives_NP: Tensor, *, validate: bool | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``as_one_pool`` for several positives per point: positive scores [N, P], scores, mask [N, K], padding [N, P].

    ``positives_NP`` holds the distinct positives of each point, at least one, filled up with -1; ``padding`` is True
    there. The mask hides all positives of a point.
    """
    check_class_scores(scores_NK, validate=validate)
    num_classes = scores_NK.shape[1]
    check_labels(positives_NP, num_points=len(scores_NK), num_classes=num_classes, validate=validate)
    padding_NP = positives_NP < 0
    # Padding is written to one column past the end.
    columns_NP = torch.where(padding_NP, num_classes, positives_NP.to(torch.int64))
    wide_NK = torch.zeros(len(scores_NK), num_classes + 1, dtype=torch.bool, device=scores_NK.device)
    is_positive_NK = wide_NK.scatter(1, columns_NP, True)[:, :num_classes]
    positive_NP = scores_NK.gather(1, positives_NP.to(torch.int64).clamp_min(0))
    return positive_NP, scores_NK, is_positive_NK, padding_NP


def check_labels(positives_NP: Tensor, *, num_points: int, num_classes: int, validate: bool | None) -> None:
    if positives_NP.ndim != 2 or positives_NP.shape[1] == 0:
        raise ValueError(f"positives: given shape {tuple(positives_NP.shape)}; wanted [points, most per point]")
    check_class_ids(
        "positives",
        positives_NP,
        shape=(num_points, positives_NP.shape[1]),
        num_classes=num_classes,
        validate=validate,
        lowest=-1,
    )
    if may_look(positives_NP, validate):
        if bool((positives_NP < 0).all(dim=1).any()):
            raise ValueError("positives: given a point without a positive; wanted at least one for each")
        sorted_NP = positives_NP.sort(dim=1).values
        if bool(((sorted_NP[:, 1:] == sorted_NP[:, :-1]) & (sorted_NP[:, 1:] >= 0)).any()):
            raise ValueError("positives: given the same class twice for a point; wanted distinct ones")
