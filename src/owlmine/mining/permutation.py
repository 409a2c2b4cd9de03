"""A keyed permutation of the classes, worked out place by place: no table, no sort, the same on every device.

Rounds of a Feistel network over the bits of a number mix it into another one; numbers past the last class go
round again until they are a class. Every key gives a bijection, whatever the mixing function does, so the first W
places are W distinct classes. Over keys they are distributed as a uniform draw as far as statistical tests can tell
(``tests/mining/test_permutation.py``); for a draw that is uniform by proof see ``owlmine.mining.distinct``.
"""

from __future__ import annotations

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
    """Rounds after which the chance of a pair of classes at two given places is right but for a factor 1 + 2^-17.

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
