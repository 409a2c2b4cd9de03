"""A dataset on disk: a folder of memory-mapped arrays and one small ``meta.json``.

``store_writer.py`` makes such a folder; this file opens it. Nothing here reads a whole array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from owlmine.data.arrays import StringTable
from owlmine.data.formats.npy_files import mapped_array
from owlmine.data.rows import Int64, SparseRows, gather_rows
from owlmine.data.store_meta import FORMAT_NAME, FORMAT_VERSION, damaged, meta_checksum, read_meta
from owlmine.errors import DataError, OwlmineError
from owlmine.files import KnownChecksums, sha256_of

__all__ = [
    "FORMAT_NAME",
    "FORMAT_VERSION",
    "Batch",
    "Dataset",
    "PointWords",
    "SparseTable",
    "Split",
    "Store",
    "is_store",
    "meta_checksum",
    "read_meta",
]


class SparseTable:
    """Compressed rows; offsets are 64-bit, so there may be more than 2**31 entries."""

    def __init__(self, offsets: Int64, indices: NDArray[np.int32], values: NDArray[np.float32] | None) -> None:
        self.offsets, self.indices, self.values = offsets, indices, values

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def rows(self, row_ids: NDArray[np.int64]) -> SparseRows:
        """Copies of the given rows, in the given order."""
        offsets, positions = gather_rows(self.offsets, row_ids)
        values = None if self.values is None else self.values[positions]
        return SparseRows(offsets, self.indices[positions], values)

    def slice(self, start: int, stop: int) -> SparseRows:
        """Copies of consecutive rows: cheaper than ``rows`` because nothing is gathered."""
        offsets = np.array(self.offsets[start : stop + 1])
        low, high = int(offsets[0]), int(offsets[-1])
        values = None if self.values is None else np.array(self.values[low:high])
        return SparseRows(offsets - low, np.array(self.indices[low:high]), values)


class StoredTable(SparseTable):
    """Compressed rows in memory-mapped files. Rows are checked as they are read, so compiled code may rely on them."""

    def __init__(
        self,
        folder: Path,
        name: str,
        offsets: Int64,
        indices: NDArray[np.int32],
        values: NDArray[np.float32] | None,
        *,
        num_columns: int,
    ) -> None:
        super().__init__(offsets, indices, values)
        self._folder, self._name, self._num_columns = folder, name, num_columns
        ends = (int(offsets[0]), int(offsets[-1]))
        if ends != (0, len(indices)):
            raise self._damaged("offsets", f"offsets from {ends[0]} to {ends[1]}", f"0 to {len(indices)}")

    def rows(self, row_ids: NDArray[np.int64]) -> SparseRows:
        self._check_offsets(self.offsets[row_ids], self.offsets[row_ids + 1])
        return self._checked(super().rows(row_ids))

    def slice(self, start: int, stop: int) -> SparseRows:
        self._check_offsets(self.offsets[start:stop], self.offsets[start + 1 : stop + 1])
        return self._checked(super().slice(start, stop))

    def _check_offsets(self, starts: Int64, ends: Int64) -> None:
        bad = (starts < 0) | (ends < starts) | (ends > len(self.indices))
        if bad.any():
            place = int(np.argmax(bad))
            found = f"a row from {starts[place]} to {ends[place]} of {len(self.indices)} entries"
            raise self._damaged("offsets", found, "offsets that ascend")

    def _checked(self, rows: SparseRows) -> SparseRows:
        indices, values = rows.indices, rows.values
        if len(indices) and not 0 <= indices.min() <= indices.max() < self._num_columns:
            found = f"the numbers {indices.min()} to {indices.max()}"
            raise self._damaged("indices", found, f"0 to {self._num_columns - 1}")
        if values is not None and not np.isfinite(values).all():
            raise self._damaged("values", f"the value {values[~np.isfinite(values)][0]}", "finite values")
        return rows

    def _damaged(self, part: str, found: str, wanted: str) -> DataError:
        return damaged(self._folder / f"{self._name}.{part}.npy", found=found, wanted=wanted)


@dataclass(frozen=True)
class Batch:
    """Some points of a split: sparse or dense queries, and their labels."""

    queries: SparseRows | NDArray[np.float32]
    labels: SparseRows

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class PointWords:
    """What is known of points besides their features and labels."""

    ids: StringTable | None = None
    """Their ids in the files; empty where a point has none."""
    texts: StringTable | None = None
    left_out: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Rows of the files that are not among the points, ascending: they have no label, no feature, or were held out."""

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return self.ids is not None or self.texts is not None or len(self.left_out) > 0

    def rows(self, points: Int64) -> Int64:
        """The rows of points in the files, counted from 0."""
        return points + np.searchsorted(self.left_out - np.arange(len(self.left_out)), points, side="right")

    def take(self, points: Int64, num_points: int) -> PointWords:
        """Of some points, ascending, of ``num_points``."""
        if len(points) == num_points:
            return self
        left_out = np.setdiff1d(np.arange(num_points + len(self.left_out)), self.rows(points))
        ids, texts = (None if table is None else table.take(points) for table in (self.ids, self.texts))
        return PointWords(ids, texts, left_out)


class Split:
    """``train``, ``test`` or ``dev``: one row per point."""

    def __init__(
        self,
        name: str,
        queries: SparseTable | NDArray[np.float32],
        labels: SparseTable,
        filter_pairs: NDArray[np.int64] | None,
        *,
        words: PointWords | None = None,
        file: Path | None = None,
    ) -> None:
        """``file`` is the file of dense queries, if they are memory-mapped."""
        self.name, self.queries, self.labels, self.filter_pairs = name, queries, labels, filter_pairs
        self.words = words or PointWords()
        self._file = file

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, row_ids: NDArray[np.int64]) -> Batch:
        """The points with these row numbers, in this order."""
        if isinstance(self.queries, SparseTable):
            return Batch(self.queries.rows(row_ids), self.labels.rows(row_ids))
        return Batch(self._finite(np.array(self.queries[row_ids])), self.labels.rows(row_ids))

    def blocks(self, num_rows: int = 1 << 14) -> Iterator[Batch]:
        """All points in order, ``num_rows`` at a time."""
        for start in range(0, len(self), num_rows):
            stop = min(start + num_rows, len(self))
            if isinstance(self.queries, SparseTable):
                queries: SparseRows | NDArray[np.float32] = self.queries.slice(start, stop)
            else:
                queries = self._finite(np.array(self.queries[start:stop]))
            yield Batch(queries, self.labels.slice(start, stop))

    def _finite(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._file is not None and not np.isfinite(rows).all():
            raise damaged(self._file, found=f"the value {rows[~np.isfinite(rows)][0]}", wanted="finite values")
        return rows


class Dataset(Protocol):
    """The interface for training. ``Store`` is on disk, ``owlmine.data.memory.MemoryDataset`` in memory."""

    @property
    def meta(self) -> dict[str, Any]:
        """At least ``queries``, ``weighting``, ``checksum`` and ``splits``, as in ``meta.json``."""

    @property
    def splits(self) -> tuple[str, ...]: ...

    @property
    def num_features(self) -> int: ...

    @property
    def num_classes(self) -> int: ...

    @property
    def class_keys(self) -> StringTable: ...

    @property
    def class_names(self) -> StringTable: ...

    @property
    def class_counts(self) -> NDArray[np.int64]:
        """Training points per class."""

    @property
    def vocabulary(self) -> StringTable | None: ...

    def __getitem__(self, split: str) -> Split: ...

    def array(self, name: str) -> NDArray[Any] | None:
        """An array by its name in a store, such as ``weighting.frequencies``; or None."""


class Store:
    """An opened store. ``store["train"]`` is a split; ``store.meta`` is what ``meta.json`` says."""

    def __init__(self, path: Path, meta: dict[str, Any]) -> None:
        self.path, self.meta = path, meta

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = False) -> Store:
        """Opens the folder after checking its version and that every array has the recorded size.

        With ``verify``, checksums are verified too; files that have not changed since the last time are not read.
        """
        path = Path(path)
        store = cls(path, read_meta(path))
        for name, entry in store.meta["arrays"].items():
            file = store._file(name)
            try:
                size = file.stat().st_size
            except OSError as error:
                raise damaged(file, found=f"no file ({error.strerror})", wanted="an array of the store") from error
            if size != entry["bytes"]:
                raise damaged(file, found=f"{size:,} bytes", wanted=f"{entry['bytes']:,} bytes")
        if verify and (changed := store._changed(KnownChecksums().of)):
            raise damaged(store._file(changed[0]), found="changed bytes", wanted="the recorded checksum")
        return store

    @property
    def num_features(self) -> int:
        return int(self.meta["features"])

    @property
    def num_classes(self) -> int:
        return int(self.meta["classes"])

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.meta["splits"])

    def __getitem__(self, split: str) -> Split:
        if split not in self.meta["splits"]:
            raise OwlmineError(f"{self.path}: no split {split!r}; it has {', '.join(self.splits)}")
        dense = self.meta["queries"] == "dense"
        queries = (
            self._array(f"{split}.queries")
            if dense
            else self._table(f"{split}.features", num_columns=self.num_features)
        )
        labels = self._table(f"{split}.labels", num_columns=self.num_classes)
        file = self._file(f"{split}.queries")
        return Split(split, queries, labels, self._filter_pairs(split), words=self._words(split), file=file)

    def _words(self, split: str) -> PointWords:
        name, left_out = f"{split}.left_out", self.array(f"{split}.left_out")
        if left_out is None:
            left_out = np.zeros(0, np.int64)
        elif left_out.min(initial=0) < 0 or (np.diff(left_out) <= 0).any():
            raise damaged(self._file(name), found="rows that do not ascend", wanted="ascending rows, from 0")
        return PointWords(self._strings(f"{split}.ids"), self._strings(f"{split}.texts"), left_out)

    def _filter_pairs(self, split: str) -> NDArray[np.int64] | None:
        pairs, bounds = self.array(f"{split}.filter"), (self.meta["splits"][split]["points"], self.num_classes)
        if pairs is not None and ((pairs < 0) | (pairs >= bounds)).any():
            wanted = f"points below {bounds[0]:,} and classes below {bounds[1]:,}"
            raise damaged(self._file(f"{split}.filter"), found="pairs of other numbers", wanted=wanted)
        return pairs

    @cached_property
    def class_counts(self) -> NDArray[np.int64]:
        """Training points per class."""
        counts = self._array("classes.counts")
        if counts.min() < 0:
            raise damaged(self._file("classes.counts"), found=f"the count {counts.min()}", wanted="0 or more")
        return counts

    @cached_property
    def class_keys(self) -> StringTable:
        """The key of each class in the files."""
        keys = self._strings("classes.keys")
        assert keys is not None
        return keys

    @cached_property
    def class_names(self) -> StringTable:
        """The name of each class; its key if the dataset has no names."""
        return self._strings("classes.names") or self.class_keys

    @cached_property
    def class_features(self) -> SparseTable | None:
        """Features of the classes themselves, if the dataset has them."""
        if "classes.features.offsets" not in self.meta["arrays"]:
            return None
        return self._table("classes.features", num_columns=2**31)

    @cached_property
    def vocabulary(self) -> StringTable | None:
        """The token of each feature, for features made from text."""
        return self._strings("vocabulary")

    def array(self, name: str) -> NDArray[Any] | None:
        """A memory-mapped array, or None if this store has none with that name."""
        return self._array(name) if name in self.meta["arrays"] else None

    def verify(self) -> list[str]:
        """Reads every array and returns the names of those whose checksum differs."""
        return self._changed(sha256_of)

    def check_content(self) -> None:
        """Reads every row and every string, and raises a DataError for the first invalid one."""
        for split in self.splits:
            for _ in self[split].blocks():
                pass
        if self.class_features is not None:
            self.class_features.slice(0, len(self.class_features))
        words = [self[split].words for split in self.splits]
        of_points = [table for own in words for table in (own.ids, own.texts)]
        for table in (self.class_keys, self.class_names, self.vocabulary, *of_points):
            for _ in table or ():
                pass
        assert len(self.class_counts) == self.num_classes

    def _changed(self, checksum: Callable[[Path], str]) -> list[str]:
        changed = []
        for name, entry in self.meta["arrays"].items():
            file = self._file(name)
            try:
                if checksum(file) != entry["sha256"]:
                    changed.append(name)
            except OSError as error:
                raise OwlmineError(f"{file}: cannot be read: {error.strerror}") from error
        return changed

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npy"

    def _array(self, name: str) -> NDArray[Any]:
        entry, file = self.meta["arrays"][name], self._file(name)
        try:
            array = mapped_array(file)
        except DataError as error:
            raise damaged(file, found=error.found, wanted="an array of the store") from error
        if array.dtype.str != entry["dtype"] or list(array.shape) != entry["shape"]:
            found = f"dtype {array.dtype.str} and shape {list(array.shape)}"
            raise damaged(file, found=found, wanted=f"dtype {entry['dtype']} and shape {entry['shape']}")
        # A base-class view: indexing a np.memmap object builds a new map object each time, at several times the cost.
        return np.asarray(array)

    def _table(self, name: str, *, num_columns: int) -> StoredTable:
        offsets, indices = self._array(f"{name}.offsets"), self._array(f"{name}.indices")
        return StoredTable(self.path, name, offsets, indices, self.array(f"{name}.values"), num_columns=num_columns)

    def _strings(self, name: str) -> StringTable | None:
        if f"{name}.offsets" not in self.meta["arrays"]:
            return None
        return StringTable(
            self._array(f"{name}.bytes"), self._array(f"{name}.offsets"), file=self._file(f"{name}.offsets")
        )


def is_store(path: Path) -> bool:
    return (path / "meta.json").is_file()
