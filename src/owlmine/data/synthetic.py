"""Synthetic data with a known best answer: the distribution, the draws, and the truth read back from a store.

First the laws: which classes are popular, and which of a topic's classes become labels.

Shapes: n points, T topics, M relevant classes of a topic, L labels of a point.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from math import gcd, log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence
from numpy.typing import NDArray

from owlmine.data.rows import Float32, Int64, SparseRows, offsets_from_counts
from owlmine.data.store import Store
from owlmine.data.store_writer import StoreWriter
from owlmine.errors import OwlmineError
from owlmine.options import option
from owlmine.version import __version__

Float64 = NDArray[np.float64]


def label_law(relevant: int, exponent: float, num_labels: int) -> tuple[Float64, Float64]:
    """How L distinct of M places are drawn, with P(set) proportional to the product of its Zipf weights w_j = j^-s.

    Returns ``chances`` [M, L + 1]: going through the places in order, the chance to take place j while m labels are
    missing, w_j e_(m-1)(w_(j+1)…) / e_m(w_j…) with e the elementary symmetric polynomials; and ``probabilities``
    [M]: the chance that a label picked at random is place j. For L = 1 that is w_j / sum of w.
    """
    log_weights = -exponent * np.log(np.arange(1, relevant + 1))
    # Logarithms, because the polynomials of many small weights leave the range of floats.
    log_e = np.full((relevant + 1, num_labels + 1), -np.inf)
    log_e[:, 0] = 0
    chances = np.zeros((relevant, num_labels + 1))
    for place in reversed(range(relevant)):
        with_place = log_weights[place] + log_e[place + 1, :-1]
        log_e[place, 1:] = np.logaddexp(log_e[place + 1, 1:], with_place)
        possible = with_place > -np.inf
        chances[place, 1:][possible] = np.exp(with_place[possible] - log_e[place, 1:][possible])
    inclusion = np.empty(relevant)
    missing = np.zeros(num_labels + 1)  # by number of labels still missing, its probability
    missing[num_labels] = 1
    for place in range(relevant):
        taken = missing * chances[place]
        inclusion[place] = taken.sum()
        missing -= taken
        missing[:-1] += taken[1:]
    return chances, inclusion / num_labels


def draw_places(rng: Generator, num_points: int, chances: Float64) -> Int64:
    """L distinct places per point [n, L] by ``label_law``."""
    num_labels = chances.shape[1] - 1
    places_nL = np.empty((num_points, num_labels), np.int64)
    missing = np.full(num_points, num_labels)
    unfinished = np.arange(num_points)
    for place, chance in enumerate(chances):
        taking = unfinished[rng.random(len(unfinished)) < chance[missing[unfinished]]]
        missing[taking] -= 1
        places_nL[taking, missing[taking]] = place
        unfinished = unfinished[missing[unfinished] > 0]
        if not len(unfinished):
            break
    assert not len(unfinished)  # the last places are taken with chance 1 where they are needed
    return places_nL


def distinct_popular(uniform_TM: Float64, num_classes: int, exponent: float) -> Int64:
    """Distinct popularity ranks (from 0) per row, ascending, whose frequency falls like rank^-exponent.

    A rank is the whole part of a draw with density x^-exponent on [1, K + 1), less 1. Where that repeats a rank of the
    row, the next rarer free one takes its place, so this ends even if all K are wanted.
    """
    span, slope = log(num_classes + 1), 1 - exponent
    if abs(slope) < 1e-9:
        position = np.exp(uniform_TM * span)
    else:
        position = np.exp(np.log1p(uniform_TM * np.expm1(slope * span)) / slope)
    ranks = np.sort(np.minimum(position.astype(np.int64) - 1, num_classes - 1), axis=1)
    places = np.arange(ranks.shape[1])
    # Both bounds rise by at least 1 from place to place, and so does the smaller of the two.
    moved_up = np.maximum.accumulate(ranks - places, axis=1) + places
    distinct: Int64 = np.minimum(moved_up, num_classes - ranks.shape[1] + places)
    return distinct


# Data with a known best answer: points are drawn from a distribution that is fixed first.
#
# Every query has one topic, drawn uniformly, which its features identify. Given the topic, a label is drawn by a Zipf
# law over the topic's relevant classes, independently of all else in the query. So D(y | x) = P(y | topic of x) exactly
# and the Bayes predictor (paper, Lemma 1) and its risk are known for every query.
#
# Shapes: n points of a chunk, T topics, M relevant classes of a topic, S features that only one topic has,
# U noise features, L labels of a point, k retrieved classes.


# Part of what a seed means: every chunk has a random stream of its own, so a point depends on the seed, the
# distribution and its row number alone, not on how many points there are.
_CHUNK = 1 << 12
_STREAMS = {"order": 0, "topics": 1, "train": 2, "test": 3}
_MAX_INDEX = 2**31 - 1  # class and feature numbers are stored in 32 bits


@dataclass(frozen=True)
class SyntheticOptions:
    """The distribution and how much to draw from it."""

    num_classes: int = option(1_000, "Classes, including those without a point.")
    train_points: int = option(20_000, "Points to train on.")
    test_points: int = option(2_000, "Points to test on.")
    num_topics: int = option(500, "Topics; each query has one.")
    relevant: int = option(10, "Classes that a topic's labels are drawn from.")
    exponent: float = option(1.0, "A topic's j-th class has a probability proportional to j^-exponent.")
    tail_exponent: float = option(
        1.0, "The r-th most popular class is relevant with probability proportional to r^-tail-exponent."
    )
    labels_per_point: int = option(1, "Distinct labels of each point.")
    signature_features: int = option(3, "Features that belong to one topic only; a query has some of its topic's.")
    noise_features: int = option(5, "Noise features of each query, independent of its topic.")
    noise_vocabulary: int = option(1_000, "Number of features that noise is drawn from.")
    seed: int = option(0, "Random seed; the same seed and options give the same store.")

    def __post_init__(self) -> None:
        for given in fields(self):
            if not isinstance(getattr(self, given.name), int if given.type == "int" else (int, float)):
                raise ValueError(f"{given.name} is {getattr(self, given.name)!r}; wanted a Python {given.type}")
        most_labels = max(1, self.relevant - 1)
        most_topics = (_MAX_INDEX - self.noise_vocabulary) // max(1, self.signature_features)
        checks = (
            ("num_classes", 1 <= self.num_classes <= _MAX_INDEX, f"1 to {_MAX_INDEX:,}"),
            ("train_points", self.train_points >= 1, "1 or more"),
            ("test_points", self.test_points >= 1, "1 or more"),
            ("relevant", 1 <= self.relevant <= self.num_classes, f"1 to the {self.num_classes:,} classes"),
            # Outside this range, neighbouring chances can no longer be distinguished, or vanish.
            ("exponent", 0.01 <= self.exponent <= 10, "0.01 to 10"),
            ("tail_exponent", 0 <= self.tail_exponent <= 10, "0 to 10"),
            # If every relevant class were a label every time, no choice of k of them would be the best.
            (
                "labels_per_point",
                1 <= self.labels_per_point <= most_labels,
                f"1 to {most_labels:,}, one less than relevant",
            ),
            ("signature_features", self.signature_features >= 1, "1 or more"),
            ("noise_features", self.noise_features >= 0, "0 or more"),
            ("noise_vocabulary", self.noise_vocabulary >= self.noise_features, f"at least {self.noise_features:,}"),
            (
                "num_topics",
                1 <= self.num_topics <= most_topics,
                f"1 to {most_topics:,}: features are numbered in 32 bits",
            ),
            ("seed", self.seed >= 0, "0 or more"),
        )
        for name, good, wanted in checks:
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)!r}; wanted {wanted}")

    @property
    def num_features(self) -> int:
        return self.num_topics * self.signature_features + self.noise_vocabulary


def synthesize(out: str | Path, options: SyntheticOptions | None = None) -> Store:
    """Draws a dataset with known truth into a store at ``out``; memory does not grow with the number of points.

    With one label per point this is the paper's setting. With L > 1, the labels are what L independent draws from
    the Zipf law give when all are distinct. A likelier class is then likelier to be among the labels, so the same top
    k stays the best choice for precision, recall, nDCG and the chance to retrieve at least one label.
    """
    options = options or SyntheticOptions()
    chances, probabilities_M = label_law(options.relevant, options.exponent, options.labels_per_point)
    topic_classes_TM = _draw_topics(options)
    class_counts = np.zeros(options.num_classes, np.int64)
    with StoreWriter(out) as writer:
        splits = {
            name: _write_split(writer, name, options, topic_classes_TM, chances, class_counts)
            for name in ("train", "test")
        }
        writer.whole_array("classes.counts", class_counts)
        _write_number_keys(writer, options.num_classes)
        writer.whole_array("truth.topic_classes", topic_classes_TM)
        writer.whole_array("truth.probabilities", probabilities_M)
        return writer.finish(
            {
                "written_by": f"owlmine {__version__}",
                "source": {"format": "synthetic", "files": [], "options": asdict(options)},
                "queries": "sparse",
                "features": options.num_features,
                "classes": options.num_classes,
                "weighting": {"kind": "none", "why": "synthetic unit rows"},
                "keep_empty": False,
                "splits": splits,
            }
        )


def _write_split(
    writer: StoreWriter,
    name: str,
    options: SyntheticOptions,
    topic_classes_TM: Int32,
    chances: Float64,
    class_counts: Int64,
) -> dict[str, Any]:
    """Draws and writes one split, counts train's labels into ``class_counts``, and returns what ``meta.json`` says."""
    num_points = options.train_points if name == "train" else options.test_points
    labels_out = writer.sparse(f"{name}.labels", with_values=False)
    features_out = writer.sparse(f"{name}.features", with_values=True)
    topics_out = writer.array(f"{name}.topics", np.int32)
    for start, rng in _streams(options.seed, _STREAMS[name], num_points):
        # The last chunk is drawn whole and then cut, so that its points are those of a longer split.
        topics = rng.integers(options.num_topics, size=_CHUNK)
        queries = _draw_queries(rng, topics, options)
        places_nL = draw_places(rng, _CHUNK, chances)
        size = min(_CHUNK, num_points - start)
        # Ascending class numbers: in the order of the draw, the first label would reveal which is likelier.
        labels_nL = np.sort(topic_classes_TM[topics[:, None], places_nL], axis=1)[:size]
        topics_out.append(topics[:size])
        features_out.append(queries[:size])
        offsets = offsets_from_counts(np.full(size, options.labels_per_point))
        labels_out.append(SparseRows(offsets, labels_nL.ravel(), None))
        if name == "train":
            np.add.at(class_counts, labels_nL.ravel(), 1)
    dropped = ("emptied_of_labels", "emptied_of_features", "without_label", "unseen_labels_dropped")
    return {
        "points": num_points,
        "points_read": num_points,
        "labels": labels_out.num_entries,
        "feature_entries": features_out.num_entries,
        **dict.fromkeys(dropped, 0),
        "accepted": {},
    }


def _draw_topics(options: SyntheticOptions) -> Int32:
    """The relevant classes of every topic [T, M], in an order that has nothing to do with popularity."""
    num_classes = options.num_classes
    _, order_rng = next(_streams(options.seed, _STREAMS["order"], 1))
    # Class id = (stride * popularity rank + offset) mod K: a permutation without a table of K entries.
    offset, stride = int(order_rng.integers(num_classes)), 0
    while gcd(stride, num_classes) != 1:
        stride = int(order_rng.integers(1, num_classes + 1))
    classes_TM = np.empty((options.num_topics, options.relevant), np.int32)
    for start, rng in _streams(options.seed, _STREAMS["topics"], options.num_topics):
        part = classes_TM[start : start + _CHUNK]
        ranks = distinct_popular(rng.random(part.shape), num_classes, options.tail_exponent)
        part[:] = rng.permuted((ranks * stride + offset) % num_classes, axis=1)
    return classes_TM


def _draw_queries(rng: Generator, topics: Int64, options: SyntheticOptions) -> SparseRows:
    """Unit rows: a non-empty choice of the topic's own features, and noise features that ignore the topic."""
    num_points, num_own = len(topics), options.signature_features
    shown_nS = rng.random((num_points, num_own)) < 0.5
    shown_nS[np.arange(num_points), rng.integers(num_own, size=num_points)] = True
    own_nS = topics[:, None] * num_own + np.arange(num_own)
    # One feature out of each of U equal parts of the vocabulary: distinct and ascending without a rejection.
    edges = np.arange(options.noise_features + 1) * options.noise_vocabulary // max(1, options.noise_features)
    noise_nU = rng.integers(edges[:-1], edges[1:], size=(num_points, options.noise_features))
    present = np.hstack([shown_nS, np.ones(noise_nU.shape, np.bool_)])
    indices = np.hstack([own_nS, options.num_topics * num_own + noise_nU])
    values = rng.uniform(0.5, 1.5, present.shape) * present
    values /= np.sqrt((values * values).sum(axis=1, keepdims=True))
    weights: Float32 = values[present].astype(np.float32)
    return SparseRows(offsets_from_counts(present.sum(axis=1)), indices[present].astype(np.int32), weights)


def _streams(seed: int, stream: int, num_rows: int) -> Iterator[tuple[int, Generator]]:
    """The first row of each chunk and the chunk's own source of randomness."""
    for chunk, start in enumerate(range(0, num_rows, _CHUNK)):
        yield start, Generator(PCG64(SeedSequence(seed, spawn_key=(stream, chunk))))


def _write_number_keys(writer: StoreWriter, num_classes: int, piece: int = 1 << 18) -> None:
    """What ``writer.strings("classes.keys", map(str, range(K)))`` writes; ten million in a second or two."""
    data, offsets = writer.array("classes.keys.bytes", np.uint8), writer.array("classes.keys.offsets", np.int64)
    offsets.append(np.zeros(1, np.int64))
    for digits in range(1, len(str(num_classes - 1)) + 1):
        powers = (10 ** np.arange(digits - 1, -1, -1)).astype(np.int32)
        stop = min(10**digits, num_classes)
        for start in range(10 ** (digits - 1) if digits > 1 else 0, stop, piece):
            numbers = np.arange(start, min(start + piece, stop), dtype=np.int32)
            offsets.append(data.num_rows + digits * np.arange(1, len(numbers) + 1))
            data.append((numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8).ravel())


# What synthetic data was drawn from, read back from its store.
#
# Shapes: n points, T topics, M relevant classes of a topic, L labels of a point, k retrieved classes.


Int32 = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Truth:
    """The distribution of the data: the best answer to every query, and the cost of any other answer."""

    num_classes: int
    topic_classes: Int32
    """[T, M]: the relevant classes of each topic, the likeliest first."""
    probabilities: Float64
    """[M]: D(y | x) of those classes, the same for every topic. Y is the point's label, or one of its L at random."""
    topics: dict[str, Int32]
    """By split: the topic of each point."""

    @classmethod
    def of(cls, store: Store) -> Truth:
        classes, probabilities = store.array("truth.topic_classes"), store.array("truth.probabilities")
        if classes is None or probabilities is None:
            raise OwlmineError(f"{store.path}: has no known truth; wanted a store of synthetic data")
        topics = {split: store.array(f"{split}.topics") for split in store.splits}
        return cls(store.num_classes, classes, probabilities, {k: v for k, v in topics.items() if v is not None})

    def conditional(self, topic: int) -> tuple[Int32, Float64]:
        """The classes that queries of this topic can have, likeliest first, and D(y | x) of each; others have 0."""
        if not 0 <= topic < len(self.topic_classes):
            raise ValueError(f"topic is {topic}; wanted 0 to {len(self.topic_classes) - 1}")
        return self.topic_classes[topic], self.probabilities

    def bayes_top(self, split: str, rows: Int64, k: int) -> Int32:
        """b(x) of Lemma 1 for these points: class ids [n, k], likeliest first.

        Past the relevant classes all others have probability 0; the places left are filled by the lowest of them.
        """
        self._check_k(k)
        classes_nM = self.topic_classes[self._topics_of(split, rows)]
        num_filled = k - classes_nM.shape[1]
        if num_filled <= 0:
            return classes_nM[:, :k]
        # Of the ids below k, at least k - M are not relevant.
        free_nk = np.ones((len(classes_nM), k), np.bool_)
        row, place = np.nonzero(classes_nM < k)
        free_nk[row, classes_nM[row, place]] = False
        fillers = np.argsort(~free_nk, axis=1, kind="stable")[:, :num_filled]
        return np.hstack([classes_nM, fillers.astype(np.int32)])

    def bayes_risk(self, split: str, k: int) -> float:
        """The least possible R(f) = mean over the split's queries of P(Y not in f(x)), with k classes retrieved.

        The best possible expected precision at k is L (1 - this) / k. Every topic has the same probabilities, so
        every split has the same least risk.
        """
        self._check_k(k)
        self._topics_of(split, np.zeros(0, np.int64))
        # The smallest terms first, and of the tail: the sum stays exact where the risk is near 0.
        return float(self.probabilities[k:][::-1].sum())

    def risk(self, split: str, rows: Int64, retrieved_nk: NDArray[np.integer[Any]]) -> float:
        """Mean over these points of P(Y not in the retrieved classes): the expected loss, without the noise of drawn
        labels."""
        classes_nM = self.topic_classes[self._topics_of(split, rows)]
        if retrieved_nk.ndim != 2 or len(retrieved_nk) != len(classes_nM) or not len(classes_nM):
            raise ValueError(
                f"retrieved is {retrieved_nk.shape}; wanted k ids for each of {len(classes_nM)} rows, 1 or more"
            )
        missed_nM = np.ones(classes_nM.shape, np.bool_)
        for column in range(retrieved_nk.shape[1]):
            missed_nM &= classes_nM != retrieved_nk[:, column, None]
        return float((missed_nM @ self.probabilities).mean())

    def _topics_of(self, split: str, rows: Int64) -> Int32:
        if split not in self.topics:
            raise ValueError(f"split is {split!r}; wanted one of {', '.join(self.topics)}")
        topics = self.topics[split]
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(topics):
            raise ValueError(f"rows are {rows.min()} to {rows.max()}; wanted 0 to {len(topics) - 1}")
        return topics[rows]

    def _check_k(self, k: int) -> None:
        if not 1 <= k <= self.num_classes:
            raise ValueError(f"k is {k}; wanted 1 to the {self.num_classes:,} classes")
