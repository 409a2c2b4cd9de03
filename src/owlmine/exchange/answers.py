"""Queries answered block by block, and answers written as JSON, CSV or a new file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from owlmine.errors import OwlmineError
from owlmine.exchange.queries import QueryBlock
from owlmine.files import check_new_file, whole_file
from owlmine.index import Filter
from owlmine.rank.predictor import Prediction, Predictor
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


@dataclass(frozen=True)
class AnswerBlock:
    answers: list[Answer]
    progress: float


def answer(
    predictor: Predictor,
    blocks: Iterable[QueryBlock],
    k: int,
    *,
    only: Filter | None = None,
    at_least: float = 0.0,
    tail: float = 0.0,
) -> Iterator[AnswerBlock]:
    """The ``k`` best classes of every query. ``only``: those to choose from, for all queries; a query may have its
    own in addition.

    Classes with a probability below ``at_least`` are left out. ``tail`` lifts rare classes: 0 is best for P@k, 1 for
    PSP@k. Both need a model with probabilities.
    """
    check_tail(tail)
    if not 0 <= at_least <= 1:
        raise OwlmineError(f"a probability of at least {at_least} was asked for; wanted one from 0 to 1")
    if (at_least or tail) and predictor.record.calibration is None:
        what = "a minimum probability" if at_least else "lifting rare classes"
        raise OwlmineError(f"{what} was asked for, but the model has no probabilities; train it with validation points")
    available = len(predictor.classes) if only is None else only.most
    if not 1 <= k <= available:
        raise OwlmineError(f"{k} classes were asked for; there are {available:,} to choose from")
    return _answered(predictor, blocks, k, only, at_least, tail)


def _answered(
    predictor: Predictor, blocks: Iterable[QueryBlock], k: int, only: Filter | None, at_least: float, tail: float
) -> Iterator[AnswerBlock]:
    number, num_rows = 0, min(_BLOCK_ROWS, max(_BLOCK_ANSWERS // k, 1))
    for block in blocks:
        for start in range(0, len(block.queries), num_rows):
            queries = block.queries[start : start + num_rows]
            ids = [None] * len(queries) if block.ids is None else block.ids[start : start + num_rows]
            texts: Sequence[str | None] = queries if isinstance(queries, list) else [None] * len(queries)
            features: Any = queries if block.prepared else predictor.prepare(queries)
            own = _both(only, None if block.only is None else block.only[start : start + num_rows])
            found = predictor.name(predictor.answer(features, k, only=own, tail=tail))
            if at_least:
                found = [_probable(classes, at_least) for classes in found]
            known = knows(features).tolist()
            answers = [
                Answer(number + row, ids[row], texts[row], found[row] if known[row] else [], known[row])
                for row in range(len(queries))
            ]
            number += len(queries)
            yield AnswerBlock(answers, block.progress)


def _both(one: Filter | None, other: Filter | None) -> Filter | None:
    return one & other if one is not None and other is not None else one or other


def _probable(classes: list[Prediction], at_least: float) -> list[Prediction]:
    return [one for one in classes if one.probability is not None and one.probability >= at_least]


def json_lines(answers: Sequence[Answer]) -> str:
    """An object per query."""
    return "".join(json.dumps(_as_json(answer), ensure_ascii=False) + "\n" for answer in answers)


def _as_json(answer: Answer) -> dict[str, Any]:
    return {
        "query": answer.number,
        **({} if answer.id is None else {"id": answer.id}),
        "classes": [
            {"key": c.key, "name": c.name, "score": shown_score(c.score)}
            | ({} if c.probability is None else {"probability": shown_probability(c.probability)})
            for c in answer.classes
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
        writer.writerow(("query", "id", "rank", "key", "name", "score", *(["probability"] if probabilities else [])))
    for answer in answers:
        for rank, found in enumerate(answer.classes, 1):
            row = [answer.number, answer.id, rank, found.key, found.name, shown_score(found.score)]
            if probabilities and found.probability is not None:
                row.append(shown_probability(found.probability))
            writer.writerow(row)
    return text.getvalue()


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
