"""A trained model that answers queries: texts or vectors in, classes with scores and probabilities out.

It is immutable and may be used from many threads at once.

Shapes: N queries, k answers, S places of a list, T best scores of all classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from owlmine.data.arrays import StringTable
from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.data.store import PointWords, Store
from owlmine.dense.retriever import Retriever
from owlmine.errors import DataError, OwlmineError
from owlmine.index import ExactIndex, Filter, Index
from owlmine.metrics.propensity import PropensityConstants, inverse_propensities
from owlmine.rank.candidates import Candidates, Encoded
from owlmine.rank.class_index import ClassFinder
from owlmine.rank.filters import check_filter, filter_of
from owlmine.rank.queries import (
    as_dense,
    as_sparse,
    as_texts,
    check_scores,
    check_tail,
    checked_features,
    checked_k,
    described,
    knows,
)
from owlmine.rank.ranker import Ranker
from owlmine.rank.record import Record
from owlmine.rank.words import ClassWords, FeatureWords

Features = SparseRows | NDArray[np.float32]
"""Queries as the model's features: the result of ``prepare``, or the queries of a store."""

# Queries encoded and scored at once; fewer if a query is as wide as all features (the linear model).
_BLOCK_ROWS = 1024
_BLOCK_NUMBERS = 1 << 26
# Best classes of a query that are re-ordered if rare ones are lifted; classes beyond these are not lifted.
_LIFTED = 100


@dataclass(frozen=True, slots=True)
class Prediction:
    """One class for one query."""

    key: str
    name: str
    score: float
    probability: float | None = None
    """The probability that the class is a label of the query; None if the model has no calibration."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """The best classes of N queries as arrays, best first. An empty place has the id -1 and the score -inf."""

    ids_Nk: Int64
    scores_Nk: Float32
    probabilities_Nk: Float32 | None
    """None if the model has no calibration."""

    def __len__(self) -> int:
        return len(self.ids_Nk)


@dataclass(frozen=True, eq=False)
class Predictor:
    """The dense model, the ranker, and the words for queries and classes."""

    dense: Retriever
    ranker: Ranker
    classes: ClassWords
    features: FeatureWords
    record: Record
    index: Index
    """Finds the best classes of the dense model."""
    points: PointWords = field(default_factory=PointWords)
    """What can be said of training points that vote."""

    def __repr__(self) -> str:
        judges = ", ".join(self.ranker.judges)
        return (
            f"<{type(self).__name__} of {len(self.classes):,} classes for {self.takes}, trained on {self.record.data!r}"
            f" ({self.dense.shape.num_parameters:,} parameters{'; judges: ' + judges if judges else ''})>"
        )

    @cached_property
    def finder(self) -> ClassFinder:
        """Finds classes by key or name; made when it is first needed."""
        return ClassFinder(self.classes)

    @property
    def takes(self) -> str:
        """The kind of query that the model takes, in words."""
        if self.features.from_text:
            return "text"
        return "dense vectors" if self.dense.shape.dense else "sparse vectors"

    def prepare(self, queries: Any) -> Features:
        """Raw queries as the model's features.

        A text model takes strings in a list, tuple, array or Series; a model of sparse vectors a SciPy matrix,
        ``SparseRows`` or dense rows; one of dense vectors a 2-d array, a tensor or lists of numbers. Data frames may
        stand for any of these.
        """
        num_features = self.dense.shape.num_features
        if self.features.vectoriser is not None:
            return self.features.vectoriser.transform(as_texts(queries))
        if self.dense.shape.dense:
            return as_dense(queries, num_features=num_features)
        return self.features.weigh(as_sparse(queries, num_features=num_features), num_features=num_features)

    def predict(
        self, queries: Any, k: int = 5, *, tail: float = 0.0, allowed: Any = None, forbidden: Any = None
    ) -> list[list[Prediction]]:
        """The ``k`` best classes of each raw query (see ``prepare``), best first; all if there are fewer.

        ``tail`` lifts rare classes: 0 is best for P@k, 1 for PSP@k. ``allowed``: keys of the only classes to choose
        from; ``forbidden``: keys of classes to leave out. Each is one collection for all queries, or a list with a
        collection, or None, for each query.
        """
        return self.name(self.predict_batch(queries, k, tail=tail, allowed=allowed, forbidden=forbidden))

    def predict_batch(
        self, queries: Any, k: int = 5, *, tail: float = 0.0, allowed: Any = None, forbidden: Any = None
    ) -> Predictions:
        """The same as arrays, without an object for each answer."""
        features = self.prepare(queries)
        only = filter_of(self.finder, allowed=allowed, forbidden=forbidden, num_queries=len(features))
        return _without_unknown(self.answer(features, k, only=only, tail=tail), knows(features))

    def answer(
        self,
        features: Features,
        k: int,
        *,
        only: Filter | None = None,
        tail: float = 0.0,
        propensity: PropensityConstants | None = None,
    ) -> Predictions:
        """The ``k`` best classes of prepared queries; ``only``: those to choose from.

        If there are fewer classes to choose from, all of them are returned; where queries have different numbers of
        them, the last places of some are empty. With a ``tail`` above 0, the order is that
        of probability * inverse propensity^tail. A correct answer counts 1 in P@k and its inverse propensity in PSP@k,
        so 0 is best for P@k and 1 for PSP@k. ``propensity``: constants other than those fixed at training.
        """
        features, k = self.checked(features, k, only=only, tail=tail)
        parts = [
            self.answer_with_lists(
                Encoded.of(self.dense, features[block]),
                k,
                only=None if only is None else only[block],
                tail=tail,
                propensity=propensity,
                first_row=block.start,
            )[0]
            for block in self._blocks(len(features))
        ]
        return _joined(parts, k, has_probabilities=self.record.calibration is not None)

    def answer_with_lists(
        self,
        encoded: Encoded,
        k: int,
        *,
        only: Filter | None = None,
        tail: float = 0.0,
        propensity: PropensityConstants | None = None,
        first_row: int = 0,
    ) -> tuple[Predictions, Candidates]:
        """The same for a block of encoded queries, with checked arguments; and the lists that the answers come from.
        ``first_row``: of the block among all queries, for errors."""
        available = self.dense.shape.num_classes if only is None else only.most
        width = max(k, min(_LIFTED, available)) if tail else k
        predictions, candidates = self._answer_block(encoded, width, only, first_row)
        if tail:
            predictions = self._lifted(predictions, tail, propensity or self.record.propensity)
        return _cut(predictions, k), candidates

    def shared_k(self, *, tail: float, filtered: bool) -> int:
        """For any k up to this one, answers are beginnings of the same list; a larger k has more candidates."""
        if tail:
            return _LIFTED
        depth = 0 if filtered or self.record.calibration is None else self.record.calibration.depth
        return max(self.ranker.shortlist, depth)

    def shortlist(self, features: Features, k: int, *, only: Filter | None = None) -> tuple[Float32, Int64]:
        """Scores and ids [N, k] by the dense model alone."""
        alone = replace(self, ranker=Ranker(), record=replace(self.record, calibration=None))
        predictions = alone.answer(features, k, only=only)
        return predictions.scores_Nk, predictions.ids_Nk

    def name(self, predictions: Predictions) -> list[list[Prediction]]:
        """Predictions with the keys and names of the classes."""
        keys, names, probabilities_Nk = self.classes.keys, self.classes.names, predictions.probabilities_Nk
        rows = []
        for row, (scores_k, ids_k) in enumerate(
            zip(predictions.scores_Nk.tolist(), predictions.ids_Nk.tolist(), strict=True)
        ):
            chances_k = [None] * len(ids_k) if probabilities_Nk is None else probabilities_Nk[row].tolist()
            rows.append(
                [
                    Prediction(keys[number], names[number], score, chance)
                    for number, score, chance in zip(ids_k, scores_k, chances_k, strict=True)
                    if number >= 0
                ]
            )
        return rows

    def _answer_block(
        self, encoded: Encoded, k: int, only: Filter | None, first_row: int
    ) -> tuple[Predictions, Candidates]:
        """By the score alone."""
        calibration = self.record.calibration
        if calibration is None:
            scores, ids, candidates = self._ranked(encoded, k, only, first_row)
            return Predictions(ids, scores, None), candidates
        if only is None:
            scores, ids, candidates = self._ranked(encoded, max(k, calibration.depth), None, first_row)
            probabilities = calibration.probabilities(scores)
            return Predictions(ids[:, :k], scores[:, :k], probabilities[:, :k]), candidates
        # The probability of a class depends on the best of all classes, not only on the requested ones.
        best, best_ids, _ = self._ranked(encoded, calibration.depth, None, first_row)
        scores, ids, candidates = self._ranked(encoded, k, only, first_row)
        listed = _as_listed(scores, ids, best, best_ids)
        return Predictions(ids, scores, calibration.probabilities(listed, best_NT=best)), candidates

    def _ranked(
        self, encoded: Encoded, k: int, only: Filter | None, first_row: int
    ) -> tuple[Float32, Int64, Candidates]:
        """The best ``k`` of the candidates, in order, and all candidates."""
        candidates = self.ranker.candidates(self.dense, encoded, k, only=only, index=self.index)
        check_scores(candidates.dense_NS, first_row, filled_NS=candidates.ids_NS >= 0)
        scores, ids = self.ranker.order(candidates)
        check_scores(scores, first_row, filled_NS=ids >= 0)
        # Empty places may only follow the first ``k``.
        return scores[:, :k], ids[:, :k], candidates

    def _blocks(self, num_rows: int) -> Iterator[slice]:
        size = _BLOCK_ROWS
        if self.dense.shape.kind == "linear":
            size = min(size, max(_BLOCK_NUMBERS // self.dense.shape.num_features, 1))
        for start in range(0, num_rows, size):
            yield slice(start, start + size)

    def checked(self, features: Features, k: int, *, only: Filter | None, tail: float) -> tuple[Features, int]:
        """Checks prepared queries, from any source, and what is asked of them, before anything is computed. ``k``:
        at most the number of classes to choose from."""
        check_tail(tail)
        features, num_classes = self._checked_features(features), self.dense.shape.num_classes
        if only is not None:
            check_filter(only, num_classes, len(features))
        if tail and self.record.calibration is None:
            raise OwlmineError(
                "the model has no probabilities, so rare classes cannot be lifted; train it with validation points"
            )
        return features, checked_k(k, max(num_classes if only is None else only.most, 1))

    def _checked_features(self, features: Features) -> Features:
        shape = self.dense.shape
        if isinstance(features, SparseRows) and not shape.dense:
            return checked_features(features, num_features=shape.num_features)
        if isinstance(features, np.ndarray) and shape.dense:
            return as_dense(features, num_features=shape.num_features)
        raise DataError("queries", found=described(features), wanted=f"{self.takes} as prepare() gives them")

    def _lifted(self, predictions: Predictions, tail: float, constants: PropensityConstants) -> Predictions:
        """In the order of probability * inverse propensity^tail; empty places last, ties in the old order."""
        ids_NS, probabilities_NS = predictions.ids_Nk, predictions.probabilities_Nk
        assert probabilities_NS is not None
        counts = self.classes.counts[np.maximum(ids_NS, 0).ravel()]
        try:
            weights = inverse_propensities(counts, self.classes.num_points, constants=constants)
        except ValueError as error:
            raise OwlmineError(f"rare classes cannot be lifted: {error}") from error
        worth_NS = np.where(ids_NS < 0, -1.0, probabilities_NS * weights.reshape(ids_NS.shape) ** tail)
        order_NS = np.argsort(-worth_NS, axis=1, kind="stable")
        return Predictions(
            np.take_along_axis(ids_NS, order_NS, axis=1),
            np.take_along_axis(predictions.scores_Nk, order_NS, axis=1),
            np.take_along_axis(probabilities_NS, order_NS, axis=1),
        )

    def on(self, device: torch.device) -> Self:
        """A copy on that device; an index works on the CPU only."""
        tensors = {name: tensor.to(device) for name, tensor in self.dense.tensors().items()}
        dense, index = Retriever.from_tensors(self.dense.shape, tensors), self.index
        if device.type != "cpu" or self.dense.device.type != "cpu":
            index = ExactIndex(dense.rows)
        return replace(self, dense=dense, ranker=self.ranker.on(device), index=index)

    def check_fits(self, store: Store) -> None:
        """Checks that the store has the features and classes of the model."""
        num_classes = self.dense.shape.num_classes
        if store.num_classes != num_classes:
            raise OwlmineError(
                f"{store.path}: found {store.num_classes:,} classes; the model was trained with {num_classes:,}"
            )
        self.check_features_fit(store)
        for number, (store_key, model_key) in enumerate(zip(store.class_keys, self.classes.keys, strict=True)):
            if store_key != model_key:
                raise OwlmineError(f"{store.path}: class {number} is {store_key!r}; in the model it is {model_key!r}")

    def check_features_fit(self, store: Store) -> None:
        """Checks that the store has the features of the model; its classes may differ."""
        shape, weighting = self.dense.shape, self.features.weighting
        pairs: list[tuple[str, Any, Any]] = [
            ("queries", store.meta["queries"], "dense" if shape.dense else "sparse"),
            ("features", store.num_features, shape.num_features),
        ]
        pairs += [
            (what, store.meta["weighting"].get(key), weighting.get(key))
            for what, key in (("weighting", "kind"), ("documents behind it", "documents"))
        ]
        for what, found, wanted in pairs:
            if found != wanted:
                raise OwlmineError(f"{store.path}: found {what} {found}; the model was trained with {wanted}")
        same = _same_tables(store.vocabulary, self.features.vocabulary) and _same_arrays(
            store.array("weighting.frequencies"), self.features.frequencies
        )
        if not same or store.meta["weighting"].get("text") != weighting.get("text"):
            raise OwlmineError(f"{store.path}: its features were made from different documents than the model's")


def _joined(blocks: list[Predictions], width: int, *, has_probabilities: bool) -> Predictions:
    """Of all blocks in turn; no block at all gives no rows."""
    if not blocks:
        empty = np.zeros((0, width), np.float32)
        return Predictions(np.zeros((0, width), np.int64), empty, empty if has_probabilities else None)
    probabilities = [part.probabilities_Nk for part in blocks if part.probabilities_Nk is not None]
    return Predictions(
        np.concatenate([part.ids_Nk for part in blocks]),
        np.concatenate([part.scores_Nk for part in blocks]),
        np.concatenate(probabilities) if has_probabilities else None,
    )


def _cut(predictions: Predictions, k: int) -> Predictions:
    probabilities_Nk = predictions.probabilities_Nk
    return Predictions(
        predictions.ids_Nk[:, :k],
        predictions.scores_Nk[:, :k],
        None if probabilities_Nk is None else probabilities_Nk[:, :k],
    )


def _without_unknown(predictions: Predictions, known_N: NDArray[np.bool_]) -> Predictions:
    """Empty places for queries without any known feature: all their scores are 0, and any order would be arbitrary."""
    known_N1, chances_Nk = known_N[:, None], predictions.probabilities_Nk
    return Predictions(
        np.where(known_N1, predictions.ids_Nk, -1),
        np.where(known_N1, predictions.scores_Nk, np.float32(-np.inf)),
        None if chances_Nk is None else np.where(known_N1, chances_Nk, np.float32(0)),
    )


def _as_listed(scores: Float32, ids: Int64, best: Float32, best_ids: Int64) -> Float32:
    """The scores, of classes that are among the best with the bits that they have there: products of matrices of other
    shapes round otherwise, and a place among the best must not depend on that."""
    same_NST = (ids[:, :, None] == best_ids[:, None, :]) & (ids[:, :, None] >= 0)
    listed = np.take_along_axis(best, same_NST.argmax(axis=2), axis=1)
    return np.where(same_NST.any(axis=2), listed, scores)


def _same_tables(one: StringTable | None, other: StringTable | None) -> bool:
    if one is None or other is None:
        return one is other
    (bytes_one, offsets_one), (bytes_other, offsets_other) = one.arrays(), other.arrays()
    return np.array_equal(offsets_one, offsets_other) and np.array_equal(bytes_one, bytes_other)


def _same_arrays(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)
