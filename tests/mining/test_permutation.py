"""The keyed permutation: a bijection for any number of classes, and over keys a uniform draw as far as tests can tell.

The statistics need many keys, so they are taken of a second implementation, in NumPy and over many keys at once, which
is held against the first.

Shapes: R keys, K classes, W places of a pool, S pairs of classes.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2, chisquare

from owlmine.mining.distinct import bits_of, permuted, rounds_of

# Each statistic is of fixed keys, so its p-value is a constant: a sound permutation passes for good or never.
LEAST_P = 1e-4


def word(number: int) -> np.uint32:
    return np.uint32(number & 0xFFFFFFFF)


def mixed(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> word(shift))) * word(factor)
    return x ^ (x >> word(16))


def orders(
    keys_R: NDArray[np.int64], num_classes: int, places: NDArray[np.int64], *, rounds: int | None = None
) -> NDArray[np.uint32]:
    """The classes [R, W] at the places, for each key."""
    rounds = rounds_of(num_classes) if rounds is None else rounds
    left_bits, right_bits = bits_of(num_classes)
    masks = word((1 << left_bits) - 1), word((1 << right_bits) - 1)
    round_keys_R = [mixed(keys_R.astype(np.uint32) + word(half * 0x9E3779B9)) for half in range(2 * rounds)]

    def shuffled(x: NDArray[np.uint32], rows: NDArray[np.int64]) -> NDArray[np.uint32]:
        halves = [x >> word(right_bits), x & masks[1]]
        for number, round_key_R in enumerate(round_keys_R):
            side = number % 2
            halves[side] = halves[side] ^ (mixed(halves[1 - side] ^ round_key_R[rows]) & masks[side])
        return (halves[0] << word(right_bits)) | halves[1]

    rows = np.repeat(np.arange(len(keys_R)), len(places))
    ids = shuffled(np.tile(places.astype(np.uint32), len(keys_R)), rows)
    outside = np.flatnonzero(ids >= num_classes)
    while len(outside):
        ids[outside] = shuffled(ids[outside], rows[outside])
        outside = outside[ids[outside] >= num_classes]
    return ids.reshape(len(keys_R), len(places))


def random_keys(count: int, *, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, 1 << 32, count)


def counts_of(ids: NDArray[np.uint32], num_classes: int) -> NDArray[np.int64]:
    return np.bincount(ids.reshape(-1), minlength=num_classes)


def p_of_members(pools_RW: NDArray[np.uint32], num_classes: int) -> float:
    """Chi-square of how many pools hold each class.

    The counts of a class vary by R q (1 - q) with q = W / K, and all counts together are W R: hence (K - 1) / K.
    """
    num_keys, width = pools_RW.shape
    share = width / num_classes
    deviations = counts_of(pools_RW, num_classes) - num_keys * share
    statistic = (deviations**2).sum() / (num_keys * share * (1 - share)) * (num_classes - 1) / num_classes
    return float(chi2.sf(statistic, num_classes - 1))


def p_of_pairs_of_members(pools_RW: NDArray[np.uint32], num_classes: int) -> float:
    """Chi-square of how many pools hold each pair of classes, with the covariance of uniform subsets."""
    num_keys, width = pools_RW.shape
    pairs_S2 = np.array(list(combinations(range(num_classes), 2)))
    held_RK = np.zeros((num_keys, num_classes), np.float32)
    np.put_along_axis(held_RK, pools_RW.astype(np.int64), 1.0, axis=1)
    together_KK = held_RK.T @ held_RK
    # The chance that a pool holds 2, 3 or 4 given classes: what two pairs with 2, 1 or no class in common need.
    chances = [comb(num_classes - m, width - m) / comb(num_classes, width) if m <= width else 0.0 for m in (4, 3, 2)]
    common_SS = (pairs_S2[:, None, :, None] == pairs_S2[None, :, None, :]).sum(axis=(2, 3))
    covariance_SS = num_keys * (np.array(chances)[common_SS] - chances[2] ** 2)
    deviations_S = together_KK[pairs_S2[:, 0], pairs_S2[:, 1]] - num_keys * chances[2]
    statistic = deviations_S @ np.linalg.pinv(covariance_SS, rcond=1e-9, hermitian=True) @ deviations_S
    return float(chi2.sf(statistic, np.linalg.matrix_rank(covariance_SS, tol=1e-9 * covariance_SS.max())))


def p_of_ordered_pairs(first_R: NDArray[np.uint32], second_R: NDArray[np.uint32], num_classes: int) -> float:
    """Chi-square over all pairs of different classes."""
    pairs = counts_of(first_R.astype(np.int64) * num_classes + second_R, num_classes**2)
    pairs_KK = pairs.reshape(num_classes, num_classes)
    assert np.trace(pairs_KK) == 0
    return float(chisquare(pairs_KK[~np.eye(num_classes, dtype=bool)]).pvalue)


@pytest.mark.parametrize("num_classes", [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 50, 64, 1000])
def test_the_same_as_in_numpy(num_classes: int) -> None:
    keys = [0, 1, 0x9E3779B9, (1 << 32) - 1, *random_keys(3, seed=1).tolist()]
    expected = orders(np.array(keys), num_classes, np.arange(num_classes))
    for key, order in zip(keys, expected, strict=True):
        got = permuted(torch.arange(num_classes), key=key, num_classes=num_classes)
        assert got.dtype == torch.int64
        assert got.tolist() == order.tolist()


def test_a_bijection_for_every_number_of_classes() -> None:
    for num_classes in range(2, 301):
        ids = permuted(torch.arange(num_classes), key=num_classes * 7919, num_classes=num_classes)
        assert torch.equal(ids.sort().values, torch.arange(num_classes)), num_classes
        ids_RK = orders(random_keys(8, seed=num_classes), num_classes, np.arange(num_classes))
        assert (np.sort(ids_RK, axis=1) == np.arange(num_classes)).all(), num_classes


@pytest.mark.parametrize("num_classes", [65_536, 65_537, 100_003])
def test_a_bijection_of_many_classes(num_classes: int) -> None:
    ids = permuted(torch.arange(num_classes), key=12345, num_classes=num_classes)
    assert torch.equal(ids.sort().values, torch.arange(num_classes))


@pytest.mark.parametrize("num_classes", [(1 << 31) - 1, (1 << 32) + 1, 10**12])
def test_first_and_last_places_of_very_many_classes(num_classes: int) -> None:
    places = torch.cat([torch.arange(500), torch.arange(num_classes - 500, num_classes)])
    ids = permuted(places, key=99, num_classes=num_classes)
    assert len(ids.unique()) == 1000
    assert int(ids.min()) >= 0
    assert num_classes * 0.99 < int(ids.max()) < num_classes


@settings(max_examples=25, deadline=None)
@given(num_classes=st.integers(2, 5000), key=st.integers(0, (1 << 32) - 1), data=st.data())
def test_a_place_has_its_class_whatever_is_asked_beside_it(num_classes, key, data) -> None:
    places = data.draw(st.lists(st.integers(0, num_classes - 1), min_size=1, max_size=6))
    together = permuted(torch.tensor(places).reshape(1, -1), key=key, num_classes=num_classes)
    alone = [int(permuted(torch.tensor(place), key=key, num_classes=num_classes)) for place in places]
    assert together.tolist() == [alone]
    assert len(set(alone)) == len(set(places))
    assert 0 <= min(alone) <= max(alone) < num_classes


def test_different_keys_give_different_orders() -> None:
    for keys_R in (np.arange(5000), random_keys(5000, seed=2)):
        # 50 * 49 * ... ten times is 4e16: two of 5000 keys agree with a chance of 3e-10.
        assert len(np.unique(orders(keys_R, 50, np.arange(10)), axis=0)) == 5000


@pytest.mark.parametrize("keys", ["consecutive", "random"])
@pytest.mark.parametrize(("num_classes", "num_keys"), [(7, 200_000), (50, 30_000), (1000, 3000)])
def test_pools_hold_every_class_and_every_pair_alike(num_classes: int, num_keys: int, keys: str) -> None:
    keys_R = np.arange(num_keys) if keys == "consecutive" else random_keys(num_keys, seed=3)
    pools_RW = orders(keys_R, num_classes, np.arange(num_classes // 3))
    assert p_of_members(pools_RW, num_classes) > LEAST_P
    # For more classes there are too many pairs: groups of classes stand for them.
    group = max(1, num_classes // 50)
    grouped = num_classes // group
    if group == 1:
        assert p_of_pairs_of_members(pools_RW, num_classes) > LEAST_P
        return
    groups_RW = pools_RW[:, : num_classes // 3 // 2 * 2] // group
    counts = counts_of(groups_RW[:, 0::2] * grouped + groups_RW[:, 1::2], grouped**2)
    expected = np.full((grouped, grouped), group * group, float)
    np.fill_diagonal(expected, group * (group - 1))
    assert chisquare(counts, expected.reshape(-1) / expected.sum() * counts.sum()).pvalue > LEAST_P


@pytest.mark.parametrize(("num_classes", "num_keys"), [(5, 200_000), (7, 200_000), (8, 200_000), (50, 50_000)])
def test_order_of_the_places_is_uniform(num_classes: int, num_keys: int) -> None:
    places = np.array(sorted({0, 1, num_classes // 2, num_classes - 1}))
    ids_RP = orders(random_keys(num_keys, seed=4), num_classes, places)
    for column in ids_RP.T:
        assert chisquare(counts_of(column, num_classes)).pvalue > LEAST_P
    for first, second in combinations(ids_RP.T, 2):
        assert p_of_ordered_pairs(first, second, num_classes) > LEAST_P


@pytest.mark.parametrize("num_classes", [2, 3, 4, 5, 6])
def test_every_order_of_a_few_classes_is_as_frequent(num_classes: int) -> None:
    ids_RK = orders(random_keys(200_000, seed=5), num_classes, np.arange(num_classes))
    _, counts = np.unique(ids_RK, axis=0, return_counts=True)
    assert len(counts) == np.prod(np.arange(1, num_classes + 1))
    assert chisquare(counts).pvalue > LEAST_P


@pytest.mark.parametrize("num_classes", [7, 50])
def test_pools_of_neighbouring_keys_are_independent(num_classes: int) -> None:
    ids_R = orders(np.arange(100_001), num_classes, np.arange(1))[:, 0].astype(np.int64)
    assert chisquare(counts_of(ids_R[:-1] * num_classes + ids_R[1:], num_classes**2)).pvalue > LEAST_P


@pytest.mark.parametrize(("num_classes", "rounds"), [(5, 6), (7, 4), (8, 6), (16, 3)])
def test_the_statistics_would_see_too_few_rounds(num_classes: int, rounds: int) -> None:
    ids_R2 = orders(random_keys(200_000, seed=6), num_classes, np.arange(2), rounds=rounds)
    assert p_of_ordered_pairs(*ids_R2.T, num_classes) < 1e-9


def difference_chances(start: int, bits: tuple[int, int], rounds: int) -> NDArray[np.float64]:
    """How two numbers differ (exclusive or) after so many rounds, if what is mixed in were truly random.

    A half whose other half is the same in both keeps its difference; otherwise it becomes uniform.
    """
    chances_LR = np.zeros((1 << bits[0], 1 << bits[1]))
    chances_LR.reshape(-1)[start] = 1.0
    for _ in range(rounds):
        for chances in (chances_LR, chances_LR.T):
            chances[:, 1:] = chances[:, 1:].sum(axis=0) / len(chances)
    return chances_LR.reshape(-1)[1:]


@pytest.mark.parametrize("num_classes", [2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096])
def test_rounds_suffice_for_pairs_if_the_mixing_is_random(num_classes: int) -> None:
    bits, rounds = bits_of(num_classes), rounds_of(num_classes)
    for start in (1, 1 << bits[1], (1 << sum(bits)) - 1):
        chances = difference_chances(start, bits, rounds)
        assert chances.sum() == pytest.approx(1, rel=1e-12)
        assert np.abs(chances * len(chances) - 1).max() < 2.0**-17


def test_the_theory_of_rounds_is_what_is_seen() -> None:
    ids_R2 = orders(random_keys(400_000, seed=7), 8, np.arange(2), rounds=4)
    seen = counts_of(ids_R2[:, 0] ^ ids_R2[:, 1], 8)[1:]
    expected = difference_chances(1, (1, 2), 4)
    assert np.abs(expected * 7 - 1).max() > 0.25
    assert chisquare(seen, expected * seen.sum()).pvalue > LEAST_P
