"""How fast an ordered loss can change with its scores (paper, Lemma 7).

|ℓ(v, y) - ℓ(u, y)| <= scores_l2 ‖v - u‖₂ + positive |v_y - u_y|     and     <= scores_linf ‖v - u‖_∞

        scores_l2   positive   scores_linf         L: Lipschitz constant of φ
POWL    L ‖θ‖₂      L ‖θ‖₁     2 L ‖θ‖₁
BOWL    L ‖θ‖₂      L          L (‖θ‖₁ + 1)
"""

from __future__ import annotations

from dataclasses import dataclass

from owlmine.losses.checks import Kind, check_options
from owlmine.losses.surrogates import Surrogate, surrogate
from owlmine.theory.norms import theta_norms
from owlmine.theory.weights import Vector


@dataclass(frozen=True)
class LipschitzConstants:
    scores_l2: float
    positive: float
    scores_linf: float


def lipschitz_constants(
    theta: Vector, *, kind: Kind, phi: str | Surrogate = "hinge", score_bound: float | None = None
) -> LipschitzConstants:
    """Lemma 7 for scores in [-``score_bound``, ``score_bound``], or anywhere if that is None.

    Without a bound on the scores the squared hinge and the exponential have no finite constant.
    """
    check_options(kind, "mean")
    if score_bound is not None and not score_bound > 0:
        raise ValueError(f"score_bound: given {score_bound}; wanted a positive number")
    norms, chosen = theta_norms(theta), surrogate(phi)
    if score_bound is None:
        steepest = chosen.lipschitz()
    else:
        # POWL takes φ at differences of two scores, BOWL at scores.
        reach = 2 * score_bound if kind == "powl" else score_bound
        steepest = chosen.lipschitz(-reach, reach)
    if kind == "powl":
        return LipschitzConstants(steepest * norms.l2, steepest * norms.l1, 2 * steepest * norms.l1)
    return LipschitzConstants(steepest * norms.l2, steepest, steepest * (norms.l1 + 1))
