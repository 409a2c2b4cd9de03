"""Queries answered block by block, and answers written as JSON, CSV or a new file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.formats.block import Queries
from owlmine.errors import OwlmineError
from owlmine.exchange.queries import QueryBlock
from owlmine.files import check_new_file, whole_file
from owlmine.index import Filter
from owlmine.rank.explain import MOST_CLASSES, Reasons, explain
from owlmine.rank.predictor import Prediction, Predictions, Predictor
from owlmine.rank.queries import check_tail, knows

# Answers are Python objects, so only those of one block are in memory: of this many queries, or of fewer if they would
# have more answers than this (some 100 MiB).
_BLOCK_ROWS = 1024
_BLOCK_ANSWERS = 1 << 18


@dataclass(frozen=True)
class Answer:
    """The best classes of one query, best first; empty if none is probable enough, or ``known`` is false."""

    number: int
    """The number of the query, from 0."""
    id: Any
    """The query's id in its table; None if there is no such column."""
    text: str | None
    classes: list[Prediction]
    known: bool = True
    """Whether the query has a feature that the model knows."""
    reasons: list[Reasons] | None = None
    """Of each class, if they were asked for."""


@dataclass(frozen=True)
class AnswerBlock:
    answers: list[Answer]
    progress: float


@dataclass(frozen=True, eq=False)
class ArrayBlock:
    """Answers to consecutive queries as arrays. Empty places have the id -1, and may be anywhere."""

    first: int
    """The number of the first query."""
    texts: Sequence[str | None]
    ids: list[Any] | None
    """The queries' ids in their table."""
    found: Predictions
    known_N: NDArray[np.bool_]
    progress: float

    def __len__(self) -> int:
        return len(self.known_N)


def answer(
    predictor: Predictor,
    blocks: Iterable[QueryBlock],
    k: int,
    *,
    only: Filter | None = None,
    at_least: float = 0.0,
    tail: float = 0.0,
    with_reasons: bool = False,
) -> Iterator[AnswerBlock]:
    """The ``k`` best classes of every query. ``only``: those to choose from, for all queries; a query may have its
    own in addition. ``with_reasons``: explain each, query by query, which takes longer.

    Classes with a probability below ``at_least`` are left out. ``tail`` lifts rare classes: 0 is best for P@k, 1 for
    PSP@k. Both need a model with probabilities.
    """
    if with_reasons:
        _check(predictor, k, only, at_least, tail)
        if k > MOST_CLASSES:
            raise OwlmineError(f"reasons for {k:,} classes were asked for; wanted at most {MOST_CLASSES:,}")
        return (_explained(predictor, unit, k, at_least, tail) for unit in _units(predictor, blocks, k, only))
    found = answer_in_arrays(predictor, blocks, k, only=only, at_least=at_least, tail=tail)
    return (_named(predictor, block) for block in found)


def answer_in_arrays(
    predictor: Predictor,
    blocks: Iterable[QueryBlock],
    k: int,
    *,
    only: Filter | None = None,
    at_least: float = 0.0,
    tail: float = 0.0,
    skip: int = 0,
) -> Iterator[ArrayBlock]:
    """The same as arrays, without an object for each answer, from query number ``skip`` on: the end of a block."""
    _check(predictor, k, only, at_least, tail)
    units = _units(predictor, blocks, k, only, skip=skip)
    return (_answered(predictor, unit, k, at_least, tail) for unit in units)


def _check(predictor: Predictor, k: int, only: Filter | None, at_least: float, tail: float) -> None:
    check_tail(tail)
    if not 0 <= at_least <= 1:
        raise OwlmineError(f"a probability of at least {at_least} was asked for; wanted one from 0 to 1")
    if (at_least or tail) and predictor.record.calibration is None:
        what = "a minimum probability" if at_least else "lifting rare classes"
        raise OwlmineError(f"{what} was asked for, but the model has no probabilities; train it with validation points")
    available = len(predictor.classes) if only is None else only.most
    if not 1 <= k <= available:
        raise OwlmineError(f"{k} classes were asked for; there are {available:,} to choose from")


@dataclass(frozen=True, eq=False)
class _Unit:
    """Queries that are answered together."""

    first: int
    queries: Queries
    ids: list[Any] | None
    features: Any
    only: Filter | None
    progress: float

    @property
    def texts(self) -> Sequence[str | None]:
        return self.queries if isinstance(self.queries, list) else [None] * len(self.queries)


def _units(
    predictor: Predictor, blocks: Iterable[QueryBlock], k: int, only: Filter | None, *, skip: int = 0
) -> Iterator[_Unit]:
    number, num_rows = 0, min(_BLOCK_ROWS, max(_BLOCK_ANSWERS // k, 1))
    for block in blocks:
        for start in range(0, len(block.queries), num_rows):
            rows = slice(start, start + num_rows)
            queries = block.queries[rows]
            first, number = number, number + len(queries)
            if number <= skip:
                continue
            features: Any = queries if block.prepared else predictor.prepare(queries)
            own = _both(only, None if block.only is None else block.only[rows])
            yield _Unit(first, queries, None if block.ids is None else block.ids[rows], features, own, block.progress)


def _answered(predictor: Predictor, unit: _Unit, k: int, at_least: float, tail: float) -> ArrayBlock:
    known_N = knows(unit.features)
    found = _kept(predictor.answer(unit.features, k, only=unit.only, tail=tail), known_N, at_least)
    return ArrayBlock(unit.first, unit.texts, unit.ids, found, known_N, unit.progress)


def _kept(found: Predictions, known_N: NDArray[np.bool_], at_least: float) -> Predictions:
    """Without the classes of queries that the model does not know, and without classes that are not probable enough."""
    kept_Nk = known_N[:, None]
    if at_least:
        assert found.probabilities_Nk is not None
        kept_Nk = kept_Nk & (found.probabilities_Nk.astype(np.float64) >= at_least)
    return replace(found, ids_Nk=np.where(kept_Nk, found.ids_Nk, -1))


def _named(predictor: Predictor, block: ArrayBlock) -> AnswerBlock:
    known, ids = block.known_N.tolist(), block.ids or [None] * len(block)
    answers = [
        Answer(block.first + row, ids[row], block.texts[row], classes, known[row])
        for row, classes in enumerate(predictor.name(block.found))
    ]
    return AnswerBlock(answers, block.progress)


def _explained(predictor: Predictor, unit: _Unit, k: int, at_least: float, tail: float) -> AnswerBlock:
    """Query by query."""
    known, ids, answers = knows(unit.features).tolist(), unit.ids or [None] * len(unit.queries), []
    for row, text in enumerate(unit.texts):
        own, reasons = slice(row, row + 1), list[Reasons]()
        if known[row]:
            only = None if unit.only is None else unit.only[own]
            reasons = explain(predictor, unit.features[own], k, text=text, only=only, tail=tail)
            reasons = [one for one in reasons if not at_least or (one.probability or 0.0) >= at_least]
        classes = [one.prediction for one in reasons]
        answers.append(Answer(unit.first + row, ids[row], text, classes, known[row], reasons))
    return AnswerBlock(answers, unit.progress)


def _both(one: Filter | None, other: Filter | None) -> Filter | None:
    return one & other if one is not None and other is not None else one or other


def json_lines(answers: Sequence[Answer]) -> str:
    """An object per query."""
    return "".join(json.dumps(_as_json(answer), ensure_ascii=False) + "\n" for answer in answers)


def _as_json(answer: Answer) -> dict[str, Any]:
    reasons: Sequence[Reasons | None] = answer.reasons or [None] * len(answer.classes)
    return {
        "query": answer.number,
        **({} if answer.id is None else {"id": answer.id}),
        "classes": [
            {"key": c.key, "name": c.name, "score": shown_score(c.score)}
            | ({} if c.probability is None else {"probability": shown_probability(c.probability)})
            | ({} if own is None else {"reasons": own.to_dict()})
            for c, own in zip(answer.classes, reasons, strict=True)
        ],
    }


def csv_lines(answers: Sequence[Answer], *, probabilities: bool = False) -> str:
    """A line per query and class, with a header before the very first query.

    ``probabilities``: whether there is a column for them. The answers alone do not show this if the first have no
    classes.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if answers and answers[0].number == 0:
        text.write(csv_header(probabilities=probabilities))
    for answer in answers:
        for rank, found in enumerate(answer.classes, 1):
            row = [answer.number, answer.id, rank, found.key, found.name, shown_score(found.score)]
            if probabilities and found.probability is not None:
                row.append(shown_probability(found.probability))
            writer.writerow(row)
    return text.getvalue()


def csv_header(*, probabilities: bool) -> str:
    return "query,id,rank,key,name,score" + (",probability" if probabilities else "") + "\n"


def shown_score(score: float) -> float:
    """Rounds to the precision of float32."""
    return float(f"{score:.7g}")


def shown_probability(probability: float) -> float:
    """Rounds to the digits that are meaningful for a fitted probability."""
    return float(f"{probability:.4g}")


@contextmanager
def new_file(path: Path) -> Iterator[IO[str]]:
    """A new text file, written whole or not at all."""
    check_new_file(path)
    try:
        with whole_file(path, replace=False) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            try:
                yield text
            finally:
                text.detach()
    except FileExistsError as error:
        raise OwlmineError(f"{path}: appeared while the answers were being written, and was not replaced") from error
    except OSError as error:
        raise OwlmineError(f"{path}: cannot be written: {error.strerror}") from error
