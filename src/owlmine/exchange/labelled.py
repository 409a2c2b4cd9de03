"""Examples of classes that a model does not have, out of labelled files or a store; and names of such classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from owlmine.data.formats.block import Block, Notes, PointReader, RowLabels
from owlmine.data.formats.tables import Columns
from owlmine.data.rows import SparseRows
from owlmine.data.sources import FORMATS, find_source
from owlmine.data.store import Store, is_store
from owlmine.data.streams import text_lines
from owlmine.errors import DataError, OwlmineError, excerpt
from owlmine.model.examples import Examples, Gathering
from owlmine.model.predictor import Predictor
from owlmine.model.query_files import FIRST_FEATURES, first_feature
from owlmine.options import option

_DEFAULT_SPLIT = "train"
_KINDS = {"text": "text", "sparse": "sparse vectors", "dense": "dense vectors"}


@dataclass(frozen=True)
class ExampleOptions:
    """How labelled files are read. How text and counts become features is the model's affair."""

    format: str = option("auto", f"Format of the files: {', '.join(FORMATS)}.")
    text_column: str | None = option(None, "Tables: the column with the text; several, parted by commas, are joined.")
    label_column: str | None = option(None, "Tables: the column with the labels.")
    label_separator: str = option(";", "Tables: what parts the labels inside a cell of text.")
    split_column: int = option(0, "Split-index files: which column (from 0) lists the split.")
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


def read_examples(
    predictor: Predictor, path: Path, *, options: ExampleOptions | None = None, split: str | None = None
) -> Examples:
    """The examples in a file, or in a split (``train`` where nothing is said) of a folder of files or of a store."""
    gathering, names = Gathering(predictor), dict[str, str]()
    if is_store(path):
        if options not in (None, ExampleOptions()):
            raise OwlmineError(f"{path}: is a finished store; options of reading belong to the original files")
        store = Store.open(path, verify=True)
        predictor.check_features_fit(store)
        keys, names = list(store.class_keys), dict(zip(store.class_keys, store.class_names, strict=True))
        for batch in store[split or _DEFAULT_SPLIT].blocks():
            words = [keys[number] for number in batch.labels.indices.tolist()]
            gathering.add(batch.queries, RowLabels(batch.labels.offsets, words))
    else:
        for block in _blocks(predictor, path, options or ExampleOptions(), split):
            gathering.add(block.queries, block.labels)
    return gathering.finish(names, source=path)


def _blocks(predictor: Predictor, path: Path, options: ExampleOptions, split: str | None) -> Iterator[Block]:
    """Blocks of the files' points, their queries prepared."""
    columns = Columns(options.text_column, options.label_column, options.label_separator)
    source = find_source(path, format=options.format, columns=columns, split_column=options.split_column)
    if split is not None and not path.is_dir():
        raise OwlmineError(f"{path}: is one file, which is read whole; leave --split {split} out")
    split = split or _DEFAULT_SPLIT
    if split not in source.splits:
        raise OwlmineError(f"{path}: no split {split!r}; it has {', '.join(source.splits)}")
    reader = source.splits[split]
    _check_fits(predictor, reader)
    shift = 0
    if reader.kind == "sparse" and reader.num_features is None:
        shift = first_feature(source.splits.values(), options.first_feature, predictor.features.weighting)
    for block in reader.blocks(Notes()):
        queries = block.queries
        if isinstance(queries, SparseRows):
            if shift and len(queries.indices) and int(queries.indices.min()) < shift:
                raise DataError(reader.source, found="feature 0", wanted="features from 1, as --first-feature says")
            queries = SparseRows(queries.offsets, queries.indices - shift, queries.values)
        try:
            prepared = predictor.prepare(queries)
        except OwlmineError as error:
            raise OwlmineError(f"{reader.source}: {error}") from error
        yield Block(prepared, block.labels, block.progress)


def _check_fits(predictor: Predictor, reader: PointReader) -> None:
    if _KINDS[reader.kind] != predictor.takes:
        raise DataError(reader.source, found=_KINDS[reader.kind], wanted=f"{predictor.takes}, which the model takes")
    if reader.num_features not in (None, num_features := predictor.retriever.shape.num_features):
        found = f"{reader.num_features:,} features"
        raise DataError(reader.source, found=found, wanted=f"{num_features:,}, as the model was trained with")


def read_names(path: Path) -> dict[str, str]:
    """Names by key: a name per line, which is its own key, or key and name with a tab between them."""
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
