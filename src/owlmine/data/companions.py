"""Files that accompany the splits of a dataset: class names, class features, and pairs to leave out of scoring."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from owlmine.data.class_keys import ClassKeys
from owlmine.data.features import FeaturePlan
from owlmine.data.formats.array_files import NpzMatrix
from owlmine.data.formats.block import Notes, PointReader
from owlmine.data.formats.sparse_files import MatrixFile
from owlmine.data.ingest import holds_counts
from owlmine.data.population import WrittenSplit
from owlmine.data.rows import SparseRows
from owlmine.data.store_writer import DatasetWriter
from owlmine.data.streams import plain_name, text_lines
from owlmine.errors import DataError, excerpt

_NO_BOUND = 2**31
# Python refuses to read thousands of digits as a number; no point or class needs more than these.
_NUMBER = re.compile(r"[0-9]{1,18}")


def write_class_names(
    writer: DatasetWriter, source: Path | Mapping[str, str], classes: ClassKeys, num_classes: int
) -> None:
    """Stores the name of each class; a class without one keeps its key. ``source``: a file, or names by key."""
    names = dict.fromkeys(classes.keys(), "")
    for key, name in _named(source) if isinstance(source, Path) else source.items():
        if key in names:
            names[key] = name
    assert len(names) == num_classes
    writer.strings("classes.names", (name or key for key, name in names.items()))


def _named(path: Path) -> Iterator[tuple[str, str]]:
    """Keys and names: ``key<TAB>name`` lines, JSON objects with a title, or one name per class in order."""
    kind = plain_name(path).lower()
    for number, line, _ in text_lines(path):
        if not line.strip():
            if kind == "labels.tsv":
                continue
            yield str(number - 1), ""
        elif kind == "labels.tsv":
            key, tab, name = line.partition("\t")
            if not tab or not key:
                raise DataError(path, line=number, found=excerpt(line), wanted="a label, a tab and its name")
            yield key, name.strip()
        elif kind.startswith("lbl."):
            yield str(number - 1), _title(path, line, number)
        else:
            yield str(number - 1), line.strip()


def _title(path: Path, line: str, number: int) -> str:
    try:
        title = json.loads(line)["title"]
        title.encode()  # a lone surrogate is not text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataError(path, line=number, found=excerpt(line), wanted="a JSON object with a title") from None
    return str(title).strip()


def write_class_features(
    writer: DatasetWriter, path: Path, plan: FeaturePlan, classes: ClassKeys, train: PointReader
) -> None:
    """Stores the features of every class of the store, weighted like the queries if both have the same features."""
    matrix = NpzMatrix(path) if plain_name(path).lower().endswith(".npz") else MatrixFile.open(path)
    if train.num_classes is not None and matrix.num_rows != train.num_classes:
        raise DataError(path, found=f"{matrix.num_rows:,} rows", wanted=f"{train.num_classes:,}, one per class")
    shared = not plan.from_text and matrix.num_columns == plan.num_features
    out = writer.sparse("classes.features", with_values=True)
    row = 0
    for part, _ in matrix.parts(Notes()):
        chosen = np.flatnonzero(classes.final_of_numbers(np.arange(row, row + len(part))) >= 0)
        rows = SparseRows(part.offsets, part.indices.astype(np.int64), part.values).take(chosen)
        if shared and plan.tfidf is not None and not holds_counts(rows):
            raise DataError(
                path,
                found=f"values that are not whole counts in rows {row} to {row + len(part) - 1}",
                wanted="counts, as the queries have (or --weighting none)",
            )
        row += len(part)
        out.append(plan.apply(rows) if shared else rows)
    if missing := len(classes) - out.num_rows:
        raise DataError(path, found=f"no row for {missing:,} classes", wanted="a row for every class number of train")


def write_filter(
    writer: DatasetWriter, path: Path, split: str, written: WrittenSplit, classes: ClassKeys, num_classes: int | None
) -> None:
    """Stores the pairs (row, class) to leave out of evaluation, by the store's numbers, except those of dropped points.

    ``num_classes`` bounds the class numbers if the dataset states it.
    """
    points, numbers = array("q"), array("q")
    num_points = written.counts["points_read"]
    class_bound = _NO_BOUND if num_classes is None else num_classes
    for number, line, _ in text_lines(path):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or not all(_NUMBER.fullmatch(field) for field in fields):
            raise DataError(path, line=number, found=excerpt(line), wanted="two numbers: point and class")
        point, label = map(int, fields)
        if point >= num_points or label >= class_bound:
            raise DataError(
                path,
                line=number,
                found=excerpt(line),
                wanted=f"a point below {num_points:,} and a class below {class_bound:,}",
            )
        points.append(point)
        numbers.append(label)
    new_rows = written.new_rows(np.array(points, np.int64))
    pairs = np.stack([new_rows, classes.final_of_numbers(np.array(numbers, np.int64))], 1)
    pairs = pairs[(pairs >= 0).all(axis=1)]
    writer.whole_array(f"{split}.filter", pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])
