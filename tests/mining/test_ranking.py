"""The fast selection against a stable sort, on scores full of ties."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.mining import hardest_classes as ranking
from owlmine.mining.hardest_classes import highest, highest_reference

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@settings(max_examples=80, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), may_branch=st.booleans())
def test_equal_to_the_reference_with_ties(data, dtype, may_branch):
    rows, width = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 40))
    count = data.draw(st.integers(0, width))
    levels = data.draw(st.integers(1, 40))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6)))
    scores_NB = torch.randint(-levels, levels, (rows, width), generator=generator).to(dtype)
    with pytest.MonkeyPatch.context() as patch:
        # A GPU may not branch on values: the same path must hold here.
        patch.setattr(ranking, "may_look", lambda *_: may_branch)
        assert torch.equal(highest(scores_NB, count), highest_reference(scores_NB, count))


def test_minus_infinity_ranks_last_and_in_order():
    scores_NB = torch.full((1, 9), -torch.inf)
    scores_NB[0, 5] = 1.0
    assert highest(scores_NB, 3).tolist() == [[5, 0, 1]]


def test_nan_is_not_hidden_by_the_tie_rule(monkeypatch):
    monkeypatch.setattr(ranking, "may_look", lambda *_: False)
    for values in ([0.0, 0.0, torch.nan, 0, 0, 0, 0, 0], [torch.nan] * 3 + [1.0] * 5):
        scores_NB = torch.tensor([values])
        kept = scores_NB.gather(1, highest(scores_NB, 2))
        assert kept.isnan().any()
