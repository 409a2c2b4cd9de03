"""The dataset on disk: a folder of memory-mapped arrays and one small ``meta.json``.

``store_writer.py`` makes such a folder; this file opens it. Nothing here reads a whole array.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.arrays import StringTable
from owlmine.data.rows import Int64, SparseRows, gather_rows
from owlmine.errors import DataError, OwlmineError
from owlmine.files import sha256_of

FORMAT_NAME = "owlmine-store"
FORMAT_VERSION = 1


class SparseTable:
    """Compressed rows in memory-mapped arrays; offsets are 64-bit, so there may be more than 2**31 entries."""

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


@dataclass(frozen=True)
class Batch:
    """Some points of a split: sparse or dense queries, and their labels."""

    queries: SparseRows | NDArray[np.float32]
    labels: SparseRows

    def __len__(self) -> int:
        return len(self.labels)


class Split:
    """``train``, ``test`` or ``dev``: one row per point."""

    def __init__(
        self,
        name: str,
        queries: SparseTable | NDArray[np.float32],
        labels: SparseTable,
        filter_pairs: NDArray[np.int64] | None,
    ) -> None:
        self.name, self.queries, self.labels, self.filter_pairs = name, queries, labels, filter_pairs

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, row_ids: NDArray[np.int64]) -> Batch:
        """The points with these row numbers, in this order."""
        if isinstance(self.queries, SparseTable):
            return Batch(self.queries.rows(row_ids), self.labels.rows(row_ids))
        return Batch(np.array(self.queries[row_ids]), self.labels.rows(row_ids))

    def blocks(self, num_rows: int = 1 << 14) -> Iterator[Batch]:
        """All points in order, ``num_rows`` at a time."""
        for start in range(0, len(self), num_rows):
            stop = min(start + num_rows, len(self))
            if isinstance(self.queries, SparseTable):
                queries: SparseRows | NDArray[np.float32] = self.queries.slice(start, stop)
            else:
                queries = np.array(self.queries[start:stop])
            yield Batch(queries, self.labels.slice(start, stop))


class Store:
    """An opened store. ``store["train"]`` is a split; ``store.meta`` is what ``meta.json`` says."""

    def __init__(self, path: Path, meta: dict[str, Any]) -> None:
        self.path, self.meta = path, meta

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Opens the folder after checking its version and that every array has the recorded size."""
        path = Path(path)
        store = cls(path, read_meta(path))
        for name, entry in store.meta["arrays"].items():
            file = store._file(name)
            if not file.exists():
                raise DataError(file, found="no such file", wanted="an array of the store")
            if file.stat().st_size != entry["bytes"]:
                raise DataError(file, found=f"{file.stat().st_size:,} bytes", wanted=f"{entry['bytes']:,} bytes")
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
        queries = self.array(f"{split}.queries") if dense else self._table(f"{split}.features")
        assert queries is not None
        labels = self._table(f"{split}.labels")
        assert labels is not None
        return Split(split, queries, labels, self.array(f"{split}.filter"))

    @cached_property
    def class_counts(self) -> NDArray[np.int64]:
        """Training points per class."""
        counts = self.array("classes.counts")
        assert counts is not None
        return counts

    @cached_property
    def class_keys(self) -> StringTable:
        """What each class was called in the files."""
        keys = self._strings("classes.keys")
        assert keys is not None
        return keys

    @cached_property
    def class_names(self) -> StringTable:
        """What people call each class; the keys where the dataset has no names."""
        return self._strings("classes.names") or self.class_keys

    @cached_property
    def class_features(self) -> SparseTable | None:
        """Features of the classes themselves, where the dataset has them."""
        return self._table("classes.features")

    @cached_property
    def vocabulary(self) -> StringTable | None:
        """The token of each feature, for features made from text."""
        return self._strings("vocabulary")

    def array(self, name: str) -> NDArray[Any] | None:
        """A memory-mapped array, or None where this store has none of that name."""
        if name not in self.meta["arrays"]:
            return None
        entry = self.meta["arrays"][name]
        if 0 in entry["shape"]:  # an empty file cannot be mapped
            return np.zeros(entry["shape"], entry["dtype"])
        # A base-class view: indexing a np.memmap object builds a new map object each time, at several times the cost.
        array: NDArray[Any] = np.asarray(np.load(self._file(name), mmap_mode="r"))
        return array

    def verify(self) -> list[str]:
        """Reads every array and returns the names of those whose checksum differs."""
        return [name for name, entry in self.meta["arrays"].items() if sha256_of(self._file(name)) != entry["sha256"]]

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npy"

    def _table(self, name: str) -> SparseTable | None:
        offsets, indices = self.array(f"{name}.offsets"), self.array(f"{name}.indices")
        if offsets is None or indices is None:
            return None
        return SparseTable(offsets, indices, self.array(f"{name}.values"))

    def _strings(self, name: str) -> StringTable | None:
        data, offsets = self.array(f"{name}.bytes"), self.array(f"{name}.offsets")
        return None if data is None or offsets is None else StringTable(data, offsets)


def is_store(path: Path) -> bool:
    return (path / "meta.json").is_file()


def read_meta(path: Path) -> dict[str, Any]:
    """``meta.json``, checked for format, version and its own checksum."""
    file = path / "meta.json"
    if not file.is_file():
        raise DataError(path, found="no meta.json", wanted="a store (make one with: owlmine data convert)")
    try:
        meta = json.loads(file.read_text("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(file, found=f"text that is not JSON ({error})", wanted="the store's description") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT_NAME:
        raise DataError(file, found="another kind of file", wanted=f'"format": "{FORMAT_NAME}"')
    if meta.get("version") != FORMAT_VERSION:
        raise DataError(
            file,
            found=f"store version {meta.get('version')!r}",
            wanted=f"version {FORMAT_VERSION} (convert the data again with this release)",
        )
    if meta.get("checksum") != meta_checksum(meta):
        raise DataError(file, found="a checksum that does not fit the content", wanted="an unchanged meta.json")
    return meta


def meta_checksum(meta: dict[str, Any]) -> str:
    """SHA-256 of the description without its own checksum, in a canonical spelling."""
    import hashlib

    content = {key: value for key, value in meta.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
