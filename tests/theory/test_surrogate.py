"""The factor c of the retrieval loss: never broken, and reached."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from owlmine.losses import (
    Ramp,
    Surrogate,
    negative_sampling,
    ordered_loss,
    surrogate,
    surrogate_names,
    theta_from_vartheta,
    top_k,
)
from owlmine.theory import margins, retrieval_factor, surrogate_verdict

NUM_CLASSES = 6
KINDS = st.sampled_from(["powl", "bowl"])
PHIS = st.sampled_from([*surrogate_names(), Ramp(0.4)])
thetas = st.lists(st.floats(0, 2), min_size=NUM_CLASSES - 1, max_size=NUM_CLASSES - 1)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(-3, 3), min_size=NUM_CLASSES, max_size=NUM_CLASSES),
    st.integers(0, NUM_CLASSES - 1),
    thetas,
    st.integers(1, NUM_CLASSES - 1),
    KINDS,
    PHIS,
)
def test_the_loss_of_a_miss_is_at_least_the_factor(scores, y, theta, k, kind, phi):
    v, positive = torch.tensor([scores], dtype=torch.float64), torch.tensor([y])
    missed = margins(v, positive, k=k).item() <= 0
    loss = ordered_loss(v, positive, theta=theta, kind=kind, phi=phi).item()
    assert loss >= missed * retrieval_factor(theta, k=k, kind=kind, phi=phi) * (1 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(thetas, st.integers(1, NUM_CLASSES - 1), KINDS, PHIS)
def test_no_larger_factor_would_do(theta, k, kind, phi):
    """The positive level with its k hardest rivals at t, the rest far below: minimised over t."""
    rest = [-500.0] * (NUM_CLASSES - 1 - k)

    def losses_at(*levels: float) -> list[float]:
        v = torch.tensor([[t] * (k + 1) + rest for t in levels], dtype=torch.float64)
        positives = torch.zeros(len(levels), dtype=torch.int64)
        return ordered_loss(v, positives, theta=theta, kind=kind, phi=phi, reduction="none").tolist()

    grid = [step / 4 for step in range(-120, 121)]
    losses = losses_at(*grid)
    start = grid[losses.index(min(losses))]
    found = minimize_scalar(
        lambda t: losses_at(t)[0], bounds=(start - 0.25, start + 0.25), method="bounded", options={"xatol": 1e-9}
    )
    factor = retrieval_factor(theta, k=k, kind=kind, phi=phi)
    # Within t = ±30 the exponential comes within e^-30 of a minimum that may lie at infinity.
    assert min(found.fun, *losses) == pytest.approx(factor, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("phi", surrogate_names())
def test_theorem_3(phi):
    theta = [0.25] * 4 + [0.1]
    pairwise = surrogate_verdict(theta, k=4, kind="powl", phi=phi)
    assert pairwise.factor == pytest.approx(1)
    assert pairwise.is_bound
    assert pairwise.as_theorem_3
    binary = surrogate_verdict(theta, k=4, kind="bowl", phi=phi)
    assert binary.factor == pytest.approx(2 if surrogate(phi).convex else 1)
    assert binary.as_theorem_3 is surrogate(phi).convex


@pytest.mark.parametrize(("top", "expected"), [(1, 1.3), (5, 1.0), (16, 5 / 16)])
def test_top_k_snm_on_the_papers_scale(top, expected):
    """k' = k is Theorem 3; k' > k keeps k/k' of it, and k' < k promises more than 1."""
    weights = top_k(top, pool_size=32, convention="paper", num_classes=1000)
    verdict = surrogate_verdict(theta_from_vartheta(weights, num_classes=1000), k=5)
    assert verdict.as_theorem_3 is (top == 5)
    assert verdict.is_bound is (top <= 5)
    assert verdict.factor > expected if top == 1 else verdict.factor == pytest.approx(expected)


def test_what_weights_that_add_up_to_1_promise():
    theta = theta_from_vartheta(top_k(5, pool_size=100), num_classes=1001)
    share = 100 / 1000
    assert surrogate_verdict(theta, k=5).factor == pytest.approx(share)
    assert retrieval_factor(theta, k=5, kind="bowl", phi="hinge") == pytest.approx(2 * share)
    assert retrieval_factor(theta, k=5, kind="bowl", phi="exponential") == pytest.approx(2 * math.sqrt(share))
    sampled = theta_from_vartheta(negative_sampling(pool_size=100), num_classes=1001)
    assert surrogate_verdict(sampled, k=5).factor == pytest.approx(5 / 1000)


def test_weights_of_0_promise_nothing():
    for kind in ("powl", "bowl"):
        for phi in surrogate_names():
            assert retrieval_factor([0.0], k=1, kind=kind, phi=phi) == 0


def test_bad_input():
    with pytest.raises(ValueError, match="k: given 0"):
        retrieval_factor([1.0], k=0)
    with pytest.raises(ValueError, match="theta: given a number that is negative"):
        retrieval_factor([-1.0], k=1)
    with pytest.raises(ValueError, match=r"theta: given shape \(1, 1\)"):
        retrieval_factor(torch.ones(1, 1), k=1)
    with pytest.raises(ValueError, match="kind: given 'x'"):
        retrieval_factor([1.0], k=1, kind="x")

    class Flat(Surrogate):
        name, convex, differentiable = "flat", True, True

        def __call__(self, values):
            return torch.ones_like(values)

        def _steepest(self, low, high):
            return 0.0

    with pytest.raises(ValueError, match="phi: given flat; wanted one of hinge"):
        retrieval_factor([1.0], k=1, kind="bowl", phi=Flat())
