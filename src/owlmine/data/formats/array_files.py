"""NumPy and SciPy files: sparse ``.npz`` matrices and dense ``.npy`` vectors, read piece by piece."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.formats.block import BLOCK_ROWS, LabelFile, Notes, QueryFile, one_line
from owlmine.data.formats.npy_files import NpyStream, mapped_array
from owlmine.data.formats.sparse_files import weighted_labels
from owlmine.data.rows import Int64, SparseRows
from owlmine.errors import DataError

_MAX_ID = 2**31
# Numbers per block: rows may be long, so a count of rows alone bounds nothing.
_BLOCK_ENTRIES = 1 << 21
# What the standard library raises on damaged archives, besides OSError and ValueError. RuntimeError: encrypted.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, OverflowError)


class NpzMatrix:
    """A CSR matrix as ``scipy.sparse.save_npz`` writes it, streamed out of its zip archive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._archive() as archive:
            form = self._small(archive, "format", "SU", 1)[0]
            if form not in (b"csr", "csr"):
                raise DataError(path, found=f"a matrix in the form {form!r}", wanted="csr")
            shape = [int(length) for length in self._small(archive, "shape", "iu", 2)]
        if len(shape) != 2 or min(shape) < 0 or shape[1] > _MAX_ID:
            raise DataError(path, found=f"shape {shape}", wanted=f"rows x columns, at most {_MAX_ID} columns")
        self.num_rows, self.num_columns = shape

    def parts(self, notes: Notes) -> Iterator[tuple[SparseRows, float]]:
        del notes
        with (
            self._archive() as archive,
            self._member(archive, "indptr", "iu") as offsets,
            self._member(archive, "indices", "iu") as indices,
            self._member(archive, "data", "biuf") as values,
        ):
            fits = offsets.num_items == self.num_rows + 1 and indices.num_items == values.num_items
            if not fits or int(offsets.take(1)[0]) != 0:
                raise DataError(self.path, found="arrays with mismatched lengths", wanted="a valid csr matrix")
            end = 0
            for start in range(0, self.num_rows, BLOCK_ROWS):
                ends = offsets.take(min(BLOCK_ROWS, self.num_rows - start)).astype(np.int64)
                bounds = np.concatenate([[end], ends])
                if ends[-1] > indices.num_items or (bounds[1:] < bounds[:-1]).any():
                    raise DataError(
                        self.path, found=f"offsets out of order near row {start}", wanted="a valid csr matrix"
                    )
                end = int(ends[-1])
                for low, high in _bounded_ranges(bounds):
                    rows = _take_rows(bounds[low : high + 1], indices, values)
                    check_rows(rows, self.num_columns, str(self.path), start + low)
                    yield rows, (start + high) / self.num_rows
            if end != indices.num_items:
                raise DataError(
                    self.path, found=f"{indices.num_items - end:,} entries after the last row", wanted="none"
                )
            for member in (offsets, indices, values):
                member.finish()

    def as_queries(self) -> QueryFile:
        return QueryFile(self.path, "sparse", self.num_columns, lambda notes: iter(self.parts(notes)))

    def as_labels(self) -> LabelFile:
        return LabelFile(
            self.path,
            self.num_columns,
            lambda notes: (weighted_labels(rows) for rows, _ in self.parts(notes)),
        )

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                yield archive
        except DataError:
            raise
        except (*_ZIP_ERRORS, OSError, ValueError, KeyError) as error:
            raise DataError(
                self.path,
                found=f"an archive that cannot be read ({one_line(error)})",
                wanted="a matrix of scipy.sparse.save_npz",
            ) from error

    @contextmanager
    def _member(self, archive: zipfile.ZipFile, name: str, kinds: str) -> Iterator[NpyStream]:
        with archive.open(f"{name}.npy") as file:
            yield NpyStream(file, kinds=kinds)

    def _small(self, archive: zipfile.ZipFile, name: str, kinds: str, num_items: int) -> list[Any]:
        with self._member(archive, name, kinds) as stream:
            if stream.num_items != num_items:
                raise ValueError(f"{stream.num_items:,} items in {name!r} where {num_items} are wanted")
            items: list[Any] = stream.take(num_items).tolist()
            stream.finish()
            return items


def _bounded_ranges(bounds: Int64) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most ``_BLOCK_ENTRIES`` entries each, or a single row that has more."""
    low, num_rows = 0, len(bounds) - 1
    while low < num_rows:
        high = int(np.searchsorted(bounds, bounds[low] + _BLOCK_ENTRIES, side="right")) - 1
        yield low, max(high, low + 1)
        low = max(high, low + 1)


def _take_rows(bounds: Int64, indices: NpyStream, values: NpyStream) -> SparseRows:
    num_entries = int(bounds[-1] - bounds[0])
    return SparseRows(
        bounds - bounds[0],
        indices.take(num_entries).astype(np.int64),
        to_float32(values.take(num_entries)),
    )


def to_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Values beyond float32 become infinite without a warning; later checks reject them."""
    with np.errstate(over="ignore"):
        return np.array(values, np.float32)


def check_rows(rows: SparseRows, num_columns: int, source: str, first_row: int) -> None:
    """Range, finiteness and no column twice in a row: what the text grammar checks line by line."""
    assert rows.values is not None
    bad = (rows.indices < 0) | (rows.indices >= num_columns)
    if bad.any():
        place = int(np.argmax(bad))
        raise _bad_entry(rows, place, source, first_row, f"column {rows.indices[place]}", f"0 to {num_columns - 1}")
    bad = ~np.isfinite(rows.values)
    if bad.any():
        place = int(np.argmax(bad))
        found = f"the value {rows.values[place]}"
        raise _bad_entry(rows, place, source, first_row, found, "a number that is finite in float32")
    keys = np.sort(rows.row_ids * num_columns + rows.indices)
    if len(keys) and (twice := keys[1:] == keys[:-1]).any():
        row, column = divmod(int(keys[:-1][twice][0]), num_columns)
        raise DataError(source, found=f"column {column} twice in row {first_row + row}", wanted="each column once")


def _bad_entry(rows: SparseRows, place: int, source: str, first_row: int, found: str, wanted: str) -> DataError:
    return DataError(source, found=f"{found} in row {first_row + int(rows.row_ids[place])}", wanted=wanted)


def dense_queries(path: Path) -> QueryFile:
    """Vectors in a ``.npy`` file, one row per point."""
    array = mapped_array(path)
    if array.ndim != 2 or array.dtype.kind not in "biuf" or not array.shape[1]:
        raise DataError(path, found=f"dtype {array.dtype}, shape {array.shape}", wanted="numbers, points x dimensions")
    num_rows = max(min(BLOCK_ROWS, _BLOCK_ENTRIES // array.shape[1]), 1)

    def parts(notes: Notes) -> Iterator[tuple[NDArray[Any], float]]:
        del notes
        for start in range(0, len(array), num_rows):
            rows = to_float32(array[start : start + num_rows])
            check_dense(rows, str(path), start)
            yield rows, min((start + num_rows) / len(array), 1.0)

    return QueryFile(path, "dense", array.shape[1], parts)


def check_dense(rows: NDArray[np.float32], source: str, first_row: int) -> None:
    bad = ~np.isfinite(rows)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise DataError(
            source,
            found=f"{rows[row, column]} in row {first_row + row}, column {column}",
            wanted="a number that is finite in float32",
        )


def number_labels(path: Path) -> LabelFile:
    """One class number per point in a ``.npy`` file; -1: no label."""
    array = mapped_array(path)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(path, found=f"dtype {array.dtype}, shape {array.shape}", wanted="one integer per point")

    def parts(notes: Notes) -> Iterator[SparseRows]:
        del notes
        for start in range(0, len(array), BLOCK_ROWS):
            given = array[start : start + BLOCK_ROWS]
            bad = (given < -1) | (given >= _MAX_ID)
            if bad.any():
                row = int(np.argmax(bad))
                raise DataError(path, found=f"{given[row]} in row {start + row}", wanted=f"-1 to {_MAX_ID - 1}")
            numbers = given.astype(np.int64)
            labelled = numbers >= 0
            yield SparseRows(np.concatenate([[0], np.cumsum(labelled)]), numbers[labelled], None)

    return LabelFile(path, None, parts)
