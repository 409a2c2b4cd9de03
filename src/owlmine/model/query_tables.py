"""Texts and ids out of tables that need have no labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from owlmine.data.formats import tables
from owlmine.data.formats.block import Notes
from owlmine.data.formats.label_cells import BadCellError, text_of

DEFAULT_ID = "id"
_BLOCK_ROWS, _BLOCK_CHARS = 1024, 1 << 22

TextBlock = tuple[list[str], list[Any], float]
"""Texts, what the table calls each of them (None where it has no such column), and how much has been read."""


def table_queries(path: Path, format: str, *, text_column: str | None, id_column: str) -> Iterator[TextBlock]:
    """Blocks of a jsonl, csv, tsv or parquet file. A column ``id`` may be missing, another ``id_column`` may not."""
    # In place of the labels, which queries do not have, the readers look for the id.
    columns = tables.Columns(text_column, id_column)
    if format in ("csv", "tsv"):
        table = tables.delimited(path, columns, "," if format == "csv" else "\t")
    else:
        table = tables.json_lines(path, columns) if format == "jsonl" else tables.parquet(path, columns)
    return _QueryTable(table).text_blocks(id_column)


class _QueryTable(tables.TableReader):
    """A table read for its texts and ids alone, by the same rules as one with labels."""

    def __init__(self, table: tables.TableReader) -> None:
        super().__init__(table.source, table._rows, table._columns, table._unit)

    def text_blocks(self, id_column: str) -> Iterator[TextBlock]:
        texts, ids, num_chars = list[str](), list[Any](), 0
        text_columns: tuple[str, ...] = ()
        for number, cells, progress in self._rows(Notes()):
            if not text_columns:
                # Any column will do for the labels: there need be none.
                self._columns = replace(self._columns, labels=next(iter(cells), ""))
                text_columns, _ = self._choose(cells, number)
            if id_column not in cells and id_column != DEFAULT_ID:
                raise self._error(number, f"columns {', '.join(map(repr, cells))}", f"a column {id_column!r}")
            try:
                texts.append(" ".join(text_of(cells, column) for column in text_columns))
            except BadCellError as error:
                raise self._error(number, error.found, error.wanted) from None
            ids.append(_plain(cells.get(id_column)))
            num_chars += len(texts[-1])
            if len(texts) == _BLOCK_ROWS or num_chars > _BLOCK_CHARS:
                yield texts, ids, progress
                texts, ids, num_chars = [], [], 0
        if texts:
            yield texts, ids, 1.0


def _plain(value: Any) -> Any:
    """An id as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)
