"""Tables with a text column and a label column: jsonl, csv, tsv, parquet and pandas."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from owlmine.data.formats.block import Block, Notes, QueryKind, RowLabels
from owlmine.data.rows import offsets_from_counts
from owlmine.data.streams import MAX_LINE_BYTES, ByteSource, text_lines
from owlmine.errors import DataError, OwlmineError, excerpt

# Texts are long and live as Python objects: fewer rows a block than for numbers.
_BLOCK_ROWS = 1 << 12
_TEXT_COLUMNS = ("text", "title", "query")
_LABEL_COLUMNS = ("labels", "label", "target_ind", "classes", "class", "tags")

Row = tuple[int, dict[str, Any], float]
"""Line or row number, the cells by column, and how much of the source has been read."""


@dataclass(frozen=True)
class Columns:
    """Which columns to use; None takes the first of the usual names that the table has."""

    text: str | None = None
    """Several columns, joined by a blank, are parted by commas."""
    labels: str | None = None
    separator: str = ";"
    """Parts the labels inside one cell of text; a cell that is a JSON list needs none."""


class TableReader:
    """Points from rows of named cells. Labels are names: a list, an object of weights, or one separated string."""

    kind: QueryKind = "text"
    num_features: int | None = None
    num_classes: int | None = None

    def __init__(self, source: str, rows: Callable[[Notes], Iterator[Row]], columns: Columns, unit: str) -> None:
        self.source, self._rows, self._columns, self._unit = source, rows, columns, unit

    def blocks(self, notes: Notes) -> Iterator[Block]:
        pending = _Pending()
        text_columns: tuple[str, ...] = ()
        label_column = ""
        num_rows, with_comma = 0, 0
        for number, cells, progress in self._rows(notes):
            if not label_column:
                text_columns, label_column = self._choose(cells, number)
            try:
                text = " ".join(_text(cells, column) for column in text_columns)
                labels, weights = _labels(cells, label_column, self._columns.separator)
            except _BadCellError as error:
                raise self._error(number, *error.args) from None
            with_comma += self._columns.separator != "," and any("," in label for label in labels)
            notes.tally("duplicate_labels", pending.add(text, labels, weights))
            num_rows += 1
            if len(pending.texts) == _BLOCK_ROWS:
                yield pending.block(progress)
                pending = _Pending()
        if pending.texts:
            yield pending.block(1.0)
        if not num_rows:
            raise DataError(self.source, found="no points", wanted="rows with a text and labels")
        if self._unit == "line" and with_comma > num_rows / 2:
            notes.tally("label_cells_with_comma", with_comma)

    def _choose(self, cells: dict[str, Any], number: int) -> tuple[tuple[str, ...], str]:
        if self._columns.text is not None:
            text = tuple(self._columns.text.split(","))
        elif "title" in cells and "content" in cells and "text" not in cells:
            text = ("title", "content")
        else:
            text = tuple(name for name in _TEXT_COLUMNS if name in cells)[:1]
        named = self._columns.labels
        label = named if named is not None else next((name for name in _LABEL_COLUMNS if name in cells), "")
        for what, wanted, option in (("text", text, "--text-column"), ("labels", (label,), "--label-column")):
            if not wanted or any(name not in cells for name in wanted):
                raise self._error(
                    number,
                    f"columns {', '.join(map(repr, cells))}",
                    f"a column for {what}"
                    + (f" called {', '.join(map(repr, wanted))}" if wanted and wanted[0] else f" ({option})"),
                )
        return text, label

    def _error(self, number: int, found: str, wanted: str) -> DataError:
        if self._unit == "line":
            return DataError(self.source, line=number, found=found, wanted=wanted)
        return DataError(self.source, found=f"{found} in row {number}", wanted=wanted)


class _BadCellError(Exception):
    """What was found in a cell and what was wanted; the reader adds the place."""


class _Pending:
    """Points on their way into a block."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._counts: list[int] = []
        self._labels: list[str] = []
        self._weights: list[float] = []

    def add(self, text: str, labels: list[str], weights: list[float] | None) -> int:
        """Keeps the first of equal labels; returns how many were left out."""
        unique = dict(zip(reversed(labels), reversed(weights or [1.0] * len(labels)), strict=True))
        self.texts.append(text)
        self._counts.append(len(unique))
        self._labels.extend(reversed(unique))
        self._weights.extend(reversed(unique.values()))
        return len(labels) - len(unique)

    def block(self, progress: float) -> Block:
        weights = np.array(self._weights, np.float32)
        labels = RowLabels(
            offsets_from_counts(np.array(self._counts)),
            self._labels,
            None if (weights == 1).all() else weights,
        )
        return Block(self.texts, labels, progress)


def _text(cells: dict[str, Any], column: str) -> str:
    value = cells.get(column)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _BadCellError(f"{excerpt(repr(value))} in column {column!r}", "text")
    return value


def _labels(cells: dict[str, Any], column: str, separator: str) -> tuple[list[str], list[float] | None]:
    value = cells.get(column)
    if isinstance(value, str):
        stripped = value.strip()
        if stripped.startswith("["):
            value = _json_list(stripped, column)
        else:
            return [label for label in (piece.strip() for piece in value.split(separator)) if label], None
    if value is None:
        return [], None
    if isinstance(value, dict):
        return [_label(key, column) for key in value], [_weight(item, column) for item in value.values()]
    if isinstance(value, int) and not isinstance(value, bool):
        return [str(value)], None
    if not isinstance(value, (list, tuple)):
        raise _BadCellError(f"{excerpt(repr(value))} in column {column!r}", "a list of labels")
    labels = [_label(item, column) for item in value]
    relevance = cells.get("target_rel") if column == "target_ind" else None
    if relevance is None:
        return labels, None
    if not isinstance(relevance, list) or len(relevance) != len(labels):
        raise _BadCellError("'target_rel' that does not fit 'target_ind'", "a weight per label")
    return labels, [_weight(item, "target_rel") for item in relevance]


def _json_list(text: str, column: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise _BadCellError(f"{excerpt(text)} in column {column!r}", "a JSON list of labels") from None
    assert isinstance(value, list)
    return value


def _label(item: Any, column: str) -> str:
    if isinstance(item, str) and item:
        return item
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        return str(item)
    raise _BadCellError(f"{excerpt(repr(item))} among the labels of column {column!r}", "a name or a whole number")


def _weight(item: Any, column: str) -> float:
    if isinstance(item, (int, float)) and not isinstance(item, bool) and math.isfinite(item) and item > 0:
        return float(item)
    raise _BadCellError(f"the weight {excerpt(repr(item))} in column {column!r}", "a positive number")


def json_lines(path: Path, columns: Columns) -> TableReader:
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
                    wanted="a JSON object",
                ) from None
            except (UnicodeEncodeError, RecursionError, ValueError) as error:
                raise DataError(path, line=number, found=f"JSON with {error}", wanted="a JSON object of text") from None
            if not isinstance(cells, dict):
                raise DataError(path, line=number, found=excerpt(line), wanted="a JSON object")
            yield number, cells, progress

    return TableReader(str(path), rows, columns, "line")


def delimited(path: Path, columns: Columns, delimiter: str) -> TableReader:
    """csv or tsv with a header line; a quoted cell may span lines."""

    def rows(notes: Notes) -> Iterator[Row]:
        position = [0, 0.0]

        def lines() -> Iterator[str]:
            for number, line, progress in text_lines(path, tally=notes.tally):
                position[:] = number, progress
                if "\0" in line:
                    raise DataError(path, line=number, found="a NUL byte", wanted="text")
                yield line + "\n"

        csv.field_size_limit(MAX_LINE_BYTES)
        reader = csv.reader(lines(), delimiter=delimiter, strict=True)
        try:
            header = next(reader, None)
            if header is None:
                raise DataError(path, found="an empty file", wanted="a header line with the columns' names")
            for cells in reader:
                number = int(position[0])
                if not cells:
                    notes.tally("blank_lines", 1)
                    continue
                if len(cells) != len(header):
                    raise DataError(
                        path,
                        line=number,
                        found=f"{len(cells)} cells",
                        wanted=f"{len(header)}, as in the header",
                    )
                yield number, dict(zip(header, cells, strict=True)), position[1]
        except csv.Error as error:
            raise DataError(
                path, line=int(position[0]), found=f"a row that breaks ({error})", wanted="valid csv"
            ) from None

    return TableReader(str(path), rows, columns, "line")


def parquet(path: Path, columns: Columns) -> TableReader:
    """A parquet file, a batch of rows at a time."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise OwlmineError(f"{path}: parquet needs pyarrow: pip install 'owlmine[parquet]'") from error

    def rows(notes: Notes) -> Iterator[Row]:
        del notes
        try:
            with ByteSource(path), ParquetFile(path) as file:
                total, number = max(file.metadata.num_rows, 1), 0
                for batch in file.iter_batches(_BLOCK_ROWS):
                    for cells in batch.to_pylist(maps_as_pydicts="strict"):
                        yield number, cells, number / total
                        number += 1
        except (ArrowException, OSError) as error:
            raise DataError(path, found=f"a file that cannot be read ({error})", wanted="parquet") from None

    return TableReader(str(path), rows, columns, "row")


def data_frame(frame: Any, columns: Columns, source: str) -> TableReader:
    """A pandas data frame."""

    def rows(notes: Notes) -> Iterator[Row]:
        del notes
        names = [str(name) for name in frame.columns]
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
