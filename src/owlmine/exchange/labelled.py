"""Labelled data with a model's own features and classes, from files, a store or memory; and files with class names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from owlmine.data.formats.block import Block, Notes, PointReader, RowLabels
from owlmine.data.formats.memory import MemoryReader
from owlmine.data.formats.tables import Columns
from owlmine.data.rows import SparseRows
from owlmine.data.sources import FORMATS, Source, find_source
from owlmine.data.store import Store, is_store
from owlmine.data.streams import text_lines
from owlmine.errors import DataError, OwlmineError, excerpt
from owlmine.exchange.queries import FIRST_FEATURES, check_kind, check_width, first_feature, shifted
from owlmine.options import option
from owlmine.rank.predictor import Predictor
from owlmine.rank.queries import as_sparse

_DEFAULT_SPLIT = "train"
_KINDS = {"text": "text", "sparse": "sparse vectors", "dense": "dense vectors"}


@dataclass(frozen=True)
class ExampleOptions:
    """How labelled files are read. The model itself knows how text and counts become features."""

    format: str = option("auto", f"Format of the files: {', '.join(FORMATS)}.")
    text_column: str | None = option(None, "Tables: the text column; join several columns, separated by commas.")
    label_column: str | None = option(None, "Tables: the column with the labels.")
    label_separator: str = option(";", "Tables: the separator between labels in a text cell.")
    split_column: int = option(0, "Split-index files: the column with the split, counted from 0.")
    first_feature: str = option("auto", "svmlight: the number of the first feature (auto: as in training).")

    def __post_init__(self) -> None:
        checks = (
            ("format", self.format in FORMATS, f"one of {', '.join(FORMATS)}"),
            ("label_separator", bool(self.label_separator), "at least one character"),
            ("split_column", self.split_column >= 0, "0 or more"),
            ("first_feature", self.first_feature in FIRST_FEATURES, f"one of {', '.join(FIRST_FEATURES)}"),
        )
        for name, good, wanted in checks:
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)!r}; wanted {wanted}")


@dataclass(frozen=True)
class LabelledData:
    """Points with labels, one block at a time."""

    blocks: Iterator[Block]
    """Queries as the model's features, and keys of classes that the model may not have."""
    names: dict[str, str]
    """Names of classes by key, as a store has them."""


def open_labelled(
    predictor: Predictor, path: Path, *, options: ExampleOptions | None = None, split: str | None = None
) -> LabelledData:
    """The points of a file, or of a split (``train`` by default) of a folder or store."""
    if not is_store(path):
        return LabelledData(_file_blocks(predictor, path, options or ExampleOptions(), split), {})
    if options not in (None, ExampleOptions()):
        raise OwlmineError(f"{path}: is a finished store; reading options only apply to the original files")
    store = Store.open(path, verify=True)
    predictor.check_features_fit(store)
    names = dict(zip(store.class_keys, store.class_names, strict=True))
    return LabelledData(_store_blocks(store, split or _DEFAULT_SPLIT), names)


def _store_blocks(store: Store, split: str) -> Iterator[Block]:
    keys, chosen, done = list(store.class_keys), store[split], 0
    for batch in chosen.blocks():
        done += len(batch)
        words = [keys[number] for number in batch.labels.indices.tolist()]
        yield Block(batch.queries, RowLabels(batch.labels.offsets, words), done / len(chosen))


def _file_blocks(predictor: Predictor, path: Path, options: ExampleOptions, split: str | None) -> Iterator[Block]:
    source, _, reader = open_split(predictor, path, options, split, default=_DEFAULT_SPLIT)
    return _prepared(predictor, reader, number_of_first_feature(predictor, source, reader, options))


def labelled_in_memory(predictor: Predictor, X: Any, Y: Any) -> LabelledData:
    """``X``: queries as ``predict`` takes them; ``Y``: labels as ``fit`` takes them."""
    reader = memory_reader(predictor, X, Y)
    return LabelledData(_prepared(predictor, reader, 0), {})


def memory_reader(predictor: Predictor, X: Any, Y: Any) -> MemoryReader:
    """Points in memory, read like those of a file. Raises DataError if they do not match the model."""
    if predictor.takes == "sparse vectors":
        num_features = predictor.dense.shape.num_features
        rows = as_sparse(X, num_features=num_features)
        values = np.ones(len(rows.indices), np.float32) if rows.values is None else rows.values
        X = csr_array((values, rows.indices, rows.offsets), shape=(len(rows), num_features))
    reader = MemoryReader(X, Y, "X", labels_source="Y")
    _check_reader(predictor, reader)
    return reader


def _prepared(predictor: Predictor, reader: PointReader, shift: int) -> Iterator[Block]:
    """``shift`` is the number of the first feature."""
    for block in reader.blocks(Notes()):
        queries = block.queries
        if isinstance(queries, SparseRows):
            queries = shifted(queries, shift, reader.source)
        try:
            prepared = predictor.prepare(queries)
        except OwlmineError as error:
            raise OwlmineError(f"{reader.source}: {error}") from error
        yield Block(prepared, block.labels, block.progress)


def open_split(
    predictor: Predictor, path: Path, options: ExampleOptions, split: str | None, *, default: str
) -> tuple[Source, str, PointReader]:
    """The files, the name of a split, and its reader; a single file is one split, called ``default``.

    Raises an error if the points do not match the model.
    """
    columns = Columns(options.text_column, options.label_column, options.label_separator)
    source = find_source(path, format=options.format, columns=columns, split_column=options.split_column)
    if split is not None and not path.is_dir():
        raise OwlmineError(f"{path}: is a single file, which is read whole; leave out --split {split}")
    split = split or default
    place = split if path.is_dir() else "train"
    if place not in source.splits:
        raise OwlmineError(f"{path}: no split {split!r}; it has {', '.join(source.splits)}")
    reader = source.splits[place]
    _check_reader(predictor, reader)
    return source, split, reader


def _check_reader(predictor: Predictor, reader: PointReader) -> None:
    """Raises DataError unless the points have the kind and width that the model takes."""
    check_kind(reader.source, _KINDS[reader.kind], predictor)
    check_width(reader.source, reader.num_features, predictor)


def number_of_first_feature(predictor: Predictor, source: Source, reader: PointReader, options: ExampleOptions) -> int:
    """0, except for sparse vectors from svmlight files, whose features may start at 1."""
    if reader.kind != "sparse" or reader.num_features is not None:
        return 0
    return first_feature(source.splits.values(), options.first_feature, predictor.features.weighting)


def read_names(path: Path) -> dict[str, str]:
    """Names by key. A line holds a name, which is its own key, or key, tab and name."""
    if not path.is_file():
        raise DataError(path, found="no such file", wanted="names of classes, one per line")
    names: dict[str, str] = {}
    has_keys: bool | None = None
    for number, line, _ in text_lines(path):
        if not line.strip():
            continue
        has_tab = "\t" in line
        key, name = (part.strip() for part in (line.split("\t", 1) if has_tab else (line, line)))
        has_keys = has_tab if has_keys is None else has_keys
        if has_tab != has_keys or not key or not name:
            wanted = "a key, a tab and a name" if has_keys else "a name without a tab"
            raise DataError(path, line=number, found=excerpt(line), wanted=f"{wanted}, as on the first line")
        if key in names:
            raise DataError(path, line=number, found=f"{excerpt(key)} a second time", wanted="each class once")
        names[key] = name
    if not names:
        raise DataError(path, found="no name", wanted="names of classes, one per line")
    return names
