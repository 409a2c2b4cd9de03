"""One file of points and a list of which belong to a split: how the repository ships its small datasets."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from owlmine.data.formats.block import Block, Notes, QueryKind, RowLabels
from owlmine.data.formats.sparse_files import LabelledReader
from owlmine.data.rows import Int64, SparseRows
from owlmine.data.streams import text_lines
from owlmine.errors import DataError, excerpt


class IndexedReader:
    """The points of ``whole`` whose numbers, counted from 1, stand in one column of ``list_file``, in file order."""

    kind: QueryKind = "sparse"

    def __init__(self, whole: LabelledReader, list_file: Path, column: int) -> None:
        self._whole, self.source = whole, f"{whole.source} ({list_file.name})"
        self.num_features, self.num_classes = whole.num_features, whole.num_classes
        self._rows = np.unique(_read_column(list_file, column, whole.num_points))

    def blocks(self, notes: Notes) -> Iterator[Block]:
        inner, row = Notes(), 0
        for block in self._whole.blocks(inner):
            stop = row + len(block.labels)
            chosen: Int64 = self._rows[slice(*np.searchsorted(self._rows, (row, stop)))] - row
            assert isinstance(block.queries, SparseRows)
            assert isinstance(block.labels.classes, np.ndarray)
            labels = SparseRows(block.labels.offsets, block.labels.classes, None).take(chosen)
            yield Block(block.queries.take(chosen), RowLabels(labels.offsets, labels.indices), block.progress)
            row = stop
        if strays := inner.counts["blank_lines"]:
            raise DataError(
                self._whole.path,
                found=f"{strays:,} stray blank lines",
                wanted="none beside split-index files",
            )
        notes.counts.update(inner.counts)


def _read_column(path: Path, column: int, num_points: int) -> Int64:
    rows = array("q")
    for number, line, _ in text_lines(path):
        fields = line.split()
        if not fields:
            continue
        if column >= len(fields):
            raise DataError(
                path,
                line=number,
                found=f"{len(fields)} columns",
                wanted=f"more than {column} (--split-column)",
            )
        field = fields[column]
        # Python refuses to read thousands of digits as a number.
        if not (field.isascii() and field.isdigit() and len(field) < 19) or not 1 <= int(field) <= num_points:
            raise DataError(path, line=number, found=excerpt(field), wanted=f"a point from 1 to {num_points}")
        rows.append(int(field) - 1)
    if not rows:
        raise DataError(path, found="an empty list", wanted="point numbers, one per line")
    return np.array(rows, np.int64)
