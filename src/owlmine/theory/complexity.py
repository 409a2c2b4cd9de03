"""Complexity: how fast an ordered loss can change with its scores (paper, Lemma 7), and complexities of linear scorers.

|ℓ(v, y) - ℓ(u, y)| <= scores_l2 ‖v - u‖₂ + positive |v_y - u_y|     and     <= scores_linf ‖v - u‖_∞

        scores_l2   positive   scores_linf         L: Lipschitz constant of φ
POWL    L ‖θ‖₂      L ‖θ‖₁     2 L ‖θ‖₁
BOWL    L ‖θ‖₂      L          L (‖θ‖₁ + 1)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from owlmine.losses.inputs import Kind, check_options
from owlmine.losses.surrogates import Surrogate, surrogate
from owlmine.theory.weights import Float64, Vector, theta_norms


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


# Complexities of linear scorers h_y(x) = w_y · x with ‖W‖_F <= Λ, W holding one row per class (paper, section 4).
#
# For such scorers the supremum has a closed form, by Cauchy-Schwarz: over a set S of pairs (x, y) with random signs or
# Gaussians g,
#
#     complexity = (Λ / |S|) E ‖Σ_(x,y) g_(x,y) x e_yᵀ‖_F  <=  (Λ / |S|) sqrt(Σ_(x,y) ‖x‖²).
#
# The expectation is estimated by Monte Carlo. It is at least sqrt(2/π) (Gaussian) or sqrt(1/2) (signs) of that bound.
# Queries that occur twice count twice, so the label completion of n points has nK pairs.
#
# Legend: N points, D features, R repetitions.


@dataclass(frozen=True)
class Estimate:
    """A mean over repetitions and its standard error."""

    mean: float
    standard_error: float


def gaussian_complexity(
    queries_ND: Float64,
    classes_N: NDArray[np.integer],
    *,
    radius: float,
    repetitions: int,
    generator: np.random.Generator,
) -> Estimate:
    """𝔊_S for points (x_i, y_i); ``radius`` is Λ."""
    return _over_points(queries_ND, classes_N, generator.standard_normal, radius=radius, repetitions=repetitions)


def rademacher_complexity(
    queries_ND: Float64,
    classes_N: NDArray[np.integer],
    *,
    radius: float,
    repetitions: int,
    generator: np.random.Generator,
) -> Estimate:
    """ℜ_S for points (x_i, y_i); ``radius`` is Λ."""

    def signs(size: int) -> Float64:
        return generator.choice(np.array([-1.0, 1.0]), size)

    return _over_points(queries_ND, classes_N, signs, radius=radius, repetitions=repetitions)


def completed_gaussian_complexity(
    queries_ND: Float64, *, num_classes: int, radius: float, repetitions: int, generator: np.random.Generator
) -> Estimate:
    """𝔊 over the label completion: every query with every class.

    The squared norm is Σ_y ‖Xᵀ g_y‖² with independent g_y, that is Σ_d λ_d χ²_K for the eigenvalues λ of XᵀX: no
    work grows with K.
    """
    num_points = _check(queries_ND, radius=radius, repetitions=repetitions)
    if num_classes < 2:
        raise ValueError(f"num_classes: given {num_classes}; wanted at least 2")
    eigenvalues_D = np.linalg.svd(queries_ND, compute_uv=False) ** 2
    squares_RD = generator.chisquare(num_classes, size=(repetitions, len(eigenvalues_D)))
    return _estimate(np.sqrt(squares_RD @ eigenvalues_D), factor=radius / (num_points * num_classes))


def complexity_bound(queries_ND: Float64, *, radius: float) -> float:
    """(Λ / n) sqrt(Σ ‖x_i‖²), above 𝔊_S and ℜ_S whatever the classes."""
    num_points = _check(queries_ND, radius=radius, repetitions=1)
    return radius * float(np.linalg.norm(queries_ND)) / num_points


def completed_complexity_bound(queries_ND: Float64, *, num_classes: int, radius: float) -> float:
    """(Λ / nK) sqrt(K Σ ‖x_i‖²), above the Gaussian complexity of the label completion."""
    return complexity_bound(queries_ND, radius=radius) / math.sqrt(num_classes)


def worst_rademacher_bound(queries_ND: Float64, *, num_classes: int, radius: float) -> float:
    """Λ max ‖x_i‖ / sqrt(nK), above ℜ of every multi-subset of nK pairs of the label completion.

    Nearly reached by the longest query with every class, n times each.
    """
    num_points = _check(queries_ND, radius=radius, repetitions=1)
    longest = float(np.linalg.norm(queries_ND, axis=1).max())
    return radius * longest / math.sqrt(num_points * num_classes)


def _over_points(
    queries_ND: Float64,
    classes_N: NDArray[np.integer],
    draw: Callable[[int], Float64],
    *,
    radius: float,
    repetitions: int,
) -> Estimate:
    num_points = _check(queries_ND, radius=radius, repetitions=repetitions)
    if classes_N.shape != (num_points,):
        raise ValueError(f"classes: given shape {classes_N.shape}; wanted ({num_points},), one per query")
    present, rows_N = np.unique(classes_N, return_inverse=True)
    norms_R = np.empty(repetitions)
    for repetition in range(repetitions):
        sums = np.zeros((len(present), queries_ND.shape[1]))
        np.add.at(sums, rows_N, draw(num_points)[:, None] * queries_ND)
        norms_R[repetition] = np.linalg.norm(sums)
    return _estimate(norms_R, factor=radius / num_points)


def _estimate(norms_R: Float64, *, factor: float) -> Estimate:
    spread = float(norms_R.std(ddof=1)) if len(norms_R) > 1 else math.inf
    return Estimate(factor * float(norms_R.mean()), factor * spread / math.sqrt(len(norms_R)))


def _check(queries_ND: Float64, *, radius: float, repetitions: int) -> int:
    if queries_ND.ndim != 2 or 0 in queries_ND.shape:
        raise ValueError(f"queries: given shape {queries_ND.shape}; wanted points x features, at least 1 x 1")
    if not 0 < radius < math.inf:
        raise ValueError(f"radius: given {radius}; wanted a positive finite number")
    if repetitions < 1:
        raise ValueError(f"repetitions: given {repetitions}; wanted 1 or more")
    return len(queries_ND)
