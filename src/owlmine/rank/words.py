"""The words of a model: the keys and names of its classes, and how raw queries become features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.arrays import StringTable
from owlmine.data.features import FeaturePlan, stored_tfidf, text_vectoriser
from owlmine.data.ingest import holds_counts
from owlmine.data.rows import SparseRows
from owlmine.data.store import Dataset
from owlmine.data.text import TextVectoriser, TfIdf
from owlmine.errors import OwlmineError


@dataclass(frozen=True)
class ClassWords:
    """The keys, names and counts of the classes."""

    keys: StringTable
    names: StringTable
    counts: NDArray[np.int64]
    """Training points of each class."""
    num_points: int
    """The total number of training points: propensities need it."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def goes_by_keys(self) -> bool:
        """Whether no class has a name besides its key."""
        return all(name == key for name, key in zip(self.names, self.keys, strict=True))

    @classmethod
    def of(cls, data: Dataset) -> ClassWords:
        return cls(data.class_keys, data.class_names, data.class_counts, len(data["train"]))


@dataclass(frozen=True)
class FeatureWords:
    """How raw input becomes features: a vocabulary for text, a weighting for counts, or nothing."""

    weighting: dict[str, Any]
    vocabulary: StringTable | None
    frequencies: NDArray[np.int64] | None
    tfidf: TfIdf | None

    @classmethod
    def of(cls, data: Dataset) -> FeatureWords:
        return cls(
            data.meta["weighting"],
            data.vocabulary,
            data.array("weighting.frequencies"),
            stored_tfidf(data),
        )

    @property
    def from_text(self) -> bool:
        return self.weighting.get("text") is not None

    @cached_property
    def vectoriser(self) -> TextVectoriser | None:
        """Turns a new text into a row of features; None if the features do not come from text.

        It is made when the first text comes: training does not need it.
        """
        return text_vectoriser(self.weighting, self.vocabulary, self.frequencies, self.tfidf)

    def weigh(self, rows: SparseRows, *, num_features: int) -> SparseRows:
        """Sparse vectors as training weighted them."""
        if rows.values is None:
            rows = SparseRows(rows.offsets, rows.indices, np.ones(len(rows.indices), np.float32))
        if self.tfidf is not None and not holds_counts(rows):
            raise OwlmineError("values that are not whole counts were given; the model was trained on counts")
        return FeaturePlan("sparse", num_features, self.weighting, self.tfidf).apply(rows)

    def rarities(self, num_points: int) -> NDArray[np.float64]:
        """[F] how rare each word of the vocabulary is in training documents; about as many as training points."""
        assert self.frequencies is not None
        documents = self.weighting.get("documents") or max(num_points, int(self.frequencies.max()))
        return rarities(self.frequencies, documents)


def rarities(frequencies_F: NDArray[np.int64], num_documents: int) -> NDArray[np.float64]:
    """(ln(N / df) + 1) / (ln N + 1): 1 for a word of a single document. 0 for one of none."""
    with np.errstate(divide="ignore"):
        idf_F = np.log(num_documents / frequencies_F) + 1
    return np.where(frequencies_F > 0, np.minimum(idf_F / (np.log(num_documents) + 1), 1.0), 0.0)
