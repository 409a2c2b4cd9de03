"""Negatives drawn from a pool with probabilities proportional to their rank weights (paper, end of section
3.1).

With m ranks drawn from p_i = ϑ_i / ‖ϑ‖₁, each given the weight ‖ϑ‖₁ / m, the expected sum is Σ_i ϑ_i φ_[i]:
the estimate is unbiased, and only m losses are evaluated.

Legend: N points, B pool, M ranks drawn for each, T deepest rank that can be drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.losses.inputs import Kind, Reduction, check_options, check_scale, check_scores, reduce
from owlmine.losses.mined import check_pool_scores
from owlmine.losses.ordered import Form, find_hardest, widened
from owlmine.losses.rank_weights import RankWeights
from owlmine.losses.surrogates import Surrogate, surrogate


def subsample(
    weights: RankWeights, *, num_points: int, num_draws: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """``ranks_NM``, counted from 0 and drawn with replacement, and ``importance_NM`` (float64)."""
    if num_points < 1 or num_draws < 1:
        raise ValueError(f"subsample: given {num_points} points x {num_draws} draws; wanted at least 1 x 1")
    if weights.kept == 0:
        raise ValueError("subsample: given weights that are all 0; wanted a positive one")
    device, total = generator.device, weights.l1
    reached_T = weights.prefix_on(device, torch.float64).cumsum(0)
    # In (0, l1], as rank i owns (reached before it, reached with it].
    uniform_NM = torch.rand(num_points, num_draws, generator=generator, dtype=torch.float64, device=device)
    target_NM = (1 - uniform_NM) * total
    ranks_NM = torch.searchsorted(reached_T, target_NM)
    if weights.tail > 0:
        in_tail_NM = (target_NM - float(weights.prefix.sum())) / weights.tail
        tail_ranks_NM = len(reached_T) + in_tail_NM.floor().clamp_min(0).to(torch.int64)
        ranks_NM = torch.where(ranks_NM < len(reached_T), ranks_NM, tail_ranks_NM)
    # Through rounding of the running sum, the largest target may be slightly above it.
    return ranks_NM.clamp_max(weights.kept - 1), torch.full_like(target_NM, total / num_draws)


def subsampled_mined_loss(
    positive_scores_N: Tensor,
    pool_scores_NB: Tensor,
    ranks_NM: Tensor,
    importance_NM: Tensor,
    mask: Tensor | None = None,
    *,
    weights: RankWeights,
    kind: Kind = "bowl",
    phi: str | Surrogate = "hinge",
    scale: float | Tensor = 1.0,
    reduction: Reduction = "mean",
    validate: bool | None = None,
) -> Tensor:
    """``mined_loss`` on the ranks that ``subsample`` drew from the same ``weights``; equal to it in
    expectation.

    A rank beyond the unmasked entries adds nothing, as in ``mined_loss``.
    """
    check_options(kind, reduction)
    check_scale(scale, validate=validate)
    check_scores("positive_scores", positive_scores_N, ndim=1, validate=validate)
    num_points = len(positive_scores_N)
    check_pool_scores(pool_scores_NB, mask, num_points=num_points, weights=weights, validate=validate)
    if ranks_NM.shape != importance_NM.shape or ranks_NM.ndim != 2 or len(ranks_NM) != num_points:
        given = f"{tuple(ranks_NM.shape)} ranks and {tuple(importance_NM.shape)} importance weights"
        raise ValueError(f"subsample: given {given}; wanted two of shape ({num_points}, draws)")
    dtype = widened(positive_scores_N, pool_scores_NB)
    ids_NT, visible_NT = find_hardest(pool_scores_NB, weights.kept, mask)
    drawn_NM = pool_scores_NB.gather(1, ids_NT.gather(1, ranks_NM)).to(dtype)
    visible_NM = None if visible_NT is None else visible_NT.gather(1, ranks_NM)
    form, positive_N = Form(kind, surrogate(phi), scale), positive_scores_N.to(dtype)
    negatives_N = form.negative_part(positive_N, drawn_NM, visible_NM, importance_NM.to(dtype))
    return reduce(form.positive_part(positive_N) + negatives_N, reduction)
