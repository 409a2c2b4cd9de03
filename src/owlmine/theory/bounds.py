"""Margins of retrieval (paper, section 4.1) and the generalisation bounds (Theorems 5 and 6).

ρ_h(x, y) = h_y(x) - h^{-y}_[k](x)

A class is retrieved when its margin is above 0. If scores tie at the k-th place, none of the tied classes counts as
retrieved (the paper's footnote), so there may be fewer than k.

Legend: N points, K classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from owlmine.losses.inputs import Kind, check_options, check_scores
from owlmine.losses.surrogates import Ramp
from owlmine.mining.checks import check_class_ids
from owlmine.theory.weights import Vector, check_k, theta_norms


def margins(scores_NK: Tensor, positives_N: Tensor, *, k: int) -> Tensor:
    """ρ_h of each point: the positive's score minus the k-th highest of the others."""
    check_scores("scores", scores_NK, ndim=2, validate=None)
    num_points, num_classes = scores_NK.shape
    check_k(k, num_classes=num_classes)
    check_class_ids("positives", positives_N, shape=(num_points,), num_classes=num_classes, validate=None)
    positives_N1 = positives_N.to(torch.int64)[:, None]
    others_NK = scores_NK.scatter(1, positives_N1, -math.inf)
    return scores_NK.gather(1, positives_N1)[:, 0] - others_NK.topk(k, dim=1).values[:, -1]


def margin_risk(margins_N: Tensor, *, rho: float = 0.0) -> float:
    """The share of points with ρ_h <= ``rho``; at 0 this is the empirical retrieval risk."""
    if not 0 <= rho < math.inf:
        raise ValueError(f"rho: given {rho}; wanted a finite number >= 0")
    return float((_some(margins_N) <= rho).to(torch.float64).mean())


def ramp_risk(margins_N: Tensor, *, rho: float) -> float:
    """The mean ramp loss, between the margin risks at 0 and at ``rho``: 1[u <= 0] <= φ(u) <= 1[u <= ρ]."""
    return float(Ramp(rho)(_some(margins_N).to(torch.float64)).mean())


def _some(margins_N: Tensor) -> Tensor:
    if margins_N.ndim != 1 or len(margins_N) == 0 or bool(margins_N.isnan().any()):
        raise ValueError(
            f"margins: given shape {tuple(margins_N.shape)}; wanted one number per point, none of them NaN"
        )
    return margins_N


# The terms of the generalisation bounds (paper, Theorems 5 and 6).
#
# With probability 1 - δ, risk <= empirical risk + Õ(min(gaussian, rademacher)) + deviation, where
#
#         gaussian                             rademacher                   deviation
# POWL    L (‖θ‖₂ K 𝔊_completed + ‖θ‖₁ 𝔊_S)    2 L ‖θ‖₁ sqrt(K) ℜ_worst     3 ‖θ‖₁ Φ sqrt(log(2/δ) / 2n)
# BOWL    L (‖θ‖₂ K 𝔊_completed + 𝔊_S)         L (‖θ‖₁ + 1) sqrt(K) ℜ_worst 3 (1 + ‖θ‖₁) Φ sqrt(log(2/δ) / 2n)
#
# Õ hides constants and powers of logarithms, so the first two terms compare one theta with another; they do not
# bound a risk by a number. The paper prints ‖θ‖₁ Φ for BOWL's range, which leaves out φ(v_y).


@dataclass(frozen=True)
class Sample:
    """The training sample: n points of K classes, and δ: the bound fails with at most this probability."""

    num_points: int
    num_classes: int
    delta: float = 0.05

    def __post_init__(self) -> None:
        if self.num_points < 1 or self.num_classes < 2:
            given = f"{self.num_points} point(s) of {self.num_classes} class(es)"
            raise ValueError(f"sample: given {given}; wanted at least 1 of 2")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta: given {self.delta}; wanted a probability between 0 and 1")

    @property
    def deviation(self) -> float:
        """3 sqrt(log(2/δ) / 2n)."""
        return 3 * math.sqrt(math.log(2 / self.delta) / (2 * self.num_points))


@dataclass(frozen=True)
class Complexities:
    """Of one hypothesis class on one sample: 𝔊_S, 𝔊 of the label completion, and its worst-case ℜ."""

    gaussian: float
    gaussian_completed: float
    rademacher_worst: float


@dataclass(frozen=True)
class BoundTerms:
    gaussian: float
    rademacher: float
    deviation: float

    @property
    def complexity(self) -> float:
        """The expression inside Õ."""
        return min(self.gaussian, self.rademacher)


def generalization_terms(
    theta: Vector,
    sample: Sample,
    complexities: Complexities,
    *,
    kind: Kind = "powl",
    lipschitz: float = 1.0,
    phi_bound: float = 1.0,
) -> BoundTerms:
    """Theorem 5. ``lipschitz`` is L of φ; ``phi_bound`` is Φ, the largest |φ| that the loss meets.

    For BOWL Φ must bound φ(-h_y(x)) as well as φ(h_y(x)).
    """
    check_options(kind, "mean")
    if not (0 < lipschitz < math.inf and 0 < phi_bound < math.inf):
        raise ValueError(f"bound: given L = {lipschitz}, Φ = {phi_bound}; wanted positive finite numbers")
    norms = theta_norms(theta)
    on_positive = norms.l1 if kind == "powl" else 1.0
    on_largest = 2 * norms.l1 if kind == "powl" else norms.l1 + 1
    size = norms.l1 if kind == "powl" else norms.l1 + 1
    return BoundTerms(
        lipschitz
        * (norms.l2 * sample.num_classes * complexities.gaussian_completed + on_positive * complexities.gaussian),
        lipschitz * on_largest * math.sqrt(sample.num_classes) * complexities.rademacher_worst,
        size * phi_bound * sample.deviation,
    )


def margin_terms(sample: Sample, complexities: Complexities, *, k: int, rho: float) -> BoundTerms:
    """Theorem 6: the terms added to the margin risk. POWL of the ramp with all weight on rank k, so ‖θ‖₁ = ‖θ‖₂ = 1, L
    = 1/ρ and Φ = 1.
    """
    if not 0 < rho < math.inf:
        raise ValueError(f"rho: given {rho}; wanted a positive finite number")
    check_k(k, num_classes=sample.num_classes)
    theta = [0.0] * (k - 1) + [1.0]
    return generalization_terms(theta, sample, complexities, kind="powl", lipschitz=1 / rho)
