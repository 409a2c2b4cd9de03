"""Distinct class ids: a keyed permutation of the classes, and uniform draws without replacement.

The permutation is computed place by place: no table, no sort, the same on every device. Rounds of a Feistel network
permute the bits of a number; numbers past the last class are permuted again until they are a class. Every key gives a
bijection, whatever the mixing function does, so the first W places are W distinct classes. Over keys they are
distributed as a uniform draw as far as statistical tests can detect (``tests/mining/test_permutation.py``);
``draw_distinct`` is uniform by proof.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

ROUNDS = 20
"""At most."""
_WORD = 0xFFFFFFFF


def bits_of(num_classes: int) -> tuple[int, int]:
    """Bits of the left and right half of a number below ``num_classes``."""
    bits = max(2, (num_classes - 1).bit_length())
    return bits // 2, bits - bits // 2


def rounds_of(num_classes: int) -> int:
    """Rounds after which the probability of a pair of classes at two given places is right up to a factor 1 + 2^-17.

    After R rounds it is off by a factor of up to 1 + 2^(bits - R * left bits): few classes have few bits to mix, and
    need more rounds.
    """
    left, right = bits_of(num_classes)
    return min(ROUNDS, -(-(left + right + 17) // left))


def permuted(places: Tensor, *, key: int, num_classes: int) -> Tensor:
    """The class at each place (int64, any shape) in the order that ``key`` (32 bits) makes."""
    ids = _shuffled(places, key, num_classes)
    while bool((ids >= num_classes).any()):
        ids = torch.where(ids >= num_classes, _shuffled(ids, key, num_classes), ids)
    return ids


def _shuffled(x: Tensor, key: int, num_classes: int) -> Tensor:
    left_bits, right_bits = bits_of(num_classes)
    left, right = x >> right_bits, x & ((1 << right_bits) - 1)
    for number in range(rounds_of(num_classes)):
        left = left ^ (_mix(right ^ _round_key(key, 2 * number)) & ((1 << left_bits) - 1))
        right = right ^ (_mix(left ^ _round_key(key, 2 * number + 1)) & ((1 << right_bits) - 1))
    return (left << right_bits) | right


def _round_key(key: int, number: int) -> int:
    return int(_mix(torch.tensor((key + number * 0x9E3779B9) & _WORD)))


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32 bits in which every bit of the result depends on every bit of ``x``."""
    x = x ^ (x >> 16)
    x = (x * 0x85EBCA6B) & _WORD
    x = x ^ (x >> 13)
    x = (x * 0xC2B2AE35) & _WORD
    return x ^ (x >> 16)


# Distinct class ids drawn uniformly, in time that does not depend on how many classes there are.
#
# Ids are drawn with replacement, a few more than wanted, and the first ``count`` distinct ones are kept in the
# order of drawing. By symmetry that is a uniform subset in uniform order; keeping the smallest ones after a
# sort would not be.
#
# Legend: R rows, M draws of each, C distinct ids wanted.


# Above this share of the classes, repeats cost more than a permutation of all classes.
_PERMUTE_ABOVE = 1 / 4
# Chance that one row of fixed shape runs short, as a power of two.
_SHORTAGE_LOG2 = -64
# torch.randint takes the remainder of 32 bits for ranges below 2^28, so some ids are likelier by num_classes / 2^32
# (0.2 % for 10 million); the remainder of 63 bits brings that down to num_classes / 2^63.
_RANDOM_BITS = (1 << 63) - 1


def draw_distinct(num_rows: int, count: int, *, num_classes: int, generator: torch.Generator) -> Tensor:
    """``ids_RC``: ``count`` distinct ids below ``num_classes`` in each row. Synchronises with a GPU."""
    _check(num_rows, count, num_classes)
    if count > num_classes * _PERMUTE_ABOVE:
        return _permuted(num_rows, count, num_classes, generator)
    draws = num_draws(count, num_classes=num_classes)
    draws_RM = draw_with_repeats(num_rows, draws, num_classes=num_classes, generator=generator)
    return _complete(draws_RM, count, num_classes, generator)


def draw_distinct_fixed(
    num_rows: int, count: int, *, num_classes: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The same with fixed shapes and without reading values: ``ids_RC`` and the number of rows that ran short (int64).

    A row runs short with probability below 2^-64; it is then filled with the smallest ids that it lacks, so it stays
    valid but is no longer uniform.
    """
    _check(num_rows, count, num_classes)
    if count > num_classes * _PERMUTE_ABOVE:
        ids_RC = _permuted(num_rows, count, num_classes, generator)
        return ids_RC, torch.zeros((), dtype=torch.int64, device=generator.device)
    draws = num_draws(count, num_classes=num_classes)
    draws_RM = draw_with_repeats(num_rows, draws, num_classes=num_classes, generator=generator)
    return _filled_up(draws_RM, count)


def draw_subset(count: int, *, num_classes: int, generator: torch.Generator) -> Tensor:
    """``ids_C``: a uniform subset of the ids below ``num_classes``, ascending. Synchronises with a GPU."""
    _check(1, count, num_classes)
    if generator.device.type == "cpu":
        return _subset_on_cpu(count, num_classes, generator)
    return draw_distinct(1, count, num_classes=num_classes, generator=generator)[0].sort().values


def _subset_on_cpu(count: int, num_classes: int, generator: torch.Generator) -> Tensor:
    """NumPy draws a subset, exactly uniform, in a tenth of the time; its stream is seeded from ours.

    Its cost does not grow with the classes either: past 20 times ``count`` it is Floyd's algorithm on a hash table.
    """
    seed = torch.randint(_RANDOM_BITS, (), generator=generator).item()
    ids_C = np.random.default_rng(int(seed)).choice(num_classes, count, replace=False, shuffle=False)
    ids_C.sort()
    return torch.from_numpy(ids_C)


@lru_cache(maxsize=256)
def num_draws(count: int, *, num_classes: int) -> int:
    """Draws with replacement after which fewer than ``count`` distinct ids have a chance below 2^-64.

    Until ``count`` are found, a draw repeats an earlier one with chance at most q = (count - 1) / num_classes.
    So a shortage after M draws is no likelier than a Binomial(M, q) of at least M - count + 1, and Chernoff's
    bound for that is exp(-M KL((M - count + 1) / M ‖ q)). Returns the least M that satisfies it.
    """
    assert 1 <= count <= num_classes
    q = (count - 1) / num_classes
    if q == 0:
        return 1
    low, high = count, 2 * count + 64
    while log2_shortage_bound(high, count, q) > _SHORTAGE_LOG2:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        if log2_shortage_bound(middle, count, q) > _SHORTAGE_LOG2:
            low = middle + 1
        else:
            high = middle
    return low


def log2_shortage_bound(draws: int, count: int, q: float) -> float:
    """log2 of Chernoff's bound on P[Binomial(draws, q) >= draws - count + 1]."""
    share = (draws - count + 1) / draws
    if share <= q:
        return 0.0
    divergence = share * math.log(share / q)
    if share < 1:
        divergence += (1 - share) * math.log((1 - share) / (1 - q))
    return -draws * divergence / math.log(2)


def first_distinct(draws_RM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The first ``count`` distinct values of each row in order, and how many distinct ones it has in all.

    If a row has fewer than ``count``, the remaining places are -1.
    """
    sorted_RM, order_RM = draws_RM.sort(dim=1, stable=True)
    is_new_RM = torch.ones_like(draws_RM, dtype=torch.bool)
    is_new_RM[:, 1:] = sorted_RM[:, 1:] != sorted_RM[:, :-1]
    # Stable: among equal draws the earliest comes first, and is the one marked.
    is_new_RM = torch.zeros_like(is_new_RM).scatter(1, order_RM, is_new_RM)
    place_RM = is_new_RM.cumsum(dim=1) - 1
    # Repeats and surplus go to one place past the end.
    place_RM = torch.where(is_new_RM, place_RM, count).clamp_max(count)
    ids_RC = draws_RM.new_full((draws_RM.shape[0], count + 1), -1).scatter(1, place_RM, draws_RM)
    return ids_RC[:, :count], is_new_RM.sum(dim=1)


def _complete(draws_RM: Tensor, count: int, num_classes: int, generator: torch.Generator) -> Tensor:
    """Draws on until every row has enough, which leaves the result exactly as uniform as the draws."""
    ids_RC, num_found_R = first_distinct(draws_RM, count)
    while bool((num_found_R < count).any()):
        more_RM = draw_with_repeats(len(draws_RM), count, num_classes=num_classes, generator=generator)
        draws_RM = torch.cat([draws_RM, more_RM], dim=1)
        ids_RC, num_found_R = first_distinct(draws_RM, count)
    return ids_RC


def _filled_up(draws_RM: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The first distinct draws, then ids from 0 upwards; and how many rows needed those.

    Among ``count`` consecutive ids a row that is short lacks enough of them.
    """
    spare_RC = torch.arange(count, device=draws_RM.device).expand(draws_RM.shape[0], count)
    ids_RC, _ = first_distinct(torch.cat([draws_RM, spare_RC], dim=1), count)
    # The spares come last, so a row is short exactly when its last id was not among its own draws.
    is_short_R = ~(draws_RM == ids_RC[:, -1:]).any(dim=1)
    return ids_RC, is_short_R.sum()


def _permuted(num_rows: int, count: int, num_classes: int, generator: torch.Generator) -> Tensor:
    """The order of random 63-bit keys: uniform except for ties, whose probability is below num_classes² / 2^64."""
    shape, device = (num_rows, num_classes), generator.device
    keys = torch.randint(_RANDOM_BITS, shape, generator=generator, device=device)
    return keys.argsort(dim=1)[:, :count]


def draw_with_repeats(num_rows: int, draws: int, *, num_classes: int, generator: torch.Generator) -> Tensor:
    """[num_rows, draws] independent uniform ids."""
    bits = torch.randint(_RANDOM_BITS, (num_rows, draws), generator=generator, device=generator.device)
    return bits % num_classes


def _check(num_rows: int, count: int, num_classes: int) -> None:
    if num_rows < 1 or not 1 <= count <= num_classes:
        given = f"{num_rows} row(s) of {count} distinct ids from {num_classes}"
        raise ValueError(f"draw_distinct: given {given}; wanted at least one row and 1 to {num_classes} ids")
