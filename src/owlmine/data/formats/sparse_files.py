"""Sparse vectors as text: the repository's old and new formats, and svmlight."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from owlmine.data.formats.block import Block, LabelFile, Notes, QueryFile, QueryKind, RowLabels, RowRuns
from owlmine.data.rows import Int64, SparseRows
from owlmine.data.sparse_text import Grammar, ParsedBlock, parse_block
from owlmine.data.streams import ByteSource, LineSource, line_blocks, text_lines
from owlmine.errors import DataError, excerpt

_HEADER_BYTES = 200
_MAX_ID = 2**31
_MAX_ROWS = 2**62


def read_header(path: Path, names: tuple[str, ...]) -> tuple[int, ...]:
    """The counts on the first line, such as ``points features classes``."""
    with ByteSource(path) as source:
        head = source.read(_HEADER_BYTES)
    wanted = f"a header of {len(names)} numbers: {' '.join(names)}"
    if not head:
        raise DataError(path, found="an empty file", wanted=wanted)
    first, newline, _ = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    if (not newline and len(head) == _HEADER_BYTES) or not re.fullmatch(rb"\s*\d+(\s+\d+)*\s*", first):
        raise DataError(path, line=1, found=excerpt(first), wanted=wanted)
    numbers = tuple(int(field) for field in first.split())
    if len(numbers) != len(names):
        raise DataError(path, line=1, found=excerpt(first.strip()), wanted=wanted)
    for name, number in zip(names, numbers, strict=True):
        if number > _MAX_ROWS:
            raise DataError(path, line=1, found=f"{number} {name}", wanted=f"at most {_MAX_ROWS}")
    for name, number in zip(names[1:], numbers[1:], strict=True):
        if number > _MAX_ID:
            raise DataError(path, line=1, found=f"{number} {name}", wanted=f"at most {_MAX_ID}")
    return numbers


class LabelledReader:
    """The repository's old format: a header ``points features classes``, then ``l1,l2 f:v f:v`` per point."""

    kind: QueryKind = "sparse"

    def __init__(self, path: Path) -> None:
        self.path, self.source = path, str(path)
        self.num_points, self.num_features, self.num_classes = read_header(path, ("points", "features", "classes"))

    def blocks(self, notes: Notes) -> Iterator[Block]:
        blank = RowRuns()
        num_rows = num_blank = num_given = 0
        for parsed, line, progress in _parsed(self.path, Grammar.LABELLED, self.num_features, self.num_classes, notes):
            num_rows += len(parsed.labels)
            num_blank += len(parsed.blank_rows)
            if num_rows - num_blank > self.num_points:
                surplus = np.delete(np.arange(len(parsed.labels)), parsed.blank_rows)[
                    self.num_points - num_rows + num_blank
                ]
                raise DataError(
                    self.path,
                    line=line + int(surplus),
                    found=f"more than {self.num_points:,} points",
                    wanted=f"the {self.num_points:,} points of the header",
                )
            if num_rows > self.num_points:  # the header does not count blank lines, so these are not points
                filled = parsed.without_blank_rows()
            else:
                filled = parsed
                blank.add(parsed.blank_rows + num_given)
            num_given += len(filled.labels)
            yield Block(filled.features, _row_labels(filled.labels), progress)
        # A blank line is a point without label or feature if the header counts it, and otherwise a stray one.
        if num_rows == self.num_points:
            notes.tally("blank_points", num_blank)
        elif num_rows - num_blank == self.num_points:
            notes.tally("blank_lines", num_blank)
            notes.stray_rows = blank
        else:
            raise DataError(
                self.path,
                found=f"{num_rows - num_blank:,} points" + (f" and {num_blank:,} blank lines" if num_blank else ""),
                wanted=f"the {self.num_points:,} points of the header",
            )


class SvmlightReader:
    """svmlight / libsvm: ``l1,l2 f:v f:v`` with no header. Features may start at 0 or 1."""

    kind: QueryKind = "sparse"
    num_features: int | None = None
    num_classes: int | None = None

    def __init__(self, path: LineSource) -> None:
        self.path, self.source = path, str(path)

    def blocks(self, notes: Notes) -> Iterator[Block]:
        num_rows = 0
        for parsed, _, progress in _parsed(self.path, Grammar.SVMLIGHT, None, None, notes):
            notes.tally("blank_lines", len(parsed.blank_rows))
            filled = parsed.without_blank_rows()
            num_rows += len(filled.labels)
            names = [str(label) for label in filled.labels.indices.tolist()]
            yield Block(filled.features, RowLabels(filled.labels.offsets, names), progress)
        if not num_rows:
            raise DataError(self.path, found="no points", wanted="lines of the form 'label,label feature:value'")


@dataclass(frozen=True)
class MatrixFile:
    """One matrix of the repository's new format: a header ``rows columns``, then ``column:value`` per row."""

    path: Path
    num_rows: int
    num_columns: int

    @classmethod
    def open(cls, path: Path) -> MatrixFile:
        return cls(path, *read_header(path, ("rows", "columns")))

    def parts(self, notes: Notes) -> Iterator[tuple[SparseRows, float]]:
        seen = 0
        for parsed, line, progress in _parsed(self.path, Grammar.MATRIX, self.num_columns, None, notes):
            rows = parsed.features
            seen += len(rows)
            if surplus := max(seen - self.num_rows, 0):
                extra = rows[len(rows) - surplus :]
                if len(extra.indices):
                    place = line + len(rows) - surplus + int(np.flatnonzero(extra.counts)[0])
                    raise DataError(
                        self.path,
                        line=place,
                        found=f"more than {self.num_rows:,} rows",
                        wanted=f"the {self.num_rows:,} rows of the header",
                    )
                notes.tally("blank_lines", surplus)
                rows, seen = rows[: len(rows) - surplus], self.num_rows
            yield rows, progress
        if seen < self.num_rows:
            raise DataError(self.path, found=f"{seen:,} rows", wanted=f"the {self.num_rows:,} rows of the header")

    def as_queries(self) -> QueryFile:
        return QueryFile(self.path, "sparse", self.num_columns, lambda notes: iter(self.parts(notes)))

    def as_labels(self) -> LabelFile:
        return LabelFile(
            self.path,
            self.num_columns,
            lambda notes: (weighted_labels(rows) for rows, _ in self.parts(notes)),
        )


def weighted_labels(rows: SparseRows) -> SparseRows:
    """A row of a label matrix: stored zeros are not labels; values other than 1 are weights."""
    assert rows.values is not None
    return rows.select(rows.values != 0)


def _row_labels(labels: SparseRows) -> RowLabels:
    return RowLabels(labels.offsets, labels.indices)


def _parsed(
    path: LineSource, grammar: Grammar, num_features: int | None, num_classes: int | None, notes: Notes
) -> Iterator[tuple[ParsedBlock, int, float]]:
    """Parsed blocks after the header, each with the number of its first line."""
    for block in line_blocks(path):
        data, first_line = block.data, block.first_line
        if first_line == 1 and grammar is not Grammar.SVMLIGHT:
            header_end = data.find(b"\n") + 1 or len(data)
            notes.tally("crlf_lines", int(data[:header_end].endswith(b"\r\n")))
            data, first_line = data[header_end:], 2
            if not data:
                continue
        parsed = parse_block(
            data,
            grammar=grammar,
            num_features=num_features,
            num_classes=num_classes,
            path=str(path),
            first_line=first_line,
        )
        notes.tally("crlf_lines", parsed.crlf_lines)
        notes.tally("duplicate_labels", parsed.duplicate_labels)
        yield parsed, first_line, block.progress


# One file of points, and a list of those in each split: the repository's form of small datasets.


class IndexedReader:
    """The points of ``whole`` whose numbers, from 1, are in one column of ``list_file``, in the order of that file."""

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
                wanted="none with split-index files",
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
