"""Lemma 1 against every set of k classes, and compatibility against every way to break ties."""

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.theory import bayes_risk, bayes_top_k, is_bayes_compatible, retrieval_risk


@st.composite
def distributions(draw):
    """Counts over their sum, with ties; few classes."""
    num_classes = draw(st.integers(2, 6))
    counts = draw(st.lists(st.integers(0, 5), min_size=num_classes, max_size=num_classes).filter(any))
    return torch.tensor([counts], dtype=torch.float64) / sum(counts)


@settings(max_examples=60, deadline=None)
@given(distributions(), st.data())
def test_no_set_of_k_classes_beats_the_bayes_set(alpha, data):
    num_classes = alpha.shape[1]
    k = data.draw(st.integers(1, num_classes - 1))
    risks = [1 - sum(float(alpha[0, i]) for i in chosen) for chosen in combinations(range(num_classes), k)]
    assert bayes_risk(alpha, k=k).item() == pytest.approx(min(risks), abs=1e-12)
    assert retrieval_risk(alpha, bayes_top_k(alpha, k=k)).item() == pytest.approx(min(risks), abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(distributions(), st.data())
def test_compatible_means_every_tie_break_retrieves_a_best_set(alpha, data):
    num_classes = alpha.shape[1]
    k = data.draw(st.integers(1, num_classes - 1))
    scores = data.draw(st.lists(st.integers(0, 3), min_size=num_classes, max_size=num_classes))
    best = bayes_risk(alpha, k=k).item()
    # A set is a possible Top_k when nothing left out scores above something in it.
    possible = [
        chosen
        for chosen in combinations(range(num_classes), k)
        if min(scores[i] for i in chosen) >= max(scores[i] for i in range(num_classes) if i not in chosen)
    ]
    risks = [1 - sum(float(alpha[0, i]) for i in chosen) for chosen in possible]
    expected = all(risk == pytest.approx(best, abs=1e-9) for risk in risks)
    assert is_bayes_compatible(torch.tensor([scores], dtype=torch.float64), alpha, k=k).item() is expected


def test_a_small_risk_keeps_its_digits():
    alpha = torch.tensor([[1 - 1e-15, 1e-15, 0.0]], dtype=torch.float64)
    assert bayes_risk(alpha, k=1).item() == 1e-15


def test_rows_are_judged_apart():
    alpha = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    assert bayes_top_k(alpha, k=1).tolist() == [[0], [2]]
    assert is_bayes_compatible(torch.tensor([[3.0, 2, 1], [3.0, 2, 1]]), alpha, k=1).tolist() == [True, False]


@pytest.mark.parametrize(
    ("alpha", "k", "message"),
    [
        (torch.tensor([0.5, 0.5]), 1, "one row per query"),
        (torch.tensor([[1, 0]]), 1, "wanted floats"),
        (torch.tensor([[0.7, 0.7]]), 1, r"adds up to 1\.4"),
        (torch.tensor([[1.5, -0.5]]), 1, "negative"),
        (torch.tensor([[0.5, 0.5]]), 2, "wanted 1 to 1"),
        (torch.tensor([[0.5, 0.5]]), 0, "given 0 of 2"),
    ],
)
def test_bad_input(alpha, k, message):
    with pytest.raises(ValueError, match=message):
        bayes_risk(alpha, k=k)


def test_bad_scores_and_ids():
    alpha = torch.tensor([[0.5, 0.5]])
    with pytest.raises(ValueError, match=r"scores: given shape \(1, 3\)"):
        is_bayes_compatible(torch.zeros(1, 3), alpha, k=1)
    with pytest.raises(ValueError, match="retrieved"):
        retrieval_risk(alpha, torch.tensor([[2]]))
