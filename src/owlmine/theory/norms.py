"""Norms of theta, which the generalisation bounds grow with (paper, Lemma 2 and after Theorem 5).

‖θ‖₁ = ‖ϑ‖₁ (``RankWeights.l1``), and ‖θ‖₂ has the bound below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from owlmine.losses.rank_weights import RankWeights
from owlmine.theory.weights import Vector, as_theta


@dataclass(frozen=True)
class ThetaNorms:
    """Sizes of a weight vector, and over how many ranks it spreads.

    ``effective_ranks`` = ‖θ‖₁² / ‖θ‖₂²: M equal weights give M. ``half_rank``: the hardest so many negatives hold half
    of all weight.
    """

    first: float
    l1: float
    l2: float
    effective_ranks: float
    half_rank: int


def theta_norms(theta: Vector) -> ThetaNorms:
    theta_J = as_theta(theta)
    # np.sum adds pairwise; np.linalg.norm adds in a row, which costs four digits over ten million ranks.
    l1, l2 = float(theta_J.sum()), math.sqrt(float((theta_J * theta_J).sum()))
    if l1 == 0:
        raise ValueError("theta: given weights that are all 0; wanted a positive one")
    # Half less a hair: an exact half must not be missed for the last digit of a sum over millions.
    half_rank = int(np.searchsorted(np.cumsum(theta_J), l1 / 2 * (1 - 1e-12))) + 1
    return ThetaNorms(float(theta_J[0]), l1, l2, (l1 / l2) ** 2, half_rank)


def l2_bound_from_pool(weights: RankWeights, *, num_classes: int) -> float:
    """sqrt(B ϑ_1 ‖ϑ‖₁ / (K - 1)) >= ‖θ‖₂ (Lemma 2), because no θ_j exceeds B ϑ_1 / (K - 1).

    Equality for negative sampling, where every θ_j is that large.
    """
    if not weights.pool_size <= num_classes - 1:
        wanted = f"a pool of at most {num_classes - 1}"
        raise ValueError(f"weights: given a pool of {weights.pool_size} from {num_classes} classes; wanted {wanted}")
    first = float(weights.prefix[0]) if len(weights.prefix) else weights.tail
    return math.sqrt(weights.pool_size * first * weights.l1 / (num_classes - 1))
