"""Semi-hard mining: which negative it takes, and what it does where there is none."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import semi_hard_loss, semi_hard_loss_reference


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    margin=st.sampled_from([0.0, 0.2, 1.5]),
    scale=st.sampled_from([1.0, 3.0]),
    masked=st.sampled_from([0.0, 0.4, 1.0]),
    ties=st.booleans(),
)
def test_by_loop(seed, margin, scale, masked, ties):
    generator = torch.Generator().manual_seed(seed)
    positive = torch.randn(4, generator=generator, dtype=torch.float64)
    pool = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    mask = torch.rand(4, 5, generator=generator) < masked
    if ties:
        positive, pool = positive.round(), pool.round()
    expected = 0.0
    for n, own in enumerate(positive.tolist()):
        negatives = [v for v, hide in zip(pool[n].tolist(), mask[n].tolist(), strict=True) if not hide]
        below = [v for v in negatives if v < own]
        if negatives:
            chosen = max(below) if below else min(negatives)
            expected += max(0.0, margin - scale * (own - chosen)) / 4
    options = {"margin": margin, "scale": scale}
    positive.requires_grad_(), pool.requires_grad_()
    fast, plain = (f(positive, pool, mask, **options) for f in (semi_hard_loss, semi_hard_loss_reference))
    assert fast.item() == pytest.approx(expected, rel=1e-12, abs=1e-14)
    assert plain.item() == pytest.approx(expected, rel=1e-12, abs=1e-14)
    if not ties and masked == 0:
        for first, second in zip(
            torch.autograd.grad(fast, (positive, pool)), torch.autograd.grad(plain, (positive, pool)), strict=True
        ):
            torch.testing.assert_close(first, second)


def chosen(positive, pool, mask=None):
    pool = torch.tensor([pool], requires_grad=True)
    loss = semi_hard_loss(torch.tensor([positive]), pool, mask, margin=5.0)
    return torch.autograd.grad(loss, pool)[0][0].tolist()


def test_the_hardest_below_the_positive_is_taken():
    assert chosen(1.0, [2.0, 0.9, 0.5, 1.0]) == [0, 1, 0, 0]


def test_where_none_is_below_the_easiest_is_taken():
    assert chosen(1.0, [2.0, 1.0, 3.0]) == [0, 1, 0]
    assert chosen(1.0, [2.0, 1.5, 1.2], torch.tensor([[False, False, True]])) == [0, 1, 0]


def test_where_there_are_none_the_loss_is_zero():
    mask = torch.tensor([[True, True]])
    assert chosen(1.0, [0.5, 2.0], mask) == [0, 0]


def test_beyond_the_margin_nothing_is_left():
    assert semi_hard_loss(torch.tensor([1.0]), torch.tensor([[0.7, 2.0]]), margin=0.2) == 0


def test_passing_a_harder_negative_raises_the_loss():
    pool = torch.tensor([[0.6, 0.1]])
    assert semi_hard_loss(torch.tensor([0.5]), pool) == 0
    assert semi_hard_loss(torch.tensor([0.61]), pool).item() == pytest.approx(0.19, abs=1e-6)


@pytest.mark.parametrize("margin", [-0.1, float("nan"), float("inf")])
def test_a_bad_margin_is_refused(margin):
    with pytest.raises(ValueError, match="margin: given"):
        semi_hard_loss(torch.zeros(1), torch.zeros(1, 1), margin=margin)
