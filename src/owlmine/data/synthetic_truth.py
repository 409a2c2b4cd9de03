"""What synthetic data was drawn from, read back from its store.

Shapes: n points, T topics, M relevant classes of a topic, L labels of a point, k retrieved classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import Int64
from owlmine.data.store import Store
from owlmine.data.synthetic_law import Float64
from owlmine.errors import OwlmineError

Int32 = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Truth:
    """What the data was drawn from: the best answer to every query, and what any other answer costs."""

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
            raise OwlmineError(f"{store.path}: holds no truth; wanted a store of synthetic data")
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
        """Mean over these points of P(Y not in the retrieved classes): expected loss, free of the luck of labels."""
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
