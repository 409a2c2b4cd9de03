"""One class's linear classifier by dual coordinate descent, in NumPy: slow, and what the compiled part is held against.

With a dual variable 0 <= alpha <= U per point and w = Σ alpha y x, the slope of the dual in one alpha is
    y <w, x> - 1 + alpha r            r = 1 / (2 cost), U = ∞: squared hinge;  r = 0, U = cost: hinge
and one alpha is best, given the others, at alpha - slope / (|x|² + r), cut to its bounds. (Hsieh et al., "A dual
coordinate descent method for large-scale linear SVM", ICML 2008.)

Shapes: N points, P of them of the class, C classes of a chunk, F features.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import Float32, Int64, SparseRows, concatenate, offsets_from_counts
from owlmine.rerank.options import LinearOptions
from owlmine.rerank.task import Task

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
# A slope that is not worth a move.
_STILL = 1e-12


class PlainTrainer:
    """Learns a chunk of classes at a time."""

    def __init__(self, task: Task, options: LinearOptions, seed: int) -> None:
        self._task, self._options, self._seed = task, options, seed
        self._weights_F = np.zeros(task.num_features, np.float32)

    def __call__(self, classes: range, room_C1: Int64) -> tuple[SparseRows, Float32]:
        """Weights of consecutive classes, a row each, and biases [C]; ``room_C1``: offsets of what they could write."""
        pairs, counts_C = self._task.pairs, np.zeros(len(classes), np.int64)
        biases_C = np.zeros(len(classes), np.float32)
        parts = [SparseRows(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))]
        for c, class_id in enumerate(classes):
            own = slice(pairs.offsets_K1[class_id], pairs.offsets_K1[class_id + 1])
            if len(np.unique(pairs.targets[own])) < 2:
                continue
            descent = Descent(self._task, pairs.points[own], pairs.targets[own], self._weights_F)
            descent.run(self._options, first_state(self._seed, class_id))
            features, weights = descent.take_weights(self._options.threshold)
            assert len(features) <= room_C1[c + 1] - room_C1[c]
            counts_C[c], biases_C[c] = len(features), descent.bias
            parts.append(SparseRows(np.array([0, len(features)]), features, weights))
        written = concatenate(parts)
        return SparseRows(offsets_from_counts(counts_C), written.indices, written.values), biases_C


@dataclass
class Descent:
    """One class on its way; ``weights_F`` is zero wherever no point of the class has been."""

    task: Task
    points_P: NDArray[np.int32]
    targets_P: NDArray[np.int8]
    weights_F: Float32
    bias: float = 0.0

    def run(self, options: LinearOptions, state: int) -> None:
        """Passes in random order until the slopes that no bound holds back are within tolerance of each other."""
        count = active = len(self.points_P)
        order, alphas = list(range(count)), [0.0] * count
        above, below = inf, -inf
        for _ in range(options.max_passes):
            largest, smallest = -inf, inf
            state = shuffle(order, active, state)
            s = 0
            while s < active:
                place = order[s]
                slope = self._slope(place, alphas[place], options.ridge)
                at_zero, at_highest = alphas[place] == 0, alphas[place] == options.highest_alpha
                # Firmly at its bound: left out until the others agree.
                if (at_zero and slope > above) or (at_highest and slope < below):
                    active -= 1
                    order[s], order[active] = order[active], order[s]
                    continue
                free_slope = 0.0 if (at_zero and slope > 0) or (at_highest and slope < 0) else slope
                largest, smallest = max(largest, free_slope), min(smallest, free_slope)
                if abs(free_slope) > _STILL:
                    alphas[place] = self._move(place, alphas[place], slope, options)
                s += 1
            if largest - smallest <= options.tolerance:
                if active == count:
                    return
                active, above, below = count, inf, -inf
                continue
            above, below = largest if largest > 0 else inf, smallest if smallest < 0 else -inf

    def take_weights(self, threshold: float) -> tuple[NDArray[np.int32], Float32]:
        """The weights that are large enough, by ascending feature; leaves zeros behind."""
        features = np.unique(self.task.queries.take(self.points_P.astype(np.int64)).indices)
        weights = self.weights_F[features]
        self.weights_F[features] = 0
        kept = (weights != 0) & (np.abs(weights) >= np.float32(threshold))
        return features[kept], weights[kept]

    def _row(self, place: int) -> tuple[NDArray[np.int32], Float32]:
        queries, point = self.task.queries, self.points_P[place]
        assert queries.values is not None
        entries = slice(queries.offsets[point], queries.offsets[point + 1])
        return queries.indices[entries], queries.values[entries]

    def _slope(self, place: int, alpha: float, ridge: float) -> float:
        features, values = self._row(place)
        score = _sum(values.astype(np.float64) * self.weights_F[features]) + self.bias
        return int(self.targets_P[place]) * score - 1 + ridge * alpha

    def _move(self, place: int, before: float, slope: float, options: LinearOptions) -> float:
        square = float(self.task.squares_N[self.points_P[place]])
        alpha = min(max(before - slope / (square + options.ridge), 0.0), options.highest_alpha)
        step = (alpha - before) * int(self.targets_P[place])
        features, values = self._row(place)
        self.weights_F[features] += np.float32(step) * values
        self.bias += step
        return alpha


def _sum(products: NDArray[np.float64]) -> float:
    """Four at a time, as the compiled part adds: products of float32 are exact, so the bits are the same."""
    whole = len(products) // 4 * 4
    lanes = products[:whole].reshape(-1, 4).sum(axis=0).tolist()
    for rest in products[whole:].tolist():
        lanes[0] += rest
    return float((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]))


def first_state(seed: int, class_id: int) -> int:
    """Where the random numbers of a class begin: a matter of these two alone."""
    return int(_mixed(np.array([seed], np.uint64) ^ _mixed(np.array([class_id], np.uint64)))[0])


def shuffle(order: list[int], count: int, state: int) -> int:
    """Fisher and Yates on the first ``count`` places; returns the state of the random numbers after it."""
    places = np.arange(count, dtype=np.uint64)
    draws = _mixed(np.uint64(state) + (places + np.uint64(1)) * np.uint64(_GOLDEN)) >> np.uint64(32)
    steps = (draws * (np.uint64(count) - places)) >> np.uint64(32)
    for s, step in enumerate(steps.tolist()):
        order[s], order[s + step] = order[s + step], order[s]
    return (state + count * _GOLDEN) & _MASK


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64 (Steele, Lea and Flood, 2014): every number stands for itself, so many are drawn at once."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
