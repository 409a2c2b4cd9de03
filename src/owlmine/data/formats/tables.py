"""Labels and texts in separate files, a line per point; and tables of both."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from owlmine.data.formats.block import (
    BLOCK_ROWS,
    BadCellError,
    Block,
    LabelFile,
    Notes,
    QueryFile,
    QueryKind,
    RowLabels,
    id_of,
    labels_of,
    one_line,
    text_of,
)
from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.data.streams import MAX_LINE_BYTES, ByteSource, LineSource, text_lines
from owlmine.errors import DataError, OwlmineError, excerpt, how_to_install

_MAX_ID = 2**31
_MAX_DIGITS = 10
# Characters of text per block: lines may be long, and Python holds up to four bytes for each.
_BLOCK_LABELS = 1 << 20


def line_labels(path: Path) -> LabelFile:
    """A line per point with its class numbers, separated by commas or blanks; an empty line means no labels."""

    def parts(notes: Notes) -> Iterator[SparseRows]:
        counts: list[int] = []
        classes: list[int] = []
        for number, line, _ in text_lines(path, tally=notes.tally):
            fields = line.replace(",", " ").split()
            numbers = list(dict.fromkeys(_class_number(path, field, number) for field in fields))
            notes.tally("duplicate_labels", len(fields) - len(numbers))
            counts.append(len(numbers))
            classes.extend(numbers)
            if len(counts) == BLOCK_ROWS or len(classes) > _BLOCK_LABELS:
                yield SparseRows(offsets_from_counts(np.array(counts)), np.array(classes, np.int64), None)
                counts, classes = [], []
        if counts:
            yield SparseRows(offsets_from_counts(np.array(counts)), np.array(classes, np.int64), None)

    return LabelFile(path, None, parts, has_lines=True)


def _class_number(path: Path, field: str, line: int) -> int:
    digits = field.lstrip("0") or field[:1]
    if not (field.isascii() and field.isdigit()) or len(digits) > _MAX_DIGITS or int(digits) >= _MAX_ID:
        raise DataError(path, line=line, found=excerpt(field), wanted=f"a class number from 0 to {_MAX_ID - 1}")
    return int(digits)


def line_texts(path: Path) -> QueryFile:
    """A text per line."""

    def parts(notes: Notes) -> Iterator[tuple[list[str], float]]:
        texts: list[str] = []
        num_chars = 0
        for _, line, progress in text_lines(path, tally=notes.tally):
            texts.append(line)
            num_chars += len(line)
            if len(texts) == BLOCK_ROWS or num_chars > _BLOCK_CHARS:
                yield texts, progress
                texts, num_chars = [], 0
        if texts:
            yield texts, 1.0

    return QueryFile(path, "text", None, parts)


# Tables with a text column and a label column: jsonl, csv, tsv, parquet and pandas.


# Texts are long Python objects: fewer rows per block than for numbers.
_BLOCK_ROWS = 1 << 12
_BLOCK_CHARS = 1 << 22
_TEXT_COLUMNS = ("text", "title", "query")
_LABEL_COLUMNS = ("labels", "label", "target_ind", "classes", "class", "tags")

Row = tuple[int, dict[str, Any], float]
"""Line or row number, the cells by column, and how much of the source has been read."""


@dataclass(frozen=True)
class Columns:
    """Which columns to use; None takes the first of the usual names that the table has."""

    text: str | None = None
    """One column, or several separated by commas, whose texts are joined by a blank."""
    labels: str | None = None
    separator: str = ";"
    """The separator of labels in a text cell; a cell with a JSON list needs none."""
    others: tuple[str, ...] = ()
    """Further columns to read."""
    ids: str | None = None
    """The column with the ids of points, if the table has it."""

    def may_use(self, name: str) -> bool:
        """Whether a column with this name may be needed; others are not read."""
        usual = (*_TEXT_COLUMNS, "content", *_LABEL_COLUMNS, "target_rel", *self.others)
        return name in usual or name in (self.labels, self.ids) or name in (self.text or "").split(",")


class TableReader:
    """Points from rows of named cells. Labels are names: a list, an object of weights, or one separated string."""

    kind: QueryKind = "text"
    num_features: int | None = None
    num_classes: int | None = None

    def __init__(self, source: str, rows: Callable[[Notes], Iterator[Row]], columns: Columns, unit: str) -> None:
        self.source, self.rows, self._columns, self._unit = source, rows, columns, unit

    def blocks(self, notes: Notes) -> Iterator[Block]:
        pending = _Pending()
        text_columns: tuple[str, ...] = ()
        label_column, id_column = "", None
        num_rows = 0
        for number, cells, progress in self.rows(notes):
            if not label_column:
                text_columns, label_column = self.text_columns(cells, number), self._label_column(cells, number)
                id_column = self._columns.ids if self._columns.ids in cells else None
            try:
                text = " ".join(text_of(cells, column) for column in text_columns)
                labels, weights = labels_of(cells, label_column, self._columns.separator)
                id = None if id_column is None else id_of(cells, id_column)
            except BadCellError as error:
                raise self.error(number, error.found, error.wanted) from None
            if isinstance(cell := cells[label_column], str) and not cell.strip().startswith("["):
                notes.label_separator = self._columns.separator
            notes.tally("duplicate_labels", pending.add(text, labels, weights, id))
            num_rows += 1
            if len(pending.texts) == _BLOCK_ROWS or pending.num_chars > _BLOCK_CHARS:
                yield pending.block(progress)
                pending = _Pending()
        if pending.texts:
            yield pending.block(1.0)
        if not num_rows:
            raise DataError(self.source, found="no points", wanted="rows with a text and labels")

    def text_columns(self, cells: dict[str, Any], number: int) -> tuple[str, ...]:
        """The columns whose cells, joined by blanks, are the text. Found from a row of the table."""
        if self._columns.text is not None:
            chosen = tuple(self._columns.text.split(","))
        elif "title" in cells and "content" in cells and "text" not in cells:
            chosen = ("title", "content")
        else:
            chosen = tuple(name for name in _TEXT_COLUMNS if name in cells)[:1]
        self._check_present(chosen, cells, number, what="text", option="--text-column")
        return chosen

    def _label_column(self, cells: dict[str, Any], number: int) -> str:
        named = self._columns.labels
        chosen = named if named is not None else next((name for name in _LABEL_COLUMNS if name in cells), "")
        self._check_present((chosen,), cells, number, what="labels", option="--label-column")
        return chosen

    def _check_present(
        self, chosen: tuple[str, ...], cells: dict[str, Any], number: int, *, what: str, option: str
    ) -> None:
        if not chosen or any(name not in cells for name in chosen):
            called = f" called {', '.join(map(repr, chosen))}" if chosen and chosen[0] else f" ({option})"
            raise self.error(number, f"columns {', '.join(map(repr, cells))}", f"a column for {what}{called}")

    def error(self, number: int, found: str, wanted: str) -> DataError:
        """The error for the row with that number."""
        if self._unit == "line":
            return DataError(self.source, line=number, found=found, wanted=wanted)
        return DataError(self.source, found=f"{found} in row {number}", wanted=wanted)


class _Pending:
    """Collects points for a block."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.num_chars = 0
        self._ids: list[str] = []
        self._counts: list[int] = []
        self._labels: list[str] = []
        self._weights: list[float] = []

    def add(self, text: str, labels: list[str], weights: list[float] | None, id: str | None) -> int:
        """Keeps the first of equal labels; returns how many were left out."""
        unique: dict[str, float] = {}
        for label, weight in zip(labels, weights or repeat(1.0), strict=False):
            unique.setdefault(label, weight)
        self.texts.append(text)
        self.num_chars += len(text) + sum(map(len, unique))
        self._counts.append(len(unique))
        self._labels.extend(unique)
        self._weights.extend(unique.values())
        if id is not None:
            self._ids.append(id)
        return len(labels) - len(unique)

    def block(self, progress: float) -> Block:
        weights = np.array(self._weights, np.float32)
        labels = RowLabels(
            offsets_from_counts(np.array(self._counts)),
            self._labels,
            None if (weights == 1).all() else weights,
        )
        return Block(self.texts, labels, progress, self._ids or None)


def json_lines(path: LineSource, columns: Columns) -> TableReader:
    """One JSON object per line."""

    def rows(notes: Notes) -> Iterator[Row]:
        for number, line, progress in text_lines(path, tally=notes.tally):
            if not line.strip():
                notes.tally("blank_lines", 1)
                continue
            try:
                cells = json.loads(line)
                json.dumps(cells, ensure_ascii=False).encode() if "\\u" in line else None  # lone surrogates
            except json.JSONDecodeError as error:
                raise DataError(
                    path,
                    line=number,
                    found=f"{excerpt(line)} ({error.msg}, column {error.colno})",
                    wanted="one JSON object per line",
                ) from None
            except (RecursionError, ValueError) as error:
                raise DataError(path, line=number, found=f"JSON with {error}", wanted="a JSON object of text") from None
            if not isinstance(cells, dict):
                raise DataError(path, line=number, found=excerpt(line), wanted="one JSON object per line")
            yield number, cells, progress

    return TableReader(str(path), rows, columns, "line")


def delimited(path: LineSource, columns: Columns, delimiter: str) -> TableReader:
    """csv or tsv with a header line; a quoted cell may span lines."""

    def rows(notes: Notes) -> Iterator[Row]:
        progress = [0.0]

        def lines() -> Iterator[str]:
            for number, line, progress[0] in text_lines(path, tally=notes.tally):
                if "\0" in line:
                    raise DataError(path, line=number, found="a NUL byte", wanted="text")
                yield line + "\n"

        csv.field_size_limit(MAX_LINE_BYTES)
        reader = csv.reader(lines(), delimiter=delimiter, strict=True)
        header: list[str] = []
        next_number = 1
        try:
            for cells in reader:
                # A quoted cell may span lines: errors name the first line of a row.
                number, next_number = next_number, reader.line_num + 1
                if not cells:
                    notes.tally("blank_lines", 1)
                    continue
                if not header:
                    header = _checked_header(path, cells, number)
                    continue
                if len(cells) != len(header):
                    raise DataError(
                        path,
                        line=number,
                        found=f"{len(cells)} cells",
                        wanted=f"{len(header)}, as in the header",
                    )
                yield number, dict(zip(header, cells, strict=True)), progress[0]
        except csv.Error as error:
            raise DataError(path, line=next_number, found=f"an invalid row ({error})", wanted="valid csv") from None
        if not header:
            raise DataError(path, found="no header", wanted="a line with the columns' names")

    return TableReader(str(path), rows, columns, "line")


def _checked_header(source: object, names: Sequence[str], line: int | None) -> list[str]:
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(source, line=line, found=f"the column {repeated[0]!r} twice", wanted="each column once")
    return list(names)


def parquet(path: Path, columns: Columns) -> TableReader:
    """A parquet file, a batch of rows at a time."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise OwlmineError(f"{path}: parquet needs pyarrow; {how_to_install('parquet')}") from error

    def rows(notes: Notes) -> Iterator[Row]:
        del notes
        try:
            with ByteSource(path), ParquetFile(path) as file:
                names = _checked_header(path, file.schema_arrow.names, None)
                used = [name for name in names if columns.may_use(name)]
                total, number = max(file.metadata.num_rows, 1), 0
                for batch in file.iter_batches(_BLOCK_ROWS, columns=used):
                    for cells in batch.to_pylist(maps_as_pydicts="strict"):
                        yield number, dict.fromkeys(names) | cells, number / total
                        number += 1
        except OwlmineError:
            raise
        # A map with a key twice is a KeyError, text that is not UTF-8 a ValueError, a far date an OverflowError.
        except (ArrowException, OSError, ValueError, KeyError, OverflowError) as error:
            raise DataError(path, found=f"a file that cannot be read ({one_line(error)})", wanted="parquet") from None

    return TableReader(str(path), rows, columns, "row")


def data_frame(frame: Any, columns: Columns, source: str) -> TableReader:
    """A pandas data frame."""

    def rows(notes: Notes) -> Iterator[Row]:
        del notes
        names = _checked_header(source, [str(name) for name in frame.columns], None)
        for number, values in enumerate(frame.itertuples(index=False, name=None)):
            cells = {
                name: value.tolist() if isinstance(value, np.ndarray) else None if _missing(value) else value
                for name, value in zip(names, values, strict=True)
            }
            yield number, cells, number / max(len(frame), 1)

    return TableReader(source, rows, columns, "row")


def _missing(value: Any) -> bool:
    """pandas' missing value in a cell that is not a list."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or type(value).__name__ == "NAType"
