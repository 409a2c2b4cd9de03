"""The losses of Crammer and Singer, Weston and Watkins, Lee, Lin and Wahba as published, beside the paper's members."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from owlmine.losses import crammer_singer, lee_lin_wahba, powl, top_k_loss, weston_watkins
from owlmine.theory import calibration_at

NUM_CLASSES = 5
scores = st.lists(st.floats(-4, 4), min_size=NUM_CLASSES, max_size=NUM_CLASSES)
classes = st.integers(0, NUM_CLASSES - 1)


def rows(values) -> torch.Tensor:
    return torch.tensor([list(values)], dtype=torch.float64)


@settings(max_examples=60, deadline=None)
@given(scores, classes)
def test_crammer_singer_is_the_same(v, y):
    published = max(v[r] + (r != y) for r in range(NUM_CLASSES)) - v[y]
    assert crammer_singer()(rows(v), torch.tensor([y])).item() == pytest.approx(published)


@settings(max_examples=60, deadline=None)
@given(scores, classes)
def test_weston_watkins_has_margin_2_which_is_twice_the_loss_at_half_the_scores(v, y):
    published = sum(max(0.0, 2 + v[r] - v[y]) for r in range(NUM_CLASSES) if r != y)
    member = weston_watkins(NUM_CLASSES)(rows(score / 2 for score in v), torch.tensor([y])).item()
    assert 2 * member == pytest.approx(published)


@settings(max_examples=60, deadline=None)
@given(scores, classes)
def test_lee_lin_wahba_has_no_term_for_the_positive_and_another_margin(v, y):
    """Published: Σ_{j≠y} max(0, v_j + 1/(K - 1)) on scores that add up to 0."""
    centred = [score - sum(v) / NUM_CLASSES for score in v]
    others = NUM_CLASSES - 1
    published = sum(max(0.0, centred[r] + 1 / others) for r in range(NUM_CLASSES) if r != y)
    stretched = [others * score for score in centred]
    member = lee_lin_wahba(NUM_CLASSES)(rows(stretched), torch.tensor([y])).item()
    assert (member - max(0.0, 1 - stretched[y])) / others == pytest.approx(published, abs=1e-12)


def test_the_sum_to_zero_constraint_is_what_calibrates_lee_lin_wahba():
    """No class above one half: published, the most probable class alone stands out; as a BOWL all scores tie at -1."""
    alpha, num_classes = np.array([0.4, 0.35, 0.25]), 3
    # min Σ_i (1 - α_i) s_i with s_i >= v_i + 1/2, s_i >= 0, Σ v_i = 0
    answer = linprog(
        np.concatenate([np.zeros(num_classes), 1 - alpha]),
        A_ub=np.hstack([np.eye(num_classes), -np.eye(num_classes)]),
        b_ub=np.full(num_classes, -1 / 2),
        A_eq=np.concatenate([np.ones(num_classes), np.zeros(num_classes)])[None],
        b_eq=[0.0],
        bounds=[(None, None)] * num_classes + [(0, None)] * num_classes,
    )
    np.testing.assert_allclose(answer.x[:num_classes], [1, -0.5, -0.5], atol=1e-9)
    member = calibration_at(alpha, lee_lin_wahba(num_classes).theta, k=1, kind="bowl", phi="hinge")
    assert not member.calibrated
    np.testing.assert_allclose(member.scores, -1, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(scores, classes, st.integers(1, NUM_CLASSES - 1))
def test_the_top_k_hinge_is_the_average_of_hinges_and_not_the_hinge_of_the_average(v, y, k):
    """Lapin, Hein and Schiele name both, over all classes with 0 for the positive; the ordered loss is the larger."""
    hardest = sorted(((r != y) + v[r] - v[y] for r in range(NUM_CLASSES)), reverse=True)[:k]
    member = top_k_loss(k)(rows(v), torch.tensor([y])).item()
    assert member == pytest.approx(sum(max(0.0, short) for short in hardest) / k)
    assert member >= max(0.0, sum(hardest) / k) - 1e-12
    assert member == pytest.approx(powl(rows(v), torch.tensor([y]), theta=[1 / k] * k).item())
