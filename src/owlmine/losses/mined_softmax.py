"""Softmax over the positive and the hardest negatives of a pool, or of all classes.

ℓ = -log( e^{s v_y} / Ẑ ),    with H the ``kept`` hardest of the pool:

drop      Ẑ = e^{s v_y} + 1/Q Σ_{j in H} e^{s v_j}
estimate  Ẑ = e^{s v_y} + 1/Q (Σ_{j in H} e^{s v_j} + (B - k)/m Σ_{j in M} e^{s v_j}),  M: m random others of the pool

Q as in sampled softmax; Q = 1 (log Q = 0, the default) if the pool is every class, or if only the pool should count.
"drop" underestimates the pool's sum by what it drops. "estimate" is an unbiased estimate of the pool's sum, hence of
the full one, while only k + m negatives have a gradient; given the pool, H adds nothing to its variance. A weight of 1
on the hardest of a *random* pool with the rest scaled up to K - 1 would be biased. If H is found without looking at the
pool (the hardest of all classes from an index, say), ``stratified_softmax_loss`` gives H the weight 1 and estimates the
rest from the pool. Bias, variance and calibration: ``docs/mined-softmax.md``.

Legend: N points, B pool, T kept, M of the others.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from owlmine.losses.inputs import Reduction, check_form, check_log_q, check_pool, check_scores, reduce
from owlmine.losses.ordered import find_hardest, widened
from owlmine.losses.softmax import against, log_sum, scaled
from owlmine.mining.checks import check_class_ids
from owlmine.mining.distinct import draw_distinct
from owlmine.mining.hardest_classes import highest_reference

Tail = Literal["drop", "estimate"]


def mined_softmax_loss(
    positive_scores_N: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    others_NM: Tensor | None = None,
    *,
    kept: int,
    tail: Tail = "drop",
    log_q: float = 0.0,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """``others_NM``, for ``tail="estimate"`` only: the result of ``draw_others`` for a pool of this width.

    ``mask`` is True where an entry must not count; a point with fewer than ``kept`` entries left keeps those.
    """
    check_form(reduction, scale, validate=validate)
    check_pool(positive_scores_N, pool_scores_NB, mask, validate=validate)
    check_log_q(log_q, shape=(len(pool_scores_NB), pool_scores_NB.shape[1]), validate=validate)
    _check_kept(pool_scores_NB, others_NM, kept=kept, tail=tail, validate=validate)
    dtype = widened(positive_scores_N, pool_scores_NB)
    ids_NT, visible_NT = find_hardest(pool_scores_NB, kept, mask)
    hidden_NT = None if visible_NT is None else ~visible_NT
    log_negatives_N = log_sum(scaled(pool_scores_NB.gather(1, ids_NT), scale, dtype), hidden_NT)
    if others_NM is not None:
        ids_NM = _among_others(ids_NT, others_NM)
        hidden_NM = None if mask is None else mask.gather(1, ids_NM)
        log_others_N = log_sum(scaled(pool_scores_NB.gather(1, ids_NM), scale, dtype), hidden_NM)
        log_expand = math.log((pool_scores_NB.shape[1] - kept) / others_NM.shape[1])
        log_negatives_N = torch.logaddexp(log_negatives_N, log_others_N + log_expand)
    return reduce(against(scaled(positive_scores_N, scale, dtype), log_negatives_N - log_q), reduction)


def draw_others(num_points: int, *, width: int, kept: int, num_others: int, generator: torch.Generator) -> Tensor:
    """``others_NM``: for each point, which M of the ``width - kept`` entries that are not kept to use.

    Numbers below ``width - kept``, distinct and uniform: the r-th entry that is not kept, in the order of the pool.
    ``width`` is that of the scores: B, or B + 1 for one pool per batch.
    """
    if not 1 <= num_others <= width - kept:
        wanted = f"1 to {width - kept}, with {kept} kept of {width}"
        raise ValueError(f"num_others: given {num_others}; wanted {wanted}")
    return draw_distinct(num_points, num_others, num_classes=width - kept, generator=generator)


def mined_softmax_loss_reference(
    positive_scores_N: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    others_NM: Tensor | None = None,
    *,
    kept: int,
    log_q: float = 0.0,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """The definition, point by point; the tail is estimated if ``others_NM`` is given."""
    losses = []
    for n, positive in enumerate(positive_scores_N):
        hidden_B = torch.zeros_like(pool_scores_NB[n], dtype=torch.bool) if mask is None else mask[n]
        shares_B = torch.where(hidden_B, 0, torch.exp(scale * pool_scores_NB[n]))
        order = highest_reference(pool_scores_NB[n : n + 1].masked_fill(hidden_B, -torch.inf), len(hidden_B))[0]
        total = shares_B[order[:kept]].sum()
        if others_NM is not None:
            others = order[kept:].sort().values
            total = total + shares_B[others[others_NM[n]]].mean() * len(others)
        own = torch.exp(scale * positive)
        losses.append(-torch.log(own / (own + total / math.exp(log_q))))
    return reduce(torch.stack(losses), reduction)


def stratified_softmax_loss(
    positive_scores_N: Tensor,
    kept_scores_NT: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    *,
    log_q: float,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """Kept classes with weight 1 and a uniform pool for all others: Ẑ = e^{s v_y} + Σ_H + 1/Q Σ_{pool without H}.

    Unbiased for any H that was chosen without looking at the pool: the hardest of all classes, an approximate search,
    last epoch's. ``mask`` must hide what the pool shares with H (``known_in_pools(pool_ids, kept_ids)``).
    """
    check_form(reduction, scale, validate=validate)
    check_pool(positive_scores_N, pool_scores_NB, mask, validate=validate)
    check_log_q(log_q, shape=(len(pool_scores_NB), pool_scores_NB.shape[1]), validate=validate)
    check_scores("kept_scores", kept_scores_NT, ndim=2, validate=validate)
    if len(kept_scores_NT) != len(positive_scores_N) or kept_scores_NT.shape[1] == 0:
        wanted = f"{len(positive_scores_N)} rows of at least one class"
        raise ValueError(f"kept_scores: given shape {tuple(kept_scores_NT.shape)}; wanted {wanted}")
    dtype = widened(positive_scores_N, kept_scores_NT, pool_scores_NB)
    log_kept_N = log_sum(scaled(kept_scores_NT, scale, dtype), None)
    log_others_N = log_sum(scaled(pool_scores_NB, scale, dtype) - log_q, mask)
    log_negatives_N = torch.logaddexp(log_kept_N, log_others_N)
    return reduce(against(scaled(positive_scores_N, scale, dtype), log_negatives_N), reduction)


def stratified_softmax_loss_reference(
    positive_scores_N: Tensor,
    kept_scores_NT: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    *,
    log_q: float,
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """The definition, point by point."""
    losses = []
    for n, positive in enumerate(positive_scores_N):
        pool = pool_scores_NB[n] if mask is None else pool_scores_NB[n][~mask[n]]
        own, kept = torch.exp(scale * positive), torch.exp(scale * kept_scores_NT[n])
        total = own + kept.sum() + torch.exp(scale * pool).sum() / math.exp(log_q)
        losses.append(-torch.log(own / total))
    return reduce(torch.stack(losses), reduction)


def _among_others(kept_NT: Tensor, others_NM: Tensor) -> Tensor:
    """Positions of the entries numbered ``others_NM`` after the kept ones are removed."""
    # Before the i-th kept position p_i (in order, from 0) stand p_i - i others, so the r-th other comes after all
    # kept positions with p_i - i <= r.
    first_after_NT = kept_NT.sort(dim=1).values - torch.arange(kept_NT.shape[1], device=kept_NT.device)
    others_NM = others_NM.to(torch.int64).contiguous()
    return others_NM + torch.searchsorted(first_after_NT, others_NM, right=True)


def _check_kept(
    pool_scores_NB: Tensor, others_NM: Tensor | None, *, kept: int, tail: str, validate: bool | None
) -> None:
    num_points, width = pool_scores_NB.shape
    if not 1 <= kept <= width:
        raise ValueError(f"kept: given {kept} of a pool of {width}; wanted 1 to {width}")
    if tail not in get_args(Tail):
        raise ValueError(f"tail: given {tail!r}; wanted one of {', '.join(get_args(Tail))}")
    if (others_NM is None) != (tail == "drop"):
        given = "no others" if others_NM is None else "others"
        raise ValueError(f'tail "{tail}": given {given}; wanted what draw_others gives for "estimate", none for "drop"')
    if others_NM is None:
        return
    if others_NM.ndim != 2 or not 1 <= others_NM.shape[1] <= width - kept:
        wanted = f"{num_points} rows of 1 to {width - kept}, with {kept} kept of {width}"
        raise ValueError(f"others: given shape {tuple(others_NM.shape)}; wanted {wanted}")
    shape = (num_points, others_NM.shape[1])
    check_class_ids("others", others_NM, shape=shape, num_classes=width - kept, validate=validate)
