"""Queries without labels, from any source: lines of text, tables, vectors, a store, standard input."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from owlmine.data.formats import tables
from owlmine.data.formats.array_files import NpzMatrix, dense_queries
from owlmine.data.formats.block import BadCellError, Notes, PointReader, Queries, labels_of, text_of
from owlmine.data.formats.sparse_files import LabelledReader, MatrixFile, SvmlightReader
from owlmine.data.formats.tables import line_texts
from owlmine.data.rows import Int64, SparseRows
from owlmine.data.store import Store, is_store
from owlmine.data.streams import ArrivingLines, ByteSource, LineSource, decoded_lines, line_blocks, plain_name
from owlmine.errors import DataError, OwlmineError
from owlmine.index import Filter
from owlmine.options import option
from owlmine.rank.class_index import ClassFinder
from owlmine.rank.predictor import Predictor

DEFAULT_ID = "id"
ALLOWED, FORBIDDEN = FILTER_COLUMNS = ("allowed", "forbidden")
"""Columns of tables with the classes to choose from, or to leave out, for each query."""
FIRST_FEATURES = ("auto", "0", "1")
STANDARD_INPUT = "standard input"
_TABLES = ("jsonl", "csv", "tsv", "parquet")
_TAKES = {"text": "text", **dict.fromkeys(_TABLES, "text"), "npy": "dense vectors"}
_TAKES |= dict.fromkeys(("npz", "xmc", "svmlight"), "sparse vectors")
# Formats that can be read once, line by line, as they arrive.
_ARRIVING = ("text", "jsonl", "csv", "tsv", "svmlight")
QUERY_FORMATS = ("auto", *_TAKES)
_SUFFIXES = {"json": "jsonl", "ndjson": "jsonl", "svm": "svmlight", "libsvm": "svmlight"}
_SUFFIXES |= {name: name for name in _TAKES if name not in ("text", "xmc")}
# The first bytes of a file of sparse vectors: two or three numbers, then a line with number:value in it.
_SPARSE_TEXT = re.compile(rb"\d+[ \t]+\d+([ \t]+\d+)?[ \t]*\r?\n[\d, \t]*\d+:[-+.\deE]")
# A block has at most this many rows, and ends when its texts have this many characters.
_BLOCK_ROWS, _BLOCK_CHARS = 1024, 1 << 22


@dataclass(frozen=True)
class QueryOptions:
    """How files of queries are read."""

    input_format: str = option("auto", f"Format of INPUT: {', '.join(QUERY_FORMATS)}.")
    text_column: str | None = option(None, "Tables: the text column; join several columns, separated by commas.")
    id_column: str = option(DEFAULT_ID, "Tables: the column to copy into the answers, if there is one.")
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
    """The table's id of each query."""
    progress: float = 0.0
    """How much of the source has been read, 0 to 1."""
    prepared: bool = False
    """Whether the queries are the model's features already, as those of a store are."""
    only: Filter | None = None
    """The classes to choose from for each query, where a table says."""


def open_queries(
    predictor: Predictor, path: Path, *, options: QueryOptions | None = None, split: str | None = None
) -> Iterator[QueryBlock]:
    """The queries of a file, or of a split (``test`` by default) of a store, in blocks of bounded size."""
    options = options or QueryOptions()
    if is_store(path):
        if options != QueryOptions():
            raise OwlmineError(f"{path}: is a finished store; reading options only apply to the original files")
        store = Store.open(path, verify=True)
        predictor.check_features_fit(store)
        return _stored(store, split or "test")
    if split is not None:
        raise OwlmineError(f"{path}: is not a store; leave out --split {split}")
    if path.is_dir():
        raise DataError(path, found="a folder that is not a store", wanted="a file of queries, or a store")
    if not path.exists():
        raise DataError(path, found="no such file", wanted="queries, or - for standard input")
    name = options.input_format if options.input_format != "auto" else _format_of(path, predictor)
    _check(path, name, predictor, options)
    if name in _TABLES:
        return _table_blocks(path, name, predictor, options)
    if name == "text":
        return (QueryBlock(part, progress=done) for part, done in line_texts(path).parts(Notes()))
    if name == "npy":
        vectors = dense_queries(path)
        check_width(path, vectors.num_features, predictor)
        return (QueryBlock(part, progress=done) for part, done in vectors.parts(Notes()))
    return _sparse_blocks(path, name, predictor, options)


def standard_input(
    predictor: Predictor, stream: BinaryIO, *, options: QueryOptions | None = None
) -> Iterator[QueryBlock]:
    """Queries in blocks of what has arrived, so that a typed line is answered at once.

    ``input_format`` auto means one text per line: the format of input that has not arrived yet cannot be detected.
    """
    options = options or QueryOptions()
    name = "text" if options.input_format == "auto" else options.input_format
    if name not in _ARRIVING:
        wanted = f"{', '.join(_ARRIVING[:-1])} or {_ARRIVING[-1]}; {name} can only be read from a file"
        raise DataError(STANDARD_INPUT, found=f"--input-format {name}", wanted=wanted)
    if options.input_format == "auto" and predictor.takes != "text":
        wanted = f"{predictor.takes}, which the model takes, in a file"
        wanted += ", or --input-format svmlight" if predictor.takes == "sparse vectors" else ""
        raise DataError(STANDARD_INPUT, found="text", wanted=wanted)
    arriving = ArrivingLines(stream, STANDARD_INPUT)
    _check(arriving, name, predictor, options)
    if name in _TABLES:
        return _table_blocks(arriving, name, predictor, options)
    if name == "svmlight":
        return _arriving_points(SvmlightReader(arriving), predictor, options)
    blocks = ([text for _, text in decoded_lines(block, arriving)] for block in line_blocks(arriving))
    return (QueryBlock(texts) for texts in blocks)


def _check(source: LineSource, name: str, predictor: Predictor, options: QueryOptions) -> None:
    check_kind(source, _TAKES[name], predictor)
    given = {"--text-column": options.text_column, "--id-column": options.id_column}
    for option_name, column in given.items():
        if name not in _TABLES and column not in (None, DEFAULT_ID):
            tables = [table for table in _TABLES if isinstance(source, Path) or table in _ARRIVING]
            wanted = f"a table: --input-format {', '.join(tables[:-1])} or {tables[-1]}"
            raise DataError(source, found=f"{option_name} {column} for {name}, which has no columns", wanted=wanted)


def check_kind(source: object, found: str, predictor: Predictor) -> None:
    """``found``: text, sparse vectors or dense vectors."""
    if found != predictor.takes:
        raise DataError(source, found=found, wanted=f"{predictor.takes}, which the model takes")


def check_width(source: object, num_features: int | None, predictor: Predictor) -> None:
    """``num_features``: None if the source does not state it."""
    wanted = predictor.dense.shape.num_features
    if num_features not in (None, wanted):
        raise DataError(source, found=f"{num_features:,} features", wanted=f"{wanted:,}, as the model was trained with")


def _table_blocks(source: LineSource, name: str, predictor: Predictor, options: QueryOptions) -> Iterator[QueryBlock]:
    """Texts and ids by the rules for tables with labels. A column ``id`` may be missing, another ``id_column`` may not.

    Rows that are still arriving come in blocks of those that are there.
    """
    # The readers look for the id instead of the labels, which queries do not have.
    columns = tables.Columns(options.text_column, options.id_column, others=FILTER_COLUMNS)
    if name in ("csv", "tsv"):
        table = tables.delimited(source, columns, "," if name == "csv" else "\t")
    elif name == "jsonl":
        table = tables.json_lines(source, columns)
    else:
        assert isinstance(source, Path)
        table = tables.parquet(source, columns)
    arriving = source if isinstance(source, ArrivingLines) else None
    return _text_blocks(table, options.id_column, arriving, predictor.finder)


class _Pending:
    """Collects queries for a block."""

    def __init__(self, finder: ClassFinder) -> None:
        self.texts, self.num_chars, self._ids = list[str](), 0, list[Any]()
        self._finder = finder
        self._classes: dict[str, list[Int64 | None]] = {column: [] for column in FILTER_COLUMNS}

    def add(self, text: str, name: Any, cells: dict[str, Any]) -> None:
        """Raises BadCellError for a filter that cannot be read."""
        for column, classes in self._classes.items():
            classes.append(_classes_of(cells, column, self._finder))
        self.texts.append(text)
        self._ids.append(_as_json(name))
        self.num_chars += len(text)

    def block(self, progress: float) -> QueryBlock:
        only: Filter | None = None
        for column, classes in self._classes.items():
            if any(ids is not None for ids in classes):
                own = Filter.per_query(classes, len(self._finder), allowed=column == ALLOWED)
                only = own if only is None else only & own
        return QueryBlock(self.texts, self._ids, progress, only=only)


def _text_blocks(
    table: tables.TableReader, id_column: str, arriving: ArrivingLines | None, finder: ClassFinder
) -> Iterator[QueryBlock]:
    pending = _Pending(finder)
    text_columns: tuple[str, ...] = ()
    for number, cells, progress in table.rows(Notes()):
        text_columns = text_columns or table.text_columns(cells, number)
        if id_column not in cells and id_column != DEFAULT_ID:
            raise table.error(number, f"columns {', '.join(map(repr, cells))}", f"a column {id_column!r}")
        try:
            text = " ".join(text_of(cells, column) for column in text_columns)
            pending.add(text, cells.get(id_column), cells)
        except BadCellError as error:
            raise table.error(number, error.found, error.wanted) from None
        all_there = arriving is not None and arriving.caught_up
        if len(pending.texts) == _BLOCK_ROWS or pending.num_chars > _BLOCK_CHARS or all_there:
            yield pending.block(progress)
            pending = _Pending(finder)
    if pending.texts:
        yield pending.block(1.0)


def _classes_of(cells: dict[str, Any], column: str, finder: ClassFinder) -> Int64 | None:
    """The classes that a cell names, in the notations of labels; None if it is empty or missing."""
    cell = cells.get(column)
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    keys, _ = labels_of(cells, column, tables.Columns.separator)
    try:
        return finder.find(keys)
    except OwlmineError as error:
        raise BadCellError(
            f"column {column!r} with an unknown class ({error})", "keys of the model's classes"
        ) from None


def _as_json(value: Any) -> Any:
    """An id as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _arriving_points(reader: SvmlightReader, predictor: Predictor, options: QueryOptions) -> Iterator[QueryBlock]:
    """They can be read only once, so the number of the first feature must be known."""
    if options.first_feature == "auto" and "first_feature" not in predictor.features.weighting:
        wanted = "--first-feature 0 or 1, which cannot be detected before all lines have arrived"
        raise DataError(STANDARD_INPUT, found="svmlight", wanted=wanted)
    shift = first_feature([], options.first_feature, predictor.features.weighting)
    for block in reader.blocks(Notes()):
        yield QueryBlock(_shifted(reader, block.queries, shift, without=np.zeros(0, np.int64)))


def first_feature(readers: Iterable[PointReader], choice: str, weighting: dict[str, Any]) -> int:
    """The number of the first feature in svmlight files: as in the training data where those were svmlight too;
    otherwise 1, unless there is a feature 0 somewhere."""
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


def _format_of(path: Path, predictor: Predictor) -> str:
    """Detected by the file's name; if that allows text or vectors, by its content and by what the model takes."""
    suffix = plain_name(path).rpartition(".")[2].lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    with ByteSource(path) as file:
        head = file.read(1 << 12)
    if _SPARSE_TEXT.match(head):
        return "xmc"
    # A file of vectors without a single entry looks like text; the reader says what is wrong with it.
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
        check_width(path, matrix.num_columns, predictor)
        return (QueryBlock(part, progress=done) for part, done in matrix.parts(Notes()))
    if name == "xmc":
        labelled = LabelledReader(path)
        check_width(path, labelled.num_features, predictor)
        return _points(labelled, shift=0)
    reader = SvmlightReader(path)
    return _points(reader, shift=first_feature([reader], options.first_feature, predictor.features.weighting))


def _points(reader: LabelledReader | SvmlightReader, *, shift: int) -> Iterator[QueryBlock]:
    """The queries of labelled points. They are read twice, because only the end of the file shows which blank lines are
    not points."""
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
    """The queries except the rows ``without``."""
    assert isinstance(rows, SparseRows)
    return shifted(rows, shift, reader.path).take(np.delete(np.arange(len(rows)), without))


def shifted(rows: SparseRows, shift: int, source: object) -> SparseRows:
    """Rows of a file whose first feature is number ``shift``, with features from 0."""
    if len(rows.indices) and int(rows.indices.min()) < shift:
        raise DataError(source, found="feature 0", wanted="features numbered from 1, according to --first-feature")
    return SparseRows(rows.offsets, rows.indices - shift, rows.values)


def _header_length(path: Path) -> int:
    with ByteSource(path) as file:
        return len(file.read(200).partition(b"\n")[0].split())
