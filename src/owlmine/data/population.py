"""Decides which points and labels count, once, when a store is written.

A label of a class that is not in train is dropped. A point that has lost all its labels in this way is dropped too, and
so is a text without any known token. A point that came without labels, or a sparse row that came without features,
stays, and counts as 0 in every metric, as is usual in the field.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.class_keys import ClassKeys
from owlmine.data.features import FeaturePlan
from owlmine.data.ingest import RawSplit, Strings
from owlmine.data.rows import Int64, SparseRows
from owlmine.data.store_writer import DatasetWriter, StringsWriter

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class WrittenSplit:
    counts: dict[str, Any]
    """For ``meta.json``."""
    removed: Int64
    """Ascending numbers of the points that the store leaves out: they are few."""

    def new_rows(self, rows: Int64) -> Int64:
        """Rows of the files to rows of the store; -1 for points that were left out."""
        before = np.searchsorted(self.removed, rows)
        gone = np.isin(rows, self.removed)
        return np.where(gone, -1, rows - before)


def write_split(
    writer: DatasetWriter,
    raw: RawSplit,
    plan: FeaturePlan,
    classes: ClassKeys,
    *,
    keep_empty: bool,
    class_counts: Int64,
) -> WrittenSplit:
    """Writes one split, and counts the labels of train into ``class_counts``."""
    out = _SplitWriter(writer, raw, plan)
    tally: Counter[str] = Counter(emptied_of_labels=0, emptied_of_features=0, without_label=0, unseen_labels_dropped=0)
    removed: list[Int64] = []
    read = row = 0
    for piece in raw.pieces():
        raw_queries, raw_labels = piece.queries, piece.labels
        labels = _final_labels(raw_labels, classes)
        tally["unseen_labels_dropped"] += len(raw_labels.indices) - len(labels.indices)
        queries = plan.apply(raw_queries) if isinstance(raw_queries, SparseRows) else raw_queries
        points = np.ones(len(labels), np.bool_)
        points[raw.notes.stray_rows.within(row, row + len(labels))] = False
        row += len(labels)
        emptied = points & (raw_labels.counts > 0) & (labels.counts == 0)
        featureless = points & ~emptied & _lost_features(raw_queries, queries, plan)
        keep = points if keep_empty else points & ~emptied & ~featureless
        labels = labels.take(np.flatnonzero(keep))
        out.append(queries, keep, labels)
        out.append_strings(piece.strings, keep)
        if raw.name == "train":
            np.add.at(class_counts, labels.indices, 1)
        removed.append(read + np.flatnonzero(~keep[points]))
        read += int(points.sum())
        tally["emptied_of_labels"] += int(emptied.sum())
        tally["emptied_of_features"] += int(featureless.sum())
        tally["without_label"] += int((labels.counts == 0).sum())
    left_out = np.concatenate([np.zeros(0, np.int64), *removed])
    if raw.name == "train" and len(left_out):
        # With these, a row of the store is known as a row of the files.
        writer.whole_array(f"{raw.name}.left_out", left_out)
    counts = {
        "points": out.labels.num_rows,
        "points_read": read,
        **tally,
        **out.sizes,
        "accepted": dict(raw.notes.counts),
    }
    return WrittenSplit(counts, left_out)


class _SplitWriter:
    """The arrays of one split."""

    def __init__(self, writer: DatasetWriter, raw: RawSplit, plan: FeaturePlan) -> None:
        dense, name = plan.queries == "dense", raw.name
        self.labels = writer.sparse(f"{name}.labels", with_values=raw.weighted)
        self._vectors = writer.array(f"{name}.queries", np.float32, (plan.num_features,)) if dense else None
        self._features = None if dense else writer.sparse(f"{name}.features", with_values=True)
        self._strings = {what: StringsWriter(writer, f"{name}.{what}") for what in raw.strings}

    def append(self, queries: SparseRows | NDArray[np.float32], keep: Mask, labels: SparseRows) -> None:
        """The ``queries`` marked in ``keep``, with their labels."""
        self.labels.append(labels)
        if isinstance(queries, SparseRows):
            assert self._features is not None
            self._features.append(queries.take(np.flatnonzero(keep)))
        else:
            assert self._vectors is not None
            self._vectors.append(queries[keep])

    def append_strings(self, strings: Strings, keep: Mask) -> None:
        """The ids and texts of the points marked in ``keep``."""
        for what, (data, lengths) in strings.items():
            self._strings[what].append(data[np.repeat(keep, lengths)], lengths[keep])

    @property
    def sizes(self) -> dict[str, int]:
        features = 0 if self._features is None else self._features.num_entries
        return {"labels": self.labels.num_entries, "feature_entries": features}


def _final_labels(raw: SparseRows, classes: ClassKeys) -> SparseRows:
    ids = classes.final_of_raw(raw.indices)
    return SparseRows(raw.offsets, ids, raw.values).select(ids >= 0)


def _lost_features(
    raw: SparseRows | NDArray[np.float32], final: SparseRows | NDArray[np.float32], plan: FeaturePlan
) -> Mask:
    """The rows that had features, or text, and have no feature left."""
    if not isinstance(raw, SparseRows) or not isinstance(final, SparseRows):
        return np.zeros(len(raw), np.bool_)
    lost: Mask = (final.counts == 0) & ((raw.counts > 0) | plan.from_text)
    return lost
