"""Reasons: why a model answers a query with a class.

    score = dense score + offset of added classes + Σ weight of a judge * its score

The parts are the numbers that the ranker adds up (``Ranker.parts``). Below them is what moved them: words of the query
(or features of a vector), training points that voted, and the words that spell the name of the class.

What a word adds to a judge that is linear in the query is exact: weight of the judge * weight of the word * its value.
The dense model is not linear. There a word is left out, and its effect is

    score of the class with the query - score with the query without the word

Shapes: S classes explained, E features of the query, L of them left out one at a time, D dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from owlmine.data.arrays import StringTable
from owlmine.data.rows import Float32, Int64, SparseRows, offsets_from_counts
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.errors import DataError
from owlmine.index import Filter
from owlmine.rank.candidates import SUGGESTED, Candidates, Encoded
from owlmine.rank.filters import filter_of, found_classes
from owlmine.rank.judge import ByFeatures, ByVotes
from owlmine.rank.names import NameJudge
from owlmine.rank.predictor import Features, Prediction, Predictor
from owlmine.rank.queries import checked_k, knows, one_query
from owlmine.rank.ranker import DENSE, OFFSET

MOST_WORDS = 50
"""Words, or features, of a class: those with the largest effects."""
MOST_CLASSES = 1_000
"""Classes explained at a time."""
MOST_LEFT_OUT = 1 << 20
"""Features encoded to leave words out, of all shortened queries: the 1,024 words of largest value are left out of a
query of 1,024, and 104 of one of 10,000."""

_TITLES = {DENSE: "dense model", OFFSET: "offset of added classes"}


@dataclass(frozen=True, slots=True)
class Part:
    """What one part of a model adds to the score of a class."""

    name: str
    """``dense``, ``offset``, or the name of a judge."""
    title: str
    score: float
    """Weight * score. The scores of all parts sum to the score of the class."""
    bias: float = 0.0
    """How much of it a linear classifier adds without any word."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "score": _rounded(self.score),
            "bias": _rounded(self.bias),
        }


@dataclass(frozen=True, slots=True)
class Effect:
    """What one word of a text, or one feature of a vector, adds to the score of a class."""

    word: str | None
    """The word as the model knows it, in lower case; None if only the feature is known."""
    feature: int
    """Its number, from 0."""
    effects: Mapping[str, float | None]
    """By part of the model: ``dense`` (None if the word was not left out), ``linear``, ``name``."""
    spans: tuple[tuple[int, int], ...] = ()
    """Where the text has the word: its first character and its last one + 1."""

    @property
    def total(self) -> float:
        """What it adds in all."""
        return sum(effect or 0.0 for effect in self.effects.values())

    def to_dict(self) -> dict[str, Any]:
        what = {"feature": self.feature} if self.word is None else {"word": self.word}
        effects = {name: None if effect is None else _rounded(effect) for name, effect in self.effects.items()}
        spans = {} if self.word is None else {"spans": [list(span) for span in self.spans]}
        return what | effects | spans


@dataclass(frozen=True, slots=True)
class Voter:
    """A training point that voted for a class."""

    judge: str
    row: int
    """Its row in the training data, from 0."""
    id: str | None
    """Its id in the training data, if that has ids."""
    text: str | None
    """Its text, if the model keeps texts."""
    cosine: float
    share: float
    """Its share of all votes. The shares of the voters of a class sum to the judge's score."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "judge": self.judge,
            "row": self.row,
            "id": self.id,
            "text": self.text,
            "cosine": _rounded(self.cosine),
            "share": _rounded(self.share),
        }


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why a class has its score for a query."""

    key: str
    name: str
    score: float
    probability: float | None
    """None if the model has no calibration."""
    parts: tuple[Part, ...]
    """In the order in which they are added up."""
    words: tuple[Effect, ...]
    """The words, or features of a vector, that move it most, by the size of their total effect."""
    voters: tuple[Voter, ...]
    """The nearest first, judge by judge."""
    spelled_by: tuple[str, ...]
    """Words of the query that spell its name, or part of it."""
    listed: bool
    """Whether it was among the candidates of the query. A class that was asked for need not be."""
    suggested_by: tuple[str, ...]
    """The judges that brought it into the list; empty if the dense model listed it."""
    examples: int
    """Its training points."""

    @property
    def prediction(self) -> Prediction:
        """The class as ``predict`` gives it."""
        return Prediction(self.key, self.name, self.score, self.probability)

    @property
    def spelled(self) -> bool:
        """Whether words of the query spell its name, or part of it."""
        return bool(self.spelled_by)

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object, rounded to the precision of float32."""
        return {
            "key": self.key,
            "name": self.name,
            "score": _rounded(self.score),
            "probability": None if self.probability is None else _rounded(self.probability),
            "parts": [part.to_dict() for part in self.parts],
            "words": [effect.to_dict() for effect in self.words if effect.word is not None],
            "features": [effect.to_dict() for effect in self.words if effect.word is None],
            "voters": [voter.to_dict() for voter in self.voters],
            "spelled": self.spelled,
            "spelled_by": list(self.spelled_by),
            "listed": self.listed,
            "suggested_by": list(self.suggested_by),
            "examples": self.examples,
        }


def _rounded(value: float) -> float:
    return float(f"{value:.7g}")


def explain_query(
    predictor: Predictor,
    query: Any,
    k: int,
    *,
    classes: Any = None,
    allowed: Any = None,
    forbidden: Any = None,
    tail: float = 0.0,
    most_words: int = MOST_WORDS,
) -> list[Reasons]:
    """The same for one raw query: a text, or a vector. ``classes``, ``allowed``, ``forbidden``: keys."""
    features = predictor.prepare(one_query(query, from_text=predictor.features.from_text))
    if len(features) != 1:
        raise DataError("query", found=f"{len(features):,} queries", wanted="one")
    finder = predictor.finder
    only = filter_of(finder, allowed=allowed, forbidden=forbidden, num_queries=1)
    ids = None if classes is None else found_classes(finder, "classes", classes)
    if ids is not None and not len(ids):
        raise DataError("classes", found="no class", wanted="keys of the classes to explain")
    text = query if predictor.features.from_text else None
    return explain(predictor, features, k, text=text, classes=ids, only=only, tail=tail, most_words=most_words)


def explain(
    predictor: Predictor,
    features: Features,
    k: int,
    *,
    text: str | None = None,
    classes: Int64 | None = None,
    only: Filter | None = None,
    tail: float = 0.0,
    most_words: int = MOST_WORDS,
) -> list[Reasons]:
    """Why the ``k`` best classes of one query are its answer, best first; or why these ``classes`` have their scores.

    ``features``: a row as ``prepare`` gives it. ``text``: its text, for the places of words. ``only``: the classes to
    choose from; those in ``classes`` need not be among them. Nothing if the model knows no feature of the query.
    """
    features, k = predictor.checked(features, k, only=only, tail=tail)
    for what, count in (("k", k), ("classes", 0 if classes is None else len(classes))):
        if count > MOST_CLASSES:
            raise DataError(what, found=f"{count:,} classes", wanted=f"at most {MOST_CLASSES:,} to explain")
    most_words = checked_k(most_words, MOST_LEFT_OUT)
    if not knows(features).all():
        return []
    encoded = Encoded.of(predictor.dense, features)
    if classes is None:
        answer, candidates = predictor.answer_with_lists(encoded, k, only=only, tail=tail)
        lists = candidates
    else:
        chosen = Filter.allowing(classes, len(predictor.classes))
        answer, candidates = predictor.answer_with_lists(encoded, chosen.most, only=chosen, tail=tail)
        lists = predictor.answer_with_lists(encoded, k, only=only, tail=tail)[1]
    places_S = np.flatnonzero(answer.ids_Nk[0] >= 0)
    if not len(places_S):
        return []
    ids_S, chances_Nk, words = answer.ids_Nk[0, places_S], answer.probabilities_Nk, predictor.classes
    shown, query = _at(candidates, ids_S), _Query.of(predictor, features, text)
    parts, effects, spelled = (
        _parts(predictor, shown),
        _effects(predictor, shown, query),
        _spelled(predictor, ids_S, query),
    )
    return [
        Reasons(
            key=words.keys[class_id],
            name=words.names[class_id],
            score=float(answer.scores_Nk[0, place]),
            probability=None if chances_Nk is None else float(chances_Nk[0, place]),
            parts=parts[place],
            words=query.largest(effects, place, most_words),
            voters=tuple(_voters(predictor, encoded, class_id)),
            spelled_by=spelled[place],
            examples=int(words.counts[class_id]),
            **_origin(predictor, lists, class_id),
        )
        for place, class_id in enumerate(ids_S.tolist())
    ]


def _at(candidates: Candidates, ids_S: Int64) -> Candidates:
    """The list of one query restricted to some of its classes, in this order."""
    places_S = (candidates.ids_NS[0] == ids_S[:, None]).argmax(axis=1)
    return Candidates(candidates.encoded, ids_S[None], candidates.dense_NS[:, places_S], candidates.best_N, len(ids_S))


def _parts(predictor: Predictor, shown: Candidates) -> list[tuple[Part, ...]]:
    """Of each class."""
    ranker, ids_S = predictor.ranker, shown.ids_NS[0]
    by_class: list[list[Part]] = [[] for _ in ids_S]
    for name, scores_1S in ranker.parts(shown):
        biases_S, title = np.zeros(len(ids_S), np.float32), _TITLES.get(name, "")
        if name in ranker.judges:
            judge = ranker.judges[name]
            title = judge.title
            if isinstance(judge, ByFeatures):
                biases_S = np.float32(ranker.mix.weights[name]) * judge.biases(ids_S)
        for parts, score, bias in zip(by_class, scores_1S[0].tolist(), biases_S.tolist(), strict=True):
            # Only added classes have an offset.
            if name != OFFSET or score:
                parts.append(Part(name, title, score, bias))
    return [tuple(parts) for parts in by_class]


@dataclass(frozen=True, eq=False)
class _Query:
    """The features of one query, and the words that they stand for."""

    rows: SparseRows
    """One row: ascending and distinct, with values."""
    vocabulary: StringTable | None
    places: Mapping[int, Sequence[tuple[str, int, int]]]
    """Of each feature of a text: words, the first character of each and the last one + 1."""

    @classmethod
    def of(cls, predictor: Predictor, features: Features, text: str | None) -> Self:
        places: dict[int, list[tuple[str, int, int]]] = {}
        if text is not None and predictor.features.vectoriser is not None:
            for feature, word, start, end in predictor.features.vectoriser.places(text):
                places.setdefault(feature, []).append((word, start, end))
        return cls(_distinct(features), predictor.features.vocabulary, places)

    def word(self, entry: int) -> str | None:
        feature = int(self.rows.indices[entry])
        if self.vocabulary is not None:
            return self.vocabulary[feature]
        # Words that share a hashed feature share its effects.
        return " / ".join(dict.fromkeys(word for word, _, _ in self.places.get(feature, ()))) or None

    def largest(self, effects: Mapping[str, Float32], place: int, most: int) -> tuple[Effect, ...]:
        """The largest effects [S, E] on the class in that place; NaN is unknown."""
        totals_E = np.nansum([effects_SE[place] for effects_SE in effects.values()], axis=0)
        best = [entry for entry in np.argsort(-np.abs(totals_E), kind="stable")[:most].tolist() if totals_E[entry]]
        return tuple(
            Effect(
                self.word(entry),
                feature := int(self.rows.indices[entry]),
                {name: _known(float(effects_SE[place, entry])) for name, effects_SE in effects.items()},
                tuple((start, end) for _, start, end in self.places.get(feature, ())),
            )
            for entry in best
        )


def _known(effect: float) -> float | None:
    return None if np.isnan(effect) else effect


def _distinct(features: Features) -> SparseRows:
    if not isinstance(features, SparseRows):
        indices, values = np.flatnonzero(features[0]), features[0][features[0] != 0]
    else:
        indices, places = np.unique(features.indices, return_inverse=True)
        values = np.bincount(places, features.values, minlength=len(indices))
    return SparseRows(np.array([0, len(indices)]), indices.astype(np.int32), values.astype(np.float32))


def _effects(predictor: Predictor, shown: Candidates, query: _Query) -> dict[str, Float32]:
    """[S, E] what each word adds to the score of each class, by part of the model; NaN if it was not left out."""
    ids_S, ranker = shown.ids_NS[0], predictor.ranker
    effects = {DENSE: left_out_effects(predictor.dense, query.rows, ids_S)}
    if ranker.dense_weights_K is not None:
        effects[DENSE] *= ranker.dense_weights_K[ids_S, None]
    for name, weight in ranker.mix.weights.items():
        judge = ranker.judges[name]
        if weight and isinstance(judge, ByFeatures):
            effects[judge.effect] = np.float32(weight) * judge.effects(shown, query.rows)
    return effects


@torch.no_grad()
def left_out_effects(model: Retriever, query: SparseRows, ids_S: Int64) -> Float32:
    """[S, E] the dense score of each class with the query, minus that with the query without one feature.

    NaN for features beyond ``MOST_LEFT_OUT``, those with the smallest values.
    """
    assert query.values is not None
    ids, num_features = torch.from_numpy(ids_S).to(model.device), len(query.indices)
    if isinstance(model.rows, torch.Tensor) and model.shape.kind == "linear":
        features = torch.from_numpy(query.indices).to(model.device).long()
        own_SE: Float32 = model.rows[ids[:, None], features].cpu().numpy() * query.values
        return own_SE
    rows_SD = model.rows[ids].float()
    count = min(num_features, max(MOST_LEFT_OUT // max(num_features, 1), 1))
    left_out_L = np.argsort(-np.abs(query.values), kind="stable")[:count]
    # The whole query comes first, so that all are encoded alike.
    vectors_ND = model.encode(query_batch(_shortened(query, left_out_L, model.shape), model.device))
    effects_SE = np.full((len(ids_S), num_features), np.nan, np.float32)
    effects_SE[:, left_out_L] = (rows_SD @ (vectors_ND[0] - vectors_ND[1:]).T).cpu().numpy()
    return effects_SE


def _shortened(query: SparseRows, left_out_L: Int64, shape: ModelShape) -> Features:
    """The query, and the query without each of these features."""
    assert query.values is not None
    kept_NE = np.ones((1 + len(left_out_L), len(query.indices)), np.bool_)
    kept_NE[1 + np.arange(len(left_out_L)), left_out_L] = False
    if shape.dense:
        vectors_NF = np.zeros((len(kept_NE), shape.num_features), np.float32)
        vectors_NF[:, query.indices] = kept_NE * query.values
        return vectors_NF
    entries = np.nonzero(kept_NE)[1]
    return SparseRows(offsets_from_counts(kept_NE.sum(axis=1)), query.indices[entries], query.values[entries])


def _spelled(predictor: Predictor, ids_S: Int64, query: _Query) -> list[tuple[str, ...]]:
    """For each class, the words that spell its name, the best match first."""
    judge = predictor.ranker.judges.get(NameJudge.name)
    if not isinstance(judge, NameJudge):
        return [()] * len(ids_S)
    matches_SE = judge.matches(ids_S, query.rows)
    order_SE = np.argsort(-matches_SE, axis=1, kind="stable")
    return [
        tuple(word for entry in order_E.tolist() if matches_E[entry] > 0 and (word := query.word(entry)) is not None)
        for matches_E, order_E in zip(matches_SE, order_SE, strict=True)
    ]


def _voters(predictor: Predictor, encoded: Encoded, class_id: int) -> Iterator[Voter]:
    points = predictor.points
    for name, weight in predictor.ranker.mix.weights.items():
        judge = predictor.ranker.judges[name]
        if not weight or not isinstance(judge, ByVotes):
            continue
        found, cosines, shares = judge.voters(encoded, class_id)
        columns = (found, points.rows(found), cosines, shares)
        for point, row, cosine, share in zip(*(column.tolist() for column in columns), strict=True):
            yield Voter(
                name,
                row,
                None if points.ids is None else points.ids[point] or None,
                None if points.texts is None else points.texts[point],
                cosine,
                share,
            )


def _origin(predictor: Predictor, lists: Candidates, class_id: int) -> dict[str, Any]:
    """Whether a class is on the list of the query, and who brought it there."""
    places = np.flatnonzero(lists.ids_NS[0] == class_id)
    if not len(places) or places[0] < lists.num_listed:
        return {"listed": len(places) > 0, "suggested_by": ()}
    judges = predictor.ranker.suggesters
    by = [judge.name for judge in judges if (judge.suggest(lists.encoded, SUGGESTED)[0] == class_id).any()]
    return {"listed": True, "suggested_by": tuple(by)}
