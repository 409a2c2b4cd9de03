"""Reading files: compression recognised by content, whole lines in blocks of bounded size."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from owlmine.errors import DataError, OwlmineError, how_to_install

COMPRESSION_SUFFIXES = (".gz", ".xz", ".zst")
BLOCK_BYTES = 8 << 20
_BLOCK_LINES = 1 << 18
_ARRIVING_BYTES = 1 << 16
# One point on one line. A longer line means that the file is not what it claims to be, and it would have to fit in
# memory.
MAX_LINE_BYTES = 32 << 20

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAGIC = {b"\x1f\x8b": "gz", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}


@dataclass(frozen=True)
class LineBlock:
    """Whole lines, the number of the first of them (from 1), and how much of the file has been read (0 to 1)."""

    data: bytes
    first_line: int
    progress: float


class ArrivingLines:
    """Lines that are still being written, such as standard input: read once, front to back, as they arrive."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream, self._name = stream, name
        self.caught_up = False
        """Whether the last line from ``text_lines`` is the last non-empty one that has arrived."""

    def __str__(self) -> str:
        return self._name

    def pieces(self) -> Iterator[tuple[bytes, float]]:
        """What has arrived, as soon as something has. The total is not known."""
        while data := self._stream.read1(_ARRIVING_BYTES):  # type: ignore[attr-defined]
            yield data, 0.0


LineSource = Path | ArrivingLines


class ByteSource:
    """A file opened for reading and decompressed; errors of damage name the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
            self._size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise OwlmineError(f"{path}: cannot be read: {error.strerror}") from error
        # An empty file can be intended (no pairs to leave out), but an empty compressed file is damaged.
        if not self._size and path.suffix.lower() in COMPRESSION_SUFFIXES:
            self._file.close()
            raise DataError(path, found="an empty file", wanted=f"a {path.suffix.lower()[1:]} stream")
        self.compression = _recognise(self._file)
        self._stream = _decompressed(self._file, self.compression, path)
        self._bytes_out = 0

    def read(self, num_bytes: int) -> bytes:
        try:
            data = self._stream.read(num_bytes)
        except MemoryError as error:
            raise DataError(
                self.path,
                found=f"a {self.compression or 'file'} stream that takes more memory to read than there is",
                wanted="less, or an intact stream",
            ) from error
        except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
            raise DataError(
                self.path,
                found=f"damaged {self.compression or 'file'} after {self._bytes_out:,} good bytes ({error})",
                wanted=f"a complete {self.compression or 'readable'} stream",
            ) from error
        self._bytes_out += len(data)
        return data

    @property
    def progress(self) -> float:
        return min(self._file.tell() / max(self._size, 1), 1.0)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> ByteSource:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def plain_name(path: Path) -> str:
    """The file's name without its compression suffix."""
    return path.stem if path.suffix.lower() in COMPRESSION_SUFFIXES else path.name


def read_blocks(path: LineSource) -> Iterator[tuple[bytes, float]]:
    """The file's bytes as they come, with the progress after each piece."""
    if isinstance(path, ArrivingLines):
        yield from path.pieces()
        return
    with ByteSource(path) as source:
        while data := source.read(BLOCK_BYTES):
            yield data, source.progress


def line_blocks(path: LineSource) -> Iterator[LineBlock]:
    """The file in blocks of whole lines without a byte-order mark; the last line may lack its newline."""
    rest, line, mark = b"", 1, _BYTE_ORDER_MARK
    for piece, progress in read_blocks(path):
        data, mark = piece.removeprefix(mark), b""
        end = data.rfind(b"\n") + 1
        if not end:
            rest += data
            _check_line_length(path, line, len(rest))
            continue
        block, rest = rest + data[:end], data[end:]
        longest = block.find(b"\n") + 1
        _check_line_length(path, line, longest)
        for lines in _bounded(block):
            yield LineBlock(lines, line, progress)
            line += lines.count(b"\n")
        _check_line_length(path, line, len(rest))
    if rest:
        yield LineBlock(rest, line, 1.0)


def _bounded(block: bytes) -> Iterator[bytes]:
    """Parts of at most ``_BLOCK_LINES`` lines: a parsed line may take more memory than its text."""
    if block.count(b"\n") <= _BLOCK_LINES:
        yield block
        return
    half = len(block) // 2
    middle = block.rfind(b"\n", 0, half) + 1 or block.find(b"\n", half) + 1
    yield from _bounded(block[:middle])
    yield from _bounded(block[middle:])


def text_lines(
    path: LineSource, *, tally: Callable[[str, int], None] | None = None
) -> Iterator[tuple[int, str, float]]:
    """Decoded lines without their line endings, numbered from 1. CRLF endings are accepted and counted."""
    before = 0.0
    for block in line_blocks(path):
        if isinstance(path, ArrivingLines):
            last = block.first_line + block.data.rstrip().count(b"\n")
            for number, text in decoded_lines(block, path, tally=tally):
                path.caught_up = number >= last
                yield number, text, block.progress
            continue
        # A block is a large part of a small file.
        step = (block.progress - before) / max(block.data.count(b"\n"), 1)
        for number, text in decoded_lines(block, path, tally=tally):
            yield number, text, min(before + step * (number - block.first_line + 1), block.progress)
        before = block.progress


def decoded_lines(
    block: LineBlock, path: LineSource, *, tally: Callable[[str, int], None] | None = None
) -> Iterator[tuple[int, str]]:
    """The lines of a block with their numbers."""
    lines = block.data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, raw in enumerate(lines, block.first_line):
        data = raw
        if data.endswith(b"\r"):
            data = data[:-1]
            if tally is not None:
                tally("crlf_lines", 1)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                path,
                line=number,
                found=f"byte 0x{data[error.start]:02x} at column {error.start + 1}",
                wanted="UTF-8 text",
            ) from error
        yield number, text


def _check_line_length(path: LineSource, line: int, length: int) -> None:
    if length > MAX_LINE_BYTES:
        raise DataError(
            path,
            line=line,
            found=f"a line of more than {length:,} bytes",
            wanted=f"at most {MAX_LINE_BYTES:,}",
        )


def _recognise(file: BinaryIO) -> str | None:
    head = file.read(6)
    file.seek(0)
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def _decompressed(file: BinaryIO, compression: str | None, path: Path) -> BinaryIO:
    if compression == "gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if compression == "xz":
        return cast(BinaryIO, lzma.LZMAFile(file))
    if compression == "zst":
        try:
            import pyarrow
        except ImportError as error:
            raise OwlmineError(f"{path}: zstd needs pyarrow; {how_to_install('parquet')}") from error
        return cast(BinaryIO, pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd"))
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, file), BLOCK_BYTES))
