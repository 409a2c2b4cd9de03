"""Distinct draws: uniform, in draw order, whatever the number of classes; and the bound on running short."""

import math
from fractions import Fraction
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from owlmine.mining import distinct, draw_distinct, draw_distinct_fixed
from owlmine.mining.distinct import draw_subset, first_distinct, log2_shortage_bound, num_draws


def assert_uniform_subsets(ids_RC: torch.Tensor, num_classes: int) -> None:
    """Chi-square over all subsets."""
    count = ids_RC.shape[1]
    subsets = dict.fromkeys(combinations(range(num_classes), count), 0)
    for row in ids_RC.sort(dim=1).values.tolist():
        subsets[tuple(row)] += 1
    assert chisquare(list(subsets.values())).pvalue > 1e-4


def fixed(*args, **options):
    return draw_distinct_fixed(*args, **options)[0]


@pytest.mark.parametrize("draw", [draw_distinct, fixed])
# 2 of 11 is drawn with repeats, 3 of 6 cut from a permutation, 5 of 5 is everything.
@pytest.mark.parametrize(("count", "num_classes"), [(2, 11), (3, 12), (3, 6), (5, 5), (1, 1)])
def test_uniform_over_all_subsets_and_in_uniform_order(draw, count, num_classes):
    ids = draw(20_000, count, num_classes=num_classes, generator=torch.Generator().manual_seed(7))
    assert ids.shape == (20_000, count)
    if count < num_classes:
        assert_uniform_subsets(ids, num_classes)
    for column in ids.T:
        counts = torch.bincount(column, minlength=num_classes).double()
        assert num_classes == 1 or chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize(("count", "num_classes"), [(2, 11), (3, 6), (1, 7)])
def test_subsets_are_uniform_over_all_subsets(count, num_classes):
    generator = torch.Generator().manual_seed(7)
    ids = torch.stack([draw_subset(count, num_classes=num_classes, generator=generator) for _ in range(5000)])
    assert_uniform_subsets(ids, num_classes)


# A hash table, and the end of a shuffled range: NumPy's two ways on either side of 20 classes for each wanted one.
@pytest.mark.parametrize(("count", "num_classes"), [(500, 20_000), (3000, 30_000)])
def test_large_subsets_take_their_share_of_every_part(count, num_classes):
    """Ids of a tenth of the classes in a subset are hypergeometric."""
    generator, draws, parts = torch.Generator().manual_seed(8), 100, 10
    size = num_classes // parts
    found = sum(
        torch.bincount(draw_subset(count, num_classes=num_classes, generator=generator) // size, minlength=parts)
        for _ in range(draws)
    )
    share = size / num_classes
    variance = draws * count * share * (1 - share) * (num_classes - count) / (num_classes - 1)
    scores = (found[:parts] - draws * count * share) / math.sqrt(variance)
    assert scores.abs().max() < 4.5
    # Far from constant as well: a draw that gave every part its exact share would not be uniform.
    assert scores.abs().max() > 0.2


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 10**6))
def test_subsets_are_ascending_distinct_and_in_range(data, seed):
    num_classes = data.draw(st.integers(1, 300) | st.just(10**14))
    count = data.draw(st.integers(1, min(num_classes, 300)))
    first, second = (
        draw_subset(count, num_classes=num_classes, generator=torch.Generator().manual_seed(seed)) for _ in range(2)
    )
    assert first.dtype == torch.int64
    assert len(first) == count
    assert (first[1:] > first[:-1]).all()
    assert 0 <= int(first[0]) <= int(first[-1]) < num_classes
    assert torch.equal(first, second)


def test_later_subsets_of_one_generator_differ():
    generator = torch.Generator().manual_seed(0)
    first, second = (draw_subset(20, num_classes=10**6, generator=generator) for _ in range(2))
    assert not torch.equal(first, second)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 10**6))
def test_always_distinct_and_in_range(data, seed):
    num_classes = data.draw(st.integers(1, 300))
    count = data.draw(st.integers(1, num_classes))
    for draw in (draw_distinct, fixed):
        ids = draw(3, count, num_classes=num_classes, generator=torch.Generator().manual_seed(seed))
        assert all(len(set(row)) == count for row in ids.tolist())
        assert 0 <= int(ids.min()) <= int(ids.max()) < num_classes


def test_cost_does_not_grow_with_the_classes():
    # Anything that touches every class would not come back.
    ids = draw_distinct(2, 1000, num_classes=10**14, generator=torch.Generator().manual_seed(0))
    assert ids.shape == (2, 1000)
    assert int(ids.max()) > 10**13


def test_no_bias_of_a_32_bit_remainder():
    # 2^32 = 21 · 3·2^26 + 2^26: a remainder of 32 random bits would draw the first third 22 times for 21.
    third = 1 << 26
    ids = draw_distinct(1, 400_000, num_classes=3 * third, generator=torch.Generator().manual_seed(0))
    assert chisquare(torch.bincount(ids[0] // third)).pvalue > 1e-4
    biased = torch.randint(1 << 32, (400_000,), generator=torch.Generator().manual_seed(0)) % (3 * third)
    assert chisquare(torch.bincount(biased // third)).pvalue < 1e-9


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), min_size=9, max_size=9), min_size=1, max_size=4), st.integers(1, 8))
def test_first_distinct_against_a_loop(rows, count):
    ids, found = first_distinct(torch.tensor(rows), count)
    for row, kept, number in zip(rows, ids.tolist(), found.tolist(), strict=True):
        expected = list(dict.fromkeys(row))
        assert number == len(expected)
        padding = [-1] * (count - len(expected))
        assert kept == expected[:count] + padding


def exact_shortage(draws: int, count: int, num_classes: int) -> Fraction:
    """P[fewer than count distinct among draws], by the number of distinct ids after each draw."""
    chances = [Fraction(1)] + [Fraction(0)] * count
    for _ in range(draws):
        after = [Fraction(0)] * (count + 1)
        for seen, chance in enumerate(chances):
            if seen == count:
                after[seen] += chance
                continue
            after[seen] += chance * Fraction(seen, num_classes)
            after[seen + 1] += chance * Fraction(num_classes - seen, num_classes)
        chances = after
    return 1 - chances[count]


@pytest.mark.parametrize(("count", "num_classes"), [(2, 8), (3, 12), (5, 20), (5, 1000), (12, 50)])
def test_the_bound_is_above_the_exact_chance(count, num_classes):
    q = (count - 1) / num_classes
    for draws in range(count, 40, 5):
        exact = exact_shortage(draws, count, num_classes)
        bound = Fraction(2 ** log2_shortage_bound(draws, count, q))
        assert exact <= bound * (1 + Fraction(1, 10**9))
    needed = num_draws(count, num_classes=num_classes)
    assert exact_shortage(needed, count, num_classes) < Fraction(1, 2**64)
    assert log2_shortage_bound(needed - 1, count, q) > -64


@pytest.mark.parametrize("num_classes", [140_000, 200_000, 670_091, 10_000_000])
def test_the_bound_at_full_size(num_classes):
    count = 32_769
    draws = num_draws(count, num_classes=num_classes)
    q = (count - 1) / num_classes
    assert binom.logsf(draws - count, draws, q) / math.log(2) < -64
    assert draws < 1.5 * count


@pytest.mark.parametrize("count", [2, 3])
def test_running_short_is_repaired(monkeypatch, count):
    monkeypatch.setattr(distinct, "num_draws", lambda count, *, num_classes: count)
    generator = torch.Generator().manual_seed(1)
    # Drawing on keeps the exact form uniform.
    assert_uniform_subsets(draw_distinct(20_000, count, num_classes=12, generator=generator), 12)
    ids, shortages = draw_distinct_fixed(20_000, count, num_classes=12, generator=generator)
    assert all(len(set(row)) == count for row in ids.tolist())
    chance = 1 - math.perm(12, count) / 12**count
    assert abs(int(shortages) / 20_000 - chance) < 5 * math.sqrt(chance / 20_000)


def test_shortages_are_filled_with_the_smallest_ids_that_lack():
    ids, shortages = distinct._filled_up(torch.tensor([[4, 4, 1], [0, 0, 0], [7, 2, 9]]), 3)
    assert ids.tolist() == [[4, 1, 0], [0, 1, 2], [7, 2, 9]]
    assert int(shortages) == 2


def test_the_seed_decides():
    draws = [draw_distinct(2, 5, num_classes=99, generator=torch.Generator().manual_seed(4)) for _ in range(2)]
    assert torch.equal(*draws)


@pytest.mark.parametrize(("rows", "count", "num_classes"), [(0, 1, 5), (1, 0, 5), (1, 6, 5)])
def test_refused(rows, count, num_classes):
    for draw in (draw_distinct, draw_distinct_fixed):
        with pytest.raises(ValueError, match="wanted at least one row"):
            draw(rows, count, num_classes=num_classes, generator=torch.Generator())
    if rows:
        with pytest.raises(ValueError, match="wanted at least one row"):
            draw_subset(count, num_classes=num_classes, generator=torch.Generator())
