"""Examples of classes that a model does not have: the vectors of their queries, and how known classes score for them.

Shapes: N examples, D dimension, P pairs of an example and a new class of its, T best known classes, E labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.formats.block import Queries, RowLabels
from owlmine.data.rows import Int64, SparseRows, concatenate, offsets_from_counts
from owlmine.dense.encoder import query_batch
from owlmine.errors import DataError, OwlmineError
from owlmine.model.class_index import ClassIndex
from owlmine.model.predictor import Predictor

PLACES = 5
"""Among how many a class wants to be."""

_BLOCK_ROWS = 4096


@dataclass(frozen=True)
class ScoredQueries:
    """Queries of which the model knows a feature, and its scores for them."""

    vectors_ND: Tensor
    best_NT: Tensor
    """The scores of the ``PLACES`` best known classes, best first."""
    level_N: Tensor
    """The score by vectors alone of the known class in the last of these places, or higher up where classes are few."""
    lift_N: Tensor
    """What a re-ranker adds to the score of the same class; 0 where the model has none."""
    floor_N: Tensor
    """The score by vectors of the last known class that a re-ranker judges; -inf where that is every class."""
    dense_N: Tensor
    """The best score by vectors alone."""
    name_lift_N: Tensor
    """What its name adds to the score of the class of ``level_N``, as a part of the lift."""
    features: SparseRows | None = field(default=None, kw_only=True)
    """The queries themselves, where the model has a re-ranker."""

    @classmethod
    def of(cls, predictor: Predictor, features: SparseRows | NDArray[Any]) -> tuple[ScoredQueries, NDArray[np.bool_]]:
        """Of prepared queries; and which of them have a vector other than 0, as only those are kept."""
        if predictor.retriever.shape.kind == "linear":
            raise OwlmineError("the model is linear, without vectors that new classes could have; wanted an embedding")
        blocks = [features[start : start + _BLOCK_ROWS] for start in range(0, len(features), _BLOCK_ROWS)]
        whole = cls.joined([cls(*_scored(predictor, block)) for block in blocks])
        known_N = whole.vectors_ND.any(dim=1)
        kept = None
        if predictor.reranker is not None:
            assert isinstance(features, SparseRows)
            kept = features.take(np.flatnonzero(known_N.cpu().numpy()))
        return cls(*(part[known_N] for part in whole._parts), features=kept), known_N.cpu().numpy()

    @classmethod
    def joined(cls, parts: Sequence[ScoredQueries]) -> ScoredQueries:
        rows = [part.features for part in parts if part.features is not None]
        tensors = (torch.cat(same) for same in zip(*(part._parts for part in parts), strict=True))
        return cls(*tensors, features=concatenate(rows) if rows else None)

    def __len__(self) -> int:
        return len(self.vectors_ND)

    @property
    def _parts(self) -> tuple[Tensor, ...]:
        return (
            self.vectors_ND,
            self.best_NT,
            self.level_N,
            self.lift_N,
            self.floor_N,
            self.dense_N,
            self.name_lift_N,
        )


def _scored(predictor: Predictor, features: SparseRows | NDArray[Any]) -> tuple[Tensor, ...]:
    retriever, num_classes = predictor.retriever, predictor.retriever.shape.num_classes
    # Classes that were added before have vectors of another length, where there is a re-ranker.
    trained = None if predictor.reranker is None else predictor.reranker.num_trained
    num_trained = num_classes if trained is None else trained
    place = min(PLACES, max(num_trained // 10, 1)) - 1
    listed = PLACES if predictor.reranker is None else max(PLACES, predictor.reranker.shortlist)
    scores, ids = predictor.shortlist(
        features, min(listed, num_trained), among=None if trained is None else np.arange(trained)
    )
    best, level = scores[:, :PLACES], scores[:, place]
    lift, name_lift, floor = np.zeros_like(level), np.zeros_like(level), np.full_like(level, -np.inf)
    vectors = retriever.encode(query_batch(features, retriever.device))
    if predictor.reranker is not None:
        assert isinstance(features, SparseRows)
        placed = ids[:, place : place + 1]
        again, _ = predictor.reranker.reorder(features, vectors, level[:, None], placed, best_N=scores[:, 0])
        lift = again[:, 0] - level
        if (names := predictor.reranker.names) is not None:
            name_lift = predictor.reranker.name_weight * names.scores(features, placed, scores[:, 0])[:, 0]
        best, _ = predictor.top(features, min(PLACES, num_classes))
        if predictor.reranker.shortlist < num_trained:
            floor = scores[:, predictor.reranker.shortlist - 1]
    told = (
        torch.from_numpy(np.array(part)).to(retriever.device)
        for part in (best, level, lift, floor, scores[:, 0], name_lift)
    )
    return vectors, *told


@dataclass(frozen=True)
class Examples:
    """Points with a label that the model does not know."""

    keys: tuple[str, ...]
    """The new classes, in the order in which they first appear."""
    names: dict[str, str]
    """What people call them, where the source tells."""
    queries: ScoredQueries
    rows_P: Int64
    """Of ``queries``, ascending."""
    classes_P: Int64
    """Places in ``keys``."""
    known_labels: int
    """Labels of classes that the model has, which were passed over."""
    without_features: int
    """Points with a new label of which the model knows no feature; they are not among the examples."""

    @classmethod
    def of(cls, predictor: Predictor, queries: Queries, labels: Sequence[Sequence[str]]) -> Examples:
        """Of raw queries in memory, each with the keys of its classes."""
        if len(queries) != len(labels):
            raise ValueError(f"{len(queries)} queries and {len(labels)} lists of labels were given; wanted as many")
        gathering = Gathering(predictor)
        own = [list(dict.fromkeys(keys)) for keys in labels]
        offsets = offsets_from_counts(np.array([len(keys) for keys in own], np.int64))
        gathering.add(predictor.prepare(queries), RowLabels(offsets, [key for keys in own for key in keys]))
        return gathering.finish({})


class Gathering:
    """Examples, block by block."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor, self._index = predictor, ClassIndex(predictor.classes.keys)
        self._numbers: dict[str, int] = {}
        self._queries: list[ScoredQueries] = []
        self._rows: list[Int64] = []
        self._classes: list[Int64] = []
        self._num_queries = self._known = self._without_features = 0

    def add(self, features: Any, labels: RowLabels) -> None:
        """Prepared queries and their labels, each class once a query."""
        is_new_E = self._index.raw_ids(labels, training=False) < 0
        self._known += int((~is_new_E).sum())
        if not is_new_E.any():
            return
        rows_E = np.repeat(np.arange(len(labels)), np.diff(labels.offsets))[is_new_E]
        keys = (str(labels.classes[entry]) for entry in np.flatnonzero(is_new_E).tolist())
        numbers_E = np.array([self._numbers.setdefault(key, len(self._numbers)) for key in keys], np.int64)
        rows, places_E = np.unique(rows_E, return_inverse=True)
        taken = features.take(rows) if isinstance(features, SparseRows) else features[rows]
        queries, seen = ScoredQueries.of(self._predictor, taken)
        kept_E = seen[places_E]
        self._rows.append(self._num_queries + (np.cumsum(seen) - 1)[places_E[kept_E]])
        self._classes.append(numbers_E[kept_E])
        self._queries.append(queries)
        self._num_queries += len(queries)
        self._without_features += int((~seen).sum())

    def finish(self, names: dict[str, str], *, source: str | Path = "examples") -> Examples:
        if not self._numbers:
            found = f"{self._known:,} labels, all of classes that the model has"
            raise DataError(source, found=found, wanted="labels that are new")
        return Examples(
            tuple(self._numbers),
            {key: names[key] for key in self._numbers if key in names},
            ScoredQueries.joined(self._queries),
            np.concatenate(self._rows),
            np.concatenate(self._classes),
            self._known,
            self._without_features,
        )
