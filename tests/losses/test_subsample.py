"""Ranks drawn in proportion to vartheta: the estimate is unbiased."""

import itertools

import pytest
import torch
from scipy.stats import chisquare

from owlmine.losses import (
    from_vector,
    mined_loss,
    negative_sampling,
    power_law,
    subsample,
    subsampled_mined_loss,
    top_k,
)

WEIGHTS = [
    from_vector([2.0, 1.0, 1.0, 0.0]),
    top_k(2, pool_size=4),
    negative_sampling(pool_size=4),
    power_law(1.0, pool_size=4),
    top_k(1, pool_size=4).with_tail(0.125),
]


@pytest.mark.parametrize("weights", WEIGHTS, ids=range(len(WEIGHTS)))
@pytest.mark.parametrize("kind", ["powl", "bowl"])
@pytest.mark.parametrize("masked", [False, True])
def test_exact_expectation_over_all_draws_is_the_mined_loss(weights, kind, masked):
    positive = torch.tensor([0.3], dtype=torch.float64)
    pool = torch.tensor([[0.9, -0.2, 0.4, 1.7]], dtype=torch.float64)
    mask = torch.tensor([[False, False, True, False]]) if masked else None
    num_draws, chances = 2, weights.dense() / weights.l1
    importance = torch.full((1, num_draws), weights.l1 / num_draws, dtype=torch.float64)
    expected = torch.zeros((), dtype=torch.float64)
    for ranks in itertools.product(range(weights.kept), repeat=num_draws):
        value = subsampled_mined_loss(
            positive, pool, torch.tensor([ranks]), importance, mask, weights=weights, kind=kind
        )
        expected += chances[list(ranks)].prod() * value
    full = mined_loss(positive, pool, mask, weights=weights, kind=kind)
    torch.testing.assert_close(expected, full, rtol=1e-13, atol=0)


@pytest.mark.parametrize("weights", WEIGHTS, ids=range(len(WEIGHTS)))
def test_ranks_are_drawn_in_proportion_to_the_weights(weights):
    ranks, importance = subsample(weights, num_points=200, num_draws=100, generator=torch.Generator().manual_seed(0))
    assert ranks.shape == importance.shape == (200, 100)
    assert torch.all(importance == weights.l1 / 100)
    counts = torch.bincount(ranks.flatten(), minlength=weights.pool_size).double()
    chances = weights.dense() / weights.l1
    assert torch.all(counts[chances == 0] == 0)
    used = chances > 0
    assert chisquare(counts[used], chances[used] * counts.sum()).pvalue > 1e-4


def test_the_mean_over_many_draws_meets_the_full_loss():
    generator = torch.Generator().manual_seed(1)
    weights = power_law(1.0, pool_size=64)
    positive, pool = torch.zeros(4000).double(), torch.randn(64, generator=generator).double().repeat(4000, 1)
    ranks, importance = subsample(weights, num_points=4000, num_draws=4, generator=generator)
    each = subsampled_mined_loss(positive, pool, ranks, importance, weights=weights, reduction="none")
    full = mined_loss(positive[:1], pool[:1], weights=weights)
    assert abs(each.mean() - full) < 5 * each.std() / 4000**0.5


def test_gradient_flows_to_the_drawn_entries_only():
    pool = torch.tensor([[0.1, 0.8, 0.5]], requires_grad=True)
    ranks, importance = torch.tensor([[1]]), torch.ones(1, 1)
    weights = negative_sampling(pool_size=3)
    subsampled_mined_loss(torch.zeros(1), pool, ranks, importance, weights=weights).backward()
    assert pool.grad.tolist() == [[0, 0, 1]]


def test_refused():
    generator = torch.Generator()
    with pytest.raises(ValueError, match="all 0"):
        subsample(from_vector([0.0, 0.0]), num_points=1, num_draws=1, generator=generator)
    with pytest.raises(ValueError, match="given 1 points x 0 draws"):
        subsample(top_k(1, pool_size=2), num_points=1, num_draws=0, generator=generator)
    with pytest.raises(ValueError, match="wanted two of shape"):
        subsampled_mined_loss(
            torch.zeros(1),
            torch.zeros(1, 2),
            torch.zeros(1, 1).long(),
            torch.ones(1, 2),
            weights=top_k(1, pool_size=2),
        )
