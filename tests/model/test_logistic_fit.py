"""The small logistic regression, against its own conditions of optimality and a general solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from owlmine.rank.probabilities import fit_logistic


def objective(features: np.ndarray, hits: np.ndarray, weights: np.ndarray, bias: float) -> float:
    """Written out event by event: log loss with Platt's targets, ridge on weights times the feature's spread."""
    num_hits = int(hits.sum())
    high, low = (num_hits + 1) / (num_hits + 2), 1 / (len(hits) - num_hits + 2)
    total = 0.0
    for row, hit in zip(features, hits, strict=True):
        margin = float(row @ weights) + bias
        target = high if hit else low
        total += np.logaddexp(0, margin) - target * margin
    return total + 0.5 * float(((weights * features.std(0)) ** 2).sum())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("not_negative", [(), (0,), (0, 2)])
def test_against_a_general_solver(seed: int, not_negative: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(60, 3)) * [1.0, 0.1, 20.0] + [0, 3, -5]
    # Signs of both kinds, so that the bounds bite in some of the cases.
    hits = rng.random(60) < 1 / (1 + np.exp(-(features - features.mean(0)) @ (rng.normal(size=3) * [2, 20, 0.1])))
    weights, bias = fit_logistic(features, hits, not_negative=not_negative)
    assert all(weights[column] >= 0 for column in not_negative)
    scale = features.std(0)
    found = minimize(
        lambda x: objective(features, hits, x[:3] / scale, x[3] - float(x[:3] / scale @ features.mean(0))),
        np.zeros(4),
        method="L-BFGS-B",
        bounds=[(0, None) if column in not_negative else (None, None) for column in range(3)] + [(None, None)],
    )
    assert objective(features, hits, weights, bias) <= found.fun + 1e-6
    # The solver takes slopes from differences and stops early; the line above is the sharp one.
    np.testing.assert_allclose(weights * scale, found.x[:3], atol=2e-3)


@given(st.integers(1, 40), st.integers(0, 3), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_degenerate_data_give_finite_weights(num_events: int, kind: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_events, 2)) if kind % 2 else np.ones((num_events, 2), np.float64) * 1e4
    hits = {0: np.zeros(num_events, bool), 1: np.ones(num_events, bool)}.get(kind, features[:, 0] > 0)
    weights, bias = fit_logistic(features, hits, not_negative=(0,))
    assert np.isfinite([*weights, bias]).all()
    assert weights[0] >= 0


def test_all_hits_give_platts_share() -> None:
    weights, bias = fit_logistic(np.zeros((8, 1)), np.ones(8, bool))
    assert weights.tolist() == [0.0]
    assert 1 / (1 + np.exp(-bias)) == pytest.approx(9 / 10)


def test_separable_data_are_held_back() -> None:
    features = np.linspace(-1, 1, 200)[:, None]
    weights, _ = fit_logistic(features, features[:, 0] > 0)
    assert 5 < weights[0] < 200


def test_rounding_noise_is_not_learned_from() -> None:
    noise = np.float32(0.7) + np.float32(6e-8) * (np.arange(50, dtype=np.float32) // 10)
    weights, _ = fit_logistic(noise.astype(np.float64)[:, None], np.arange(50) > 25)
    assert weights.tolist() == [0.0]
