"""What every format yields: blocks of points, and notes on what was unusual."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import Float32, Int64, SparseRows, concatenate, offsets_from_counts
from owlmine.errors import DataError, excerpt

Queries = SparseRows | NDArray[Any] | list[str]
QueryKind = Literal["sparse", "dense", "text"]
# Rows per block for sources that have no blocks of their own.
BLOCK_ROWS = 1 << 14


@dataclass(frozen=True)
class RowLabels:
    """The labels of some points: class numbers, or names, with a weight each or none."""

    offsets: Int64
    classes: Int64 | list[str]
    weights: Float32 | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Block:
    """Some consecutive points of a split."""

    queries: Queries
    labels: RowLabels
    progress: float
    """How much of the source has been read, 0 to 1."""
    ids: list[str] | None = None
    """The id of each point, if the source has ids; empty where a point has none."""


class RowRuns:
    """Ascending row numbers, stored as runs: a billion consecutive ones cost as much as one."""

    def __init__(self) -> None:
        self._starts, self._stops = array("q"), array("q")
        self._num_rows = 0

    def __len__(self) -> int:
        return self._num_rows

    def add(self, rows: Int64) -> None:
        """Appends rows, ascending, all after the existing ones."""
        if not len(rows):
            return
        breaks = np.flatnonzero(np.diff(rows) != 1)
        starts, stops = rows[np.concatenate([[0], breaks + 1])], rows[np.concatenate([breaks, [len(rows) - 1]])] + 1
        if self._stops and self._stops[-1] == starts[0]:
            self._stops[-1] = int(stops[0])
            starts, stops = starts[1:], stops[1:]
        self._starts.frombytes(starts.astype(np.int64).tobytes())
        self._stops.frombytes(stops.astype(np.int64).tobytes())
        self._num_rows += len(rows)

    def within(self, start: int, stop: int) -> Int64:
        """The rows from ``start`` up to ``stop`` - 1, with ``start`` counted as row 0."""
        low, high = bisect_right(self._stops, start), bisect_left(self._starts, stop)
        starts = np.maximum(np.array(self._starts[low:high], np.int64), start) - start
        stops = np.minimum(np.array(self._stops[low:high], np.int64), stop) - start
        offsets = offsets_from_counts(stops - starts)
        return np.repeat(starts - offsets[:-1], stops - starts) + np.arange(offsets[-1])


@dataclass
class Notes:
    """What a reader accepted but the user should know: counts by name, and rows that are not points."""

    counts: Counter[str] = field(default_factory=Counter)
    label_separator: str | None = None
    """The separator of labels in text cells, if there were such cells."""
    stray_rows: RowRuns = field(default_factory=RowRuns)

    def tally(self, name: str, count: int) -> None:
        if count:
            self.counts[name] += count


class PointReader(Protocol):
    """A split in one of the formats. ``blocks`` may be called more than once."""

    kind: QueryKind
    source: str
    """Where the points come from, for messages."""

    @property
    def num_features(self) -> int | None:
        """The width of the queries, if the source states it."""

    @property
    def num_classes(self) -> int | None:
        """The bound on class numbers, if the source states it; None if labels are names or unbounded."""

    def blocks(self, notes: Notes) -> Iterator[Block]: ...


def one_line(error: Exception) -> str:
    """The error message of another library, without line breaks."""
    return " ".join(str(error).split())


class RowBuffer:
    """Rows from an iterator of blocks, taken in any sizes."""

    def __init__(self, parts: Iterator[SparseRows]) -> None:
        self._parts = parts
        self._held: list[SparseRows] = []

    def take(self, num_rows: int) -> SparseRows:
        """Up to ``num_rows`` rows; fewer only at the end."""
        while sum(map(len, self._held)) < num_rows and (part := next(self._parts, None)) is not None:
            self._held.append(part)
        if not self._held:
            return SparseRows(np.zeros(1, np.int64), np.zeros(0, np.int64), None)
        rows = self._held[0] if len(self._held) == 1 else concatenate(self._held)
        self._held = [rows[num_rows:]] if len(rows) > num_rows else []
        return rows[:num_rows]


@dataclass(frozen=True)
class QueryFile:
    """Queries without their labels: a sparse or dense matrix, or a text per line."""

    path: Path
    kind: QueryKind
    num_features: int | None
    parts: Callable[[Notes], Iterator[tuple[Queries, float]]]


@dataclass(frozen=True)
class LabelFile:
    """Labels without queries: a sparse matrix of class numbers, row by row."""

    path: Path
    num_classes: int | None
    parts: Callable[[Notes], Iterator[SparseRows]]
    has_lines: bool = False
    """Whether an empty row at the end may be a stray blank line."""


class PairReader:
    """Queries from one file and labels from another, row by row."""

    def __init__(self, queries: QueryFile, labels: LabelFile) -> None:
        self._queries, self._labels = queries, labels
        self.kind: QueryKind = queries.kind
        self.source = str(queries.path)
        self.num_features, self.num_classes = queries.num_features, labels.num_classes

    def blocks(self, notes: Notes) -> Iterator[Block]:
        labels = RowBuffer(self._labels.parts(notes))
        num_rows = 0
        for given, progress in self._queries.parts(notes):
            queries, rows = given, labels.take(len(given))
            if len(rows) < len(queries):
                if not isinstance(queries, list) or any(queries[len(rows) :]):
                    raise self._mismatch(num_rows + len(rows), f"at least {num_rows + len(queries):,}")
                notes.tally("blank_lines", len(queries) - len(rows))
                queries = queries[: len(rows)]
            num_rows += len(rows)
            yield Block(queries, RowLabels(rows.offsets, rows.indices.astype(np.int64), rows.values), progress)
        while extra := labels.take(BLOCK_ROWS):
            if len(extra.indices) or not self._labels.has_lines:
                raise self._mismatch(num_rows + len(extra), f"{num_rows:,}", more=True)
            notes.tally("blank_lines", len(extra))

    def _mismatch(self, found: int, wanted: str, *, more: bool = False) -> DataError:
        return DataError(
            self._labels.path,
            found=f"{'at least ' if more else ''}{found:,} rows",
            wanted=f"{wanted}, as in {self._queries.path}",
        )


# The contents of a table cell: a text, or labels in any of the usual notations.


Labels = tuple[list[str], list[float] | None]
"""The labels of a point, and their weights, if any."""


SEPARATOR_NAMES = {",": "comma", ";": "semicolon", "|": "vertical bar"}
"""Usual separators of labels, in words."""


class BadCellError(Exception):
    """What was found in a cell and what was wanted; the reader adds the place."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(found, wanted)
        self.found, self.wanted = found, wanted


def text_of(cells: Mapping[str, Any], column: str) -> str:
    value = _cell(cells, column)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadCellError(f"{shown(value)} in column {column!r}", "text")
    return value


def id_of(cells: Mapping[str, Any], column: str) -> str:
    """Any value as text; empty if there is none."""
    value = cells.get(column)
    name = "" if value is None else str(value)
    if not _is_text(name):
        raise BadCellError(f"{shown(name)} in column {column!r}", "text")
    return name


def labels_of(cells: Mapping[str, Any], column: str, separator: str) -> Labels:
    """A list, an object of weights, one whole number, or one string of labels with ``separator`` between them."""
    value = _cell(cells, column)
    if isinstance(value, str):
        if not value.strip().startswith("["):
            pieces = (piece.strip() for piece in value.split(separator))
            return [label_of(piece) for piece in pieces if piece], None
        value = _json_list(value, column)
    if value is None:
        return [], None
    if isinstance(value, dict):
        return [label_of(key) for key in value], [_weight(item, column) for item in value.values()]
    if isinstance(value, (int, np.integer)):
        return [label_of(value)], None
    if not isinstance(value, (list, tuple)):
        raise BadCellError(f"{shown(value)} in column {column!r}", "a list of labels")
    labels = [label_of(item) for item in value]
    relevance = cells.get("target_rel") if column == "target_ind" else None
    if relevance is None:
        return labels, None
    if not isinstance(relevance, (list, tuple)) or len(relevance) != len(labels):
        raise BadCellError("'target_rel' that does not match 'target_ind'", "a weight per label")
    return labels, [_weight(item, "target_rel") for item in relevance]


def joined_classes(keys: Collection[str], separator: str) -> dict[str, int]:
    """Classes that look like several labels joined by another separator, by the name of that separator.

    Either most classes contain it, or most of the parts are classes themselves.
    """
    found: dict[str, int] = {}
    for mark, name in SEPARATOR_NAMES.items():
        joined = [] if mark in separator else [key for key in keys if mark in key]
        parts = [part.strip() for key in joined for part in key.split(mark)]
        alone = sum(part in keys for part in parts)
        if joined and (2 * len(joined) > len(keys) or 2 * alone >= len(parts)):
            found[name] = len(joined)
    return found


def label_of(item: Any) -> str:
    """A label as a string; 1 and "1" are the same, 1.0 and true are not labels."""
    if isinstance(item, str) and item and _is_text(item):
        return str(item)
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        try:
            return str(item)
        except ValueError:  # thousands of digits
            pass
    raise BadCellError(f"the label {shown(item)}", "a name or a whole number")


def shown(value: Any) -> str:
    """A short form for messages, of any value."""
    try:
        return excerpt(repr(value))
    except (ValueError, RecursionError):  # a number of thousands of digits, a list a thousand deep
        return f"a {type(value).__name__} beyond printing"


def _cell(cells: Mapping[str, Any], column: str) -> Any:
    if column not in cells:
        raise BadCellError(f"columns {', '.join(map(repr, cells)) or 'none'}", f"a column {column!r} as in other rows")
    return cells[column]


def _is_text(name: str) -> bool:
    """Whether UTF-8 can hold it: a lone surrogate is half a character."""
    try:
        return name.isascii() or bool(name.encode())
    except UnicodeEncodeError:
        return False


def _json_list(text: str, column: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise BadCellError(f"{excerpt(text)} in column {column!r}", "a JSON list of labels") from None
    assert isinstance(value, list)
    return value


def _weight(item: Any, column: str) -> float:
    if isinstance(item, (int, float)) and not isinstance(item, bool) and _LEAST_WEIGHT <= item <= _LARGEST_WEIGHT:
        return float(item)
    raise BadCellError(f"the weight {shown(item)} in column {column!r}", "a positive number that float32 can hold")


_LEAST_WEIGHT = float(np.finfo(np.float32).tiny)
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)
