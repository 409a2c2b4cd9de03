"""Examples of classes that a model does not have: the vectors of their queries, and the scores of known classes.

Shapes: N examples, D dimension, S places of a list, P pairs of an example and one of its new classes, T best known
classes, E labels.
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

from owlmine.data.formats.block import RowLabels
from owlmine.data.rows import Float32, Int64, SparseRows, concatenate
from owlmine.errors import DataError, OwlmineError
from owlmine.exchange.labelled import ExampleOptions, LabelledData, labelled_in_memory, open_labelled
from owlmine.index import Filter
from owlmine.rank.candidates import Candidates, Encoded, find_candidates
from owlmine.rank.class_index import ClassIndex
from owlmine.rank.names import NameJudge
from owlmine.rank.predictor import Features, Predictor
from owlmine.rank.queries import check_scores

PLACES = 5
"""A new class should be among this many best classes."""

_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class ScoredQueries:
    """Queries with a feature that the model knows, and its scores for them."""

    vectors_ND: Tensor
    best_NT: Tensor
    """The scores of the ``PLACES`` best known classes, best first."""
    level_N: Tensor
    """The dense score of the known class in the last of these places, or higher up if there are few classes."""
    lift_N: Tensor
    """What judges add to the score of the same class; 0 without judges."""
    floor_N: Tensor
    """The dense score of the last known class on the shortlist; -inf if that has every class."""
    dense_N: Tensor
    """The best dense score."""
    name_lift_N: Tensor
    """The part of the lift that comes from the name, for the class of ``level_N``."""
    features: SparseRows | None = field(default=None, kw_only=True)
    """The queries themselves, if the model has judges."""

    @classmethod
    def of(cls, predictor: Predictor, features: Features) -> tuple[ScoredQueries, NDArray[np.bool_]]:
        """From prepared queries. Also returns which have a nonzero vector; the others are left out."""
        if predictor.dense.shape.kind == "linear":
            raise OwlmineError("the model is linear and has no class vectors; wanted an embedding")
        blocks = [features[start : start + _BLOCK_ROWS] for start in range(0, len(features), _BLOCK_ROWS)]
        whole = cls.joined([cls(*_scored(predictor, block)) for block in blocks])
        known_N = whole.vectors_ND.any(dim=1)
        known = known_N.cpu().numpy()
        rows = features.take(np.flatnonzero(known)) if isinstance(features, SparseRows) else None
        return cls(*(part[known_N] for part in whole._parts), features=rows if predictor.ranker.judges else None), known

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


def _scored(predictor: Predictor, features: Features) -> tuple[Tensor, ...]:
    model, ranker = predictor.dense, predictor.ranker
    encoded = Encoded.of(model, features)
    every = ranker.candidates(model, encoded, PLACES, index=predictor.index)
    check_scores(every.dense_NS, 0, filled_NS=every.ids_NS >= 0)
    # Classes added before have vectors of another length in a re-ranked model, so they are not used.
    num_trained = ranker.num_trained or model.shape.num_classes
    trained = every
    if ranker.num_trained is not None:
        count = min(max(PLACES, ranker.shortlist), num_trained)
        only = Filter.forbidding(np.arange(num_trained, model.shape.num_classes), model.shape.num_classes)
        trained = find_candidates(model, encoded, count, index=predictor.index, only=only)
    dense_NS, ids_NS = trained.dense_NS[:, : trained.num_listed], trained.ids_NS[:, : trained.num_listed]
    place = min(PLACES, max(num_trained // 10, 1)) - 1
    level_N, floor_N = dense_NS[:, place], np.full(len(encoded), -np.inf, np.float32)
    placed = Candidates(encoded, ids_NS[:, place : place + 1], level_N[:, None], dense_NS[:, 0], 1)
    if ranker.judges and ranker.shortlist < num_trained:
        floor_N = dense_NS[:, ranker.shortlist - 1]
    columns = (
        ranker.order(every)[0][:, :PLACES],
        level_N,
        ranker.scores(placed)[:, 0] - level_N,
        floor_N,
        dense_NS[:, 0],
        _name_scores(predictor, placed)[:, 0],
    )
    return encoded.vectors_ND, *(torch.from_numpy(np.array(part)).to(model.device) for part in columns)


def _name_scores(predictor: Predictor, candidates: Candidates) -> Float32:
    ranker = predictor.ranker
    if NameJudge.name not in ranker.judges:
        return np.zeros_like(candidates.dense_NS)
    return np.float32(ranker.mix.weights[NameJudge.name]) * ranker.judges[NameJudge.name].scores(candidates)


@dataclass(frozen=True)
class Examples:
    """Points with a label that the model does not know."""

    keys: tuple[str, ...]
    """The new classes, in the order in which they first appear."""
    names: dict[str, str]
    """Their names, if the source has names."""
    queries: ScoredQueries
    rows_P: Int64
    """Rows of ``queries``, ascending."""
    classes_P: Int64
    """Places in ``keys``."""
    known_labels: int
    """The number of labels ignored because the model already has their classes."""
    without_features: int
    """The number of points with a new label but no feature that the model knows; they are not among the examples."""

    @classmethod
    def of(cls, predictor: Predictor, X: Any, Y: Any) -> Examples:
        """From queries ``X`` in memory, as for ``predict``, with labels ``Y``, as for ``fit``."""
        return Gathering(predictor).all_of(labelled_in_memory(predictor, X, Y))

    @classmethod
    def read(
        cls, predictor: Predictor, path: Path, *, options: ExampleOptions | None = None, split: str | None = None
    ) -> Examples:
        """From a file, or from a split (``train`` by default) of a folder or store."""
        data = open_labelled(predictor, path, options=options, split=split)
        return Gathering(predictor).all_of(data, source=path)


class Gathering:
    """Collects examples, block by block."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor, self._index = predictor, ClassIndex(predictor.classes.keys)
        self._numbers: dict[str, int] = {}
        self._queries: list[ScoredQueries] = []
        self._rows: list[Int64] = []
        self._classes: list[Int64] = []
        self._num_queries = self._known = self._without_features = 0

    def all_of(self, data: LabelledData, *, source: str | Path = "examples") -> Examples:
        for block in data.blocks:
            self.add(block.queries, block.labels)
        return self.finish(data.names, source=source)

    def add(self, features: Any, labels: RowLabels) -> None:
        """Prepared queries and their labels, each class once per query."""
        is_new_E = self._index.raw_ids(labels, training=False) < 0
        self._known += int((~is_new_E).sum())
        if not is_new_E.any():
            return
        rows_E = np.repeat(np.arange(len(labels)), np.diff(labels.offsets))[is_new_E]
        keys = (str(labels.classes[entry]) for entry in np.flatnonzero(is_new_E).tolist())
        numbers_E = np.array([self._numbers.setdefault(key, len(self._numbers)) for key in keys], np.int64)
        rows, places_E = np.unique(rows_E, return_inverse=True)
        taken = features.take(rows) if isinstance(features, SparseRows) else features[rows]
        queries, is_known = ScoredQueries.of(self._predictor, taken)
        known_E = is_known[places_E]
        self._rows.append(self._num_queries + (np.cumsum(is_known) - 1)[places_E[known_E]])
        self._classes.append(numbers_E[known_E])
        self._queries.append(queries)
        self._num_queries += len(queries)
        self._without_features += int((~is_known).sum())

    def finish(self, names: dict[str, str], *, source: str | Path = "examples") -> Examples:
        if not self._numbers:
            found = f"{self._known:,} labels, all of classes that the model already has"
            raise DataError(source, found=found, wanted="labels of new classes")
        return Examples(
            tuple(self._numbers),
            {key: names[key] for key in self._numbers if key in names},
            ScoredQueries.joined(self._queries),
            np.concatenate(self._rows),
            np.concatenate(self._classes),
            self._known,
            self._without_features,
        )
