"""Calibration: the best retrieval for a known distribution (paper, Lemma 1 and Definition 1), how much of the retrieval
loss an ordered loss covers (Theorem 3), and when a minimiser of the loss retrieves best (Theorem 4).

Legend: N queries, K classes, k retrieved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from owlmine.losses.inputs import Kind, check_options
from owlmine.losses.surrogates import Surrogate, surrogate
from owlmine.mining.checks import check_class_ids
from owlmine.mining.hardest_classes import highest, highest_reference
from owlmine.theory.weights import Float64, Vector, as_distribution, as_theta, check_k

# How far a row of probabilities may add up from 1: what float32 leaves over a million classes.
_SUM_SLACK = 1e-3


def bayes_top_k(probabilities_NK: Tensor, *, k: int) -> Tensor:
    """Ids of the k most probable classes of each query; among equals the smaller id."""
    check_distributions(probabilities_NK, k=k)
    return highest(probabilities_NK, k)


def bayes_risk(probabilities_NK: Tensor, *, k: int) -> Tensor:
    """The smallest probability, for each query, that the relevant class is not among k: 1 - Σ_{j<=k} D_[j]."""
    return retrieval_risk(probabilities_NK, bayes_top_k(probabilities_NK, k=k))


def retrieval_risk(probabilities_NK: Tensor, retrieved_Nk: Tensor) -> Tensor:
    """The probability, for each query, that the relevant class is not retrieved. Ids of a row must differ."""
    num_queries, num_classes = check_distributions(probabilities_NK)
    wanted = (num_queries, retrieved_Nk.shape[-1] if retrieved_Nk.ndim == 2 else 1)
    check_class_ids("retrieved", retrieved_Nk, shape=wanted, num_classes=num_classes, validate=None)
    left_NK = probabilities_NK.scatter(1, retrieved_Nk.to(torch.int64), 0)
    # Summing the probabilities that are left out keeps the digits of a small risk; 1 - sum would cancel them.
    return left_NK.sum(dim=1)


def is_bayes_compatible(scores_NK: Tensor, probabilities_NK: Tensor, *, k: int) -> Tensor:
    """Whether the k highest scores retrieve with the Bayes risk however ties among scores are broken."""
    check_distributions(probabilities_NK, k=k)
    if scores_NK.shape != probabilities_NK.shape:
        wanted = f"that of the probabilities, {tuple(probabilities_NK.shape)}"
        raise ValueError(f"scores: given shape {tuple(scores_NK.shape)}; wanted {wanted}")
    # Of equal scores the least probable class comes first: the worst way to break ties.
    unlikely_first_NK = torch.argsort(probabilities_NK, dim=1, stable=True)
    order_NK = highest_reference(scores_NK.gather(1, unlikely_first_NK), k)
    worst_Nk = unlikely_first_NK.gather(1, order_NK)
    best_k = probabilities_NK.gather(1, bayes_top_k(probabilities_NK, k=k)).sort(dim=1).values
    return (probabilities_NK.gather(1, worst_Nk).sort(dim=1).values == best_k).all(dim=1)


def check_distributions(probabilities_NK: Tensor, *, k: int = 1) -> tuple[int, int]:
    """N and K of rows that are distributions with more than k classes."""
    if probabilities_NK.ndim != 2 or not probabilities_NK.is_floating_point():
        given = f"{probabilities_NK.dtype} of shape {tuple(probabilities_NK.shape)}"
        raise ValueError(f"probabilities: given {given}; wanted floats, one row per query")
    if not bool((probabilities_NK >= 0).all()):
        raise ValueError("probabilities: given a negative number or NaN; wanted numbers >= 0")
    totals_N = probabilities_NK.sum(dim=1)
    if not bool(((totals_N - 1).abs() <= _SUM_SLACK).all()):
        worst = float(totals_N[(totals_N - 1).abs().argmax()])
        raise ValueError(f"probabilities: given a row that adds up to {worst:g}; wanted 1")
    num_queries, num_classes = probabilities_NK.shape
    if not 1 <= k < num_classes:
        raise ValueError(f"k: given {k} of {num_classes} classes; wanted 1 to {num_classes - 1}")
    return num_queries, num_classes


# How much of the retrieval loss an ordered loss is sure to cover (paper, Theorem 3).
#
# The largest c with ℓ(v, y) >= c 1[y not in Top_k(v)] for all v and y. With S = Σ_{j<=k} θ_j:
#
# POWL   c = φ(0) S: a missed positive has k rivals at or above it, and in the worst case just level with it.
# BOWL   c = min_t φ(t) + S φ(-t), t being the common score of the positive and its k rivals.
#
# Both take φ -> 0 at infinity, where the scores of the other classes go. The theorem's θ_j = 1/k gives S = 1: c = 1
# for POWL, and 2 φ(0) = 2 for BOWL with a convex φ. A tie at the k-th place counts as a miss.


_ZERO = torch.zeros((), dtype=torch.float64)
# min_t φ(t) + S φ(-t), from setting the derivative to 0, or from the kinks where φ is piecewise linear.
_BINARY_FLOOR: dict[str, Callable[[float], float]] = {
    "hinge": lambda total: 2 * min(1.0, total),
    "logistic": lambda total: ((1 + total) * math.log1p(total) - _x_log_x(total)) / math.log(2),
    "squared_hinge": lambda total: 4 * total / (1 + total),
    "exponential": lambda total: 2 * math.sqrt(total),
    "ramp": lambda total: min(1.0, total),
}


@dataclass(frozen=True)
class SurrogateVerdict:
    """``factor``: the largest c; ``is_bound``: whether c >= 1; ``as_theorem_3``: whether θ_j = 1/k for j <= k and, for
    BOWL, φ is convex, which the theorem needs but does not state.
    """

    factor: float
    is_bound: bool
    as_theorem_3: bool


def surrogate_verdict(
    theta: Vector, *, k: int, kind: Kind = "powl", phi: str | Surrogate = "hinge"
) -> SurrogateVerdict:
    """Judges theta (its leading weights are enough) as a bound of the retrieval loss for ``k`` retrieved."""
    theta_J, chosen = as_theta(theta), surrogate(phi)
    factor = retrieval_factor(theta_J, k=k, kind=kind, phi=chosen)
    leading = len(theta_J) >= k and bool(np.allclose(theta_J[:k], 1 / k, rtol=1e-9, atol=0))
    # theta computed from a pool is right to about 1e-13.
    return SurrogateVerdict(factor, factor >= 1 - 1e-9, leading and (kind == "powl" or chosen.convex))


def retrieval_factor(theta: Vector, *, k: int, kind: Kind = "powl", phi: str | Surrogate = "hinge") -> float:
    """The largest c with loss >= c x retrieval loss. For BOWL, only with the surrogates of the paper."""
    check_options(kind, "mean")
    if k < 1:
        raise ValueError(f"k: given {k}; wanted 1 or more")
    chosen, total = surrogate(phi), math.fsum(as_theta(theta)[:k])
    if kind == "powl":
        # φ(0) is 1 for every surrogate of the paper; a new one may lie higher.
        return float(chosen(_ZERO)) * total
    if chosen.name not in _BINARY_FLOOR:
        raise ValueError(f"phi: given {chosen.name}; wanted one of {', '.join(_BINARY_FLOOR)} for the binary kind")
    return _BINARY_FLOOR[chosen.name](total)


def _x_log_x(x: float) -> float:
    return x * math.log(x) if x > 0 else 0.0


# The condition of Theorem 4 on theta and one distribution: when a minimiser of the loss retrieves the Bayes set.
#
# With probabilities sorted, D_[1] >= D_[2] >= ..., the theorem asks for every m > k that
#
#     D_[k] > Σ_{l=k+1..m} D_[l] / (k Σ_{j=k+1..m} θ_j).
#
# At m = K this names θ_K, which does not exist. The proof needs θ_k .. θ_{K-1} there, and what it then asks follows
# from m = K - 1 (or, for K = k + 1, says D_[k] > D_[k+1]). See docs/research/paper-notes.md.
#
# The theorem has θ_j = 1/k for j <= k. Its proof goes through for any common value c > 0 of the first k, with c in the
# place of 1/k, so weights that add up to 1 have the same result as their multiples: 1/c takes the place of k below.


@dataclass(frozen=True)
class CalibrationCondition:
    """``slack`` = D_[k] less the right-hand side at ``worst_m``, where that is largest; it may be -inf."""

    holds: bool
    worst_m: int
    slack: float


def calibration_condition(probabilities: Vector, theta: Vector, *, k: int) -> CalibrationCondition:
    """The condition for one distribution; theta: equal weights for j <= k, no more after."""
    alpha_K = np.sort(as_distribution(probabilities))[::-1]
    num_classes = len(alpha_K)
    check_k(k, num_classes=num_classes)
    theta_J = as_theta(theta, num_classes=num_classes)
    _check_shape(theta_J, k=k)
    mass = np.cumsum(alpha_K[k:])
    # theta_J[j] is θ_{j+1}: k+1 .. m for m < K, and k .. K-1 for m = K.
    weight = (1 / theta_J[0]) * np.append(np.cumsum(theta_J[k:]), theta_J[k - 1 :].sum())
    slacks = alpha_K[k - 1] - _ratio(mass, weight)
    worst = int(np.argmin(slacks))
    return CalibrationCondition(bool(slacks[worst] > 0), k + 1 + worst, float(slacks[worst]))


def theorem_4_applies(
    probabilities: Vector, theta: Vector, *, k: int, kind: Kind = "powl", phi: str | Surrogate = "logistic"
) -> bool:
    """Whether the theorem promises calibration here: the condition, a differentiable φ and, for BOWL, θ_j > 0.

    False does not prove the contrary: the condition is sufficient, not necessary.
    """
    check_options(kind, "mean")
    positive = kind == "powl" or bool(np.all(as_theta(theta, num_classes=len(as_distribution(probabilities))) > 0))
    return calibration_condition(probabilities, theta, k=k).holds and surrogate(phi).differentiable and positive


def _ratio(mass: Float64, weight: Float64) -> Float64:
    """mass / weight, and 0 for 0 / 0: classes without probability can be pushed down at no cost."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mass == 0, 0.0, mass / weight)


def _check_shape(theta_J: Float64, *, k: int) -> None:
    first, highest_after = theta_J[:k], theta_J[k:].max(initial=0)
    # theta computed from a pool is right to about 1e-13.
    equal = first[0] > 0 and np.allclose(first, first[0], rtol=1e-9, atol=0)
    if not equal or highest_after > first[0] * (1 + 1e-9):
        given = f"first {k} from {first.min():g} to {first.max():g}, rest up to {highest_after:g}"
        raise ValueError(f"theta: given {given}; wanted one positive weight for the first {k}, no more after")
