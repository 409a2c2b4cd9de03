"""Checks of theta and of a distribution, and the norms of theta that bounds depend on.

Legend: J leading ranks, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from owlmine.losses.rank_weights import RankWeights

Float64 = NDArray[np.float64]
Vector = Sequence[float] | Tensor | Float64


def as_theta(theta: Vector, *, num_classes: int | None = None) -> Float64:
    """theta as float64; with ``num_classes`` all K - 1 weights, those not given being 0."""
    theta_J = _as_vector("theta", theta)
    if num_classes is None:
        return theta_J
    if len(theta_J) > num_classes - 1:
        raise ValueError(f"theta: given {len(theta_J)} weights; wanted at most {num_classes - 1}, one per negative")
    return np.concatenate([theta_J, np.zeros(num_classes - 1 - len(theta_J))])


def as_distribution(probabilities: Vector) -> Float64:
    """Probabilities of the K classes for one query, as float64."""
    alpha_K = _as_vector("probabilities", probabilities)
    if len(alpha_K) < 2:
        raise ValueError(f"probabilities: given {len(alpha_K)} class(es); wanted at least 2")
    # Figures copied from a page are rounded; their order and ratios matter.
    if abs(alpha_K.sum() - 1) > 1e-3:
        raise ValueError(f"probabilities: given a sum of {alpha_K.sum():g}; wanted 1")
    return alpha_K


def check_k(k: int, *, num_classes: int) -> None:
    if not 1 <= k < num_classes:
        raise ValueError(f"k: given {k} of {num_classes} classes; wanted 1 to {num_classes - 1}")


def _as_vector(name: str, values: Vector) -> Float64:
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"{name}: given shape {array.shape}; wanted a vector")
    if not bool(np.all((array >= 0) & (array < np.inf))):
        raise ValueError(f"{name}: given a number that is negative, infinite or NaN; wanted finite numbers >= 0")
    return array


# Norms of theta, which the generalisation bounds grow with (paper, Lemma 2 and after Theorem 5).
#
# ‖θ‖₁ = ‖ϑ‖₁ (``RankWeights.l1``), and ‖θ‖₂ has the bound below.


@dataclass(frozen=True)
class ThetaNorms:
    """Sizes of a weight vector, and over how many ranks it spreads.

    ``effective_ranks`` = ‖θ‖₁² / ‖θ‖₂²: M equal weights give M. ``half_rank``: this many hardest negatives have half of
    the total weight.
    """

    first: float
    l1: float
    l2: float
    effective_ranks: float
    half_rank: int


def theta_norms(theta: Vector) -> ThetaNorms:
    theta_J = as_theta(theta)
    # np.sum adds pairwise; np.linalg.norm adds sequentially, which loses four digits over ten million ranks.
    l1, l2 = float(theta_J.sum()), math.sqrt(float((theta_J * theta_J).sum()))
    if l1 == 0:
        raise ValueError("theta: given weights that are all 0; wanted a positive one")
    # Slightly less than half: an exact half must not be missed because of rounding in a sum over millions.
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
