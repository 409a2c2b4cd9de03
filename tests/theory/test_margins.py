"""Margins against sorted lists, ties as the paper's footnote wants them, and the ramp between two indicators."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import Ramp, powl
from owlmine.theory import margin_risk, margins, ramp_risk


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_against_a_sorted_list_and_the_footnote(data):
    num_classes = data.draw(st.integers(2, 7))
    k = data.draw(st.integers(1, num_classes - 1))
    scores = data.draw(st.lists(st.integers(-3, 3).map(float), min_size=num_classes, max_size=num_classes))
    y = data.draw(st.integers(0, num_classes - 1))
    others = sorted((score for i, score in enumerate(scores) if i != y), reverse=True)
    margin = margins(torch.tensor([scores]), torch.tensor([y]), k=k).item()
    assert margin == scores[y] - others[k - 1]
    # Retrieved: among the k highest without doubt. A tie that the k-th place cuts through leaves all of it out.
    ranked = sorted(scores, reverse=True)
    cut = ranked[k - 1] == ranked[k]
    assert (margin > 0) is (scores[y] > ranked[k - 1] if cut else scores[y] >= ranked[k - 1])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=1, max_size=20), st.sampled_from([0.1, 0.5, 1.0]))
def test_the_ramp_lies_between_the_indicators(values, rho):
    ramp = Ramp(rho)
    for u in [*values, 0.0, rho]:
        value = ramp(torch.tensor(u, dtype=torch.float64)).item()
        assert (u <= 0) <= value <= (u <= rho) + 1e-15
    rows = torch.tensor(values, dtype=torch.float64)
    assert margin_risk(rows) <= ramp_risk(rows, rho=rho) + 1e-12
    assert ramp_risk(rows, rho=rho) <= margin_risk(rows, rho=rho) + 1e-12


def test_the_ramp_risk_is_the_ordered_loss_of_theorem_6():
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    positives = torch.randint(6, (40,), generator=generator)
    for k in (1, 2, 5):
        loss = powl(scores, positives, theta=[0.0] * (k - 1) + [1.0], phi=Ramp(0.7)).item()
        assert ramp_risk(margins(scores, positives, k=k), rho=0.7) == pytest.approx(loss)


def test_margin_risk_counts():
    rows = torch.tensor([-1.0, 0.0, 0.5, 1.0])
    assert [margin_risk(rows, rho=rho) for rho in (0.0, 0.5, 0.7, 1.0)] == [0.5, 0.75, 0.75, 1.0]


def test_bad_input():
    scores, positives = torch.zeros(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="k: given 3 of 3"):
        margins(scores, positives, k=3)
    with pytest.raises(ValueError, match="positives: given class ids"):
        margins(scores, torch.tensor([0, 3]), k=1)
    with pytest.raises(ValueError, match="rho: given -1"):
        margin_risk(torch.zeros(2), rho=-1)
    with pytest.raises(ValueError, match=r"margins: given shape \(0,\)"):
        margin_risk(torch.zeros(0))
    with pytest.raises(ValueError, match="NaN"):
        ramp_risk(torch.tensor([float("nan")]), rho=1.0)
