"""Builders of vartheta, their two conventions, and what they refuse."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import RankWeights, from_vector, negative_sampling, power_law, top_k


def test_top_k_in_both_conventions():
    assert top_k(2, pool_size=4).dense().tolist() == [0.5, 0.5, 0, 0]
    assert top_k(2, pool_size=4, convention="paper", num_classes=9).dense().tolist() == [1, 1, 0, 0]
    # Top-k' with k' < k: the paper's weight for the retrieval of k.
    assert top_k(1, pool_size=4, convention="paper", num_classes=9, k=2).dense().tolist() == [1, 0, 0, 0]


def test_negative_sampling_in_both_conventions():
    assert negative_sampling(pool_size=4).dense().tolist() == [0.25] * 4
    assert negative_sampling(pool_size=4, convention="paper", num_classes=9, k=2).dense().tolist() == [1] * 4


def test_power_law_in_both_conventions():
    weights = power_law(2.0, pool_size=4, kept=3).dense()
    torch.testing.assert_close(weights, torch.tensor([36.0, 9, 4, 0], dtype=torch.float64) / 49)
    paper = power_law(2.0, pool_size=4, kept=3, convention="paper", num_classes=9)
    assert paper.l1 == pytest.approx(8 / 4)
    assert power_law(0.0, pool_size=4) == negative_sampling(pool_size=4)


@pytest.mark.parametrize("build", [lambda **o: top_k(3, **o), lambda **o: power_law(1.5, **o)])
def test_sums(build):
    assert build(pool_size=10).l1 == pytest.approx(1)
    assert build(pool_size=10, convention="paper", num_classes=101).l1 == pytest.approx(10)


def test_a_large_pool_is_not_written_out():
    weights = top_k(1, pool_size=32_768)
    assert (len(weights.prefix), weights.tail, weights.kept) == (1, 0.0, 1)
    sampling = negative_sampling(pool_size=32_768)
    assert (len(sampling.prefix), sampling.kept) == (0, 32_768)
    assert top_k(8, pool_size=8) == negative_sampling(pool_size=8)


def test_tail():
    assert top_k(2, pool_size=5).with_tail(0.1).dense().tolist() == [0.5, 0.5, 0.1, 0.1, 0.1]
    law = power_law(1.0, pool_size=4, kept=2).with_tail(0.01)
    assert law.kept == 4
    assert law.dense()[2:].tolist() == [0.01, 0.01]
    with pytest.raises(ValueError, match="epsilon: given 0"):
        top_k(1, pool_size=2).with_tail(0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.5]), min_size=1, max_size=12))
def test_any_vector_comes_back_whole(values):
    values = sorted(values, reverse=True)
    weights = from_vector(values)
    assert weights.dense().tolist() == values
    assert weights.l1 == pytest.approx(math.fsum(values))
    assert weights.l2 == pytest.approx(math.hypot(*values))
    assert weights.kept == sum(value > 0 for value in values)
    assert weights == RankWeights(weights.prefix, weights.tail, weights.pool_size)
    assert hash(weights) == hash(from_vector(values))
    assert weights != from_vector([*values, 0.0])


def test_later_changes_of_the_vector_do_not_reach_the_weights():
    vector = torch.tensor([1.0, 0.5], dtype=torch.float64)
    weights = from_vector(vector)
    vector[0] = 9
    assert weights.dense().tolist() == [1, 0.5]


def test_the_prefix_is_placed_once():
    weights = top_k(2, pool_size=4)
    first = weights.prefix_on(torch.device("cpu"), torch.float32)
    assert first is weights.prefix_on(torch.device("cpu"), torch.float32)
    assert first.dtype == torch.float32


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: from_vector([0.5, 1.0]), "rise at rank 2"),
        (lambda: from_vector([0.5, -1.0]), "negative, infinite or NaN"),
        (lambda: from_vector([math.nan, 0.0]), "negative, infinite or NaN"),
        (lambda: from_vector([math.inf, 0.0]), "negative, infinite or NaN"),
        (lambda: from_vector([1.0, 0.0], pool_size=3), r"shape \(2,\); wanted 3 weights"),
        (lambda: from_vector([[1.0]]), "wanted a vector"),
        (lambda: from_vector([]), "given a pool of 0"),
        (lambda: RankWeights(torch.ones(3), 0.0, 2), "wanted up to 2 weights"),
        (lambda: RankWeights(torch.ones(1), 2.0, 2), "rise at rank 2"),
        (lambda: RankWeights(torch.ones(1), math.nan, 2), "negative, infinite or NaN"),
        (lambda: top_k(5, pool_size=4), "given 5 kept of a pool of 4"),
        (lambda: top_k(0, pool_size=4), "given 0 kept"),
        (lambda: negative_sampling(pool_size=0), "wanted at least 1"),
        (lambda: power_law(-1.0, pool_size=4), "alpha = -1.0"),
        (lambda: power_law(1.0, pool_size=4, kept=5), "given 5 kept"),
        (lambda: top_k(1, pool_size=4, convention="paper"), "num_classes = None"),
        (lambda: top_k(1, pool_size=4, convention="paper", num_classes=4), "wanted at least 5"),
        (lambda: negative_sampling(pool_size=4, convention="paper", num_classes=9), "k = None"),
        (lambda: top_k(1, pool_size=4, convention="mean"), "given 'mean'"),
        (lambda: top_k(1, pool_size=4, k=3), "wanted neither"),
    ],
)
def test_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
