"""Algorithm 1, stochastic negative mining: an ordered loss estimated from a pool of B random negatives.

POWL   L(v, y) = Σ_i ϑ_i φ(s (v_y - v^𝓑_[i]))
BOWL   L(v, y) = φ(s v_y) + Σ_i ϑ_i φ(-s v^𝓑_[i])

Over uniform pools the expectation is the ordered loss with ``theta_from_vartheta`` (Lemma 2). Among equal scores, the
smaller position in the pool ranks first; this affects gradients, but not values.

``mask`` marks entries of the pool that must not count (True): what a point leaves out of a shared pool, other known
positives. The ranks are those of the remaining entries, each with its own weight; weights are not redistributed.

Legend: N points, B pool (with a mask possibly wider than ``weights.pool_size``), K classes, T kept.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from owlmine.losses.inputs import Kind, Reduction, check_options, check_scale, check_scores, reduce
from owlmine.losses.ordered import Form, find_hardest, rank_sum, widened
from owlmine.losses.rank_weights import RankWeights
from owlmine.losses.surrogates import Surrogate, surrogate
from owlmine.mining.checks import check_class_ids, may_look
from owlmine.mining.pool import BatchPool


def mined_loss(
    positive_scores_N: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    *,
    weights: RankWeights,
    kind: Kind = "bowl",
    phi: str | Surrogate = "hinge",
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """Algorithm 1 on given scores. Half precision is summed, and the loss returned, in float32.

    Takes one pass for the hardest entries that have their own weight, and one more if there is a tail.
    """
    check_options(kind, reduction)
    check_scale(scale, validate=validate)
    check_scores("positive_scores", positive_scores_N, ndim=1, validate=validate)
    check_pool_scores(pool_scores_NB, mask, num_points=len(positive_scores_N), weights=weights, validate=validate)
    prefix_T = weights.prefix_on(pool_scores_NB.device, widened(positive_scores_N, pool_scores_NB))
    loss_N = rank_sum(
        positive_scores_N,
        pool_scores_NB,
        mask,
        prefix_T=prefix_T,
        tail=weights.tail,
        form=Form(kind, surrogate(phi), scale),
    )
    return reduce(loss_N, reduction)


def mined_loss_reference(
    positive_scores_N: Tensor,
    pool_scores_NB: Tensor,
    mask: Tensor | None = None,
    *,
    weights: RankWeights,
    kind: Kind = "bowl",
    phi: str | Surrogate = "hinge",
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Algorithm 1 line by line: each pool sorted in full, each rank with its weight."""
    apply_phi, vartheta = surrogate(phi), weights.dense().to(pool_scores_NB)
    losses = []
    for n, positive in enumerate(positive_scores_N):
        pool = pool_scores_NB[n] if mask is None else pool_scores_NB[n][~mask[n]]
        ranked = pool.sort(descending=True, stable=True).values
        margins = positive - ranked if kind == "powl" else -ranked
        own = apply_phi(scale * positive) if kind == "bowl" else torch.zeros_like(positive)
        losses.append(own + (vartheta[: len(ranked)] * apply_phi(scale * margins)).sum())
    return reduce(torch.stack(losses), reduction)


def mined_loss_from_matrix(
    scores_NK: Tensor,
    positives_N: Tensor,
    pool: Tensor | BatchPool,
    mask: Tensor | None = None,
    *,
    weights: RankWeights,
    kind: Kind = "bowl",
    phi: str | Surrogate = "hinge",
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """Algorithm 1 for given scores of all classes. ``pool``: ids_NB, or one pool for the batch.

    A mask for a batch pool must include the class that each point drops (``known_in_batch_pool`` does).
    """
    check_scores("scores", scores_NK, ndim=2, validate=validate)
    num_points, num_classes = scores_NK.shape
    ids, mask = pool_ids_and_mask(pool, mask)
    for name, given, shape in (
        ("positives", positives_N, (num_points,)),
        ("pool", ids, (num_points, weights.pool_size) if mask is None else tuple(ids.shape)),
    ):
        check_class_ids(name, given, shape=shape, num_classes=num_classes, validate=validate)
    return mined_loss(
        scores_NK.gather(1, positives_N.to(torch.int64)[:, None])[:, 0],
        scores_NK[:, ids] if ids.ndim == 1 else scores_NK.gather(1, ids),
        mask,
        weights=weights,
        kind=kind,
        phi=phi,
        scale=scale,
        reduction=reduction,
        validate=validate,
    )


def pool_ids_and_mask(pool: Tensor | BatchPool, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Class ids, [N, B] or shared [B], and what must not count."""
    if not isinstance(pool, BatchPool):
        return pool, mask
    return pool.shared_ids, pool.mask() if mask is None else mask


def check_pool_scores(
    pool_scores_NB: Tensor,
    mask: Tensor | None,
    *,
    num_points: int,
    weights: RankWeights,
    validate: bool | None,
) -> None:
    check_scores("pool_scores", pool_scores_NB, ndim=2, validate=validate)
    given, size = tuple(pool_scores_NB.shape), weights.pool_size
    if mask is None:
        if given != (num_points, size):
            wanted = f"({num_points}, {size}): {num_points} points, vartheta for a pool of {size}"
            raise ValueError(f"pool_scores: given shape {given}; wanted {wanted}")
        return
    if given[0] != num_points or given[1] < size:
        raise ValueError(f"pool_scores: given shape {given}; wanted {num_points} rows, at least {size} wide")
    if mask.dtype != torch.bool or tuple(mask.shape) != given:
        raise ValueError(f"mask: given {mask.dtype} of shape {tuple(mask.shape)}; wanted bool of shape {given}")
    if may_look(mask, validate):
        most = int((~mask).sum(dim=1).max())
        if most > size:
            wanted = f"at most {size}, the pool that vartheta is for"
            raise ValueError(f"mask: given a row that leaves {most} entries; wanted {wanted}")


# Algorithm 1 with scores computed on demand: mine without gradient, then score only the kept entries again.
#
# Legend: N points, B pool, W classes shared by a batch, T kept.


ScoreFn = Callable[[Tensor], Tensor]


def mined_loss_from(
    score_fn: ScoreFn,
    positives_N: Tensor,
    pool: Tensor | BatchPool,
    mask: Tensor | None = None,
    *,
    weights: RankWeights,
    kind: Kind = "bowl",
    phi: str | Surrogate = "hinge",
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """``mined_loss`` for the classes of ``pool`` (ids_NB, or one pool for the batch) and the positives.

    ``score_fn(ids)`` gives [N, M] scores for ids of shape [N, M], a row of ids per point; with a batch pool it is also
    called with [W] ids, the same for every point, and gives [N, W]. The pool is scored without gradient; the positive
    and the T classes kept are scored once more, with gradient. The ranks come from the first scores and the loss from
    the second, so the two must agree: no dropout inside ``score_fn``. Weights with a tail count the whole pool, which
    is then scored once, with gradient.
    """
    check_options(kind, reduction)
    check_scale(scale, validate=validate)
    if positives_N.ndim != 1 or len(positives_N) == 0 or positives_N.is_floating_point():
        given = f"{positives_N.dtype} of shape {tuple(positives_N.shape)}"
        raise ValueError(f"positives: given {given}; wanted one class id per point, at least one")
    ids, mask = pool_ids_and_mask(pool, mask)
    positives_N1 = positives_N.to(torch.int64)[:, None]
    if weights.tail > 0:
        return mined_loss(
            score_fn(positives_N1)[:, 0],
            score_fn(ids),
            mask,
            weights=weights,
            kind=kind,
            phi=phi,
            scale=scale,
            reduction=reduction,
            validate=validate,
        )
    ids_NT, visible_NT = mine(score_fn, ids, mask, weights=weights, validate=validate)
    if len(ids_NT) != len(positives_N):
        wanted = f"{len(positives_N)}, one per positive"
        raise ValueError(f"score_fn: given {len(ids_NT)} rows of pool scores; wanted {wanted}")
    wanted_NT = torch.cat([positives_N1, ids_NT], dim=1)
    scores_NT = score_fn(wanted_NT)
    check_scores("score_fn", scores_NT, ndim=2, validate=validate)
    if scores_NT.shape != wanted_NT.shape:
        given = f"{tuple(scores_NT.shape)} scores for {tuple(wanted_NT.shape)} ids"
        raise ValueError(f"score_fn: given {given}; wanted one score per id")
    scores_NT = scores_NT.to(widened(scores_NT))
    form, positive_N = Form(kind, surrogate(phi), scale), scores_NT[:, 0]
    prefix_T = weights.prefix_on(scores_NT.device, scores_NT.dtype)
    negatives_N = form.negative_part(positive_N, scores_NT[:, 1:], visible_NT, prefix_T)
    return reduce(form.positive_part(positive_N) + negatives_N, reduction)


@torch.no_grad()
def mine(
    score_fn: ScoreFn,
    ids: Tensor,
    mask: Tensor | None = None,
    *,
    weights: RankWeights,
    validate: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The ids of the pool's T hardest classes in rank order, [N, T], and which of them count (None: all)."""
    pool_scores_NB = score_fn(ids)
    check_pool_scores(pool_scores_NB, mask, num_points=len(pool_scores_NB), weights=weights, validate=validate)
    kept_NT, visible_NT = find_hardest(pool_scores_NB, len(weights.prefix), mask)
    return ids[kept_NT] if ids.ndim == 1 else ids.gather(1, kept_NT), visible_NT
