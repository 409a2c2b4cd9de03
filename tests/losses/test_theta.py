"""theta in closed form: against every pool of a small problem, exact fractions, and 60 digits at K = 10^7."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import from_vector, negative_sampling, power_law, theta_at, theta_from_vartheta, top_k


def by_all_pools(vartheta: list[float], num_classes: int) -> list[Fraction]:
    """Average over every pool of the weight that the negative of each rank receives."""
    ranks = range(num_classes - 1)
    totals = [Fraction(0) for _ in ranks]
    pools = list(itertools.combinations(ranks, len(vartheta)))
    for pool in pools:
        for weight, rank in zip(vartheta, pool, strict=True):
            totals[rank] += Fraction(weight)
    return [total / len(pools) for total in totals]


@st.composite
def small_problems(draw):
    num_classes = draw(st.integers(2, 10))
    pool_size = draw(st.integers(1, num_classes - 1))
    weights = st.lists(st.sampled_from([0.0, 0.125, 0.5, 1.0, 3.0]), min_size=pool_size, max_size=pool_size)
    return sorted(draw(weights), reverse=True), num_classes


@settings(max_examples=60, deadline=None)
@given(small_problems())
def test_equal_to_the_average_over_all_pools(problem):
    vartheta, num_classes = problem
    weights = from_vector(vartheta)
    exact = torch.tensor([float(value) for value in by_all_pools(vartheta, num_classes)], dtype=torch.float64)
    torch.testing.assert_close(theta_from_vartheta(weights, num_classes=num_classes), exact, rtol=1e-12, atol=0)
    ranks = list(range(1, num_classes))
    torch.testing.assert_close(theta_at(weights, ranks, num_classes=num_classes), exact, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("num_classes", "pool_size"), [(400, 60), (1000, 3), (300, 299), (500, 450)])
def test_equal_to_exact_fractions_of_binomials(num_classes, pool_size):
    weights = power_law(0.7, pool_size=pool_size, kept=min(pool_size, 20)).with_tail(1e-4)
    theta = theta_from_vartheta(weights, num_classes=num_classes)
    vartheta = [Fraction(value) for value in weights.dense().tolist()]
    pools = math.comb(num_classes - 2, pool_size - 1)
    for j in {1, 2, num_classes // 3, num_classes - 2, num_classes - 1}:
        places = range(1, pool_size + 1)
        ways = [math.comb(j - 1, i - 1) * math.comb(num_classes - 1 - j, pool_size - i) for i in places]
        exact = sum(w * v for w, v in zip(ways, vartheta, strict=True)) / pools
        exact *= Fraction(pool_size, num_classes - 1)
        assert float(theta[j - 1]) == pytest.approx(float(exact), rel=1e-12)


def below_in_pool(rank: int, k: int, num_classes: int, pool_size: int) -> mpmath.mpf:
    """P[fewer than k of the rank - 1 better classes are among the pool's pool_size - 1 others], 60 digits."""

    def log_choose(n, r):
        return mpmath.loggamma(n + 1) - mpmath.loggamma(r + 1) - mpmath.loggamma(n - r + 1)

    term = mpmath.exp(
        log_choose(rank - 1, k - 1)
        + log_choose(num_classes - 1 - rank, pool_size - k)
        - log_choose(num_classes - 2, pool_size - 1)
    )
    total = term
    for i in range(k, 1, -1):
        up = (i - 1) * (num_classes - 1 - rank - pool_size + i)
        term *= mpmath.mpf(up) / ((rank - i + 1) * (pool_size - i + 1))
        total += term
    return total


@pytest.mark.parametrize("k", [1, 16, 256])
def test_accuracy_at_ten_million_classes(k):
    num_classes, pool_size = 10_000_000, 32_768
    weights = top_k(k, pool_size=pool_size, convention="paper", num_classes=num_classes)
    theta = theta_from_vartheta(weights, num_classes=num_classes).numpy()
    assert theta[0] == pytest.approx(1 / k, rel=1e-15)
    last = int(np.flatnonzero(theta > 1e-270)[-1])
    with mpmath.workdps(60):
        for rank in np.geomspace(k + 1, last, 8).astype(int).tolist():
            exact = below_in_pool(rank, k, num_classes, pool_size)
            assert float(abs(k * mpmath.mpf(float(theta[rank - 1])) / exact - 1)) < 1e-12
    assert float(theta.sum()) == pytest.approx((num_classes - 1) / pool_size, rel=1e-12)
    sampled = [1, k + 1, 305 * k, 610 * k]
    by_rank = theta_at(weights, sampled, num_classes=num_classes).numpy()
    np.testing.assert_allclose(by_rank, theta[np.array(sampled) - 1], rtol=1e-11)


def test_negative_sampling_weighs_every_rank_alike():
    weights = negative_sampling(pool_size=7, convention="paper", num_classes=1001, k=5)
    torch.testing.assert_close(
        theta_from_vartheta(weights, num_classes=1001), torch.full((1000,), 0.2, dtype=torch.float64)
    )


def test_a_pool_of_everything_keeps_the_weights():
    weights = power_law(1.0, pool_size=9)
    torch.testing.assert_close(theta_from_vartheta(weights, num_classes=10), weights.dense())


def test_two_classes():
    assert theta_from_vartheta(top_k(1, pool_size=1), num_classes=2).tolist() == [1.0]


def test_refused():
    with pytest.raises(ValueError, match="pool of 5 from 5 classes; wanted a pool of at most 4"):
        theta_from_vartheta(top_k(1, pool_size=5), num_classes=5)
    with pytest.raises(ValueError, match="wanted 1 to 4"):
        theta_at(top_k(1, pool_size=2), [0], num_classes=5)
