"""A trained model with its words: texts or vectors in, named classes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.arrays import StringTable
from owlmine.data.features import stored_tfidf, stored_vectoriser
from owlmine.data.rows import SparseRows
from owlmine.data.store import Store
from owlmine.data.text import TextVectoriser, TfIdf
from owlmine.errors import OwlmineError
from owlmine.model.encoder import query_batch
from owlmine.model.retriever import Retriever

# Queries encoded and scored at once.
_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class ClassWords:
    """What is known of the classes besides their vectors."""

    keys: StringTable
    names: StringTable
    counts: NDArray[np.int64]
    """Training points of each class."""
    num_points: int
    """Training points in all: propensities need it."""

    @classmethod
    def of(cls, store: Store) -> ClassWords:
        return cls(store.class_keys, store.class_names, store.class_counts, len(store["train"]))


@dataclass(frozen=True)
class FeatureWords:
    """How raw input becomes features: a vocabulary for text, a weighting for counts, or nothing."""

    weighting: dict[str, Any]
    vocabulary: StringTable | None
    frequencies: NDArray[np.int64] | None
    vectoriser: TextVectoriser | None
    tfidf: TfIdf | None

    @classmethod
    def of(cls, store: Store) -> FeatureWords:
        return cls(
            store.meta["weighting"],
            store.vocabulary,
            store.array("weighting.frequencies"),
            stored_vectoriser(store),
            stored_tfidf(store),
        )

    @property
    def from_text(self) -> bool:
        return self.vectoriser is not None


@dataclass(frozen=True)
class Prediction:
    """One class for one query."""

    key: str
    name: str
    score: float


class Predictor:
    """A model that can be asked. ``config`` is what ``config.json`` says of it."""

    def __init__(
        self, retriever: Retriever, classes: ClassWords, features: FeatureWords, config: dict[str, Any]
    ) -> None:
        self.retriever, self.classes, self.features, self.config = retriever, classes, features, config

    def prepare(self, queries: Sequence[str] | SparseRows | NDArray[Any]) -> SparseRows | NDArray[Any]:
        """Raw queries (texts, counts, vectors) as the model's features."""
        shape = self.retriever.shape
        if isinstance(queries, np.ndarray):
            if not shape.dense:
                raise OwlmineError(f"the model takes {self._wants()}; it was given dense vectors")
            if queries.ndim != 2 or queries.shape[1] != shape.num_features:
                raise OwlmineError(f"vectors have shape {queries.shape}; the model wants width {shape.num_features}")
            return queries
        if isinstance(queries, SparseRows):
            if shape.dense or self.features.from_text:
                raise OwlmineError(f"the model takes {self._wants()}; it was given sparse vectors")
            if len(queries.indices) and int(queries.indices.max()) >= shape.num_features:
                raise OwlmineError(f"feature {queries.indices.max()} was given; the model has {shape.num_features}")
            return queries if self.features.tfidf is None else self.features.tfidf.apply(queries)
        if self.features.vectoriser is None:
            raise OwlmineError(f"the model takes {self._wants()}; it was given text")
        return self.features.vectoriser.transform(queries)

    def top(self, features: SparseRows | NDArray[Any], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and class ids [N, k] of prepared queries, best first."""
        scores, ids = [], []
        for start in range(0, len(features), _BLOCK_ROWS):
            block = features[start : start + _BLOCK_ROWS]
            best, classes = self.retriever.top(query_batch(block, self.retriever.device), k)
            scores.append(best.float().cpu().numpy())
            ids.append(classes.cpu().numpy())
        if not scores:
            return np.zeros((0, k), np.float32), np.zeros((0, k), np.int64)
        return np.concatenate(scores), np.concatenate(ids)

    def predict(self, queries: Sequence[str] | SparseRows | NDArray[Any], k: int = 5) -> list[list[Prediction]]:
        """The ``k`` best classes of each raw query, best first."""
        scores, ids = self.top(self.prepare(queries), k)
        return [
            [
                Prediction(self.classes.keys[c], self.classes.names[c], s)
                for c, s in zip(row_ids.tolist(), row_scores.tolist(), strict=True)
            ]
            for row_ids, row_scores in zip(ids, scores, strict=True)
        ]

    def check_fits(self, store: Store) -> None:
        """The store's numbers must mean what the model's mean."""
        shape = self.retriever.shape
        pairs = (
            ("classes", store.num_classes, shape.num_classes),
            ("features", store.num_features, shape.num_features),
            ("queries", store.meta["queries"], "dense" if shape.dense else "sparse"),
        )
        for what, found, wanted in pairs:
            if found != wanted:
                raise OwlmineError(f"{store.path}: found {what} {found}; the model was trained with {wanted}")
        for number, (found_key, wanted_key) in enumerate(zip(store.class_keys, self.classes.keys, strict=True)):
            if found_key != wanted_key:
                raise OwlmineError(f"{store.path}: class {number} is {found_key!r}; in the model it is {wanted_key!r}")

    def _wants(self) -> str:
        if self.features.from_text:
            return "text"
        return "dense vectors" if self.retriever.shape.dense else "sparse vectors"
