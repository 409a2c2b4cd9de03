"""Solved problems: the solver is right, Theorem 4 holds, and calibration fails where it may."""

import numpy as np
import pytest
import torch

from owlmine.losses import every_class, ordered_loss, ordered_loss_reference, surrogate
from owlmine.theory import calibration_at, calibration_condition, expected_loss, is_bayes_compatible, theorem_4_applies
from owlmine.theory.excess_risk import SMOOTH

CONVEX = ["hinge", *SMOOTH]
KINDS = ["powl", "bowl"]


def draw_problem(generator):
    """A distribution over 3 to 6 classes and a theta as Theorem 4 wants it."""
    num_classes = int(generator.integers(3, 7))
    k = int(generator.integers(1, num_classes))
    alpha = generator.dirichlet(np.full(num_classes, generator.choice([0.5, 1.0, 4.0])))
    rest = np.sort(generator.random(num_classes - 1 - k))[::-1] / k
    return alpha, np.concatenate([np.full(k, 1 / k), rest]), k


@pytest.mark.parametrize("phi", SMOOTH)
def test_numpy_surrogates_are_those_of_the_losses(phi):
    margins = torch.linspace(-8, 8, 97, dtype=torch.float64, requires_grad=True)
    value = surrogate(phi)(margins)
    (slope,) = torch.autograd.grad(value.sum(), margins)
    values, slopes = SMOOTH[phi](margins.detach().numpy())
    np.testing.assert_allclose(values, value.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(slopes, slope.numpy(), rtol=1e-12)


def test_expected_loss_is_the_sum_over_positives():
    alpha, scores, theta = [0.5, 0.3, 0.2], [0.3, -0.1, 0.4], [1.0, 0.5]
    for kind in KINDS:
        rows = torch.tensor([scores] * 3, dtype=torch.float64)
        losses = ordered_loss_reference(
            rows, torch.arange(3), theta=theta, kind=kind, phi="logistic", reduction="none"
        ).tolist()
        expected = sum(p * loss for p, loss in zip(alpha, losses, strict=True))
        assert expected_loss(alpha, scores, theta, kind=kind) == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phi", CONVEX)
def test_the_minimum_is_one_and_the_gap_is_what_a_wrong_answer_costs(kind, phi):
    """Against thousands of other score vectors: all of them, and those not sure to retrieve the Bayes set."""
    generator = np.random.default_rng(5)
    for _ in range(3):
        alpha, theta, k = draw_problem(generator)
        # Away from 0, so that the minimiser is finite and near.
        alpha = (alpha + 0.05) / (alpha + 0.05).sum()
        told = calibration_at(alpha, theta, k=k, kind=kind, phi=phi)
        assert expected_loss(alpha, told.scores, theta, kind=kind, phi=phi) == pytest.approx(told.risk, abs=1e-9)
        sizes = 10.0 ** generator.uniform(-4, 0.5, size=(1500, 1))
        tried = told.scores + sizes * generator.standard_normal((1500, len(alpha)))
        # Half of them with two scores made equal across the border, where a wrong answer is cheapest.
        order = np.argsort(-alpha)
        tried[::2, order[k]] = tried[::2, order[k - 1]]
        rows, p = torch.from_numpy(tried), torch.from_numpy(alpha)
        risks = sum(p[y] * ordered_losses(rows, y, theta, kind, phi) for y in range(len(alpha)))
        assert float(risks.min()) >= told.risk - 1e-9
        wrong = ~is_bayes_compatible(rows, p.expand(len(rows), -1), k=k)
        assert float(risks[wrong].min()) >= told.risk + told.gap - 1e-9


def ordered_losses(rows, y, theta, kind, phi):
    positives = torch.full((len(rows),), y)
    return ordered_loss(rows, positives, theta=theta.tolist(), kind=kind, phi=phi, reduction="none")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phi", SMOOTH)
@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_theorem_4_where_the_condition_holds_the_minimiser_retrieves_the_bayes_set(kind, phi, scale):
    """Also for multiples of theta, to which the proof extends."""
    generator, checked = np.random.default_rng(11), 0
    while checked < 12:
        alpha, theta, k = draw_problem(generator)
        # A little slack: at a slack of 0 the gap is 0 too, and no solver could tell.
        if calibration_condition(alpha, theta, k=k).slack < 0.01:
            continue
        told = calibration_at(alpha, scale * theta, k=k, kind=kind, phi=phi)
        assert told.calibrated, (alpha, theta, k)
        scores, p = torch.from_numpy(told.scores[None]), torch.from_numpy(alpha[None])
        assert is_bayes_compatible(scores, p, k=k).item()
        checked += 1


@pytest.mark.parametrize("phi", SMOOTH)
def test_calibration_fails_for_the_hardest_negative_alone(phi):
    """θ = (1, 0, 0), no class above one half: every minimiser ties. Equal weights on all negatives mend it."""
    alpha = [0.4, 0.3, 0.2, 0.1]
    assert not calibration_condition(alpha, [1.0], k=1).holds
    told = calibration_at(alpha, [1.0], k=1, phi=phi)
    assert not told.calibrated
    assert np.ptp(told.scores) < 1e-6
    mended = calibration_at(alpha, every_class(4, k=1).theta, k=1, phi=phi)
    assert mended.calibrated
    assert mended.scores[0] > mended.scores[1:].max() + 1e-3


def test_classes_come_back_in_the_order_given():
    alpha = [0.1, 0.6, 0.05, 0.25]
    told = calibration_at(alpha, [1.0, 1.0, 1.0], k=1)
    assert np.argsort(-told.scores).tolist() == [1, 3, 0, 2]


def test_a_minimiser_at_infinity_stays_in_the_box():
    told = calibration_at([1.0, 0.0, 0.0], [1.0, 1.0], k=1, box=5.0)
    assert told.scores[0] - told.scores[1] == pytest.approx(5)
    assert told.calibrated


@pytest.mark.parametrize(
    ("alpha", "theta", "options", "message"),
    [
        ([0.5, 0.3, 0.2], [1.0, 1.0], {"phi": "ramp"}, "wanted a convex one"),
        ([0.5, 0.3, 0.2], [0.5, 1.0], {}, "weights that rise"),
        ([0.4, 0.4, 0.2], [1.0, 1.0], {}, r"D_\[1\] = D_\[2\]"),
        ([0.5, 0.3, 0.2], [1.0, 1.0], {"box": 0.0}, "box: given"),
        ([0.5, 0.3, 0.2], [1.0, 1.0], {"k": 3}, "k: given 3"),
    ],
)
def test_bad_input(alpha, theta, options, message):
    with pytest.raises(ValueError, match=message):
        calibration_at(alpha, theta, **({"k": 1} | options))


def test_the_theorem_does_not_promise_what_the_solver_denies():
    generator = np.random.default_rng(2)
    promised = 0
    for _ in range(60):
        alpha, theta, k = draw_problem(generator)
        if theorem_4_applies(alpha, theta, k=k, kind="bowl", phi="squared_hinge"):
            promised += 1
            assert calibration_at(alpha, theta, k=k, kind="bowl", phi="squared_hinge").calibrated
    assert promised >= 5
