"""Pools: uniform over the B-subsets without the positive, per point and shared by a batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from owlmine.mining import draw_batch_pool, draw_pool_with_positives, draw_pools, draw_pools_fixed
from tests.contracts.pools import assert_uniform_without


def own(positives, **options):
    return draw_pools(positives, **options)


def own_fixed(positives, **options):
    ids, shortages = draw_pools_fixed(positives, **options)
    assert int(shortages) == 0
    return ids


# (9, 2) draws with repeats; the others cut a permutation.
SIZES = [(9, 2), (5, 2), (4, 2), (6, 4)]


@pytest.mark.parametrize("draw", [own, own_fixed])
@pytest.mark.parametrize(("num_classes", "pool_size"), SIZES)
def test_own_pools_are_uniform(draw, num_classes, pool_size):
    positives = torch.tensor([0, 3, num_classes - 1]).repeat(6000)
    generator = torch.Generator().manual_seed(5)
    ids = draw(positives, num_classes=num_classes, pool_size=pool_size, generator=generator)
    for positive in (0, 3, num_classes - 1):
        assert_uniform_without(ids[positives == positive].tolist(), positive, num_classes)


@pytest.mark.parametrize("fixed_shapes", [False, True])
@pytest.mark.parametrize(("num_classes", "pool_size"), [(12, 2), (5, 2), (6, 4)])
def test_the_pool_of_each_point_of_a_batch_is_uniform(fixed_shapes, num_classes, pool_size):
    positives = torch.tensor([1, num_classes - 1, 1])
    generator = torch.Generator().manual_seed(6)
    options = {"num_classes": num_classes, "pool_size": pool_size, "generator": generator}
    batches = torch.stack([draw_batch_pool(positives, fixed_shapes=fixed_shapes, **options).ids() for _ in range(2500)])
    for point, positive in enumerate(positives.tolist()):
        assert_uniform_without(batches[:, point].tolist(), positive, num_classes)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 10**6), fixed_shapes=st.booleans())
def test_a_batch_pool_and_its_mask_say_the_same(data, seed, fixed_shapes):
    num_classes = data.draw(st.integers(2, 60))
    pool_size = data.draw(st.integers(1, num_classes - 1))
    generator = torch.Generator().manual_seed(seed)
    positives = torch.randint(num_classes, (5,), generator=generator)
    options = {"num_classes": num_classes, "pool_size": pool_size, "fixed_shapes": fixed_shapes}
    pool = draw_batch_pool(positives, generator=generator, **options)
    assert (pool.pool_size, pool.shortages.item()) == (pool_size, 0)
    assert len(set(pool.shared_ids.tolist())) == pool_size + 1
    ids, mask = pool.ids(), pool.mask()
    assert ids.shape == (5, pool_size)
    for n, positive in enumerate(positives.tolist()):
        assert positive not in ids[n].tolist()
        assert ids[n].tolist() == pool.shared_ids[~mask[n]].tolist()


def test_points_without_their_positive_in_the_pool_drop_one_each_at_random():
    positives = torch.arange(50_000, 90_000)
    options = {"num_classes": 90_000, "pool_size": 9, "generator": torch.Generator().manual_seed(0)}
    pool = draw_batch_pool(positives, **options)
    assert chisquare(torch.bincount(pool.dropped, minlength=10)).pvalue > 1e-4


@pytest.mark.parametrize("num_classes", [2, 7])
def test_the_whole_of_the_classes(num_classes):
    positives = torch.arange(num_classes)
    options = {"num_classes": num_classes, "pool_size": num_classes - 1, "generator": torch.Generator()}
    everything = [[c for c in range(num_classes) if c != y] for y in range(num_classes)]
    assert draw_pools(positives, **options).sort(dim=1).values.tolist() == everything
    assert draw_batch_pool(positives, **options).ids().tolist() == everything
    assert draw_batch_pool(positives, **options).dropped.tolist() == positives.tolist()


def test_small_integers_as_positives():
    positives = torch.tensor([0, 200], dtype=torch.uint8)
    options = {"num_classes": 1000, "pool_size": 50}
    for draw in (draw_pools, draw_batch_pool):
        wide = draw(positives.long(), generator=torch.Generator().manual_seed(0), **options)
        narrow = draw(positives, generator=torch.Generator().manual_seed(0), **options)
        if draw is draw_batch_pool:
            wide, narrow = wide.ids(), narrow.ids()
        assert torch.equal(wide, narrow)


@pytest.mark.parametrize("draw", [draw_pools, draw_pools_fixed, draw_batch_pool])
@pytest.mark.parametrize(
    ("positives", "num_classes", "pool_size", "message"),
    [
        ([0], 5, 5, "pool_size: given 5; wanted 1 to 4"),
        ([0], 5, 0, "pool_size: given 0"),
        ([0], 1, 1, "num_classes: given 1; wanted at least 2"),
        ([5], 5, 2, "class ids from 5 to 5; wanted 0 to 4"),
        ([-1], 5, 2, "class ids from -1"),
        ([], 5, 2, r"given shape \(0,\)"),
        ([[1]], 5, 2, r"given shape \(1, 1\)"),
        ([1.0], 5, 2, "wanted integers"),
    ],
)
def test_refused(draw, positives, num_classes, pool_size, message):
    with pytest.raises(ValueError, match=message):
        draw(torch.tensor(positives), num_classes=num_classes, pool_size=pool_size, generator=torch.Generator())


def test_the_generator_must_be_where_the_positives_are():
    with pytest.raises(ValueError, match="generator: given one on cpu; wanted meta"):
        draw_pools(
            torch.zeros(2, dtype=torch.int64, device="meta"),
            num_classes=5,
            pool_size=2,
            generator=torch.Generator(),
        )


def test_a_pool_has_all_positives_of_the_batch() -> None:
    positives = torch.tensor([7, 3, 7, 0, 99, 42])
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        pool = draw_pool_with_positives(positives, num_classes=100, pool_size=30, generator=generator)
        assert len(pool.shared_ids) == 31
        assert (pool.shared_ids[1:] > pool.shared_ids[:-1]).all()
        assert pool.shared_ids.max() < 100
        assert torch.equal(pool.shared_ids[pool.dropped], positives)


def test_the_others_of_such_a_pool_are_uniform() -> None:
    positives, counts, draws = torch.tensor([1, 2, 5]), torch.zeros(8), 4000
    generator = torch.Generator().manual_seed(0)
    for _ in range(draws):
        pool = draw_pool_with_positives(positives, num_classes=8, pool_size=4, generator=generator)
        counts[pool.shared_ids] += 1
    assert counts[positives].tolist() == [draws] * 3
    others = counts[[0, 3, 4, 6, 7]]
    # Two of five places each; four standard deviations.
    assert (others - 0.4 * draws).abs().max() < 4 * (draws * 0.4 * 0.6) ** 0.5


def test_a_pool_of_positives_alone_and_of_all_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    positives = torch.tensor([4, 1, 2])
    pool = draw_pool_with_positives(positives, num_classes=9, pool_size=2, generator=generator)
    assert pool.shared_ids.tolist() == [1, 2, 4]
    pool = draw_pool_with_positives(positives, num_classes=9, pool_size=8, generator=generator)
    assert pool.shared_ids.tolist() == list(range(9))
    with pytest.raises(ValueError, match="wanted at least 2, for the positives"):
        draw_pool_with_positives(positives, num_classes=9, pool_size=1, generator=generator)
