"""From files to a store: read every split into scratch arrays, decide which points and labels count and how features
are weighted, write the store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from owlmine.data.class_keys import ClassKeys, NumberCounts, class_keys
from owlmine.data.companions import write_class_features, write_class_names, write_filter
from owlmine.data.features import FeaturePlan, plan_features
from owlmine.data.formats.block import joined_classes
from owlmine.data.ingest import IDS, TEXTS, Progress, RawSplit
from owlmine.data.options import ConvertOptions
from owlmine.data.population import write_split
from owlmine.data.sources import Source, find_source, memory_source
from owlmine.data.store import Store
from owlmine.data.store_writer import DatasetWriter, StoreWriter
from owlmine.data.text import TokenCounter
from owlmine.errors import DataError
from owlmine.version import __version__


def convert(
    source: str | Path | Mapping[str, Any],
    out: str | Path,
    options: ConvertOptions | None = None,
    *,
    progress: Progress | None = None,
) -> Store:
    """Turns files, or splits in memory, into a store at ``out``.

    ``source`` is a file, a folder, or ``{"train": (queries, labels), "test": ...}`` with SciPy CSR matrices, dense
    arrays or texts as queries and CSR matrices, indicator arrays or lists as labels; a pandas data frame may take the
    place of the pair. Leaves either a complete store at ``out`` or nothing.
    """
    options = options or ConvertOptions()
    if isinstance(source, Mapping):
        found = memory_source(source, options.columns)
    else:
        found = find_source(
            Path(source), format=options.format, columns=options.columns, split_column=options.split_column
        )
    with StoreWriter(out) as writer:
        return writer.finish(write_dataset(found, writer, options, progress=progress))


def write_dataset(
    source: Source, writer: DatasetWriter, options: ConvertOptions, *, progress: Progress | None = None
) -> dict[str, Any]:
    """Writes all arrays, and returns the other fields of ``meta.json``."""
    _check_alike(source)
    train = source.splits["train"]
    keeps = (IDS, TEXTS) if options.keep_texts else (IDS,)
    if options.keep_texts and train.kind != "text":
        raise DataError(train.source, found=f"{train.kind} queries", wanted="texts for --keep-texts")
    classes = class_keys(train.num_classes)
    counter = TokenCounter(options.tokens) if train.kind == "text" else None
    counts = NumberCounts()
    raw: dict[str, RawSplit] = {}
    try:
        for name, reader in source.splits.items():
            width = reader.num_features if reader.kind == "dense" else None
            raw[name] = RawSplit(name, writer, dense_width=width, keeps=keeps if name == "train" else ())
            counts_of_train = counts if name == "train" else None
            raw[name].read(reader, classes, counter, counts_of_train, progress or (lambda *_: None))
            if counter is not None:
                counter.frozen = True
    finally:
        for split in raw.values():
            split.abandon()
    notes = raw["train"].notes
    if notes.label_separator is not None:
        for name, count in joined_classes(set(classes.keys()), notes.label_separator).items():
            notes.tally(f"classes_with_{name}", count)
    plan = plan_features(train, list(raw.values()), counter, counts, options)
    if not len(classes):
        raise DataError(train.source, found="no labels", wanted="at least one labelled training point")
    return _write_final(source, writer, options, raw, plan, classes)


def _write_final(
    source: Source,
    writer: DatasetWriter,
    options: ConvertOptions,
    raw: Mapping[str, RawSplit],
    plan: FeaturePlan,
    classes: ClassKeys,
) -> dict[str, Any]:
    num_classes = len(classes)
    class_counts = np.zeros(num_classes, np.int64)
    splits: dict[str, Any] = {}
    for name, split in raw.items():
        written = write_split(
            writer,
            split,
            plan,
            classes,
            keep_empty=options.keep_empty and name != "train",
            class_counts=class_counts,
        )
        splits[name] = written.counts
        if name in source.filters:
            num_numbers = source.splits["train"].num_classes
            write_filter(writer, source.filters[name], name, written, classes, num_numbers)
    if not splits["train"]["points"]:
        raise DataError(
            source.splits["train"].source,
            found="no point with both a label and a feature",
            wanted="at least one",
        )
    writer.whole_array("classes.counts", class_counts)
    writer.strings("classes.keys", classes.keys())
    if source.class_names is not None:
        write_class_names(writer, source.class_names, classes, num_classes)
    if source.class_features is not None:
        write_class_features(writer, source.class_features, plan, classes, source.splits["train"])
    plan.write(writer)
    return {
        "written_by": f"owlmine {__version__}",
        "source": {"format": source.format, "files": sorted(file.name for file in source.files)},
        "queries": plan.queries,
        "features": plan.num_features,
        "classes": num_classes,
        "weighting": plan.weighting,
        "keep_empty": options.keep_empty,
        "splits": splits,
    }


def _check_alike(source: Source) -> None:
    """Raises DataError unless all splits have the same kind of query and the same stated sizes."""
    train = source.splits["train"]
    for reader in source.splits.values():
        for what in ("kind", "num_features", "num_classes"):
            found, wanted = getattr(reader, what), getattr(train, what)
            if found != wanted:
                raise DataError(
                    reader.source,
                    found=_in_words(what, found),
                    wanted=f"{_in_words(what, wanted)}, as in {train.source}",
                )


def _in_words(what: str, value: Any) -> str:
    if what == "kind":
        return f"{value} queries"
    return f"{value:,} {what.removeprefix('num_')}" if value is not None else f"no stated {what.removeprefix('num_')}"
