"""Margins of retrieval (paper, section 4.1): ρ_h(x, y) = h_y(x) - h^{-y}_[k](x).

A class is retrieved when its margin is above 0. Where scores tie at the k-th place none of the tied classes counts
as retrieved (the paper's footnote), so fewer than k may be.

Legend: N points, K classes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from owlmine.losses.checks import check_scores
from owlmine.losses.surrogates import Ramp
from owlmine.mining.checks import check_class_ids
from owlmine.theory.weights import check_k


def margins(scores_NK: Tensor, positives_N: Tensor, *, k: int) -> Tensor:
    """ρ_h of each point: the positive's score less the k-th highest of the others."""
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
