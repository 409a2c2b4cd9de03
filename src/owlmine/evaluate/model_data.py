"""Labelled data with a model's own vocabulary, weighting and class ids.

A store is used as it is. Files are read with the vocabulary and weighting that the model has, so that it can be
evaluated on any labelled file, whatever options its training data was converted with.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from owlmine.data.companions import write_filter
from owlmine.data.datasets import SAMPLE, sample_folder
from owlmine.data.features import FeaturePlan
from owlmine.data.formats.block import PointReader
from owlmine.data.ingest import Progress, RawSplit
from owlmine.data.population import WrittenSplit, write_split
from owlmine.data.python_data import MemoryWriter
from owlmine.data.sources import Source
from owlmine.data.store import Split, Store, is_store
from owlmine.data.store_writer import DatasetWriter, StoreWriter
from owlmine.data.text import TokenCounter, TokenOptions
from owlmine.errors import DataError, OwlmineError
from owlmine.exchange.labelled import ExampleOptions, memory_reader, number_of_first_feature, open_split
from owlmine.options import option
from owlmine.rank.class_index import ClassIndex
from owlmine.rank.predictor import Predictor
from owlmine.rank.words import FeatureWords
from owlmine.version import __version__

_DEFAULT_SPLIT = "test"


@dataclass(frozen=True)
class ReadOptions(ExampleOptions):
    """How files to evaluate a model on are read."""

    keep_empty: bool = option(False, "Keep points without a known label or feature, and count them as 0.")


def open_for_model(
    predictor: Predictor,
    data: str | Path,
    scratch: Path,
    *,
    split: str | None = None,
    options: ReadOptions | None = None,
    progress: Progress | None = None,
) -> tuple[Store, str]:
    """A store whose features and classes are the model's, and the name of the split to evaluate on.

    ``data`` is a store, a file, a folder of files, or ``sample``. One split of files is written below ``scratch`` as a
    temporary store. ``split`` is ``test`` by default; a single file is its own split.
    """
    path = sample_folder() if str(data) == SAMPLE else Path(data)
    if is_store(path):
        if options not in (None, ReadOptions()):
            raise OwlmineError(f"{path}: is a finished store; reading options only apply to the original files")
        store = Store.open(path, verify=True)
        predictor.check_fits(store)
        return store, split or _DEFAULT_SPLIT
    options = options or ReadOptions()
    source, split, reader = open_split(predictor, path, options, split, default=_DEFAULT_SPLIT)
    with StoreWriter(scratch / "data") as writer:
        points = _Points(
            predictor,
            reader,
            split,
            shift=number_of_first_feature(predictor, source, reader, options),
            keep_empty=options.keep_empty,
        )
        written = points.write(writer, progress or (lambda *_: None))
        if (filter_file := source.filters.get(split)) is not None and reader is source.splits.get(split):
            write_filter(writer, filter_file, split, written, points.classes, reader.num_classes)
        writer.whole_array("classes.counts", np.array(predictor.classes.counts))
        writer.strings("classes.keys", predictor.classes.keys)
        points.plan.write(writer)
        return writer.finish(_meta(points, source, written)), split


def _meta(points: _Points, source: Source, written: WrittenSplit) -> dict[str, Any]:
    return {
        "written_by": f"owlmine {__version__}",
        "source": {"format": source.format, "files": sorted(file.name for file in source.files)},
        "queries": points.plan.queries,
        "features": points.plan.num_features,
        "classes": len(points.classes),
        "weighting": points.plan.weighting,
        "keep_empty": points.keep_empty,
        "splits": {points.name: written.counts},
    }


def split_from(predictor: Predictor, X: Any, Y: Any) -> Split:
    """Points in memory, read like those of a file: queries as for ``predict``, labels as for ``fit``.

    Labels that the model does not have are dropped, and so are points left without a label or a known word.
    """
    writer = MemoryWriter()
    _Points(predictor, memory_reader(predictor, X, Y), _DEFAULT_SPLIT).write(writer, lambda *_: None)
    return writer.split(_DEFAULT_SPLIT)


class _Points:
    """Points of one reader, converted to the model's features and classes."""

    def __init__(
        self, predictor: Predictor, reader: PointReader, name: str, *, shift: int = 0, keep_empty: bool = False
    ) -> None:
        """``shift`` is subtracted from every feature number."""
        self.name, self.keep_empty = name, keep_empty
        self.classes, self.plan = ClassIndex(predictor.classes.keys), _plan(predictor, shift)
        self._features, self._reader = predictor.features, reader

    def write(self, writer: DatasetWriter, progress: Progress) -> WrittenSplit:
        """Raises DataError if features or labels do not match the model."""
        dense_width = self._reader.num_features if self._reader.kind == "dense" else None
        raw = RawSplit(self.name, writer, dense_width=dense_width)
        try:
            raw.read(self._reader, self.classes, _token_counter(self._features), None, progress)
        finally:
            raw.abandon()
        _check_features(raw, self._reader, self.plan)
        no_counts = np.zeros(len(self.classes), np.int64)
        written = write_split(writer, raw, self.plan, self.classes, keep_empty=self.keep_empty, class_counts=no_counts)
        _check_labels(written, self._reader)
        return written


def _plan(predictor: Predictor, shift: int) -> FeaturePlan:
    """Treats a row as the conversion of the training data did."""
    shape, features = predictor.dense.shape, predictor.features
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
    text = features.weighting["text"]
    tokens = None if features.vocabulary is None else list(features.vocabulary)
    counter = TokenCounter(TokenOptions(text["ngrams"], text["hash_bits"]), tokens)
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
