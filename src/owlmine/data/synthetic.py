"""Data whose best answer is known: the distribution is written down first, points are drawn from it.

Every query has one topic, drawn uniformly, which its features give away. Given the topic, a label is drawn by a Zipf
law over the topic's relevant classes, whatever else the query shows. So D(y | x) = P(y | topic of x) exactly, and the
Bayes predictor (paper, Lemma 1) and its risk are known for every query.

Shapes: n points of a chunk, T topics, M relevant classes of a topic, S features that only one topic has,
U features that say nothing, L labels of a point, k retrieved classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator, SeedSequence

import owlmine
from owlmine.data.rows import Float32, Int64, SparseRows, offsets_from_counts
from owlmine.data.store import Store
from owlmine.data.store_writer import StoreWriter
from owlmine.data.synthetic_law import Float64, distinct_popular, draw_places, label_law
from owlmine.data.synthetic_truth import Int32
from owlmine.options import option

# Part of what a seed means: every chunk has a random stream of its own, so a point depends on the seed, the
# distribution and its row number alone, not on how many points there are.
_CHUNK = 1 << 12
_STREAMS = {"order": 0, "topics": 1, "train": 2, "test": 3}
_MAX_INDEX = 2**31 - 1  # class and feature numbers are stored in 32 bits


@dataclass(frozen=True)
class SyntheticOptions:
    """The distribution and how much to draw from it."""

    num_classes: int = option(1_000, "Classes, those that no point has included.")
    train_points: int = option(20_000, "Points to train on.")
    test_points: int = option(2_000, "Points to test on.")
    num_topics: int = option(500, "Topics; each query has one.")
    relevant: int = option(10, "Classes that a topic's labels are drawn from.")
    exponent: float = option(1.0, "A topic's j-th class has a chance proportional to j^-exponent.")
    tail_exponent: float = option(1.0, "The r-th most popular class is relevant with a chance falling like r^-this.")
    labels_per_point: int = option(1, "Distinct labels of each point.")
    signature_features: int = option(3, "Features that belong to one topic alone; a query shows some of them.")
    noise_features: int = option(5, "Features of each query that say nothing about its topic.")
    noise_vocabulary: int = option(1_000, "Features that those are drawn from.")
    seed: int = option(0, "The same seed and options give the same store.")

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
            # Below and above these, neighbouring chances are no longer told apart, or vanish.
            ("exponent", 0.01 <= self.exponent <= 10, "0.01 to 10"),
            ("tail_exponent", 0 <= self.tail_exponent <= 10, "0 to 10"),
            # If every relevant class were a label every time, no choice of k of them would be the best.
            (
                "labels_per_point",
                1 <= self.labels_per_point <= most_labels,
                f"1 to {most_labels:,}, one below relevant",
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
                "written_by": f"owlmine {owlmine.__version__}",
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
        # Ascending class numbers: in the order of the draw, the first label would tell which is likelier.
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
    kept: Float32 = values[present].astype(np.float32)
    return SparseRows(offsets_from_counts(present.sum(axis=1)), indices[present].astype(np.int32), kept)


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
