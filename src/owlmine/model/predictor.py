"""A trained model with its words: texts or vectors in, named classes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from owlmine.data.arrays import StringTable
from owlmine.data.features import FeaturePlan, stored_tfidf, stored_vectoriser
from owlmine.data.ingest import holds_counts
from owlmine.data.rows import SparseRows
from owlmine.data.store import Store
from owlmine.data.text import TextVectoriser, TfIdf
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import Retriever
from owlmine.errors import DataError, OwlmineError
from owlmine.metrics.propensity import PropensityConstants, inverse_propensities, propensity_constants
from owlmine.mining import hardest
from owlmine.model.named_lists import with_named
from owlmine.model.queries import (
    as_dense,
    as_sparse,
    as_texts,
    check_scores,
    checked_classes,
    checked_features,
    checked_k,
    described,
)
from owlmine.model.tail import SHORTLIST, lifted_order
from owlmine.rank.names import rarities
from owlmine.rank.probabilities import Calibration
from owlmine.rank.reranker import Reranker

# Queries encoded and scored at once; fewer where a query is as wide as all features (the linear model).
_BLOCK_ROWS = 1024
_BLOCK_NUMBERS = 1 << 26


@dataclass(frozen=True)
class ClassWords:
    """What is known of the classes besides their vectors."""

    keys: StringTable
    names: StringTable
    counts: NDArray[np.int64]
    """Training points of each class."""
    num_points: int
    """Training points in all: propensities need it."""

    @property
    def goes_by_keys(self) -> bool:
        """Whether no class has a name besides its key."""
        return all(name == key for name, key in zip(self.names, self.keys, strict=True))

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

    def rarities(self, num_points: int) -> NDArray[np.float64]:
        """How rare each word of the vocabulary is in training documents; about as many as training points."""
        assert self.frequencies is not None
        documents = self.weighting.get("documents") or max(num_points, int(self.frequencies.max()))
        return rarities(self.frequencies, documents)

    @property
    def from_text(self) -> bool:
        return self.vectoriser is not None


@dataclass(frozen=True, slots=True)
class Prediction:
    """One class for one query."""

    key: str
    name: str
    score: float
    probability: float | None = None
    """That the class is a label of the query; None where the model has no calibration."""


class Predictor:
    """A model that can be asked. ``config`` is what ``config.json`` says of it."""

    def __init__(
        self,
        retriever: Retriever,
        classes: ClassWords,
        features: FeatureWords,
        config: dict[str, Any],
        *,
        reranker: Reranker | None = None,
    ) -> None:
        self.retriever, self.classes, self.features, self.config = retriever, classes, features, config
        self.reranker, self.tail = reranker, 0.0

    def prepare(self, queries: Any) -> SparseRows | NDArray[Any]:
        """Raw queries as the model's features.

        A text model takes strings in a list, tuple, array or Series; a model of sparse vectors a SciPy matrix,
        ``SparseRows`` or dense rows; one of dense vectors a 2-d array, a tensor or lists of numbers.
        """
        shape = self.retriever.shape
        if self.features.vectoriser is not None:
            return self.features.vectoriser.transform(as_texts(queries))
        if shape.dense:
            return as_dense(queries, num_features=shape.num_features)
        rows = as_sparse(queries, num_features=shape.num_features)
        if rows.values is None:
            rows = SparseRows(rows.offsets, rows.indices, np.ones(len(rows.indices), np.float32))
        if self.features.tfidf is not None and not holds_counts(rows):
            raise OwlmineError("values that are not whole counts were given; the model was trained on counts")
        plan = FeaturePlan("sparse", shape.num_features, self.features.weighting, self.features.tfidf)
        return plan.apply(rows)

    def _checked(self, features: SparseRows | NDArray[Any]) -> SparseRows | NDArray[Any]:
        """Prepared queries, of whoever prepared them, before anything is computed with them."""
        shape = self.retriever.shape
        if isinstance(features, SparseRows) and not shape.dense:
            return checked_features(features, num_features=shape.num_features)
        if isinstance(features, np.ndarray) and shape.dense:
            return as_dense(features, num_features=shape.num_features)
        wanted = f"{self.takes} as prepare() gives them"
        raise DataError("queries", found=described(features), wanted=wanted)

    def _choice(self, k: int, among: NDArray[np.int64] | None) -> tuple[int, NDArray[np.int64] | None]:
        """How many classes to list, and of which."""
        num_classes = self.retriever.shape.num_classes
        chosen = None if among is None else checked_classes(among, num_classes)
        return checked_k(k, num_classes if chosen is None else len(chosen)), chosen

    def top(
        self, features: SparseRows | NDArray[Any], k: int, *, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and class ids [N, k] of prepared queries, best first; ``among`` are the class ids to choose from.

        ``k`` is 1 or more; where there are fewer classes to choose from, all of them are listed.

        Where rare classes are lifted (``lift_tail``), "best" is by that order and not by the scores.
        """
        if self.tail:
            return self.top_with_probabilities(features, k, among=among)[:2]
        k, among = self._choice(k, among)
        return self._ranked(self._checked(features), k, among)

    def lift_tail(self, strength: float, constants: PropensityConstants | None = None) -> None:
        """From now on order classes by probability * inverse propensity^strength: 0 is best for P@k, 1 for PSP@k.

        Without ``constants`` those of the dataset that the model was trained on.
        """
        constants = constants or propensity_constants(self.config.get("data", {}).get("name"))
        if not 0 <= strength <= 1:
            raise OwlmineError(f"the tail's strength is {strength:g}; wanted 0 to 1")
        if strength and self.calibration is None:
            raise OwlmineError(
                "the model tells no probabilities, so rare classes cannot be lifted; train with validation"
            )
        self.tail = strength
        if strength:
            counts, num_points = self.classes.counts, self.classes.num_points
            try:
                self._inverse_propensities = inverse_propensities(counts, num_points, constants=constants)
            except ValueError as error:
                raise OwlmineError(f"rare classes cannot be lifted: {error}") from error

    def _ranked(
        self, features: SparseRows | NDArray[Any], k: int, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """By the score alone."""
        if self.reranker is None:
            return self._shortlist(features, k, among)
        assert isinstance(features, SparseRows)
        available = self.retriever.shape.num_classes if among is None else len(among)
        listed = min(max(k, self.reranker.shortlist), available)
        scores, ids = self._shortlist(features, listed, among)
        best = None
        if self.reranker.names is not None and (among is not None or self.reranker.num_trained is not None):
            # How much names count depends on the best of all trained classes, whoever else is on the list.
            best = self._best_trained(features, self.reranker.num_trained)
        parts = [(scores[:0, :k], ids[:0, :k])]
        for start in range(0, len(features), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            own = None if best is None else best[block]
            again = self._judged_again(self.reranker, features[block], scores[block], ids[block], among, own)
            check_scores(again[0], start, filled_NS=again[1] >= 0)
            # Behind the first ``listed`` there may be empty places.
            parts.append((again[0][:, :k], again[1][:, :k]))
        return np.concatenate([part for part, _ in parts]), np.concatenate([part for _, part in parts])

    def _best_trained(self, features: SparseRows, num_trained: int | None) -> NDArray[np.float32]:
        """[N] the best score that the dense model has for a class that training knew; None: for any."""
        retriever, best = self.retriever, [np.zeros(0, np.float32)]
        for start in range(0, len(features), _BLOCK_ROWS):
            vectors = retriever.encode(query_batch(features[start : start + _BLOCK_ROWS], retriever.device))
            scores, _ = hardest(vectors, retriever.classes.weight[:num_trained], 1)
            best.append(scores[:, 0].float().cpu().numpy())
        return np.concatenate(best)

    def _judged_again(
        self,
        reranker: Reranker,
        features: SparseRows,
        scores: NDArray[np.float32],
        ids: NDArray[np.int64],
        among: NDArray[np.int64] | None,
        best: NDArray[np.float32] | None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Shortlists and what names suggest, in the re-ranker's order. Queries are encoded once more where that needs
        their vectors."""
        vectors, names = None, reranker.names
        if reranker.sees_vectors or names is not None:
            vectors = self.retriever.encode(query_batch(features, self.retriever.device))
        if names is not None:
            assert vectors is not None
            scores, ids = with_named(self.retriever, names, features, vectors, scores, ids, among=among)
        return reranker.reorder(features, vectors, scores, ids, best_N=best)

    def shortlist(
        self, features: SparseRows | NDArray[Any], k: int, *, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """What ``top`` gives by the dense model alone."""
        k, among = self._choice(k, among)
        return self._shortlist(self._checked(features), k, among)

    def _shortlist(
        self, features: SparseRows | NDArray[Any], k: int, among: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        retriever = self.retriever
        chosen = None if among is None else torch.from_numpy(among).to(retriever.device)
        table = retriever.classes.weight if chosen is None else retriever.classes.weight[chosen]
        num_rows = _BLOCK_ROWS
        if retriever.shape.kind == "linear":
            num_rows = min(num_rows, max(_BLOCK_NUMBERS // retriever.shape.num_features, 1))
        scores, ids = [np.zeros((0, k), np.float32)], [np.zeros((0, k), np.int64)]
        for start in range(0, len(features), num_rows):
            vectors = retriever.encode(query_batch(features[start : start + num_rows], retriever.device))
            best, places = hardest(vectors, table, k)
            scores.append(best.float().cpu().numpy())
            check_scores(scores[-1], start)
            ids.append((places if chosen is None else chosen[places]).cpu().numpy())
        return np.concatenate(scores), np.concatenate(ids)

    def predict(self, queries: Any, k: int = 5) -> list[list[Prediction]]:
        """The ``k`` best classes of each raw query (see ``prepare``), best first; all where there are fewer."""
        return self.name(*self.top_with_probabilities(self.prepare(queries), k))

    @property
    def calibration(self) -> Calibration | None:
        """What makes probabilities of scores; None for a model that had no validation points."""
        told = self.config.get("calibration")
        return None if told is None else Calibration.from_dict(told)

    def top_with_probabilities(
        self, features: SparseRows | NDArray[Any], k: int, *, among: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32] | None]:
        """What ``top`` gives, and the probability of each class [N, k]; None where the model has no calibration."""
        features, (k, among) = self._checked(features), self._choice(k, among)
        calibration = self.calibration
        if calibration is None:
            return *self._ranked(features, k, among), None
        if not self.tail:
            return self._with_probabilities(features, k, among, calibration)
        available = self.retriever.shape.num_classes if among is None else len(among)
        listed = min(max(k, SHORTLIST), available)
        scores, ids, probabilities = self._with_probabilities(features, listed, among, calibration)
        order = lifted_order(probabilities, ids, self._inverse_propensities, strength=self.tail)[:, :k]
        return (
            np.take_along_axis(scores, order, axis=1),
            np.take_along_axis(ids, order, axis=1),
            np.take_along_axis(probabilities, order, axis=1),
        )

    def _with_probabilities(
        self,
        features: SparseRows | NDArray[Any],
        k: int,
        among: NDArray[np.int64] | None,
        calibration: Calibration,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
        if among is not None:
            # What is probable depends on the best of all classes, not on those that somebody asks about.
            scores, ids = self._ranked(features, k, among)
            best, best_ids = self._ranked(features, calibration.depth)
            return scores, ids, calibration.probabilities(_as_listed(scores, ids, best, best_ids), best_NT=best)
        scores, ids = self._ranked(features, max(k, calibration.depth))
        return scores[:, :k], ids[:, :k], calibration.probabilities(scores)[:, :k]

    def name(
        self,
        scores: NDArray[np.float32],
        ids: NDArray[np.int64],
        probabilities: NDArray[np.float32] | None = None,
    ) -> list[list[Prediction]]:
        """What ``top`` or ``top_with_probabilities`` gave, with the words for the classes."""
        told = [[None] * ids.shape[1]] * len(ids) if probabilities is None else probabilities.tolist()
        return [
            [
                Prediction(self.classes.keys[c], self.classes.names[c], s, p)
                for c, s, p in zip(row_ids.tolist(), row_scores.tolist(), row_told, strict=True)
            ]
            for row_ids, row_scores, row_told in zip(ids, scores, told, strict=True)
        ]

    @property
    def takes(self) -> str:
        """The kind of query that the model understands, in words."""
        if self.features.from_text:
            return "text"
        return "dense vectors" if self.retriever.shape.dense else "sparse vectors"

    def check_fits(self, store: Store) -> None:
        """The store's features and classes must mean what the model's mean."""
        num_classes = self.retriever.shape.num_classes
        if store.num_classes != num_classes:
            raise OwlmineError(
                f"{store.path}: found {store.num_classes:,} classes; the model was trained with {num_classes:,}"
            )
        self.check_features_fit(store)
        for number, (found_key, wanted_key) in enumerate(zip(store.class_keys, self.classes.keys, strict=True)):
            if found_key != wanted_key:
                raise OwlmineError(f"{store.path}: class {number} is {found_key!r}; in the model it is {wanted_key!r}")

    def check_features_fit(self, store: Store) -> None:
        """The store's features must mean what the model's mean; its classes may be others."""
        shape, weighting = self.retriever.shape, self.features.weighting
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
            raise OwlmineError(f"{store.path}: its features were made from other documents than the model's")


def _as_listed(
    scores: NDArray[np.float32], ids: NDArray[np.int64], best: NDArray[np.float32], best_ids: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The scores, of classes that are among the best with the bits that they have there: products of matrices of other
    shapes round otherwise, and a place among the best must not hang on that."""
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
