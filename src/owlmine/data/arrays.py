"""Arrays on disk: `.npy` files written by appending, and string tables that consist of two of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from owlmine.data.store_meta import damaged
from owlmine.errors import DataError

# NumPy pads its header so that the first axis can grow to any length in place.
_HEADER_BYTES = 128


class ArrayWriter:
    """Appends rows to one ``.npy`` file. Closing it writes the length into the header."""

    def __init__(self, path: Path, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> None:
        self.path, self.dtype, self.row_shape = path, np.dtype(dtype), row_shape
        self.num_rows = 0
        self._file = path.open("xb")
        self._write_header()

    def append(self, rows: NDArray[Any]) -> None:
        rows = np.ascontiguousarray(rows, self.dtype)
        assert rows.shape[1:] == self.row_shape, (rows.shape, self.row_shape)
        self._file.write(rows.data.cast("B") if rows.size else b"")
        self.num_rows += len(rows)

    def close(self) -> None:
        """Finishes the header and flushes the bytes to the disk."""
        self._file.seek(0)
        self._write_header()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Closes the file without finishing it."""
        self._file.close()

    def reader(self) -> PieceReader:
        """Reads the written items front to back, after closing."""
        return PieceReader(self.path)

    def _write_header(self) -> None:
        start = self._file.tell()
        npy.write_array_header_1_0(
            self._file,
            {
                "descr": npy.dtype_to_descr(self.dtype),
                "fortran_order": False,
                "shape": (self.num_rows, *self.row_shape),
            },
        )
        assert self._file.tell() - start == _HEADER_BYTES


class PieceReader:
    """Reads an array front to back by plain reads: unlike with a memory map, nothing stays in memory."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        npy.read_magic(self._file)
        self.shape, _, self.dtype = npy.read_array_header_1_0(self._file)
        self._row_items = int(np.prod(self.shape[1:], dtype=np.int64))

    def take(self, num_rows: int) -> NDArray[Any]:
        rows = np.fromfile(self._file, self.dtype, num_rows * self._row_items)
        assert len(rows) == num_rows * self._row_items, "read past the end"
        return rows.reshape(num_rows, *self.shape[1:])

    def close(self) -> None:
        self._file.close()


class MemoryArray:
    """The same interface in memory: rows are appended first, and then read front to back or as one array."""

    def __init__(self, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> None:
        self.dtype, self.row_shape = np.dtype(dtype), row_shape
        self.num_rows = 0
        self._parts: list[NDArray[Any]] = []

    def append(self, rows: NDArray[Any]) -> None:
        rows = np.array(rows, self.dtype, order="C")
        assert rows.shape[1:] == self.row_shape, (rows.shape, self.row_shape)
        self._parts.append(rows)
        self.num_rows += len(rows)

    def close(self) -> None:
        """There is nothing to finish."""

    def abandon(self) -> None:
        """There is nothing to close."""

    def reader(self) -> MemoryArray:
        """Front to back, once: items that were read are freed."""
        self._parts.reverse()
        return self

    def take(self, num_rows: int) -> NDArray[Any]:
        taken: list[NDArray[Any]] = []
        while num_rows:
            part = self._parts.pop()
            if len(part) > num_rows:
                self._parts.append(part[num_rows:])
                part = part[:num_rows]
            taken.append(part)
            num_rows -= len(part)
        return np.concatenate([np.zeros((0, *self.row_shape), self.dtype), *taken])

    def whole(self) -> NDArray[Any]:
        """Everything that was appended."""
        if len(self._parts) != 1:
            self._parts = [np.concatenate([np.zeros((0, *self.row_shape), self.dtype), *self._parts])]
        return self._parts[0]


class StringTable:
    """Strings by number, memory-mapped: concatenated UTF-8 bytes and the start of each string."""

    def __init__(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        *,
        file: Path | None = None,
        error: Callable[..., DataError] = damaged,
    ) -> None:
        """``file``: where the offsets come from, for messages; of a store, unless ``error`` makes other messages."""
        self._data, self._offsets, self._file, self._error = data, offsets, file, error
        fits = data.ndim == offsets.ndim == 1 and data.dtype == np.uint8 and offsets.dtype == np.int64 and len(offsets)
        if not fits or offsets[0] != 0 or offsets[-1] != len(data):
            raise self._damaged(f"offsets that do not fit {data.size:,} bytes of text")

    @classmethod
    def of(cls, strings: Iterable[str]) -> StringTable:
        encoded = [string.encode("utf-8") for string in strings]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(piece) for piece in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    def arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The bytes and the offsets of the table."""
        return self._data, self._offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def take(self, numbers: NDArray[np.int64]) -> StringTable:
        """A copy of some strings, in this order."""
        starts, ends = self._offsets[numbers], self._offsets[numbers + 1]
        if (starts < 0).any() or (ends < starts).any() or (ends > len(self._data)).any():
            raise self._damaged("offsets that do not ascend")
        offsets = np.zeros(len(numbers) + 1, np.int64)
        np.cumsum(ends - starts, out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        # Neighbouring strings are copied at once.
        firsts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1] + 1)[: len(numbers)])
        for first, stop in pairwise([*firsts.tolist(), len(numbers)]):
            data[offsets[first] : offsets[stop]] = self._data[starts[first] : ends[stop - 1]]
        return StringTable(data, offsets)

    def __getitem__(self, number: int) -> str:
        if not 0 <= number < len(self):
            raise IndexError(f"string {number} of a table of {len(self)}")
        start, end = int(self._offsets[number]), int(self._offsets[number + 1])
        if not 0 <= start <= end <= len(self._data):
            raise self._damaged(f"string {number} from byte {start} to {end} of {len(self._data)}")
        try:
            return self._data[start:end].tobytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._damaged(f"string {number} that is not UTF-8") from error

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), 1 << 16):
            offsets = np.array(self._offsets[start : start + (1 << 16) + 1])
            if offsets[0] < 0 or (offsets[1:] < offsets[:-1]).any() or offsets[-1] > len(self._data):
                raise self._damaged("offsets that do not ascend")
            data = self._data[offsets[0] : offsets[-1]].tobytes()
            bounds = (offsets - offsets[0]).tolist()
            for place, (low, high) in enumerate(pairwise(bounds), start):
                try:
                    yield data[low:high].decode("utf-8")
                except UnicodeDecodeError as error:
                    raise self._damaged(f"string {place} that is not UTF-8") from error

    def _damaged(self, found: str) -> DataError:
        wanted = "UTF-8 text and where each string of it begins"
        if self._file is None:
            return DataError("table of strings", found=found, wanted=wanted)
        return self._error(self._file, found=found, wanted=wanted)
