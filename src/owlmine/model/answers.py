"""Queries answered block by block, and answers written as people and programs read them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import SparseRows
from owlmine.errors import OwlmineError
from owlmine.model.predictor import Prediction, Predictor
from owlmine.model.query_files import QueryBlock

# Answers are Python objects: so many queries are answered, written and forgotten at once.
_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class Answer:
    """The best classes of one query, best first; none where the query holds no feature that the model knows."""

    number: int
    """Of the query, from 0."""
    id: Any
    """What its table calls it; None where there is no such column."""
    text: str | None
    classes: list[Prediction]


@dataclass(frozen=True)
class AnswerBlock:
    answers: list[Answer]
    progress: float


def answer(
    predictor: Predictor, blocks: Iterable[QueryBlock], k: int, *, among: NDArray[np.int64] | None = None
) -> Iterator[AnswerBlock]:
    """The ``k`` best classes of every query, of all classes or of those in ``among``."""
    available = len(predictor.classes.keys) if among is None else len(np.unique(among))
    if not 1 <= k <= available:
        raise OwlmineError(f"{k} classes were asked for; there are {available:,} to choose from")
    return _answered(predictor, blocks, k, among)


def _answered(
    predictor: Predictor, blocks: Iterable[QueryBlock], k: int, among: NDArray[np.int64] | None
) -> Iterator[AnswerBlock]:
    number = 0
    for block in blocks:
        for start in range(0, len(block.queries), _BLOCK_ROWS):
            queries = block.queries[start : start + _BLOCK_ROWS]
            ids = [None] * len(queries) if block.ids is None else block.ids[start : start + _BLOCK_ROWS]
            texts: Sequence[str | None] = queries if isinstance(queries, list) else [None] * len(queries)
            found = _classes(predictor, queries, k, among, prepared=block.prepared)
            answers = [Answer(number + row, ids[row], texts[row], found[row]) for row in range(len(queries))]
            number += len(queries)
            yield AnswerBlock(answers, block.progress)


def _classes(
    predictor: Predictor, queries: Any, k: int, among: NDArray[np.int64] | None, *, prepared: bool
) -> list[list[Prediction]]:
    features = queries if prepared else predictor.prepare(queries)
    found = predictor.name(*predictor.top(features, k, among=among))
    if isinstance(features, SparseRows):
        # The vector of a query without features is 0, and so are all its scores: any choice would be arbitrary.
        found = [classes if count else [] for classes, count in zip(found, features.counts.tolist(), strict=True)]
    return found


def json_lines(answers: Sequence[Answer]) -> str:
    """An object per query."""
    return "".join(json.dumps(_as_json(answer), ensure_ascii=False) + "\n" for answer in answers)


def _as_json(answer: Answer) -> dict[str, Any]:
    return {
        "query": answer.number,
        **({} if answer.id is None else {"id": answer.id}),
        "classes": [{"key": c.key, "name": c.name, "score": shown_score(c.score)} for c in answer.classes],
    }


def csv_lines(answers: Sequence[Answer]) -> str:
    """A line per query and class; with a header before the very first query."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if answers and answers[0].number == 0:
        writer.writerow(("query", "id", "rank", "key", "name", "score"))
    for answer in answers:
        for rank, found in enumerate(answer.classes, 1):
            writer.writerow((answer.number, answer.id, rank, found.key, found.name, shown_score(found.score)))
    return text.getvalue()


WRITERS: dict[str, Callable[[Sequence[Answer]], str]] = {"jsonl": json_lines, "csv": csv_lines}


def shown_score(score: float) -> float:
    """Without digits that float32 does not have."""
    return float(f"{score:.7g}")


@contextmanager
def new_file(path: Path) -> Iterator[IO[str]]:
    """A text file that appears whole, when everything has been written, or not at all; it must not exist."""
    if path.exists() or path.is_symlink():
        raise OwlmineError(f"{path}: already exists; give a new name or remove it first")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.writing")
    try:
        with temporary.open("x", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError as error:
        raise OwlmineError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
