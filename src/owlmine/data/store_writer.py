"""Writing a dataset, array by array.

A store is written in a hidden sibling folder, made visible by one rename when everything is on the disk. A dataset in
memory is written by ``python_data.py`` through the same interface.
"""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from owlmine.data.arrays import ArrayWriter, MemoryArray
from owlmine.data.rows import SparseRows
from owlmine.data.store import FORMAT_NAME, FORMAT_VERSION, Store, meta_checksum
from owlmine.errors import OwlmineError
from owlmine.files import NewFolder, sha256_of


class SparseWriter:
    """Appends compressed rows under one name: ``NAME.offsets``, ``NAME.indices`` and, if requested, ``NAME.values``."""

    def __init__(self, writer: DatasetWriter, name: str, *, with_values: bool) -> None:
        self._offsets = writer.array(f"{name}.offsets", np.int64)
        self._indices = writer.array(f"{name}.indices", np.int32)
        self._values = writer.array(f"{name}.values", np.float32) if with_values else None
        self._offsets.append(np.zeros(1, np.int64))
        self.num_entries = 0

    @property
    def num_rows(self) -> int:
        return self._offsets.num_rows - 1

    def append(self, rows: SparseRows) -> None:
        self._offsets.append(rows.offsets[1:] + self.num_entries)
        self._indices.append(rows.indices)
        if self._values is not None:
            ones = np.ones(len(rows.indices), np.float32)
            self._values.append(ones if rows.values is None else rows.values)
        self.num_entries += len(rows.indices)


class StringsWriter:
    """Appends strings as bytes under one name: ``NAME.bytes`` and ``NAME.offsets``."""

    def __init__(self, writer: DatasetWriter, name: str) -> None:
        self._bytes, self._offsets = writer.array(f"{name}.bytes", np.uint8), writer.array(f"{name}.offsets", np.int64)
        self._offsets.append(np.zeros(1, np.int64))

    def append(self, data: NDArray[np.uint8], lengths: NDArray[Any]) -> None:
        """Strings of these lengths, one after the other."""
        ends = self._bytes.num_rows + np.cumsum(lengths, dtype=np.int64)
        self._bytes.append(data)
        self._offsets.append(ends)


class DatasetWriter(ABC):
    """Arrays by their names in a store."""

    @abstractmethod
    def array(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> ArrayWriter | MemoryArray:
        """A new array of the dataset, to be appended to."""

    @abstractmethod
    def scratch_array(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> ArrayWriter | MemoryArray:
        """A temporary array, to be appended to and then read once."""

    def whole_array(self, name: str, values: NDArray[Any]) -> None:
        self.array(name, values.dtype, values.shape[1:]).append(values)

    def sparse(self, name: str, *, with_values: bool) -> SparseWriter:
        return SparseWriter(self, name, with_values=with_values)

    def strings(self, name: str, strings: Iterable[str]) -> None:
        writer = StringsWriter(self, name)
        for piece in _pieces(strings, 1 << 16):
            writer.append(*encoded(piece))


class StoreWriter(DatasetWriter):
    """A context manager: leaves a finished store at ``out``, or nothing.

    ``scratch`` is a folder for intermediate arrays, removed at the end.
    """

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)
        self._arrays: dict[str, ArrayWriter] = {}

    def __enter__(self) -> StoreWriter:
        try:
            with ExitStack() as opened:
                self._new = opened.enter_context(NewFolder(self.out))
                self._folder = self._new.path
                self.scratch = self._folder / "scratch"
                self.scratch.mkdir()
                self._opened = opened.pop_all()
        except OSError as error:
            raise OwlmineError(f"{self.out}: cannot be written: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for writer in self._arrays.values():
                writer.abandon()
        finally:
            self._opened.__exit__(kind, error, trace)
        if isinstance(error, OSError):
            raise OwlmineError(
                f"{self.out}: cannot be written: {error.strerror or error}; nothing was left behind"
            ) from error

    def array(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> ArrayWriter:
        self._arrays[name] = ArrayWriter(self._folder / f"{name}.npy", dtype, row_shape)
        return self._arrays[name]

    def scratch_array(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> ArrayWriter:
        return ArrayWriter(self.scratch / f"{name}.npy", dtype, row_shape)

    def finish(self, meta: dict[str, Any]) -> Store:
        """Closes every array, writes ``meta.json`` last, and puts the folder in its place."""
        entries: dict[str, Any] = {}
        for name, writer in self._arrays.items():
            writer.close()
            entries[name] = {
                "dtype": writer.dtype.str,
                "shape": [writer.num_rows, *writer.row_shape],
                "bytes": writer.path.stat().st_size,
                "sha256": sha256_of(writer.path),
            }
        shutil.rmtree(self.scratch)
        meta = {"format": FORMAT_NAME, "version": FORMAT_VERSION, **meta, "arrays": entries}
        meta["checksum"] = meta_checksum(meta)
        with (self._folder / "meta.json").open("x", encoding="utf-8") as file:
            json.dump(meta, file, indent=1, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            self._new.publish()
        except OSError as error:
            raise OwlmineError(f"{self.out}: appeared while the store was being written") from error
        return Store.open(self.out)


def encoded(strings: Sequence[str], errors: str = "strict") -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of strings in UTF-8, one after the other, and the length of each."""
    parts = [string.encode("utf-8", errors) for string in strings]
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    return np.frombuffer(b"".join(parts), np.uint8), lengths


def _pieces(strings: Iterable[str], size: int) -> Iterable[list[str]]:
    piece: list[str] = []
    for string in strings:
        piece.append(string)
        if len(piece) == size:
            yield piece
            piece = []
    if piece:
        yield piece
