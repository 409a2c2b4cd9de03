"""Labels and texts that lie in files of their own, a line per point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from owlmine.data.formats.block import BLOCK_ROWS, LabelFile, Notes, QueryFile
from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.data.streams import text_lines
from owlmine.errors import DataError, excerpt

_MAX_ID = 2**31
_MAX_DIGITS = 10
# Characters of text per block: lines may be long, and Python holds up to four bytes for each.
_BLOCK_CHARS = 1 << 22
_BLOCK_LABELS = 1 << 20


def line_labels(path: Path) -> LabelFile:
    """A line per point with its class numbers, parted by commas or blanks; an empty line is a point without labels."""

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
