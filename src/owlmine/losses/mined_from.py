"""Algorithm 1 with scores computed on demand: mine without gradient, then score again only what was kept.

Legend: N points, B pool, W classes shared by a batch, T kept.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from owlmine.losses.checks import Kind, Reduction, check_options, check_scale, check_scores, reduce
from owlmine.losses.mined import check_pool_scores, mined_loss, pool_ids_and_mask
from owlmine.losses.rank_sum import Form, find_hardest, widened
from owlmine.losses.rank_weights import RankWeights
from owlmine.losses.surrogates import Surrogate, surrogate
from owlmine.mining.pool import BatchPool

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

    ``score_fn(ids)`` gives [N, M] scores for ids of shape [N, M], a row of ids per point; with a batch pool
    it is also asked for [W] ids, the same for every point, and gives [N, W]. The pool is scored without
    gradient; the positive and the T classes kept are scored once more, with gradient. The ranks come from the
    first scores and the loss from the second, so the two must agree: no dropout inside ``score_fn``. Weights
    with a tail count the whole pool, which is then scored once, with gradient.
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
