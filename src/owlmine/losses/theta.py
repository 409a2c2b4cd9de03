"""From vartheta, the weights in a pool, to theta, those of the loss that Algorithm 1 estimates (Lemma 2).

θ_j = B/(K-1) Σ_i ϑ_i P[i-1 of the j-1 better classes are in the pool | the class of rank j is]
    = B/(K-1) Σ_i ϑ_i C(j-1, i-1) C(K-1-j, B-i) / C(K-2, B-1)

Summed by parts over the steps of ϑ this is B/(K-1) Σ_t (ϑ_t - ϑ_{t+1}) F_t(j), where F_t(j) is the probability that
fewer than t better classes are in the pool. F_t(j) - F_t(j+1) = D_t(j) = C(j-1, t-1) C(K-2-j, B-1-t) / C(K-2, B-1) is a
distribution over j = t .. K-2 (of the rank that the pool's t-th other class has), so it is computed from its largest
term outwards by ratios and divided by its own sum; no factorials are needed, and all terms are positive.

Accuracy: relative error below 1e-12 (measured: below 1e-13) wherever F > 1e-270, against 60-digit arithmetic
for K = 10^7, B = 32,768 (tests/losses/test_theta.py). Below about 1e-300 F is 0.

Cost: one pass over the ranks where D_t is not 0 for each step of ϑ, so top-k takes one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.losses.rank_weights import RankWeights

Float64 = NDArray[np.float64]
Ratio = Callable[[Float64], Float64]

# Terms this much smaller than the largest end a window; the smallest normal double is 2e-308.
_NEGLIGIBLE = 1e-300


def theta_from_vartheta(weights: RankWeights, *, num_classes: int) -> Tensor:
    """All K - 1 weights θ_j, float64."""
    _check_pool(weights, num_classes)
    ranks = num_classes - 1
    theta = np.full(ranks, weights.tail)
    # The prefix is shorter than the pool, so every step t is below B and D_t is a distribution.
    vartheta = np.append(weights.prefix.numpy(), weights.tail)
    for t in np.flatnonzero(vartheta[:-1] > vartheta[1:]) + 1:
        step = vartheta[t - 1] - vartheta[t]
        theta[:t] += step
        survival = _survival(int(t), num_classes=num_classes, pool_size=weights.pool_size)
        theta[t : t + len(survival)] += step * survival
    return torch.from_numpy(theta * (weights.pool_size / ranks))


def theta_at(weights: RankWeights, ranks: list[int], *, num_classes: int) -> Tensor:
    """θ_j at the given ranks only (counted from 1), float64: O(B) each.

    For weights with thousands of steps, such as a long power law, where all ranks would take too long.
    """
    _check_pool(weights, num_classes)
    if any(not 1 <= rank <= num_classes - 1 for rank in ranks):
        raise ValueError(f"ranks: given {min(ranks)} to {max(ranks)}; wanted 1 to {num_classes - 1}")
    vartheta = weights.dense().numpy()
    values = []
    for rank in ranks:
        first, chances = _places_in_pool(rank, num_classes=num_classes, pool_size=weights.pool_size)
        values.append(float((vartheta[first : first + len(chances)] * chances).sum()))
    return torch.tensor(values, dtype=torch.float64) * (weights.pool_size / (num_classes - 1))


def _check_pool(weights: RankWeights, num_classes: int) -> None:
    if not weights.pool_size <= num_classes - 1:
        wanted = f"a pool of at most {num_classes - 1}"
        raise ValueError(f"theta: given a pool of {weights.pool_size} from {num_classes} classes; wanted {wanted}")


def _survival(t: int, *, num_classes: int, pool_size: int) -> Float64:
    """F_t(j) for j = t+1, t+2, ... as far as it is not negligible."""
    last = num_classes - 2 - (pool_size - 1 - t)

    def ratio(j: Float64) -> Float64:
        """D_t(j + 1) / D_t(j)."""
        return (j / (j - t + 1)) * ((last - j) / (num_classes - 2 - j))

    first, terms = _log_concave(t, last, ratio)
    # From the far end, so that each sum is dominated by its newest term.
    below = _blocked(np.add, terms[::-1])[::-1]
    # D_t starts at rank `first`: F_t is 1 up to there.
    return np.concatenate([np.ones(first - t), below[1:] / below[0]])


def _places_in_pool(rank: int, *, num_classes: int, pool_size: int) -> tuple[int, Float64]:
    """P[the class of this rank is (i + 1)-th in its pool] for i from the first value returned on."""
    better, worse, others = rank - 1, num_classes - 1 - rank, pool_size - 1

    def ratio(i: Float64) -> Float64:
        return ((better - i) / (i + 1)) * ((others - i) / (worse - others + i + 1))

    low, high = max(0, others - worse), min(better, others)
    first, terms = _log_concave(low, high, ratio)
    return first, terms / math.fsum(terms)


def _log_concave(low: int, high: int, ratio: Ratio) -> tuple[int, Float64]:
    """Terms of a log-concave sequence on low .. high, scaled so that the largest is 1, without its negligible ends.

    ``ratio(j)`` is term j + 1 over term j. Returns the index of the first term kept, and the terms.
    """
    mode = _mode(low, high, ratio)
    after = _fading(high - mode, lambda steps: ratio(mode + steps))
    before = _fading(mode - low, lambda steps: 1 / ratio(mode - 1 - steps))
    return mode - len(before), np.concatenate([before[::-1], [1.0], after])


def _mode(low: int, high: int, ratio: Ratio) -> int:
    """The first index whose next term is smaller; ratios of a log-concave sequence never rise."""
    while low < high:
        middle = (low + high) // 2
        if ratio(np.array(float(middle))) < 1:
            high = middle
        else:
            low = middle + 1
    return low


def _fading(count: int, ratio: Ratio) -> Float64:
    """Products of the first 1, 2, .. ``count`` ratios, up to where they become negligible."""
    length = min(count, 1 << 14)
    while True:
        products = _blocked(np.multiply, ratio(np.arange(length, dtype=np.float64)))
        if length == count or products[-1] < _NEGLIGIBLE:
            return products[products >= _NEGLIGIBLE]
        length = min(count, 2 * length)


def _blocked(operation: np.ufunc, values: Float64) -> Float64:
    """Running sums or products in two levels: about 2 √n roundings behind each result instead of n."""
    width = math.isqrt(len(values)) + 1
    padded = np.full(width * (width + 1), operation.identity, dtype=np.float64)
    padded[: len(values)] = values
    rows = operation.accumulate(padded.reshape(width + 1, width), axis=1)
    carried = operation.accumulate(rows[:, -1])
    rows[1:] = operation(rows[1:], carried[:-1, None])
    return rows.reshape(-1)[: len(values)]
