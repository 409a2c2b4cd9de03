"""Texts and ids out of tables that need have no labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from owlmine.data.formats import tables
from owlmine.data.formats.block import BadCellError, Notes, text_of
from owlmine.data.streams import ArrivingLines, LineSource

DEFAULT_ID = "id"
_BLOCK_ROWS, _BLOCK_CHARS = 1024, 1 << 22

TextBlock = tuple[list[str], list[Any], float]
"""Texts, what the table calls each of them (None where it has no such column), and how much has been read."""


def table_queries(path: LineSource, format: str, *, text_column: str | None, id_column: str) -> Iterator[TextBlock]:
    """Blocks of a jsonl, csv, tsv or parquet file. A column ``id`` may be missing, another ``id_column`` may not.

    Rows that are still arriving come in blocks of those that are there.
    """
    # In place of the labels, which queries do not have, the readers look for the id.
    columns = tables.Columns(text_column, id_column)
    if format in ("csv", "tsv"):
        table = tables.delimited(path, columns, "," if format == "csv" else "\t")
    elif format == "jsonl":
        table = tables.json_lines(path, columns)
    else:
        assert isinstance(path, Path)
        table = tables.parquet(path, columns)
    return _text_blocks(table, id_column, path if isinstance(path, ArrivingLines) else None)


def _text_blocks(table: tables.TableReader, id_column: str, arriving: ArrivingLines | None) -> Iterator[TextBlock]:
    """The texts and ids alone, by the same rules as for a table with labels."""
    texts, ids, num_chars = list[str](), list[Any](), 0
    text_columns: tuple[str, ...] = ()
    for number, cells, progress in table.rows(Notes()):
        text_columns = text_columns or table.text_columns(cells, number)
        if id_column not in cells and id_column != DEFAULT_ID:
            raise table.error(number, f"columns {', '.join(map(repr, cells))}", f"a column {id_column!r}")
        try:
            texts.append(" ".join(text_of(cells, column) for column in text_columns))
        except BadCellError as error:
            raise table.error(number, error.found, error.wanted) from None
        ids.append(_plain(cells.get(id_column)))
        num_chars += len(texts[-1])
        all_there = arriving is not None and arriving.caught_up
        if len(texts) == _BLOCK_ROWS or num_chars > _BLOCK_CHARS or all_there:
            yield texts, ids, progress
            texts, ids, num_chars = [], [], 0
    if texts:
        yield texts, ids, 1.0


def _plain(value: Any) -> Any:
    """An id as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)
