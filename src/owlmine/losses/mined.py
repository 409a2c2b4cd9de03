"""Algorithm 1, stochastic negative mining: an ordered loss estimated from a pool of B random negatives.

POWL   L(v, y) = Σ_i ϑ_i φ(s (v_y - v^𝓑_[i]))
BOWL   L(v, y) = φ(s v_y) + Σ_i ϑ_i φ(-s v^𝓑_[i])

Over uniform pools the expectation is the ordered loss with ``theta_from_vartheta`` (Lemma 2). Among equal
scores the smaller position in the pool ranks first; values do not depend on that, gradients do.

``mask`` marks entries of the pool that must not count (True): what a point leaves out of a shared pool, other
known positives. The ranks are those of the entries that remain, each with its own weight; weights are not
shared out anew.

Legend: N points, B pool (with a mask possibly wider than ``weights.pool_size``), K classes, T kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.losses.checks import Kind, Reduction, check_options, check_scale, check_scores, reduce
from owlmine.losses.rank_sum import Form, rank_sum, widened
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
    """Algorithm 1 on scores already computed. Half precision is added up, and the loss returned, in float32.

    Costs one pass for the hardest entries that have a weight of their own, and one more where there is a
    tail.
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
    """Algorithm 1 where the scores of all classes are at hand. ``pool``: ids_NB, or one pool for the batch.

    A mask given with a batch pool must already include what each point dropped (``known_in_batch_pool``
    does).
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
