"""Exact minimisation of the expected ordered loss Ψ(α, v) = Σ_i α_i ℓ(v, i) for a handful of classes.

Some minimiser is sorted like α: exchanging two scores that stand against the order of α never raises Ψ, for any
θ >= 0 (first part of Lemmas 5 and 6). On sorted scores every negative has a fixed rank, so Ψ is a sum of φ over
fixed pairs with fixed weights: a convex problem in the gaps g_i = v_i - v_{i+1} >= 0 (and, for BOWL, the lowest
score). The hinge is a linear program; a differentiable φ goes to L-BFGS-B.

Where the minimiser is at infinity, the answer is the best with gaps, and lowest score, up to ``box`` in size.

Legend: K classes, P terms of the sum, X unknowns (K - 1 gaps, then the lowest score).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog, minimize

from owlmine.losses.checks import Kind
from owlmine.losses.surrogates import Surrogate
from owlmine.theory.smooth_phi import SMOOTH
from owlmine.theory.weights import Float64


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
    # POWL does not notice a shift of all scores, so the lowest stays at 0.
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
