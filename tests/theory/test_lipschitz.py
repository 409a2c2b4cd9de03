"""Lemma 7 on random pairs of score vectors, and how close a pair can come."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import Ramp, ordered_loss, surrogate_names
from owlmine.theory import lipschitz_constants

NUM_CLASSES, BOUND = 5, 3.0
KINDS = st.sampled_from(["powl", "bowl"])
vectors = st.lists(st.floats(-BOUND, BOUND), min_size=NUM_CLASSES, max_size=NUM_CLASSES).map(
    lambda values: torch.tensor([values], dtype=torch.float64)
)
thetas = st.lists(st.floats(0.01, 2), min_size=NUM_CLASSES - 1, max_size=NUM_CLASSES - 1)


@settings(max_examples=150, deadline=None)
@given(
    vectors,
    vectors,
    st.integers(0, NUM_CLASSES - 1),
    thetas,
    KINDS,
    st.sampled_from([*surrogate_names(), Ramp(0.3)]),
    st.sampled_from([1.0, 0.01]),
)
def test_no_pair_changes_faster(u, v, y, theta, kind, phi, share):
    u = v + share * (u - v)
    constants = lipschitz_constants(theta, kind=kind, phi=phi, score_bound=BOUND)
    change = abs(loss_of(v, y, theta, kind, phi) - loss_of(u, y, theta, kind, phi))
    moved = (v - u)[0]
    by_l2 = constants.scores_l2 * float(moved.norm()) + constants.positive * float(moved[y].abs())
    slack = 1e-9
    assert change <= by_l2 * (1 + slack) + slack
    assert change <= constants.scores_linf * float(moved.abs().max()) * (1 + slack) + slack


@pytest.mark.parametrize("kind", ["powl", "bowl"])
def test_the_constants_for_the_largest_change_are_reached(kind):
    """Hinge, where it slopes: the positive down and all others up by the same step."""
    theta, v = [1.0, 0.5, 0.25], torch.zeros(1, 4, dtype=torch.float64)
    step = torch.tensor([[-0.1, 0.1, 0.1, 0.1]], dtype=torch.float64)
    change = loss_of(v + step, 0, theta, kind, "hinge") - loss_of(v, 0, theta, kind, "hinge")
    assert change == pytest.approx(0.1 * lipschitz_constants(theta, kind=kind).scores_linf)


@pytest.mark.parametrize(("kind", "reach"), [("powl", 2.0), ("bowl", 1.0)])
def test_the_interval_is_as_wide_as_the_margins_and_no_wider(kind, reach):
    """Squared hinge, scores at the ends of [-1, 1]: steepest where the margin is lowest."""
    v, step = torch.tensor([[-1.0, 1.0]], dtype=torch.float64), 1e-6
    u = v + step * torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    change = loss_of(v, 0, [1.0], kind, "squared_hinge") - loss_of(u, 0, [1.0], kind, "squared_hinge")
    constants = lipschitz_constants([1.0], kind=kind, phi="squared_hinge", score_bound=1.0)
    assert change / step == pytest.approx(constants.scores_linf, rel=1e-5)
    assert constants.scores_linf == pytest.approx(2 * 2 * (1 + reach))


def test_only_scores_with_a_bound_tame_the_steep_ones():
    for phi in ("squared_hinge", "exponential"):
        assert lipschitz_constants([1.0], kind="powl", phi=phi).scores_l2 == math.inf
        assert lipschitz_constants([1.0], kind="powl", phi=phi, score_bound=1.0).scores_l2 < math.inf
    assert lipschitz_constants([1.0], kind="powl", phi="logistic").positive == pytest.approx(1 / math.log(2))


def test_bad_input():
    with pytest.raises(ValueError, match="score_bound: given 0"):
        lipschitz_constants([1.0], kind="powl", score_bound=0)


def loss_of(scores, y, theta, kind, phi) -> float:
    return float(ordered_loss(scores, torch.tensor([y]), theta=theta, kind=kind, phi=phi))
