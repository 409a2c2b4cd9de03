"""Full and sampled softmax: loops over Python floats, references, gradients, and Q against its definition."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import (
    sampled_softmax_loss,
    sampled_softmax_loss_reference,
    softmax_loss,
    softmax_loss_reference,
    uniform_log_q,
)
from owlmine.mining import draw_batch_pool


def scores_of(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def all_pools(num_classes, positive, pool_size):
    others = [c for c in range(num_classes) if c != positive]
    return torch.tensor(list(itertools.combinations(others, pool_size)))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), num_classes=st.integers(2, 9), scale=st.sampled_from([1.0, 0.2, 6.0]))
def test_full_softmax_by_loop(seed, num_classes, scale):
    scores = scores_of(seed, 3, num_classes).requires_grad_()
    positives = torch.randint(num_classes, (3,), generator=torch.Generator().manual_seed(seed))
    expected = 0.0
    for row, y in zip(scores.tolist(), positives.tolist(), strict=True):
        expected -= math.log(math.exp(scale * row[y]) / sum(math.exp(scale * v) for v in row)) / 3
    fast = softmax_loss(scores, positives, scale=scale)
    plain = softmax_loss_reference(scores, positives, scale=scale)
    assert fast.item() == pytest.approx(expected, rel=1e-12)
    assert plain.item() == pytest.approx(expected, rel=1e-12)
    gradients = [torch.autograd.grad(value, scores)[0] for value in (fast, plain)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(fast, torch.nn.functional.cross_entropy(scale * scores, positives))


def test_a_tiny_loss_keeps_its_digits_and_large_scores_do_not_overflow():
    scores = torch.tensor([[60.0, 0.0, 0.0], [3e4, 0.0, 3e4]])
    loss = softmax_loss(scores, torch.tensor([0, 0]), reduction="none")
    assert loss[0].item() == pytest.approx(2 * math.exp(-60), rel=1e-5)
    assert loss[1].item() == pytest.approx(math.log(2), rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1.0, 0.3, 4.0]),
    masked=st.sampled_from([0.0, 0.4]),
    per_entry=st.booleans(),
)
def test_sampled_softmax_by_loop(seed, scale, masked, per_entry):
    positive, pool = scores_of(seed, 3).requires_grad_(), scores_of(seed + 1, 3, 5).requires_grad_()
    mask = torch.rand(3, 5, generator=torch.Generator().manual_seed(seed)) < masked
    log_q = scores_of(seed + 2, 3, 5) - 2 if per_entry else -1.7
    q = torch.as_tensor(log_q, dtype=torch.float64).expand(3, 5).exp().tolist()
    expected = 0.0
    for n in range(3):
        own = math.exp(scale * positive[n].item())
        rest = sum(math.exp(scale * pool[n, b].item()) / q[n][b] for b in range(5) if not mask[n, b])
        expected -= math.log(own / (own + rest)) / 3
    options = {"log_q": log_q, "scale": scale}
    fast, plain = (f(positive, pool, mask, **options) for f in (sampled_softmax_loss, sampled_softmax_loss_reference))
    assert fast.item() == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert plain.item() == pytest.approx(expected, rel=1e-12, abs=1e-15)
    for first, second in zip(
        torch.autograd.grad(fast, (positive, pool)), torch.autograd.grad(plain, (positive, pool)), strict=True
    ):
        torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("pool_size", [1, 3, 5, 6])
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_the_mean_partition_over_all_pools_is_the_full_one(pool_size, scale):
    """The definition of the correction, by enumeration. The other sign fails."""
    num_classes, y = 7, 2
    scores = scores_of(3, num_classes)
    pools = all_pools(num_classes, y, pool_size)
    own, full = scores[y].expand(len(pools)), torch.exp(scale * scores).sum()
    log_q = uniform_log_q(num_classes=num_classes, pool_size=pool_size)

    def mean_partition(log_q):
        loss = sampled_softmax_loss(own, scores[pools], log_q=log_q, scale=scale, reduction="none")
        return torch.exp(loss + scale * scores[y]).mean()

    torch.testing.assert_close(mean_partition(log_q), full, rtol=1e-12, atol=0)
    if pool_size < num_classes - 1:
        assert mean_partition(-log_q) < 0.9 * full
        # Jensen: the loss itself is below the full one on average.
        loss = sampled_softmax_loss(own, scores[pools], log_q=log_q, scale=scale)
        assert loss < softmax_loss(scores[None], torch.tensor([y]), scale=scale)


def test_other_ways_to_draw_bring_their_own_q():
    """Two draws with replacement from p over the negatives: class j is expected 2 p_j times."""
    scores, p = scores_of(4, 5), torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    draws = torch.tensor(list(itertools.product(range(4), repeat=2)))
    chance = p[draws].prod(dim=1)
    pools = scores[1:][draws]
    loss = sampled_softmax_loss(
        scores[0].expand(len(draws)), pools, log_q=torch.log(2 * p[draws]), scale=1.5, reduction="none"
    )
    mean = (chance * torch.exp(loss + 1.5 * scores[0])).sum()
    torch.testing.assert_close(mean, torch.exp(1.5 * scores).sum(), rtol=1e-12, atol=0)
    one_row = torch.log(2 * p)
    torch.testing.assert_close(
        sampled_softmax_loss(scores[:1], scores[None, 1:], log_q=one_row),
        sampled_softmax_loss(scores[:1], scores[None, 1:], log_q=one_row[None]),
    )


def test_a_pool_of_every_class_is_the_full_softmax():
    scores, positives = scores_of(5, 4, 9), torch.tensor([0, 8, 3, 3])
    pool = draw_batch_pool(positives, num_classes=9, pool_size=8, generator=torch.Generator().manual_seed(0))
    log_q = uniform_log_q(num_classes=9, pool_size=pool.pool_size)
    assert log_q == 0
    own = scores.gather(1, positives[:, None])[:, 0]
    sampled = sampled_softmax_loss(own, scores[:, pool.shared_ids], pool.mask(), log_q=log_q, scale=2.0)
    torch.testing.assert_close(sampled, softmax_loss(scores, positives, scale=2.0))


@pytest.mark.parametrize(("corrected", "pool_size"), [(False, 1), (False, 2), (False, 4), (True, 2), (True, 5)])
def test_uncorrected_uniform_pools_are_best_at_the_true_probabilities(corrected, pool_size):
    """Given the classes shown, y has chance D(y) / Σ D. With the correction that holds for the full pool only."""
    chances = torch.tensor([0.35, 0.25, 0.2, 0.1, 0.07, 0.03], dtype=torch.float64)
    scores = chances.log().requires_grad_()
    log_q = uniform_log_q(num_classes=6, pool_size=pool_size) if corrected else 0.0
    expected = sum(
        chances[y] * sampled_softmax_loss(scores[y].expand(len(pools)), scores[pools], log_q=log_q)
        for y in range(6)
        for pools in [all_pools(6, y, pool_size)]
    )
    (gradient,) = torch.autograd.grad(expected, scores)
    if corrected and pool_size < 5:
        assert gradient.abs().max() > 1e-2
    else:
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: uniform_log_q(num_classes=5, pool_size=5), "pool_size: given 5; wanted 1 to 4"),
        (lambda: uniform_log_q(num_classes=5, pool_size=0), "pool_size: given 0"),
        (lambda: softmax_loss(torch.zeros(2, 1), torch.tensor([0, 0])), r"given 1 class\(es\); wanted at least 2"),
        (lambda: sampled_softmax_loss(torch.zeros(2), torch.zeros(2, 3), log_q=math.inf), "log_q: given inf"),
        (lambda: sampled_softmax_loss(torch.zeros(2), torch.zeros(2, 3), log_q=math.nan), "log_q: given nan"),
        (
            lambda: sampled_softmax_loss(torch.zeros(2), torch.zeros(2, 3), log_q=torch.zeros(2)),
            r"log_q: given torch.float32 of shape \(2,\); wanted floating point of shape \(3,\) or \(2, 3\)",
        ),
        (
            lambda: sampled_softmax_loss(torch.zeros(2), torch.zeros(2, 3), log_q=torch.full((3,), -math.inf)),
            "log_q: given a value that is not finite",
        ),
        (lambda: sampled_softmax_loss(torch.zeros(2), torch.zeros(2, 0), log_q=0.0), "at least one negative"),
        (lambda: sampled_softmax_loss(torch.zeros(2), torch.zeros(3, 2), log_q=0.0), "wanted 2 rows"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
