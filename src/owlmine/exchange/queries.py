"""Queries without labels, out of whatever people have them in: lines, tables, vectors, a store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from owlmine.data.formats.array_files import NpzMatrix, dense_queries
from owlmine.data.formats.block import Notes, PointReader, Queries
from owlmine.data.formats.sparse_files import LabelledReader, MatrixFile, SvmlightReader
from owlmine.data.formats.tables import line_texts
from owlmine.data.rows import SparseRows
from owlmine.data.store import Store, is_store
from owlmine.data.streams import ArrivingLines, ByteSource, LineSource, decoded_lines, line_blocks, plain_name
from owlmine.errors import DataError, OwlmineError
from owlmine.model.predictor import Predictor
from owlmine.model.query_tables import DEFAULT_ID, table_queries
from owlmine.options import option

FIRST_FEATURES = ("auto", "0", "1")
STANDARD_INPUT = "standard input"
_TABLES = ("jsonl", "csv", "tsv", "parquet")
_TAKES = {"text": "text", **dict.fromkeys(_TABLES, "text"), "npy": "dense vectors"}
_TAKES |= dict.fromkeys(("npz", "xmc", "svmlight"), "sparse vectors")
# What can be read once, line by line, while it arrives.
_ARRIVING = ("text", "jsonl", "csv", "tsv", "svmlight")
QUERY_FORMATS = ("auto", *_TAKES)
_SUFFIXES = {"json": "jsonl", "ndjson": "jsonl", "svm": "svmlight", "libsvm": "svmlight"}
_SUFFIXES |= {name: name for name in _TAKES if name not in ("text", "xmc")}
# The first bytes of a file of sparse vectors: two or three numbers, then a line with number:value in it.
_SPARSE_TEXT = re.compile(rb"\d+[ \t]+\d+([ \t]+\d+)?[ \t]*\r?\n[\d, \t]*\d+:[-+.\deE]")
_BLOCK_ROWS = 1024


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
        if options != QueryOptions():
            raise OwlmineError(f"{path}: is a finished store; options of reading belong to the original files")
        store = Store.open(path, verify=True)
        predictor.check_features_fit(store)
        return _stored(store, split or "test")
    if split is not None:
        raise OwlmineError(f"{path}: is no store; --split {split} means nothing here")
    if path.is_dir():
        raise DataError(path, found="a folder that is no store", wanted="a file of queries, or a store")
    if not path.exists():
        raise DataError(path, found="no such file", wanted="queries, or - for standard input")
    name = options.input_format if options.input_format != "auto" else _recognised(path, predictor)
    _check(path, name, predictor, options)
    if name in _TABLES:
        return _table_blocks(path, name, options)
    if name == "text":
        return (QueryBlock(part, progress=done) for part, done in line_texts(path).parts(Notes()))
    if name == "npy":
        vectors = dense_queries(path)
        assert vectors.num_features is not None
        _check_width(path, vectors.num_features, predictor)
        return (QueryBlock(part, progress=done) for part, done in vectors.parts(Notes()))
    return _sparse_blocks(path, name, predictor, options)


def standard_input(
    predictor: Predictor, stream: BinaryIO, *, options: QueryOptions | None = None
) -> Iterator[QueryBlock]:
    """Queries in blocks of what has arrived: a line that somebody types is answered at once.

    ``input_format`` auto is a text per line: what is still to come cannot be looked at.
    """
    options = options or QueryOptions()
    name = "text" if options.input_format == "auto" else options.input_format
    if name not in _ARRIVING:
        wanted = f"{', '.join(_ARRIVING[:-1])} or {_ARRIVING[-1]}; {name} can only be read from a file"
        raise DataError(STANDARD_INPUT, found=f"--input-format {name}", wanted=wanted)
    if options.input_format == "auto" and predictor.takes != "text":
        wanted = f"{predictor.takes}, which the model takes: give a file"
        wanted += ", or --input-format svmlight" if predictor.takes == "sparse vectors" else ""
        raise DataError(STANDARD_INPUT, found="text", wanted=wanted)
    arriving = ArrivingLines(stream, STANDARD_INPUT)
    _check(arriving, name, predictor, options)
    if name in _TABLES:
        return _table_blocks(arriving, name, options)
    if name == "svmlight":
        return _arriving_points(SvmlightReader(arriving), predictor, options)
    blocks = ([text for _, text in decoded_lines(block, arriving)] for block in line_blocks(arriving))
    return (QueryBlock(texts) for texts in blocks)


def _check(source: LineSource, name: str, predictor: Predictor, options: QueryOptions) -> None:
    if _TAKES[name] != predictor.takes:
        raise DataError(source, found=_TAKES[name], wanted=f"{predictor.takes}, which the model takes")
    given = {"--text-column": options.text_column, "--id-column": options.id_column}
    for option_name, column in given.items():
        if name not in _TABLES and column not in (None, DEFAULT_ID):
            tables = [table for table in _TABLES if isinstance(source, Path) or table in _ARRIVING]
            wanted = f"a table: --input-format {', '.join(tables[:-1])} or {tables[-1]}"
            raise DataError(source, found=f"{option_name} {column} for {name}, which has no columns", wanted=wanted)


def _table_blocks(source: LineSource, name: str, options: QueryOptions) -> Iterator[QueryBlock]:
    rows = table_queries(source, name, text_column=options.text_column, id_column=options.id_column)
    return (QueryBlock(texts, ids, done) for texts, ids, done in rows)


def _arriving_points(reader: SvmlightReader, predictor: Predictor, options: QueryOptions) -> Iterator[QueryBlock]:
    """Read once: the number of the first feature must be known."""
    if options.first_feature == "auto" and "first_feature" not in predictor.features.weighting:
        wanted = "--first-feature 0 or 1, which cannot be told before all has arrived"
        raise DataError(STANDARD_INPUT, found="svmlight", wanted=wanted)
    shift = first_feature([], options.first_feature, predictor.features.weighting)
    for block in reader.blocks(Notes()):
        yield QueryBlock(_shifted(reader, block.queries, shift, without=np.zeros(0, np.int64)))


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
    for block in reader.blocks(Notes()):
        num_rows = len(block.labels)
        own = notes.stray_rows.within(row, row + num_rows)
        row += num_rows
        yield QueryBlock(_shifted(reader, block.queries, shift, without=own), progress=block.progress)


def _shifted(
    reader: LabelledReader | SvmlightReader, rows: Queries, shift: int, *, without: NDArray[np.int64]
) -> SparseRows:
    """The rows with features from 0, but for the ``without`` ones."""
    assert isinstance(rows, SparseRows)
    if len(rows.indices) and int(rows.indices.min()) < shift:
        raise DataError(reader.path, found="feature 0", wanted="features from 1, as --first-feature says")
    shifted = SparseRows(rows.offsets, rows.indices - shift, rows.values)
    return shifted.take(np.delete(np.arange(len(rows)), without))


def _header_length(path: Path) -> int:
    with ByteSource(path) as file:
        return len(file.read(200).partition(b"\n")[0].split())


def _check_width(path: Path, found: int, predictor: Predictor) -> None:
    if found != (wanted := predictor.retriever.shape.num_features):
        raise DataError(path, found=f"{found:,} features", wanted=f"{wanted:,}, as the model was trained with")
