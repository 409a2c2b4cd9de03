"""The condition of Theorem 4 on theta and one distribution: when a minimiser of the loss retrieves the Bayes set.

With probabilities sorted, D_[1] >= D_[2] >= ..., the theorem asks for every m > k that

    D_[k] > Σ_{l=k+1..m} D_[l] / (k Σ_{j=k+1..m} θ_j).

At m = K this names θ_K, which does not exist. The proof needs θ_k .. θ_{K-1} there, and what it then asks follows
from m = K - 1 (or, for K = k + 1, says D_[k] > D_[k+1]). See docs/research/paper-notes.md.

The theorem has θ_j = 1/k for j <= k. Its proof goes through for any common value c > 0 of the first k, with c in the
place of 1/k, so weights that add up to 1 are judged as their multiples are: 1/c stands for k below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from owlmine.losses.checks import Kind, check_options
from owlmine.losses.surrogates import Surrogate, surrogate
from owlmine.theory.weights import Float64, Vector, as_distribution, as_theta, check_k


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

    False is no proof of the contrary: the condition is sufficient, not necessary.
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
