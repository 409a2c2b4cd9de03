"""NumPy's ``.npy`` files, read without trusting their headers: as streams, and memory-mapped."""

from __future__ import annotations

import math
import os
import tokenize
import warnings
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from owlmine.data.formats.block import one_line
from owlmine.errors import DataError


def read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and dtype. Raises ValueError for anything but a header of plain values."""
    try:
        # NumPy warns about headers written by Python 2, but reads them.
        with warnings.catch_warnings(action="ignore"):
            if npy.read_magic(file) == (1, 0):
                shape, fortran, dtype = npy.read_array_header_1_0(file)
            else:
                shape, fortran, dtype = npy.read_array_header_2_0(file)
    except (SyntaxError, TypeError, OverflowError, RecursionError, MemoryError, tokenize.TokenError) as error:
        raise ValueError(f"a header that cannot be read: {error}") from error
    if dtype.hasobject or dtype.itemsize == 0 or any(length < 0 for length in shape):
        raise ValueError(f"an array of dtype {dtype} and shape {shape}")
    return shape, fortran, dtype


class NpyStream:
    """The items of a one-dimensional ``.npy`` stream, front to back; ``kinds`` are the accepted dtypes."""

    def __init__(self, file: IO[bytes], *, kinds: str) -> None:
        self._file = file
        shape, _, self.dtype = read_npy_header(file)
        if self.dtype.kind not in kinds or len(shape) > 1:
            raise ValueError(f"an array of dtype {self.dtype} and shape {shape}")
        self.num_items = shape[0] if shape else 1

    def take(self, count: int) -> NDArray[Any]:
        num_bytes = count * self.dtype.itemsize
        pieces: list[bytes] = []
        # In steps: memory that a header claims is not allocated before the data arrive.
        while num_bytes > 0 and (data := self._file.read(min(num_bytes, _STEP_BYTES))):
            pieces.append(data)
            num_bytes -= len(data)
        if num_bytes:
            raise EOFError("it ends too early")
        return np.frombuffer(b"".join(pieces), self.dtype)

    def finish(self) -> None:
        """Reads to the end, where the archive verifies its checksum."""
        if self._file.read(1):
            raise ValueError("more bytes than its header states")


_STEP_BYTES = 8 << 20


def mapped_array(path: Path) -> NDArray[Any]:
    """The array in a ``.npy`` file, memory-mapped."""
    try:
        with path.open("rb") as file:
            shape, fortran, dtype = read_npy_header(file)
            offset, size = file.tell(), os.fstat(file.fileno()).st_size
        wanted = offset + math.prod(shape) * dtype.itemsize
        if size != wanted:
            raise ValueError(f"{size:,} bytes where its header states {wanted:,}")
        if 0 in shape:  # nothing to map
            return np.zeros(shape, dtype)
        return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")
    except (ValueError, OverflowError, EOFError, OSError) as error:
        raise DataError(
            path, found=f"a file that cannot be read ({one_line(error)})", wanted="an array of numpy.save"
        ) from error
