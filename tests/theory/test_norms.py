"""Norms against sums of floats, and Lemma 2's bounds."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import from_vector, negative_sampling, power_law, theta_from_vartheta, top_k
from owlmine.theory import l2_bound_from_pool, theta_norms


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(1e-6, 5), min_size=1, max_size=30))
def test_against_sums(theta):
    norms = theta_norms(theta)
    assert norms.first == theta[0]
    assert norms.l1 == pytest.approx(math.fsum(theta))
    assert norms.l2 == pytest.approx(math.hypot(*theta))
    assert 1 - 1e-9 <= norms.effective_ranks <= len(theta) + 1e-9
    assert math.fsum(theta[: norms.half_rank]) >= norms.l1 / 2 * (1 - 1e-9)
    assert math.fsum(theta[: norms.half_rank - 1]) < norms.l1 / 2


@pytest.mark.parametrize("num_classes", [50, 1000])
@pytest.mark.parametrize(
    "weights",
    [top_k(1, pool_size=20), top_k(7, pool_size=20), power_law(0.7, pool_size=20), from_vector([3.0, 1.0, 1.0, 0.0])],
)
def test_lemma_2(weights, num_classes):
    norms = theta_norms(theta_from_vartheta(weights, num_classes=num_classes))
    assert norms.l1 == pytest.approx(weights.l1)
    assert norms.l2 < l2_bound_from_pool(weights, num_classes=num_classes)


def test_lemma_2_is_reached_by_negative_sampling_and_by_the_full_pool():
    sampled = negative_sampling(pool_size=20, convention="paper", num_classes=300, k=5)
    norms = theta_norms(theta_from_vartheta(sampled, num_classes=300))
    assert norms.l2 == pytest.approx(l2_bound_from_pool(sampled, num_classes=300))
    assert norms.l1 == pytest.approx(299 / 5)
    assert norms.effective_ranks == pytest.approx(299)
    full = top_k(5, pool_size=299, convention="paper", num_classes=300)
    norms = theta_norms(theta_from_vartheta(full, num_classes=300))
    assert norms.l2 == pytest.approx(l2_bound_from_pool(full, num_classes=300))
    assert norms.effective_ranks == pytest.approx(5)
    assert norms.half_rank == 3


def test_bad_input():
    with pytest.raises(ValueError, match="all 0"):
        theta_norms([0.0, 0.0])
    with pytest.raises(ValueError, match="theta: given shape"):
        theta_norms(torch.ones(2, 2))
    with pytest.raises(ValueError, match="pool of 20 from 20 classes"):
        l2_bound_from_pool(top_k(1, pool_size=20), num_classes=20)
