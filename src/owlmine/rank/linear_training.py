"""Sparse linear classifiers, one per class, trained on the classes that the dense model confuses.

From shortlists to pairs of a class and a point (``MinedPairs``); from pairs to classifiers (``train_linear``), by dual
coordinate descent in C, or in NumPy without a compiler.

With a dual variable 0 <= alpha <= U per point and w = Σ alpha y x, the slope of the dual in one alpha is
    y <w, x> - 1 + alpha r            r = 1 / (2 cost), U = ∞: squared hinge;  r = 0, U = cost: hinge
and one alpha is best, given the others, at alpha - slope / (|x|² + r), cut to its bounds. (Hsieh et al., "A dual
coordinate descent method for large-scale linear SVM", ICML 2008.)

Shapes: N points, K classes, C classes of a chunk, P pairs, S places of a shortlist, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from owlmine.data.rows import Float32, Int64, SparseRows, concatenate, offsets_from_counts
from owlmine.options import option
from owlmine.rank.points import checked_rows, squared_lengths
from owlmine.rank.sparse_weights import SparseWeights, compiled_module

LOSSES = ("squared-hinge", "hinge")


@dataclass(frozen=True)
class LinearOptions:
    """Per class: minimise |w|² / 2 + cost Σ max(0, 1 - y <w, x>)^p, p = 2 for the squared hinge and 1 for the hinge.

    x has a constant feature 1, whose weight is the bias: it is part of |w| like the others.
    """

    cost: float = option(1.0, "how much a point on the wrong side counts against large weights")
    loss: str = option("squared-hinge", f"one of {', '.join(LOSSES)}")
    max_passes: int = option(20, "passes over the points of a class at most")
    tolerance: float = option(0.1, "how far apart the slopes of a class's points may be at the end")
    threshold: float = option(0.05, "weights smaller than this are dropped, the bias never")

    def __post_init__(self) -> None:
        checks = (
            ("cost", isfinite(self.cost) and self.cost > 0, "a number above 0"),
            ("loss", self.loss in LOSSES, f"one of {', '.join(LOSSES)}"),
            ("max_passes", 1 <= self.max_passes < 2**31, "1 or more"),
            ("tolerance", isfinite(self.tolerance) and self.tolerance >= 0, "0 or more"),
            ("threshold", isfinite(self.threshold) and self.threshold >= 0, "0 or more"),
        )
        for name, good, wanted in checks:
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)!r}; wanted {wanted}")

    @property
    def highest_alpha(self) -> float:
        """The upper bound of a point's dual variable."""
        return self.cost if self.loss == "hinge" else float("inf")

    @property
    def ridge(self) -> float:
        """What the loss adds to the diagonal of the dual's quadratic form."""
        return 0.0 if self.loss == "hinge" else 0.5 / self.cost


@dataclass(frozen=True, eq=False)
class MinedPairs:
    """Class c learns from ``points[offsets_K1[c]:offsets_K1[c + 1]]``, ascending, with targets 1 (a label) or -1."""

    offsets_K1: Int64
    points: NDArray[np.int32]
    targets: NDArray[np.int8]

    @property
    def num_classes(self) -> int:
        return len(self.offsets_K1) - 1

    def __len__(self) -> int:
        return len(self.points)

    @classmethod
    def of(cls, ranked_NS: NDArray[Any], labels: SparseRows, *, num_classes: int) -> MinedPairs:
        """A pair (class, point) for each label, 1, and for each class of a shortlist that is no label, -1.

        Ids below 0 are empty places.
        """
        _check_pairs_of(ranked_NS, labels, num_classes)
        # Row by row, labels before the shortlist. Turned round, the points of a class ascend, and where a class stands
        # twice for a point its label comes first.
        is_place_NS = ranked_NS >= 0
        offsets_N1 = offsets_from_counts(labels.counts + is_place_NS.sum(axis=1))
        ids_P, targets_P = np.empty(offsets_N1[-1], np.int32), np.full(offsets_N1[-1], -1, np.int8)
        is_label_P = _first_of_rows(offsets_N1, labels.counts)
        ids_P[is_label_P], targets_P[is_label_P] = labels.indices, 1
        ids_P[~is_label_P] = ranked_NS[is_place_NS]
        by_class = csr_matrix((targets_P, ids_P, offsets_N1), shape=(len(ranked_NS), num_classes)).tocsc()
        points_P, offsets_K1 = by_class.indices, by_class.indptr
        is_first_P = np.ones(len(points_P), np.bool_)
        np.not_equal(points_P[1:], points_P[:-1], out=is_first_P[1:])
        is_first_P[offsets_K1[:-1][offsets_K1[:-1] < len(points_P)]] = True
        num_dropped_K1 = np.searchsorted(np.flatnonzero(~is_first_P), offsets_K1)
        return cls(offsets_K1 - num_dropped_K1, points_P[is_first_P], by_class.data[is_first_P])


def _first_of_rows(offsets_N1: Int64, counts_N: Int64) -> NDArray[np.bool_]:
    """[P] whether an entry is among the first so many of its row."""
    rises = np.zeros(offsets_N1[-1] + 1, np.int8)
    np.add.at(rises, offsets_N1[:-1], 1)
    np.add.at(rises, offsets_N1[:-1] + counts_N, -1)
    return np.cumsum(rises[:-1], dtype=np.int8) > 0


def _check_pairs_of(ranked_NS: NDArray[Any], labels: SparseRows, num_classes: int) -> None:
    if ranked_NS.ndim != 2 or ranked_NS.dtype.kind not in "iu":
        raise ValueError(f"shortlists have the shape {ranked_NS.shape} in {ranked_NS.dtype}; wanted [N, S] class ids")
    if len(labels) != len(ranked_NS):
        raise ValueError(f"there are labels for {len(labels)} points; wanted {len(ranked_NS)}, one row per shortlist")
    if len(labels) >= 2**31 or num_classes < 0 or num_classes * len(labels) >= 2**62:
        raise ValueError(f"{num_classes} classes of {len(labels)} points; wanted a product below 2^62")
    for name, ids, least in (("labels", labels.indices, 0), ("shortlists", ranked_NS, None)):
        if ids.size and (ids.max() >= num_classes or (least is not None and ids.min() < least)):
            raise ValueError(f"{name} hold ids from {ids.min()} to {ids.max()}; wanted ids below {num_classes}")


# Weights that a chunk of classes could write: 128 MiB at 8 bytes each.
_CHUNK_ROOM = 1 << 24
# Entries that a chunk reads in one pass: a few seconds between progress reports.
_CHUNK_ENTRIES = 1 << 27


@dataclass(frozen=True)
class Task:
    """``squares_N``: |x|² of each query with its constant feature 1."""

    queries: SparseRows
    squares_N: NDArray[np.float64]
    pairs: MinedPairs
    num_features: int

    @classmethod
    def of(cls, queries: SparseRows, pairs: MinedPairs, *, num_features: int) -> Task:
        """Raises ValueError if ids are out of range, or a row does not have each feature once, in ascending order."""
        if not 0 <= num_features < 2**31:
            raise ValueError(f"num_features is {num_features}; wanted 0 to 2^31 - 1")
        queries = checked_rows(queries, num_features=num_features)
        if len(queries) >= 2**31:
            raise ValueError(f"there are {len(queries)} queries; wanted fewer than 2^31")
        pairs = _checked_pairs(pairs, num_points=len(queries))
        return cls(queries, squared_lengths(queries) + 1, pairs, num_features)

    def chunks(self) -> Iterator[tuple[range, Int64]]:
        """Consecutive classes, and offsets [C + 1] of the space that their weights may need."""
        offsets_K1 = self.pairs.offsets_K1
        entries_K1 = offsets_from_counts(self.queries.counts[self.pairs.points])[offsets_K1]
        room_K1 = offsets_from_counts(np.minimum(np.diff(entries_K1), self.num_features))
        start = 0
        while start < self.pairs.num_classes:
            stop = min(
                int(np.searchsorted(room_K1, room_K1[start] + _CHUNK_ROOM, side="right")),
                int(np.searchsorted(entries_K1, entries_K1[start] + _CHUNK_ENTRIES, side="right")),
            )
            stop = max(stop - 1, start + 1)
            yield range(start, stop), room_K1[start : stop + 1] - room_K1[start]
            start = stop


def _checked_pairs(pairs: MinedPairs, *, num_points: int) -> MinedPairs:
    offsets_K1, points, targets = (np.asarray(array) for array in (pairs.offsets_K1, pairs.points, pairs.targets))
    if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in (offsets_K1, points, targets)):
        raise ValueError("offsets, points and targets of pairs must be lists of whole numbers")
    if points.shape != targets.shape:
        raise ValueError(f"there are {len(targets)} targets; wanted {len(points)}, one for each point")
    if len(offsets_K1) == 0 or offsets_K1[0] != 0 or offsets_K1[-1] != len(points):
        raise ValueError(f"offsets of pairs must be K + 1 numbers from 0 to the number of pairs, {len(points)}")
    if (np.diff(offsets_K1.astype(np.int64)) < 0).any():
        raise ValueError("offsets of pairs do not ascend")
    if len(points) and not (points.min() >= 0 and points.max() < num_points):
        raise ValueError(f"pairs have points {points.min()} to {points.max()}; there are {num_points} queries")
    if not np.isin(targets, (-1, 1)).all():
        raise ValueError("a target is neither 1 nor -1")
    return MinedPairs(
        np.ascontiguousarray(offsets_K1, np.int64),
        np.ascontiguousarray(points, np.int32),
        np.ascontiguousarray(targets, np.int8),
    )


_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
# A slope below this is not worth a step.
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
    """One class in training; ``weights_F`` is zero for features that none of its points has."""

    task: Task
    points_P: NDArray[np.int32]
    targets_P: NDArray[np.int8]
    weights_F: Float32
    bias: float = 0.0

    def run(self, options: LinearOptions, state: int) -> None:
        """Passes in random order until the slopes not blocked by a bound are within tolerance of each other."""
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
                # Firmly at its bound: left out until the others have converged.
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
    """Four at a time, like the compiled part: products of float32 are exact, so the bits are the same."""
    whole = len(products) // 4 * 4
    lanes = products[:whole].reshape(-1, 4).sum(axis=0).tolist()
    for rest in products[whole:].tolist():
        lanes[0] += rest
    return float((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]))


def first_state(seed: int, class_id: int) -> int:
    """The start of a class's random numbers: it depends on these two only."""
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
    """splitmix64 (Steele, Lea and Flood, 2014): numbers do not depend on each other, so many are drawn at once."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class CompiledTrainer:
    """Learns a chunk of classes at a time; chunks write to the same memory, because fresh pages cost time."""

    def __init__(self, task: Task, options: LinearOptions, seed: int) -> None:
        self._task, self._options, self._seed = task, options, seed
        self._features, self._weights = np.empty(0, np.int32), np.empty(0, np.float32)

    def __call__(self, classes: range, room_C1: Int64) -> tuple[SparseRows, Float32]:
        """Weights of consecutive classes, a row each, and biases [C]; ``room_C1``: offsets of what they could write."""
        extension = compiled_module()
        assert extension is not None
        task, options, room = self._task, self._options, int(room_C1[-1])
        if len(self._features) < room:
            self._features, self._weights = np.empty(room, np.int32), np.empty(room, np.float32)
        offsets_C1, biases_C = np.zeros(len(classes) + 1, np.int64), np.empty(len(classes), np.float32)
        total = extension.train(
            task.queries.offsets,
            task.queries.indices,
            task.queries.values,
            task.num_features,
            task.squares_N,
            task.pairs.offsets_K1[classes.start : classes.stop + 1],
            task.pairs.points,
            task.pairs.targets,
            classes.start,
            (options.highest_alpha, options.ridge, options.tolerance, options.threshold),
            options.max_passes,
            self._seed,
            room_C1,
            self._features,
            self._weights,
            offsets_C1[1:],
            biases_C,
            torch.get_num_threads(),
        )
        np.cumsum(offsets_C1, out=offsets_C1)
        return SparseRows(offsets_C1, self._features[:total].copy(), self._weights[:total].copy()), biases_C


Progress = Callable[[int, int], None]
"""Called with the number of classes done and the total; may raise to stop."""


def train_linear(
    queries: SparseRows,
    pairs: MinedPairs,
    *,
    num_features: int,
    options: LinearOptions | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> SparseWeights:
    """``queries``: the points of the pairs; each feature once in a row, in ascending order.

    A class without a point of each kind gets no weights and the bias 0. The order in which the points of a class are
    visited depends on ``seed`` and the class alone, so the number of threads does not matter.
    """
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed is {seed}; wanted 0 to 2^63 - 1")
    task, options = Task.of(queries, pairs, num_features=num_features), options or LinearOptions()
    trainer = (PlainTrainer if compiled_module() is None else CompiledTrainer)(task, options, seed)
    parts: list[SparseRows] = [SparseRows(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))]
    biases: list[Float32] = [np.zeros(0, np.float32)]
    for classes, room_C1 in task.chunks():
        weights, biases_C = trainer(classes, room_C1)
        parts.append(weights)
        biases.append(biases_C)
        if progress is not None:
            progress(classes.stop, task.pairs.num_classes)
    rows = concatenate(parts)
    return SparseWeights.of(rows, np.concatenate(biases), num_features)
