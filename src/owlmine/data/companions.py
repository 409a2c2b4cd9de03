"""What lies beside the splits of a dataset: class names, class features, and pairs to leave out of scoring."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from owlmine.data.class_keys import ClassKeys
from owlmine.data.features import FeaturePlan
from owlmine.data.formats.array_files import NpzMatrix
from owlmine.data.formats.block import Notes
from owlmine.data.formats.sparse_files import MatrixFile
from owlmine.data.rows import Int64, SparseRows
from owlmine.data.store_writer import StoreWriter
from owlmine.data.streams import plain_name, text_lines
from owlmine.errors import DataError, excerpt


def write_class_names(writer: StoreWriter, path: Path, classes: ClassKeys, num_classes: int) -> None:
    """Stores the name of each class; a class without one keeps its key."""
    names = dict.fromkeys(classes.keys(), "")
    for key, name in _named(path):
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
            try:
                title = json.loads(line)["title"]
            except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
                raise DataError(path, line=number, found=excerpt(line), wanted="a JSON object with a title") from None
            yield str(number - 1), str(title).strip()
        else:
            yield str(number - 1), line.strip()


def write_class_features(writer: StoreWriter, path: Path, plan: FeaturePlan, final_ids: Int64) -> None:
    """Stores the features of every class of the store, weighted like the queries where they share their space."""
    matrix = NpzMatrix(path) if path.suffix == ".npz" else MatrixFile.open(path)
    if matrix.num_rows != len(final_ids):
        raise DataError(path, found=f"{matrix.num_rows:,} rows", wanted=f"{len(final_ids):,}, one per class")
    out = writer.sparse("classes.features", with_values=True)
    row = 0
    for part, _ in matrix.parts(Notes()):
        chosen = np.flatnonzero(final_ids[row : row + len(part)] >= 0)
        row += len(part)
        rows = SparseRows(part.offsets, part.indices.astype(np.int64), part.values).take(chosen)
        out.append(plan.apply(rows) if matrix.num_columns == plan.num_features else rows)


def write_filter(writer: StoreWriter, path: Path, split: str, new_rows: Int64, final_ids: Int64) -> None:
    """Stores the pairs (row, class) that scoring leaves out, in the store's numbers; pairs of dropped points vanish."""
    pairs: list[tuple[int, int]] = []
    for number, line, _ in text_lines(path):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or not all(field.isascii() and field.isdigit() for field in fields):
            raise DataError(path, line=number, found=excerpt(line), wanted="two numbers: point and class")
        row, label = map(int, fields)
        if row >= len(new_rows) or label >= len(final_ids):
            raise DataError(
                path,
                line=number,
                found=excerpt(line),
                wanted=f"a point below {len(new_rows):,} and a class below {len(final_ids):,}",
            )
        if new_rows[row] >= 0 and final_ids[label] >= 0:
            pairs.append((int(new_rows[row]), int(final_ids[label])))
    writer.whole_array(f"{split}.filter", np.array(sorted(pairs), np.int64).reshape(-1, 2))
