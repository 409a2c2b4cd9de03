"""Calibration by experiment: the exact minimiser of an expected ordered loss for a few classes, and what it retrieves.

First the differentiable, convex surrogates with their slopes, in NumPy: a solver calls them thousands of times on a
dozen numbers, where autograd would be pure overhead. The tests tie them to ``owlmine.losses.surrogates``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linprog, minimize
from scipy.special import expit

from owlmine.losses.inputs import Kind, check_options
from owlmine.losses.ordered import is_non_increasing, ordered_loss
from owlmine.losses.surrogates import Surrogate, surrogate
from owlmine.theory.weights import Float64, Vector, as_distribution, as_theta, check_k


def _logistic(margins: Float64) -> tuple[Float64, Float64]:
    return np.logaddexp(0, -margins) / math.log(2), -expit(-margins) / math.log(2)


def _squared_hinge(margins: Float64) -> tuple[Float64, Float64]:
    short = np.maximum(1 - margins, 0)
    return short**2, -2 * short


def _exponential(margins: Float64) -> tuple[Float64, Float64]:
    # A line search may step far out. Below -50, the function continues as its tangent: convex, and finite at any step.
    near = np.maximum(margins, -50)
    value = np.exp(-near)
    return value * (1 + near - margins), -value


SMOOTH: dict[str, Callable[[Float64], tuple[Float64, Float64]]] = {
    "logistic": _logistic,
    "squared_hinge": _squared_hinge,
    "exponential": _exponential,
}


# Exact minimisation of the expected ordered loss Ψ(α, v) = Σ_i α_i ℓ(v, i) for a handful of classes.
#
# Some minimiser is sorted like α: exchanging two scores that are out of order with α never raises Ψ, for any θ >= 0
# (first part of Lemmas 5 and 6). On sorted scores every negative has a fixed rank, so Ψ is a sum of φ over fixed pairs
# with fixed weights: a convex problem in the gaps g_i = v_i - v_{i+1} >= 0 (and, for BOWL, the lowest score). The hinge
# is a linear program; a differentiable φ goes to L-BFGS-B.
#
# If the minimiser is at infinity, the result is the best one whose gaps and lowest score are at most ``box`` in size.
#
# Legend: K classes, P terms of the sum, X unknowns (K - 1 gaps, then the lowest score).


@dataclass(frozen=True)
class PairSum:
    """Σ_p weight_p φ(margin_p), where margins = margins_of [P, X] @ unknowns."""

    weights: Float64
    margins_of: Float64


@dataclass(frozen=True)
class Solution:
    """Scores in falling order, and Ψ there."""

    scores: Float64
    value: float


def sorted_problem(alpha_K: Float64, theta_J: Float64, kind: Kind) -> PairSum:
    """Ψ on sorted scores, for α in falling order and all K - 1 weights."""
    num_classes = len(alpha_K)
    # scores_K = to_scores @ unknowns: each score is the lowest plus the gaps below it.
    to_scores = np.triu(np.ones((num_classes, num_classes)))
    weights, rows = [], []
    for i in range(num_classes):
        if kind == "bowl":
            weights.append(alpha_K[i])
            rows.append(to_scores[i])
        for rank, j in enumerate(j for j in range(num_classes) if j != i):
            weights.append(alpha_K[i] * theta_J[rank])
            rows.append((to_scores[i] if kind == "powl" else 0) - to_scores[j])
    weights_P, margins_of_PX = np.array(weights), np.array(rows)
    return PairSum(weights_P[weights_P > 0], margins_of_PX[weights_P > 0])


def solve(problem: PairSum, phi: Surrogate, *, kind: Kind, box: float, tied_after: int | None = None) -> Solution:
    """The minimum over sorted scores; ``tied_after`` = k asks for v_k = v_{k+1}."""
    num_classes = problem.margins_of.shape[1]
    # POWL is invariant to a shift of all scores, so the lowest stays at 0.
    lowest = (-box, box) if kind == "bowl" else (0.0, 0.0)
    bounds = [(0.0, 0.0 if gap == tied_after else box) for gap in range(1, num_classes)] + [lowest]
    unknowns_X, value = _hinge(problem, bounds) if phi.name == "hinge" else _smooth(problem, phi.name, bounds)
    return Solution(np.cumsum(unknowns_X[::-1])[::-1], value)


def _hinge(problem: PairSum, bounds: list[tuple[float, float]]) -> tuple[Float64, float]:
    """Linear program: slack_p >= 1 - margin_p, slack_p >= 0."""
    num_terms, num_unknowns = problem.margins_of.shape
    answer = linprog(
        np.concatenate([np.zeros(num_unknowns), problem.weights]),
        A_ub=-np.hstack([problem.margins_of, np.eye(num_terms)]),
        b_ub=-np.ones(num_terms),
        bounds=bounds + [(0, None)] * num_terms,
    )
    assert answer.success, answer.message
    return answer.x[:num_unknowns], float(answer.fun)


def _smooth(problem: PairSum, name: str, bounds: list[tuple[float, float]]) -> tuple[Float64, float]:
    def value_and_slope(unknowns_X: Float64) -> tuple[float, Float64]:
        values_P, slopes_P = SMOOTH[name](problem.margins_of @ unknowns_X)
        return float(problem.weights @ values_P), problem.margins_of.T @ (problem.weights * slopes_P)

    start = np.array([0.1 if low == 0 < high else 0.0 for low, high in bounds])
    stop = {"maxiter": 5000, "maxfun": 20000, "ftol": 0.0, "gtol": 1e-11}
    answer = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", bounds=bounds, options=stop)
    return answer.x, float(answer.fun)


# Calibration by experiment: solve the surrogate's problem for a known distribution and see what it retrieves.
#
# Legend: K classes (a handful).


# The solvers stop within about 1e-10 of the optimum. A smaller gap cannot be distinguished from zero.
RESOLUTION = 1e-8
_BOX = 40.0


@dataclass(frozen=True)
class Calibration:
    """The minimiser of the expected loss, and what it retrieves.

    ``scores``: a minimiser, classes as given; ``risk``: Ψ there. ``gap``: how much higher Ψ is at the best scores that
    may not retrieve the Bayes set. ``calibrated``: whether that gap is above ``RESOLUTION``.
    """

    scores: Float64
    risk: float
    gap: float

    @property
    def calibrated(self) -> bool:
        return self.gap > RESOLUTION


def expected_loss(
    probabilities: Vector, scores: Vector, theta: Vector, *, kind: Kind, phi: str | Surrogate = "logistic"
) -> float:
    """Ψ(α, v) = Σ_i α_i ℓ(v, i)."""
    alpha_K = torch.from_numpy(as_distribution(probabilities).copy())
    scores_K = scores if isinstance(scores, torch.Tensor) else torch.from_numpy(np.array(scores, dtype=np.float64))
    rows_KK = scores_K.to(torch.float64).expand(len(alpha_K), -1)
    theta_J = torch.from_numpy(as_theta(theta, num_classes=len(alpha_K)).copy())
    losses_K = ordered_loss(rows_KK, torch.arange(len(alpha_K)), theta=theta_J, kind=kind, phi=phi, reduction="none")
    return float(alpha_K @ losses_K)


def calibration_at(
    probabilities: Vector,
    theta: Vector,
    *,
    k: int,
    kind: Kind = "powl",
    phi: str | Surrogate = "logistic",
    box: float = _BOX,
) -> Calibration:
    """Definition 2 for one distribution, decided by solving two convex problems.

    Needs D_[k] > D_[k+1], a convex φ and a non-increasing theta, which make Ψ convex. Scores outside the Bayes
    set's cone then reach its border on the way to a minimiser without a rise of Ψ, and on the border v_k = v_{k+1}
    once both sides are sorted like α; so the gap is the minimum with that tie less the minimum. Minimisers at
    infinity: gaps between neighbours, and the lowest score, are held within ``box``.
    """
    check_options(kind, "mean")
    alpha_K, chosen = as_distribution(probabilities), surrogate(phi)
    check_k(k, num_classes=len(alpha_K))
    theta_J = as_theta(theta, num_classes=len(alpha_K))
    order_K = np.argsort(-alpha_K, kind="stable")
    _check_problem(alpha_K[order_K], theta_J, chosen, k=k, box=box)
    problem = sorted_problem(alpha_K[order_K], theta_J, kind)
    best = solve(problem, chosen, kind=kind, box=box)
    tied = solve(problem, chosen, kind=kind, box=box, tied_after=k)
    return Calibration(_unsorted(best, order_K), best.value, max(tied.value - best.value, 0.0))


def _unsorted(solution: Solution, order_K: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Float64:
    scores_K = np.empty_like(solution.scores)
    scores_K[order_K] = solution.scores
    return scores_K


def _check_problem(alpha_K: Float64, theta_J: Float64, phi: Surrogate, *, k: int, box: float) -> None:
    if phi.name != "hinge" and phi.name not in SMOOTH:
        raise ValueError(f"phi: given {phi.name}; wanted a convex one: hinge, {', '.join(SMOOTH)}")
    if not is_non_increasing(torch.from_numpy(theta_J)):
        raise ValueError("theta: given weights that rise; wanted non-increasing ones, which make the loss convex")
    if not alpha_K[k - 1] > alpha_K[k]:
        raise ValueError(f"probabilities: given D_[{k}] = D_[{k + 1}]; wanted one Bayes set, D_[{k}] > D_[{k + 1}]")
    if not 0 < box < np.inf:
        raise ValueError(f"box: given {box}; wanted a positive finite number")
