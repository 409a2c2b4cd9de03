"""POWL and BOWL on full score vectors: a loop over Python floats, the reference, the fast version, gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from owlmine.losses import (
    Ramp,
    at_most_relevant,
    bowl,
    crammer_singer,
    every_class,
    is_non_increasing,
    lee_lin_wahba,
    ordered_loss,
    ordered_loss_reference,
    powl,
    surrogate,
    surrogate_names,
    top_k_loss,
    weston_watkins,
)

KINDS = ["powl", "bowl"]
PHIS = [*surrogate_names(), Ramp(0.5)]


def phi_of(phi, u: float) -> float:
    return float(surrogate(phi)(torch.tensor(u, dtype=torch.float64)))


def by_loop(scores_NK: Tensor, positives: list[int], theta: list[float], kind: str, phi, scale: float) -> float:
    total = 0.0
    for row, y in zip(scores_NK.tolist(), positives, strict=True):
        others = sorted((v for c, v in enumerate(row) if c != y), reverse=True)
        own = phi_of(phi, scale * row[y]) if kind == "bowl" else 0.0
        margins = [row[y] - v if kind == "powl" else -v for v in others]
        pairs = zip(theta, margins, strict=False)
        total += own + sum(weight * phi_of(phi, scale * margin) for weight, margin in pairs)
    return total / len(positives)


@st.composite
def problems(draw):
    num_points, num_classes = draw(st.integers(1, 4)), draw(st.integers(2, 24))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    scores = torch.randn(num_points, num_classes, generator=generator, dtype=torch.float64) * 2
    if draw(st.booleans()):
        scores = scores.round()
    positives = torch.randint(num_classes, (num_points,), generator=generator)
    length = draw(st.integers(1, num_classes - 1))
    weights = st.sampled_from([0.0, 0.0, 0.25, 1.0, 1.0, 3.0])
    theta = draw(st.lists(weights, min_size=length, max_size=length))
    if draw(st.booleans()):
        theta = sorted(theta, reverse=True)
    return scores, positives, theta


@settings(max_examples=80, deadline=None)
@given(
    problem=problems(),
    kind=st.sampled_from(KINDS),
    phi=st.sampled_from(PHIS),
    scale=st.sampled_from([1.0, 0.3, 4.0]),
)
def test_loop_reference_and_fast_version_agree(problem, kind, phi, scale):
    scores, positives, theta = problem
    options = {"theta": theta, "kind": kind, "phi": phi, "scale": scale}
    expected = by_loop(scores, positives.tolist(), theta, kind, phi, scale)
    assert float(ordered_loss_reference(scores, positives, **options)) == pytest.approx(expected, rel=1e-12)
    assert float(ordered_loss(scores, positives, **options)) == pytest.approx(expected, rel=1e-12)
    named = powl if kind == "powl" else bowl
    assert torch.equal(
        named(scores, positives, theta=theta, phi=phi, scale=scale), ordered_loss(scores, positives, **options)
    )


@settings(max_examples=40, deadline=None)
@given(problem=problems(), kind=st.sampled_from(KINDS), phi=st.sampled_from(PHIS))
def test_gradients_of_reference_and_fast_version_agree_also_with_ties(problem, kind, phi):
    scores, positives, theta = problem
    gradients = []
    for loss in (ordered_loss, ordered_loss_reference):
        leaf = scores.clone().requires_grad_()
        loss(leaf, positives, theta=theta, kind=kind, phi=phi).backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phi", surrogate_names())
@pytest.mark.parametrize(
    "theta",
    [[0.5, 0.25, 0.25], [1.0] * 6, [2.0, 1.5, 1, 1, 1, 1], [0.0, 0, 1]],
    ids=["prefix", "all", "tail", "third"],
)
def test_gradcheck(kind, phi, theta):
    # No two scores or margins near each other, none near a kink of phi.
    scores = torch.tensor(
        [[0.31, -0.83, 0.07, 1.43, -0.29, 0.66, -1.37], [-1.73, 0.42, 0.93, -0.36, 0.18, -0.57, 1.61]],
        dtype=torch.float64,
        requires_grad=True,
    )
    scale = torch.tensor(1.13, dtype=torch.float64, requires_grad=True)
    positives = torch.tensor([2, 5])

    def loss(scores, scale):
        return ordered_loss(scores, positives, theta=theta, kind=kind, phi=phi, scale=scale, reduction="none")

    assert torch.autograd.gradcheck(loss, (scores, scale))


def test_theta_can_be_learned():
    scores = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    theta = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: powl(scores, torch.tensor([0, 1, 2]), theta=t), theta)


def test_ties_go_to_the_smaller_class_id():
    scores = torch.zeros(1, 20, dtype=torch.float64, requires_grad=True)
    powl(scores, torch.tensor([0]), theta=[0.75, 0.25]).backward()
    expected = torch.zeros(20, dtype=torch.float64)
    expected[:3] = torch.tensor([-1.0, 0.75, 0.25])
    assert torch.equal(scores.grad[0], expected)


def test_reductions():
    scores = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    positives = torch.tensor([0, 5, 2, 3])
    each = bowl(scores, positives, theta=[1.0, 0.5], reduction="none")
    assert each.shape == (4,)
    torch.testing.assert_close(bowl(scores, positives, theta=[1.0, 0.5], reduction="sum"), each.sum())
    torch.testing.assert_close(bowl(scores, positives, theta=[1.0, 0.5]), each.mean())


def test_two_classes():
    scores = torch.tensor([[0.25, 0.5]], dtype=torch.float64)
    assert powl(scores, torch.tensor([0]), theta=[2.0]).item() == pytest.approx(2 * 1.25)
    assert bowl(scores, torch.tensor([1]), theta=[2.0]).item() == pytest.approx(0.5 + 2 * 1.25)


def test_a_weight_of_zero_does_not_come_from_a_difference():
    # exp(40) subtracted from a sum that holds it would leave nothing of the small terms.
    scores = torch.tensor([[0.0, 40.0, -1.0, -2.0]], dtype=torch.float64)
    value = powl(scores, torch.tensor([0]), theta=[0.0, 1.0, 1.0], phi="exponential")
    assert value.item() == pytest.approx(math.exp(-1) + math.exp(-2), rel=1e-14)


def test_overflow_of_one_term_does_not_poison_a_gradient_elsewhere():
    # The positive's own column is hidden, not multiplied by 0.
    scores = torch.tensor([[-500.0, 3.0, 1.0]], requires_grad=True)
    bowl(scores, torch.tensor([0]), theta=[1.0, 1.0], phi="logistic").backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize(
    ("theta", "answer"),
    [([1.0], True), ([1, 1, 0], True), ([1, 0.5, 0.6], False), ([], True), (torch.tensor([2.0, 1.0]), True)],
)
def test_is_non_increasing(theta, answer):
    assert is_non_increasing(theta) is answer


class TestMembers:
    """Each against the formula of the loss it is named after, with the hinge."""

    scores = torch.randn(5, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    positives = torch.tensor([0, 8, 4, 2, 7])

    def rows(self):
        for row, y in zip(self.scores.tolist(), self.positives.tolist(), strict=True):
            yield row[y], [v for c, v in enumerate(row) if c != y]

    def check(self, member, kind, by_row):
        assert member.kind == kind
        expected = [by_row(own, others) for own, others in self.rows()]
        given = member(self.scores, self.positives, reduction="none")
        torch.testing.assert_close(given, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)

    def test_crammer_singer_is_one_plus_the_best_rival_minus_own(self):
        self.check(crammer_singer(), "powl", lambda own, others: max(0.0, 1 + max(others) - own))

    def test_weston_watkins_sums_over_rivals(self):
        self.check(weston_watkins(9), "powl", lambda own, others: sum(max(0.0, 1 + v - own) for v in others))

    def test_lee_lin_wahba_is_binary(self):
        def loss(own, others):
            return max(0.0, 1 - own) + sum(max(0.0, 1 + v) for v in others)

        self.check(lee_lin_wahba(9), "bowl", loss)

    def test_top_k_averages_the_hardest(self):
        def loss(own, others):
            return sum(max(0.0, 1 + v - own) for v in sorted(others)[-3:]) / 3

        self.check(top_k_loss(3), "powl", loss)

    def test_every_class_divides_by_k(self):
        def loss(own, others):
            return max(0.0, 1 - own) + sum(max(0.0, 1 + v) for v in others) / 3

        self.check(every_class(9, k=3, kind="bowl"), "bowl", loss)

    def test_at_most_relevant_stops_after_that_many(self):
        def loss(own, others):
            return sum(max(0.0, 1 + v - own) for v in sorted(others)[-5:]) / 3

        self.check(at_most_relevant(5, k=3), "powl", loss)

    def test_all_are_convex_members(self):
        for member in (crammer_singer(), weston_watkins(9), lee_lin_wahba(9), top_k_loss(2), every_class(9, k=2)):
            assert is_non_increasing(member.theta)

    def test_bad_sizes(self):
        with pytest.raises(ValueError, match="given k = 4 of 3"):
            at_most_relevant(3, k=4)
        with pytest.raises(ValueError, match="wanted at least 2"):
            weston_watkins(1)
