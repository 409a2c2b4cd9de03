"""Labelled data in a model's own terms: its vocabulary, its weighting, its class ids.

A store is taken as it is. Files are read with what the model remembers of its training data, so that any labelled
file can be judged, whatever the options that the training data was converted with.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import owlmine
from owlmine.data.companions import write_filter
from owlmine.data.datasets import SAMPLE, sample_folder
from owlmine.data.features import FeaturePlan
from owlmine.data.formats.block import PointReader
from owlmine.data.formats.tables import Columns
from owlmine.data.ingest import Progress, RawSplit
from owlmine.data.population import WrittenSplit, write_split
from owlmine.data.sources import Source, find_source
from owlmine.data.store import Store, is_store
from owlmine.data.store_writer import StoreWriter
from owlmine.data.text import TokenCounter, TokenOptions
from owlmine.errors import DataError, OwlmineError
from owlmine.model.class_index import ClassIndex
from owlmine.model.example_files import ExampleOptions
from owlmine.model.predictor import FeatureWords, Predictor
from owlmine.model.query_files import first_feature
from owlmine.options import option

_DEFAULT_SPLIT = "test"
_KINDS = {"text": "text", "sparse": "sparse vectors", "dense": "dense vectors"}


@dataclass(frozen=True)
class ReadOptions(ExampleOptions):
    """How files to judge a model on are read."""

    keep_empty: bool = option(False, "Keep points that have no known label or feature, and count them as 0.")


def open_for_model(
    predictor: Predictor,
    data: str | Path,
    scratch: Path,
    *,
    split: str | None = None,
    options: ReadOptions | None = None,
    progress: Progress | None = None,
) -> tuple[Store, str]:
    """A store whose features and classes are the model's, and the name of the split to judge.

    ``data`` is a store, a file, a folder of files, or ``sample``. What must be read is written below ``scratch``, one
    split of it; that store can be thrown away afterwards. ``split`` is ``test`` where nothing is said; a single file is
    its own split.
    """
    path = sample_folder() if str(data) == SAMPLE else Path(data)
    if is_store(path):
        if options not in (None, ReadOptions()):
            raise OwlmineError(f"{path}: is a finished store; options of reading belong to the original files")
        store = Store.open(path, verify=True)
        predictor.check_fits(store)
        return store, split or _DEFAULT_SPLIT
    options = options or ReadOptions()
    columns = Columns(options.text_column, options.label_column, options.label_separator)
    source = find_source(path, format=options.format, columns=columns, split_column=options.split_column)
    if path.is_dir():
        split = split or _DEFAULT_SPLIT
        if split not in source.splits:
            raise OwlmineError(f"{path}: no split {split!r}; it has {', '.join(source.splits)}")
        reader = source.splits[split]
    elif split is not None:
        raise OwlmineError(f"{path}: is one file, which is judged whole; leave --split {split} out")
    else:
        split, reader = _DEFAULT_SPLIT, source.splits["train"]
    _check_kind(predictor, reader)
    shift = 0
    if reader.kind == "sparse" and reader.num_features is None:
        shift = first_feature(source.splits.values(), options.first_feature, predictor.features.weighting)
    with StoreWriter(scratch / "data") as writer:
        return _write(writer, predictor, source, reader, split, options, shift, progress or (lambda *_: None)), split


def _check_kind(predictor: Predictor, reader: PointReader) -> None:
    if _KINDS[reader.kind] != predictor.takes:
        raise DataError(reader.source, found=_KINDS[reader.kind], wanted=f"{predictor.takes}, which the model takes")
    num_features = predictor.retriever.shape.num_features
    if reader.num_features not in (None, num_features):
        raise DataError(
            reader.source,
            found=f"{reader.num_features:,} features",
            wanted=f"{num_features:,}, as the model was trained with",
        )


def _write(
    writer: StoreWriter,
    predictor: Predictor,
    source: Source,
    reader: PointReader,
    split: str,
    options: ReadOptions,
    shift: int,
    progress: Progress,
) -> Store:
    classes = ClassIndex(predictor.classes.keys)
    plan = _plan(predictor, shift)
    raw = RawSplit(split, writer.scratch, dense_width=reader.num_features if reader.kind == "dense" else None)
    try:
        raw.read(reader, classes, _token_counter(predictor.features), None, progress)
    finally:
        raw.abandon()
    _check_features(raw, reader, plan)
    written = write_split(
        writer,
        raw,
        plan,
        classes,
        keep_empty=options.keep_empty,
        class_counts=np.zeros(len(predictor.classes.keys), np.int64),
    )
    _check_labels(written, reader)
    if (filter_file := source.filters.get(split)) is not None and reader is source.splits.get(split):
        write_filter(writer, filter_file, split, written, classes, reader.num_classes)
    writer.whole_array("classes.counts", np.array(predictor.classes.counts))
    writer.strings("classes.keys", predictor.classes.keys)
    plan.write(writer)
    return writer.finish(
        {
            "written_by": f"owlmine {owlmine.__version__}",
            "source": {"format": source.format, "files": sorted(file.name for file in source.files)},
            "queries": plan.queries,
            "features": plan.num_features,
            "classes": len(predictor.classes.keys),
            "weighting": plan.weighting,
            "keep_empty": options.keep_empty,
            "splits": {split: written.counts},
        }
    )


def _plan(predictor: Predictor, shift: int) -> FeaturePlan:
    """What the conversion of the training data did to a row."""
    shape, features = predictor.retriever.shape, predictor.features
    if shape.dense:
        return FeaturePlan("dense", shape.num_features, features.weighting)
    renumber = None
    if features.from_text:
        assert features.frequencies is not None
        renumber = np.where(features.frequencies > 0, np.arange(shape.num_features), -1)
    return FeaturePlan(
        "sparse",
        shape.num_features,
        features.weighting,
        features.tfidf,
        renumber,
        shift,
        tokens=None if features.vocabulary is None else list(features.vocabulary),
        frequencies=features.frequencies,
        from_text=features.from_text,
    )


def _token_counter(features: FeatureWords) -> TokenCounter | None:
    if not features.from_text:
        return None
    told = features.weighting["text"]
    tokens = None if features.vocabulary is None else list(features.vocabulary)
    counter = TokenCounter(TokenOptions(told["ngrams"], told["hash_bits"]), tokens)
    counter.frozen = True
    return counter


def _check_features(raw: RawSplit, reader: PointReader, plan: FeaturePlan) -> None:
    if raw.last_feature - plan.shift >= plan.num_features:
        raise DataError(
            reader.source,
            found=f"feature {raw.last_feature}",
            wanted=f"{plan.shift} to {plan.num_features - 1 + plan.shift}, as the model was trained with",
        )
    if plan.tfidf is not None and not raw.are_counts:
        raise DataError(reader.source, found="values that are not whole counts", wanted="counts, as in training")


def _check_labels(written: WrittenSplit, reader: PointReader) -> None:
    unknown = written.counts["unseen_labels_dropped"]
    if unknown and not written.counts["labels"]:
        found = f"{unknown:,} labels, none of which is a class of the model"
        raise DataError(reader.source, found=found, wanted="labels that the model was trained with")
