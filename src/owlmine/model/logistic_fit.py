"""Logistic regression for a handful of weights, some of which may not be negative.

Shapes: E events, P features, Q those of them that are free, and the bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Float64 = NDArray[np.float64]

# On weights of features of unit spread: next to nothing beside hundreds of events, a bound where they are separable.
_RIDGE = 1.0
_MAX_STEPS = 100
# A spread below this share of the values themselves is float32's rounding, not something to learn from.
_LEAST_SPREAD = 1e-6


def fit_logistic(
    features_EP: Float64, hits_E: NDArray[np.bool_], *, not_negative: Sequence[int] = ()
) -> tuple[Float64, float]:
    """Weights [P] and bias of p = sigmoid(features · weights + bias).

    Minimises the log loss with Platt's targets, (hits + 1) / (hits + 2) for a hit and 1 / (misses + 2) for a miss, so
    that all hits or none still give a finite bias, plus half the squared weights of features of unit spread. The
    weights of the features in ``not_negative`` are 0 or more.
    """
    assert features_EP.ndim == 2
    assert len(features_EP) == len(hits_E)
    mean_P = features_EP.mean(0)
    spread_P = features_EP.std(0)
    spread_P[spread_P <= _LEAST_SPREAD * np.abs(mean_P)] = np.inf
    scaled_EP = (features_EP - mean_P) / spread_P
    num_hits = int(np.count_nonzero(hits_E))
    targets_E = np.where(hits_E, (num_hits + 1) / (num_hits + 2), 1 / (len(hits_E) - num_hits + 2))
    best_loss, best = np.inf, np.zeros(features_EP.shape[1] + 1)
    # The problem is convex, so its solution is the solution without bounds of one of the faces: some of the bounded
    # weights 0, the others free. Two bounds make four faces.
    for count in range(len(not_negative) + 1):
        for zero in combinations(not_negative, count):
            free = [column for column in range(features_EP.shape[1]) if column not in zero]
            inputs_EQ = np.column_stack((scaled_EP[:, free], np.ones(len(scaled_EP))))
            loss, weights_Q = _minimum(inputs_EQ, targets_E)
            whole = np.zeros(features_EP.shape[1] + 1)
            whole[[*free, -1]] = weights_Q
            if loss < best_loss and all(whole[column] >= 0 for column in not_negative):
                best_loss, best = loss, whole
    weights_P = best[:-1] / spread_P
    return weights_P, float(best[-1] - weights_P @ mean_P)


def _minimum(inputs_EQ: Float64, targets_E: Float64) -> tuple[float, Float64]:
    """Newton's method with halved steps; the last input is the bias, which the ridge leaves alone."""
    ridge_Q = np.full(inputs_EQ.shape[1], _RIDGE)
    ridge_Q[-1] = 0.0

    def loss_at(weights_Q: Float64) -> float:
        margins_E = inputs_EQ @ weights_Q
        return float(np.sum(np.logaddexp(0.0, margins_E) - targets_E * margins_E) + 0.5 * ridge_Q @ weights_Q**2)

    weights_Q = np.zeros(len(ridge_Q))
    loss = loss_at(weights_Q)
    for _ in range(_MAX_STEPS):
        p_E = expit(inputs_EQ @ weights_Q)
        slope_Q = inputs_EQ.T @ (p_E - targets_E) + ridge_Q * weights_Q
        curvature_QQ = (inputs_EQ.T * (p_E * (1 - p_E))) @ inputs_EQ + np.diag(ridge_Q)
        step_Q = np.linalg.solve(curvature_QQ, slope_Q)
        while (next_loss := loss_at(weights_Q - step_Q)) > loss and np.abs(step_Q).max() > 1e-12:
            step_Q = step_Q / 2
        if next_loss >= loss:
            break
        weights_Q, loss = weights_Q - step_Q, next_loss
    return loss, weights_Q
