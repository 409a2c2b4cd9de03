"""NumPy and SciPy files: sparse ``.npz`` matrices and dense ``.npy`` vectors, read piece by piece."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from owlmine.data.formats.block import BLOCK_ROWS, LabelFile, Notes, QueryFile
from owlmine.data.formats.sparse_files import weighted_labels
from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.data.streams import text_lines
from owlmine.errors import DataError, excerpt

_MAX_ID = 2**31


class NpzMatrix:
    """A CSR matrix as ``scipy.sparse.save_npz`` writes it, streamed out of its zip archive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._archive() as archive:
            form = bytes(self._small(archive, "format").item())
            if form != b"csr":
                raise DataError(path, found=f"a matrix in {form.decode(errors='replace')} form", wanted="csr")
            shape = self._small(archive, "shape").tolist()
        if len(shape) != 2 or min(shape) < 0 or shape[1] > _MAX_ID:
            raise DataError(path, found=f"shape {shape}", wanted=f"rows x columns, at most {_MAX_ID} columns")
        self.num_rows, self.num_columns = shape

    def parts(self, notes: Notes) -> Iterator[tuple[SparseRows, float]]:
        del notes
        with (
            self._archive() as archive,
            self._member(archive, "indptr") as offsets,
            self._member(archive, "indices") as indices,
            self._member(archive, "data") as values,
        ):
            end = int(offsets.take(1)[0])
            if offsets.num_rows != self.num_rows + 1 or end != 0 or indices.num_rows != values.num_rows:
                raise DataError(self.path, found="arrays of unfitting lengths", wanted="a valid csr matrix")
            for start in range(0, self.num_rows, BLOCK_ROWS):
                stop = min(start + BLOCK_ROWS, self.num_rows)
                ends = offsets.take(stop - start).astype(np.int64)
                counts = np.diff(ends, prepend=end)
                end = int(ends[-1])
                if counts.min() < 0 or end > indices.num_rows:
                    raise DataError(
                        self.path, found=f"offsets out of order near row {start}", wanted="a valid csr matrix"
                    )
                num_entries = int(counts.sum())
                rows = SparseRows(
                    offsets_from_counts(counts),
                    indices.take(num_entries).astype(np.int64),
                    values.take(num_entries).astype(np.float32),
                )
                check_rows(rows, self.num_columns, str(self.path), start)
                yield rows, stop / self.num_rows

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
        except (zipfile.BadZipFile, EOFError, OSError, ValueError, KeyError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                self.path,
                found=f"an archive that cannot be read ({error})",
                wanted="a matrix of scipy.sparse.save_npz",
            ) from error

    @contextmanager
    def _member(self, archive: zipfile.ZipFile, name: str) -> Iterator[_NpyStream]:
        with archive.open(f"{name}.npy") as file:
            yield _NpyStream(file)

    def _small(self, archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
        with self._member(archive, name) as stream:
            return stream.take(stream.num_rows)


class _NpyStream:
    """The rows of a ``.npy`` stream, front to back; objects (pickles) are refused."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, self.dtype = read(file)
        if self.dtype.hasobject or (fortran and len(shape) > 1) or len(shape) > 1:
            raise ValueError(f"an array of dtype {self.dtype} and shape {shape}")
        self.num_rows = shape[0] if shape else 1

    def take(self, count: int) -> NDArray[Any]:
        num_bytes = count * self.dtype.itemsize
        data = self._file.read(num_bytes)
        if len(data) != num_bytes:
            raise EOFError("the archive ends too early")
        return np.frombuffer(data, self.dtype)


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
        raise _bad_entry(rows, place, source, first_row, f"the value {rows.values[place]}", "a finite number")
    keys = np.sort(rows.row_ids * num_columns + rows.indices)
    if len(keys) and (twice := keys[1:] == keys[:-1]).any():
        row, column = divmod(int(keys[np.argmax(twice)]), num_columns)
        raise DataError(source, found=f"column {column} twice in row {first_row + row}", wanted="each column once")


def _bad_entry(rows: SparseRows, place: int, source: str, first_row: int, found: str, wanted: str) -> DataError:
    return DataError(source, found=f"{found} in row {first_row + int(rows.row_ids[place])}", wanted=wanted)


def dense_queries(path: Path) -> QueryFile:
    """Vectors in a ``.npy`` file, one row per point."""
    array = _mapped(path)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise DataError(path, found=f"dtype {array.dtype}, shape {array.shape}", wanted="numbers, points x dimensions")

    def parts(notes: Notes) -> Iterator[tuple[NDArray[Any], float]]:
        del notes
        for start in range(0, len(array), BLOCK_ROWS):
            rows = np.array(array[start : start + BLOCK_ROWS], np.float32)
            check_dense(rows, str(path), start)
            yield rows, min((start + BLOCK_ROWS) / len(array), 1.0)

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
    """One class number per point in a ``.npy`` file; -1 stands for no label."""
    array = _mapped(path)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(path, found=f"dtype {array.dtype}, shape {array.shape}", wanted="one integer per point")
    if int(array.max(initial=-1)) >= _MAX_ID or int(array.min(initial=0)) < -1:
        raise DataError(path, found=f"class numbers {array.min()} to {array.max()}", wanted=f"-1 to {_MAX_ID - 1}")

    def parts(notes: Notes) -> Iterator[SparseRows]:
        del notes
        for start in range(0, len(array), BLOCK_ROWS):
            numbers = np.array(array[start : start + BLOCK_ROWS], np.int64)
            yield SparseRows(offsets_from_counts(numbers >= 0), numbers[numbers >= 0], None)

    return LabelFile(path, None, parts)


def line_labels(path: Path) -> LabelFile:
    """A line per point with its class numbers, parted by commas or blanks; an empty line is a point without labels."""

    def parts(notes: Notes) -> Iterator[SparseRows]:
        counts: list[int] = []
        classes: list[int] = []
        for number, line, _ in text_lines(path, tally=notes.tally):
            fields = line.replace(",", " ").split()
            for field in fields:
                if not (field.isascii() and field.isdigit()) or int(field) >= _MAX_ID:
                    raise DataError(path, line=number, found=excerpt(field), wanted="a class number, 0 or more")
            numbers = list(dict.fromkeys(map(int, fields)))
            notes.tally("duplicate_labels", len(fields) - len(numbers))
            counts.append(len(numbers))
            classes.extend(numbers)
            if len(counts) == BLOCK_ROWS:
                yield SparseRows(offsets_from_counts(np.array(counts)), np.array(classes, np.int64), None)
                counts, classes = [], []
        if counts:
            yield SparseRows(offsets_from_counts(np.array(counts)), np.array(classes, np.int64), None)

    return LabelFile(path, None, parts)


def line_texts(path: Path) -> QueryFile:
    """A text per line."""

    def parts(notes: Notes) -> Iterator[tuple[list[str], float]]:
        texts: list[str] = []
        for _, line, progress in text_lines(path, tally=notes.tally):
            texts.append(line)
            if len(texts) == BLOCK_ROWS:
                yield texts, progress
                texts = []
        if texts:
            yield texts, 1.0

    return QueryFile(path, "text", None, parts)


def _mapped(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(
            path, found=f"a file that cannot be mapped ({error})", wanted="an array of numpy.save"
        ) from error
    return array
