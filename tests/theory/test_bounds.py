"""The terms of Theorems 5 and 6, written out by hand."""

import math
from itertools import pairwise

import pytest

from owlmine.losses import negative_sampling, theta_from_vartheta, top_k
from owlmine.theory import Complexities, Sample, generalization_terms, margin_terms

SAMPLE = Sample(num_points=200, num_classes=9, delta=0.1)
MEASURED = Complexities(gaussian=0.3, gaussian_completed=0.02, rademacher_worst=0.05)
THETA = [0.5, 0.5, 0.25]
L1, L2 = 1.25, math.hypot(*THETA)
DEVIATION = 3 * math.sqrt(math.log(20) / 400)


def test_theorem_5_pairwise():
    terms = generalization_terms(THETA, SAMPLE, MEASURED, kind="powl", lipschitz=2.0, phi_bound=3.0)
    assert terms.gaussian == pytest.approx(2 * (L2 * 9 * 0.02 + L1 * 0.3))
    assert terms.rademacher == pytest.approx(2 * 2 * L1 * 3 * 0.05)
    assert terms.deviation == pytest.approx(L1 * 3 * DEVIATION)
    assert terms.complexity == min(terms.gaussian, terms.rademacher)


def test_theorem_5_binary():
    terms = generalization_terms(THETA, SAMPLE, MEASURED, kind="bowl", lipschitz=2.0, phi_bound=3.0)
    assert terms.gaussian == pytest.approx(2 * (L2 * 9 * 0.02 + 0.3))
    assert terms.rademacher == pytest.approx(2 * (L1 + 1) * 3 * 0.05)
    assert terms.deviation == pytest.approx((1 + L1) * 3 * DEVIATION)


def test_theorem_6_is_theorem_5_for_the_ramp_on_rank_k():
    terms = margin_terms(SAMPLE, MEASURED, k=4, rho=0.5)
    assert terms.gaussian == pytest.approx((9 * 0.02 + 0.3) / 0.5)
    assert terms.rademacher == pytest.approx(2 * 3 * 0.05 / 0.5)
    assert terms.deviation == pytest.approx(DEVIATION)


def test_larger_pools_and_harder_negatives_tighten_every_term():
    """The paper's use of the bound, at equal promise: POWL >= retrieval loss at k = 5."""
    num_classes, k = 500, 5
    pools = [
        theta_from_vartheta(
            top_k(k, pool_size=pool, convention="paper", num_classes=num_classes), num_classes=num_classes
        )
        for pool in (20, 80, 320)
    ]
    sampled = theta_from_vartheta(
        negative_sampling(pool_size=80, convention="paper", num_classes=num_classes, k=k), num_classes=num_classes
    )
    sample = Sample(num_points=1000, num_classes=num_classes)
    terms = [generalization_terms(theta, sample, MEASURED) for theta in (sampled, *pools)]
    for looser, tighter in pairwise(terms):
        assert tighter.gaussian < looser.gaussian
        assert tighter.rademacher < looser.rademacher
        assert tighter.deviation < looser.deviation


def test_bad_input():
    with pytest.raises(ValueError, match="delta: given 1"):
        Sample(num_points=10, num_classes=5, delta=1.0)
    with pytest.raises(ValueError, match=r"given 0 point\(s\)"):
        Sample(num_points=0, num_classes=5)
    with pytest.raises(ValueError, match="rho: given 0"):
        margin_terms(SAMPLE, MEASURED, k=1, rho=0)
    with pytest.raises(ValueError, match="k: given 9 of 9"):
        margin_terms(SAMPLE, MEASURED, k=9, rho=1)
    with pytest.raises(ValueError, match="L = inf"):
        generalization_terms(THETA, SAMPLE, MEASURED, lipschitz=math.inf)
