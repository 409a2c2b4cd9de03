"""Theorem 4's condition against a loop over m, and what follows from it."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from owlmine.losses import every_class, theta_from_vartheta, top_k
from owlmine.theory import calibration_condition, theorem_4_applies


@st.composite
def problems(draw):
    num_classes = draw(st.integers(2, 9))
    k = draw(st.integers(1, num_classes - 1))
    counts = draw(st.lists(st.integers(0, 20), min_size=num_classes, max_size=num_classes).filter(any))
    rest = draw(st.lists(st.integers(0, 8), min_size=num_classes - 1 - k, max_size=num_classes - 1 - k))
    theta = [1 / k] * k + sorted((step / 8 / k for step in rest), reverse=True)
    return [count / sum(counts) for count in counts], theta, k


@settings(max_examples=150, deadline=None)
@given(problems(), st.sampled_from([1.0, 0.01, 7.0]))
def test_against_a_loop_over_m(problem, scale):
    alpha, theta, k = problem
    num_classes, ranked = len(alpha), sorted(alpha, reverse=True)
    slacks = {}
    for m in range(k + 1, num_classes + 1):
        # Counted from 1: k+1 .. m, and k .. K-1 at m = K.
        first, last = (k + 1, m) if m < num_classes else (k, num_classes - 1)
        weight = k * math.fsum(theta[first - 1 : last])
        mass = math.fsum(ranked[k:m])
        slacks[m] = ranked[k - 1] - (0.0 if mass == 0 else math.inf if weight == 0 else mass / weight)
    told = calibration_condition(alpha, [scale * weight for weight in theta], k=k)
    worst = min(slacks.values())
    assert told.slack == (worst if worst == -math.inf else pytest.approx(worst, abs=1e-12))
    assert slacks[told.worst_m] == pytest.approx(worst, abs=1e-12) or worst == -math.inf == slacks[told.worst_m]
    assume(abs(worst) > 1e-12)
    assert told.holds is (worst > 0)


@settings(max_examples=80, deadline=None)
@given(problems())
def test_equal_weights_for_all_negatives_ask_for_a_unique_bayes_set_and_no_more(problem):
    alpha, _, k = problem
    ranked = sorted(alpha, reverse=True)
    theta = every_class(len(alpha), k=k).theta
    assume(ranked[k - 1] == ranked[k] or ranked[k - 1] > ranked[k] + 1e-9)
    slack = calibration_condition(alpha, theta, k=k).slack
    assert slack > 1e-10 if ranked[k - 1] > ranked[k] else slack <= 1e-12


def test_at_most_m_relevant_classes():
    """The paper's example: 1/k up to rank M, 0 after, where no more than M classes are relevant; M = k included."""
    alpha = [0.45, 0.25, 0.2, 0.1, 0, 0, 0]
    assert calibration_condition(alpha, [0.5] * 4, k=2).holds
    told = calibration_condition(alpha, [0.5] * 3, k=2)
    assert not told.holds
    assert told.slack == pytest.approx(0.25 - 0.3)
    assert told.worst_m == 4
    assert calibration_condition([0.6, 0.4, 0, 0], [0.5] * 2, k=2).holds


def test_what_the_theorem_asks_besides():
    alpha, theta = [0.6, 0.2, 0.1, 0.1], [1.0, 1.0, 0.5]
    assert theorem_4_applies(alpha, theta, k=1, kind="powl", phi="logistic")
    assert theorem_4_applies(alpha, theta, k=1, kind="bowl", phi="logistic")
    assert not theorem_4_applies(alpha, theta, k=1, kind="powl", phi="hinge")
    assert theorem_4_applies(alpha, [1.0, 1.0, 0.0], k=1, kind="powl")
    assert not theorem_4_applies(alpha, [1.0, 1.0, 0.0], k=1, kind="bowl")


def test_theta_of_a_pool_is_taken_as_it_comes():
    for convention in ({}, {"convention": "paper", "num_classes": 50}):
        theta = theta_from_vartheta(top_k(3, pool_size=20, **convention), num_classes=50)
        alpha = [0.4, 0.3, 0.2, 0.1] + [0.0] * 46
        told = calibration_condition(alpha, theta, k=3)
        assert told.holds
        assert told.slack == pytest.approx(0.2 - 0.1 * float(theta[0] / theta[3]))


@pytest.mark.parametrize(
    ("alpha", "theta", "k", "message"),
    [
        ([0.5, 0.5], [1.0], 2, "k: given 2 of 2"),
        ([0.5, 0.6], [1.0], 1, "sum of 1.1"),
        ([1.0], [], 1, "at least 2"),
        ([0.5, 0.3, 0.2], [1.0, 0.5], 2, "first 2 from 0.5 to 1"),
        ([0.5, 0.3, 0.2], [0.5, 0.6], 1, "rest up to 0.6"),
        ([0.5, 0.3, 0.2], [0.0, 0.0], 1, "wanted one positive weight"),
        ([0.5, 0.3, 0.2], [1.0] * 3, 1, "at most 2"),
    ],
)
def test_bad_input(alpha, theta, k, message):
    with pytest.raises(ValueError, match=message):
        calibration_condition(alpha, theta, k=k)
