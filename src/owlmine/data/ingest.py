"""Reads a split once, front to back, into scratch arrays, and counts what later stages need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.arrays import MemoryArray, PieceReader
from owlmine.data.class_keys import ClassKeys, NumberCounts
from owlmine.data.formats.block import Block, Notes, PointReader
from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.data.store_writer import DatasetWriter, encoded
from owlmine.data.text import TokenCounter
from owlmine.errors import DataError

# Rows and entries that are in memory at once when scratch arrays are read back.
_PIECE_ROWS = 1 << 14
_PIECE_ENTRIES = 1 << 20
Progress = Callable[[str, float, int], None]
"""Called with the split's name, the share of it that has been read (0 to 1) and the number of points so far."""


def holds_counts(rows: SparseRows) -> bool:
    """Whether every value is a whole number of 0 or more."""
    assert rows.values is not None
    return bool(((rows.values >= 0) & (np.floor(rows.values) == rows.values)).all())


IDS, TEXTS = "ids", "texts"
"""What a split may keep of its points besides features and labels."""

Strings = dict[str, tuple[NDArray[np.uint8], NDArray[np.int32]]]
"""The bytes and the lengths of some points' ids and texts, by name."""


@dataclass(frozen=True)
class RawPiece:
    """Some consecutive points of a split as read."""

    queries: SparseRows | NDArray[np.float32]
    labels: SparseRows
    """Raw ids, with weights."""
    strings: Strings


class RawSplit:
    """A split as read: counts per row, and the concatenated entries, in scratch arrays."""

    def __init__(
        self, name: str, writer: DatasetWriter, *, dense_width: int | None, keeps: Collection[str] = ()
    ) -> None:
        """``keeps``: of ``IDS``, which not every source has, and ``TEXTS``."""
        self.name, self.notes = name, Notes()
        self._keeps, self._new_array = keeps, writer.scratch_array
        self.num_rows = 0
        self.weighted = False
        self.are_counts = True
        self.first_feature, self.last_feature = 2**31, -1
        self._dense_width = dense_width
        self._writers = {
            part: writer.scratch_array(f"{name}.{part}", dtype)
            for part, dtype in (
                ("label_counts", np.int32),
                ("labels", np.int32),
                ("weights", np.float32),
                *(
                    ()
                    if dense_width is not None
                    else (("counts", np.int32), ("indices", np.int32), ("values", np.float32))
                ),
            )
        }
        if dense_width is not None:
            self._writers["vectors"] = writer.scratch_array(f"{name}.vectors", np.float32, (dense_width,))

    def read(
        self,
        reader: PointReader,
        classes: ClassKeys,
        counter: TokenCounter | None,
        counts: NumberCounts | None,
        progress: Progress,
    ) -> None:
        """Appends every block of the reader. ``counts``, of train alone, counts the documents of each feature."""
        for block in reader.blocks(self.notes):
            if isinstance(block.queries, list):
                assert counter is not None
                self._append_features(counter.count(block.queries), counts)
            elif isinstance(block.queries, SparseRows):
                self._append_features(block.queries, counts)
            else:
                self._writers["vectors"].append(block.queries)
            self._writers["label_counts"].append(np.diff(block.labels.offsets))
            self._writers["labels"].append(classes.raw_ids(block.labels, training=counts is not None))
            self._append_strings(block)
            self._append_weights(block.labels.weights, int(block.labels.offsets[-1]), reader.source)
            self.num_rows += len(block.labels)
            progress(self.name, block.progress, self.num_rows)
        for writer in self._writers.values():
            writer.close()

    def abandon(self) -> None:
        for writer in self._writers.values():
            writer.abandon()

    @property
    def strings(self) -> list[str]:
        """What is kept of the points: of ``IDS`` and ``TEXTS``."""
        return [name for name in (IDS, TEXTS) if f"{name}.bytes" in self._writers]

    def pieces(self) -> Iterator[RawPiece]:
        """The content in bounded pieces. Once only."""
        with ExitStack() as stack:
            readers = {part: writer.reader() for part, writer in self._writers.items()}
            for reader in readers.values():
                stack.callback(reader.close)
            for start in range(0, self.num_rows, _PIECE_ROWS):
                num_rows = min(_PIECE_ROWS, self.num_rows - start)
                label_counts = readers["label_counts"].take(num_rows)
                entries = (
                    np.full(num_rows, self._dense_width)
                    if self._dense_width is not None
                    else readers["counts"].take(num_rows)
                )
                for low, high in _bounded_ranges(entries):
                    labels = _take_rows(readers, label_counts[low:high], "labels", "weights")
                    queries = (
                        readers["vectors"].take(high - low)
                        if self._dense_width is not None
                        else _take_rows(readers, entries[low:high], "indices", "values")
                    )
                    yield RawPiece(queries, labels, {n: _take_strings(readers, n, high - low) for n in self.strings})

    def _append_features(self, rows: SparseRows, counts: NumberCounts | None) -> None:
        assert rows.values is not None
        if counts is not None:
            counts.add(rows.indices[rows.values != 0])
        self.are_counts = self.are_counts and holds_counts(rows)
        if len(rows.indices):
            self.first_feature = min(self.first_feature, int(rows.indices.min()))
            self.last_feature = max(self.last_feature, int(rows.indices.max()))
        self._writers["counts"].append(rows.counts)
        self._writers["indices"].append(rows.indices)
        self._writers["values"].append(rows.values)

    def _append_strings(self, block: Block) -> None:
        for name, strings in ((IDS, block.ids), (TEXTS, block.queries)):
            if name not in self._keeps or not isinstance(strings, list):
                continue
            if f"{name}.bytes" not in self._writers:
                self._writers[f"{name}.bytes"] = self._new_array(f"{self.name}.{name}.bytes", np.uint8)
                self._writers[f"{name}.lengths"] = self._new_array(f"{self.name}.{name}.lengths", np.int32)
            # Half of a surrogate pair, which UTF-8 cannot hold, becomes a question mark.
            data, lengths = encoded(strings, "replace")
            self._writers[f"{name}.bytes"].append(data)
            self._writers[f"{name}.lengths"].append(lengths)

    def _append_weights(self, weights: NDArray[np.float32] | None, num_entries: int, source: str) -> None:
        if weights is None:
            weights = np.ones(num_entries, np.float32)
        elif not ((weights > 0) & np.isfinite(weights)).all():
            raise DataError(source, found=f"the label weight {weights.min()}", wanted="positive weights")
        else:
            self.weighted = self.weighted or bool((weights != 1).any())
        self._writers["weights"].append(weights)


def _take_rows(
    readers: dict[str, PieceReader | MemoryArray], counts: NDArray[np.int32], indices: str, values: str
) -> SparseRows:
    num_entries = int(counts.sum())
    return SparseRows(
        offsets_from_counts(counts),
        readers[indices].take(num_entries).astype(np.int64),
        readers[values].take(num_entries),
    )


def _take_strings(
    readers: dict[str, PieceReader | MemoryArray], name: str, num_rows: int
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    lengths = readers[f"{name}.lengths"].take(num_rows)
    return readers[f"{name}.bytes"].take(int(lengths.sum(dtype=np.int64))), lengths


def _bounded_ranges(counts: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most ``_PIECE_ENTRIES`` entries each, or a single row that has more."""
    ends = np.cumsum(counts, dtype=np.int64)
    low = 0
    while low < len(counts):
        before = ends[low] - counts[low]
        high = max(int(np.searchsorted(ends, before + _PIECE_ENTRIES, side="right")), low + 1)
        yield low, high
        low = high
