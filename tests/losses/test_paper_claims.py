"""What the paper proves of ordered losses, one claim at a time, and where a claim needs more than it says."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import (
    Ramp,
    bowl,
    from_vector,
    is_non_increasing,
    ordered_loss,
    powl,
    surrogate,
    surrogate_names,
    theta_from_vartheta,
    top_k,
)

KINDS = st.sampled_from(["powl", "bowl"])
CONVEX = st.sampled_from([name for name in surrogate_names() if surrogate(name).convex])
NUM_CLASSES = 7
vectors = st.lists(st.floats(-4, 4), min_size=NUM_CLASSES, max_size=NUM_CLASSES).map(
    lambda values: torch.tensor([values], dtype=torch.float64)
)
thetas = st.lists(st.floats(0, 3), min_size=NUM_CLASSES - 1, max_size=NUM_CLASSES - 1)
classes = st.integers(0, NUM_CLASSES - 1)


def loss_of(scores, y, theta, kind, phi) -> float:
    return float(ordered_loss(scores, torch.tensor([y]), theta=theta, kind=kind, phi=phi))


@settings(max_examples=80, deadline=None)
@given(u=vectors, v=vectors, y=classes, theta=thetas, kind=KINDS, phi=CONVEX, share=st.floats(0, 1))
def test_theorem_2_convex_phi_and_non_increasing_theta_give_a_convex_loss(u, v, y, theta, kind, phi, share):
    theta = sorted(theta, reverse=True)
    assert is_non_increasing(theta)
    between = loss_of(share * u + (1 - share) * v, y, theta, kind, phi)
    chord = share * loss_of(u, y, theta, kind, phi) + (1 - share) * loss_of(v, y, theta, kind, phi)
    assert between <= chord * (1 + 1e-12) + 1e-12


def test_theorem_2_fails_for_a_theta_that_rises():
    theta = [0.0, 1.0]
    assert not is_non_increasing(theta)
    u, v = torch.tensor([[0.0, 2.0, 0.0]]), torch.tensor([[0.0, 0.0, 2.0]])
    middle = loss_of((u + v) / 2, 0, theta, "powl", "hinge")
    assert middle > (loss_of(u, 0, theta, "powl", "hinge") + loss_of(v, 0, theta, "powl", "hinge")) / 2


def is_missed(scores, y: int, k: int) -> bool:
    """y is not among the k retrieved; a tie at the last place counts against it, as in the paper's margins."""
    own = scores[0, y]
    rivals = torch.cat([scores[0, :y], scores[0, y + 1 :]])
    return int((rivals >= own).sum()) >= k


@settings(max_examples=120, deadline=None)
@given(
    v=vectors,
    y=classes,
    k=st.integers(1, NUM_CLASSES - 1),
    rest=thetas,
    phi=st.sampled_from([*surrogate_names(), Ramp(0.5)]),
    shrink=st.sampled_from([1.0, 0.1]),
)
def test_theorem_3_upper_bounds_of_the_retrieval_loss(v, y, k, rest, phi, shrink):
    theta = [1 / k] * k + rest[k:]
    missed = is_missed(shrink * v, y, k)
    assert loss_of(shrink * v, y, theta, "powl", phi) >= missed * (1 - 1e-12)
    if surrogate(phi).convex:
        assert loss_of(shrink * v, y, theta, "bowl", phi) >= 2 * missed * (1 - 1e-12)


def test_theorem_3_for_the_binary_kind_needs_a_convex_phi():
    scores = torch.tensor([[1.0, 1.5]], dtype=torch.float64)
    assert is_missed(scores, 0, 1)
    assert loss_of(scores, 0, [1.0], "bowl", Ramp(1.0)) == 1.0
    assert loss_of(scores, 0, [1.0], "powl", Ramp(1.0)) == 1.0


@st.composite
def pools(draw):
    num_classes = draw(st.integers(2, 60))
    size = draw(st.integers(1, num_classes - 1))
    # Not the smallest floats: their squares underflow, which says nothing of the lemma.
    weight = st.just(0.0) | st.floats(1e-9, 5)
    vartheta = draw(st.lists(weight, min_size=size, max_size=size))
    return from_vector(sorted(vartheta, reverse=True)), num_classes


@settings(max_examples=80, deadline=None)
@given(pools())
def test_lemma_2_theta_never_rises_and_keeps_the_norms(problem):
    weights, num_classes = problem
    theta = theta_from_vartheta(weights, num_classes=num_classes)
    assert is_non_increasing(theta)
    assert float(theta.sum()) == pytest.approx(weights.l1, rel=1e-12)
    first = float(weights.dense()[0])
    bound = math.sqrt(weights.pool_size * first * weights.l1 / (num_classes - 1))
    assert float(theta.norm()) <= bound * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_lemma_2_the_first_k_weigh_one_kth(data):
    num_classes = data.draw(st.integers(2, 200))
    size = data.draw(st.integers(1, num_classes - 1))
    k = data.draw(st.integers(1, size))
    weights = top_k(k, pool_size=size, convention="paper", num_classes=num_classes)
    for vartheta in (weights, weights.with_tail(weights.l1 / size / 7)):
        theta = theta_from_vartheta(vartheta, num_classes=num_classes)
        torch.testing.assert_close(theta[:k], torch.full((k,), 1 / k, dtype=torch.float64), rtol=1e-14, atol=0)
        assert torch.all(theta[k:] <= 1 / k * (1 + 1e-14))


@settings(max_examples=60, deadline=None)
@given(pools(), st.floats(1e-6, 1))
def test_lemma_2_positive_vartheta_gives_positive_theta(problem, epsilon):
    weights, num_classes = problem
    assert torch.all(theta_from_vartheta(weights.with_tail(epsilon), num_classes=num_classes) > 0)


def test_lemma_2_theta_is_not_positive_for_zeros_in_vartheta():
    """The lemma calls the coordinates non-zero; that takes a positive vartheta."""
    weights = top_k(2, pool_size=3, convention="paper", num_classes=7)
    theta = theta_from_vartheta(weights, num_classes=7)
    expected = torch.tensor([0.5, 0.5, 0.45, 0.35, 0.2, 0.0], dtype=torch.float64)
    torch.testing.assert_close(theta, expected, rtol=1e-14, atol=0)
    assert theta[5] == 0


@settings(max_examples=80, deadline=None)
@given(
    u=vectors,
    v=vectors,
    y=classes,
    theta=thetas,
    phi=st.sampled_from([*surrogate_names(), Ramp(0.5)]),
    nearby=st.booleans(),
)
def test_lemma_7_lipschitz_bounds(u, v, y, theta, phi, nearby):
    if nearby:
        u = v + 0.01 * u
    slack = 1e-9
    theta_l1, theta_l2 = math.fsum(theta), math.hypot(*theta)
    own, l2, worst = float((v - u)[0, y].abs()), float((v - u).norm()), float((v - u).abs().max())
    # Scores lie in [-4.1, 4.1]: differences, and scores with a sign, span the intervals given to lipschitz.
    constant = surrogate(phi).lipschitz(-8.1, 8.1)
    change = abs(loss_of(v, y, theta, "powl", phi) - loss_of(u, y, theta, "powl", phi))
    assert change <= constant * (theta_l2 * l2 + theta_l1 * own) * (1 + slack) + slack
    assert change <= 2 * constant * theta_l1 * worst * (1 + slack) + slack
    constant = surrogate(phi).lipschitz(-4.1, 4.1)
    change = abs(loss_of(v, y, theta, "bowl", phi) - loss_of(u, y, theta, "bowl", phi))
    assert change <= constant * (theta_l2 * l2 + own) * (1 + slack) + slack
    assert change <= constant * (theta_l1 + 1) * worst * (1 + slack) + slack


def test_the_margin_loss_of_theorem_6_is_a_member():
    """Ramp POWL with all weight on rank k is the ramp of the margin v_y - v_[k]."""
    scores = torch.tensor([[0.9, 0.2, 0.5, 0.7]], dtype=torch.float64)
    value = powl(scores, torch.tensor([0]), theta=[0.0, 1.0], phi=Ramp(1.0))
    assert value.item() == pytest.approx(1 - (0.9 - 0.5))


def test_conventions_differ_by_a_factor_for_powl_and_in_substance_for_bowl():
    scores = torch.tensor([[0.3, 0.1, -0.2, 0.6, 0.0, 0.2]], dtype=torch.float64, requires_grad=True)
    positives, factor = torch.tensor([0]), 5 / 3
    paper = theta_from_vartheta(top_k(2, pool_size=3, convention="paper", num_classes=6), num_classes=6)
    average = theta_from_vartheta(top_k(2, pool_size=3), num_classes=6)
    gradients = {
        loss.__name__: [
            torch.autograd.grad(loss(scores, positives, theta=theta), scores)[0] for theta in (paper, average)
        ]
        for loss in (powl, bowl)
    }
    torch.testing.assert_close(gradients["powl"][0], factor * gradients["powl"][1])
    torch.testing.assert_close(gradients["bowl"][0][:, 0], gradients["bowl"][1][:, 0])
    torch.testing.assert_close(gradients["bowl"][0][:, 1:], factor * gradients["bowl"][1][:, 1:])
