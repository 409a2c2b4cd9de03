"""Queries without labels, out of whatever people have them in: lines, tables, vectors, a store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from owlmine.data.formats.array_files import NpzMatrix, dense_queries
from owlmine.data.formats.block import Notes, PointReader, Queries
from owlmine.data.formats.line_files import line_texts
from owlmine.data.formats.sparse_files import LabelledReader, MatrixFile, SvmlightReader
from owlmine.data.rows import SparseRows
from owlmine.data.store import Store, is_store
from owlmine.data.streams import MAX_LINE_BYTES, ByteSource, plain_name
from owlmine.errors import DataError, OwlmineError
from owlmine.model.predictor import Predictor
from owlmine.model.query_tables import DEFAULT_ID, table_queries
from owlmine.options import option

FIRST_FEATURES = ("auto", "0", "1")
STANDARD_INPUT = "standard input"
_TABLES = ("jsonl", "csv", "tsv", "parquet")
_TAKES = {"text": "text", **dict.fromkeys(_TABLES, "text"), "npy": "dense vectors"}
_TAKES |= dict.fromkeys(("npz", "xmc", "svmlight"), "sparse vectors")
QUERY_FORMATS = ("auto", *_TAKES)
_SUFFIXES = {"json": "jsonl", "ndjson": "jsonl", "svm": "svmlight", "libsvm": "svmlight"}
_SUFFIXES |= {name: name for name in _TAKES if name not in ("text", "xmc")}
# The first bytes of a file of sparse vectors: two or three numbers, then a line with number:value in it.
_SPARSE_TEXT = re.compile(rb"\d+[ \t]+\d+([ \t]+\d+)?[ \t]*\r?\n[\d, \t]*\d+:[-+.\deE]")
_BLOCK_ROWS = 1024
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class QueryOptions:
    """How files of queries are read."""

    input_format: str = option("auto", f"Format of INPUT: {', '.join(QUERY_FORMATS)}.")
    text_column: str | None = option(None, "Tables: the column with the text; several, parted by commas, are joined.")
    id_column: str = option(DEFAULT_ID, "Tables: the column whose value is passed through, where there is one.")
    first_feature: str = option("auto", "svmlight: the number of the first feature (auto: as in training).")

    def __post_init__(self) -> None:
        checks = (
            ("input_format", self.input_format in QUERY_FORMATS, f"one of {', '.join(QUERY_FORMATS)}"),
            ("first_feature", self.first_feature in FIRST_FEATURES, f"one of {', '.join(FIRST_FEATURES)}"),
        )
        for name, good, wanted in checks:
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)!r}; wanted {wanted}")


@dataclass(frozen=True)
class QueryBlock:
    """Some consecutive queries."""

    queries: Queries
    ids: list[Any] | None = None
    """What the table calls each query."""
    progress: float = 0.0
    """How much of the source has been read, 0 to 1."""
    prepared: bool = False
    """Whether the queries are the model's features already, out of a store."""


def open_queries(
    predictor: Predictor, path: Path, *, options: QueryOptions | None = None, split: str | None = None
) -> Iterator[QueryBlock]:
    """The queries of a file, or of a split (``test`` where nothing is said) of a store, in blocks of bounded size."""
    options = options or QueryOptions()
    if is_store(path):
        store = Store.open(path)
        predictor.check_features_fit(store)
        return _stored(store, split or "test")
    if split is not None:
        raise OwlmineError(f"{path}: is no store; --split {split} means nothing here")
    if path.is_dir():
        raise DataError(path, found="a folder that is no store", wanted="a file of queries, or a store")
    if not path.exists():
        raise DataError(path, found="no such file", wanted="queries, or - for standard input")
    name = options.input_format if options.input_format != "auto" else _recognised(path, predictor)
    if _TAKES[name] != predictor.takes:
        raise DataError(path, found=_TAKES[name], wanted=f"{predictor.takes}, which the model takes")
    if name in _TABLES:
        rows = table_queries(path, name, text_column=options.text_column, id_column=options.id_column)
        return (QueryBlock(texts, ids, done) for texts, ids, done in rows)
    if name == "text":
        return (QueryBlock(part, progress=done) for part, done in line_texts(path).parts(Notes()))
    if name == "npy":
        return (QueryBlock(part, progress=done) for part, done in dense_queries(path).parts(Notes()))
    return _sparse_blocks(path, name, predictor, options)


def standard_input(predictor: Predictor, stream: BinaryIO) -> Iterator[QueryBlock]:
    """A text per line, in blocks of what has arrived: a line that somebody types is answered at once."""
    if predictor.takes != "text":
        raise DataError(STANDARD_INPUT, found="text", wanted=f"{predictor.takes} in a file, which the model takes")
    rest, line = b"", 1
    while data := stream.read1(_READ_BYTES):  # type: ignore[attr-defined]
        *whole, rest = (rest + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise DataError(STANDARD_INPUT, line=line, found="an endless line", wanted=f"{MAX_LINE_BYTES:,} bytes")
        texts = [_decoded(raw, number) for number, raw in enumerate(whole, line)]
        line += len(whole)
        if texts:
            yield QueryBlock(texts)
    if rest:
        yield QueryBlock([_decoded(rest, line)])


def first_feature(readers: Iterable[PointReader], choice: str, weighting: dict[str, Any]) -> int:
    """The number of the first feature in svmlight files: as in the training data where those were svmlight too;
    otherwise 1, unless somewhere a feature 0 occurs."""
    if choice != "auto":
        return int(choice)
    if "first_feature" in weighting:
        return int(weighting["first_feature"])
    for reader in readers:
        for block in reader.blocks(Notes()):
            assert isinstance(block.queries, SparseRows)
            if len(block.queries.indices) and not block.queries.indices.min():
                return 0
    return 1


def _recognised(path: Path, predictor: Predictor) -> str:
    """By the file's name; what may hold text or vectors, by its content and by what the model takes."""
    suffix = plain_name(path).rpartition(".")[2].lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    with ByteSource(path) as file:
        head = file.read(1 << 12)
    if _SPARSE_TEXT.match(head):
        return "xmc"
    # A file of vectors without a single entry looks like text; the reader words what is wrong with it.
    numbers = re.match(rb"\s*\d+(\s+\d+)+\s*\n", head) is not None
    return "xmc" if predictor.takes == "sparse vectors" and numbers else "text"


def _decoded(raw: bytes, line: int) -> str:
    try:
        return raw.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{raw[error.start]:02x} at column {error.start + 1}"
        raise DataError(STANDARD_INPUT, line=line, found=found, wanted="UTF-8 text") from None


def _stored(store: Store, split: str) -> Iterator[QueryBlock]:
    chosen, done = store[split], 0
    for batch in chosen.blocks(_BLOCK_ROWS):
        done += len(batch)
        yield QueryBlock(batch.queries, progress=done / len(chosen), prepared=True)


def _sparse_blocks(path: Path, name: str, predictor: Predictor, options: QueryOptions) -> Iterator[QueryBlock]:
    if name == "npz" or (name == "xmc" and _header_length(path) == 2):
        matrix = NpzMatrix(path) if name == "npz" else MatrixFile.open(path)
        _check_width(path, matrix.num_columns, predictor)
        return (QueryBlock(part, progress=done) for part, done in matrix.parts(Notes()))
    if name == "xmc":
        labelled = LabelledReader(path)
        _check_width(path, labelled.num_features, predictor)
        return _points(labelled, shift=0)
    reader = SvmlightReader(path)
    return _points(reader, shift=first_feature([reader], options.first_feature, predictor.features.weighting))


def _points(reader: LabelledReader | SvmlightReader, *, shift: int) -> Iterator[QueryBlock]:
    """The queries of labelled points. Which blank lines are none, such a reader knows at the end: it reads twice."""
    notes, row = Notes(), 0
    for _ in reader.blocks(notes):
        pass
    stray = np.array(notes.stray_rows, np.int64)
    for block in reader.blocks(Notes()):
        rows = block.queries
        assert isinstance(rows, SparseRows)
        if len(rows.indices) and int(rows.indices.min()) < shift:
            raise DataError(reader.path, found="feature 0", wanted="features from 1, as --first-feature says")
        own = stray[slice(*np.searchsorted(stray, (row, row + len(rows))))] - row
        row += len(rows)
        shifted = SparseRows(rows.offsets, rows.indices - shift, rows.values)
        yield QueryBlock(shifted.take(np.delete(np.arange(len(rows)), own)), progress=block.progress)


def _header_length(path: Path) -> int:
    with ByteSource(path) as file:
        return len(file.read(200).partition(b"\n")[0].split())


def _check_width(path: Path, found: int, predictor: Predictor) -> None:
    if found != (wanted := predictor.retriever.shape.num_features):
        raise DataError(path, found=f"{found:,} features", wanted=f"{wanted:,}, as the model was trained with")
