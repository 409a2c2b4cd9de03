"""Several positives per point.

mean over positives    1/|Y| Σ_{y in Y} ℓ(v, y), each with the other positives removed from the negatives

Softmax has two more forms, with Z the sum over all classes, positives included:

mean_log    -1/|Y| Σ_{y in Y} log(e^{s v_y} / Z): the cross entropy to the uniform distribution on Y. Minimal when
            the positives have equal scores; one that leads is pushed down.
log_sum     -log(Σ_{y in Y} e^{s v_y} / Z): the probability of any positive. One high-scoring positive is enough.
decoupled   the mean over positives as above: -1/|Y| Σ_{y in Y} log(e^{s v_y} / (e^{s v_y} + Σ_{j not in Y} e^{s v_j})).
            Positives do not compete.

Legend: N points, P positives of a point at most, B pool, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from owlmine.losses.inputs import Reduction, as_one_pool_of_many, check_form, check_scores, reduce
from owlmine.losses.ordered import widened
from owlmine.losses.softmax import against, log_sum, scaled
from owlmine.mining.checks import may_look

SoftmaxForm = Literal["mean_log", "log_sum", "decoupled"]
LossOfEachPoint = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def multi_positive_loss(
    loss_of_each_point: LossOfEachPoint,
    positive_scores_NP: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    padding_NP: Tensor | None = None,
    *,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """The mean over the positives of each point of a loss for one positive.

    ``loss_of_each_point(positive_scores_N, pool_scores_NB, mask)`` gives [N]: a loss on pools with
    ``reduction="none"``. ``mask`` must hide the point's positives in the pool (``known_in_pools``, or
    ``as_one_pool_of_many`` for all classes). ``padding_NP`` is True where a point has fewer than P positives.
    """
    check_form(reduction, 1.0, validate=validate)
    check_scores("positive_scores", positive_scores_NP, ndim=2, validate=validate)
    given = tuple(positive_scores_NP.shape)
    if padding_NP is None:
        padding_NP = torch.zeros_like(positive_scores_NP, dtype=torch.bool)
    if padding_NP.dtype != torch.bool or tuple(padding_NP.shape) != given or given[1] == 0:
        what = f"{padding_NP.dtype} of shape {tuple(padding_NP.shape)} for positive scores {given}"
        raise ValueError(f"padding: given {what}; wanted bool of the same shape, at least one positive")
    if may_look(padding_NP, validate) and bool(padding_NP.all(dim=1).any()):
        raise ValueError("padding: given a point without a positive; wanted at least one for each")
    losses_NP = torch.stack(
        [loss_of_each_point(positive_scores_NP[:, p], pool_scores_NB, mask) for p in range(given[1])], dim=1
    )
    return reduce(_mean_over_positives(losses_NP, padding_NP), reduction)


def multi_positive_softmax_loss(
    scores_NK: Tensor,
    positives_NP: Tensor,
    *,
    form: SoftmaxForm = "decoupled",
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """Softmax over all classes with several positives, [N, P], distinct and filled up with -1."""
    check_form(reduction, scale, validate=validate)
    check_softmax_form(form)
    positive_NP, scores_NK, is_positive_NK, padding_NP = as_one_pool_of_many(scores_NK, positives_NP, validate=validate)
    dtype = widened(scores_NK)
    logits_NK, positive_NP = scaled(scores_NK, scale, dtype), scaled(positive_NP, scale, dtype)
    if form == "mean_log":
        # Minus what a positive already has: mean of (log Z - a_y), each of them >= 0.
        each_NP = log_sum(logits_NK, None)[:, None] - positive_NP
        return reduce(_mean_over_positives(each_NP, padding_NP), reduction)
    log_negatives_N = log_sum(logits_NK, is_positive_NK)
    if form == "log_sum":
        return reduce(against(log_sum(positive_NP, padding_NP), log_negatives_N), reduction)
    each_NP = against(positive_NP, log_negatives_N[:, None])
    return reduce(_mean_over_positives(each_NP, padding_NP), reduction)


def multi_positive_softmax_loss_reference(
    scores_NK: Tensor,
    positives_NP: Tensor,
    *,
    form: SoftmaxForm = "decoupled",
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """The three definitions, point by point."""
    losses = []
    for scores_K, positives_P in zip(scores_NK, positives_NP, strict=True):
        odds_K, own = torch.exp(scale * scores_K), positives_P[positives_P >= 0]
        total, negatives = odds_K.sum(), odds_K.sum() - odds_K[own].sum()
        if form == "mean_log":
            losses.append(-torch.log(odds_K[own] / total).mean())
        elif form == "log_sum":
            losses.append(-torch.log(odds_K[own].sum() / total))
        else:
            losses.append(-torch.log(odds_K[own] / (odds_K[own] + negatives)).mean())
    return reduce(torch.stack(losses), reduction)


def check_softmax_form(form: str) -> None:
    if form not in get_args(SoftmaxForm):
        raise ValueError(f"form: given {form!r}; wanted one of {', '.join(get_args(SoftmaxForm))}")


def _mean_over_positives(losses_NP: Tensor, padding_NP: Tensor) -> Tensor:
    return losses_NP.masked_fill(padding_NP, 0).sum(dim=1) / (~padding_NP).sum(dim=1)
