"""Calibration by experiment: solve the surrogate's problem for a known distribution and see what it retrieves.

Legend: K classes (a handful).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from owlmine.losses.checks import Kind, check_options
from owlmine.losses.ordered import is_non_increasing, ordered_loss
from owlmine.losses.surrogates import Surrogate, surrogate
from owlmine.theory.minimise import Solution, solve, sorted_problem
from owlmine.theory.smooth_phi import SMOOTH
from owlmine.theory.weights import Float64, Vector, as_distribution, as_theta, check_k

# The solvers stop within about 1e-10 of the optimum. A smaller gap cannot be told from none.
RESOLUTION = 1e-8
_BOX = 40.0


@dataclass(frozen=True)
class Calibration:
    """What the minimiser of the expected loss does.

    ``scores``: a minimiser, classes as given; ``risk``: Ψ there. ``gap``: how much higher Ψ is at the best scores
    that are not sure to retrieve the Bayes set. ``calibrated``: whether that gap is above ``RESOLUTION``.
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
