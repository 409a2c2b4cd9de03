"""Which points and labels count, decided once and for all when a store is written.

A label of a class that train never saw is dropped. A point that this leaves without a label is dropped too, and so is
a text that has no known token. A point that came without labels, or a sparse row that came without features, is kept:
nothing was taken from it, and it counts as 0 in every metric, as the field has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.features import FeaturePlan
from owlmine.data.ingest import RawSplit
from owlmine.data.rows import Int64, SparseRows
from owlmine.data.store_writer import StoreWriter


@dataclass(frozen=True)
class WrittenSplit:
    counts: dict[str, Any]
    """For ``meta.json``."""
    new_rows: Int64
    """By row of the files: its row in the store, or -1."""


def write_split(
    writer: StoreWriter,
    raw: RawSplit,
    plan: FeaturePlan,
    final_ids: Int64,
    *,
    keep_empty: bool,
    class_counts: Int64,
) -> WrittenSplit:
    """Writes one split. Labels of classes that train lacks are dropped, then points left without label or feature."""
    labels_out = writer.sparse(f"{raw.name}.labels", with_values=raw.weighted)
    dense = plan.queries == "dense"
    vectors_out = writer.array(f"{raw.name}.queries", np.float32, (plan.num_features,)) if dense else None
    features_out = None if dense else writer.sparse(f"{raw.name}.features", with_values=True)
    stray = np.zeros(raw.num_rows, np.bool_)
    stray[raw.notes.stray_rows] = True
    kept_rows: list[NDArray[np.bool_]] = []
    lost_labels = lost_features = unlabelled = dropped_labels = row = 0
    for raw_queries, raw_labels in raw.pieces():
        labels = _final_labels(raw_labels, final_ids)
        dropped_labels += len(raw_labels.indices) - len(labels.indices)
        points = ~stray[row : row + len(labels)]
        row += len(labels)
        emptied = points & (raw_labels.counts > 0) & (labels.counts == 0)
        featureless = np.zeros(len(labels), np.bool_)
        queries = raw_queries
        if isinstance(raw_queries, SparseRows):
            queries = plan.apply(raw_queries)
            featureless = points & ~emptied & (queries.counts == 0) & ((raw_queries.counts > 0) | plan.from_text)
        lost_labels += int(emptied.sum())
        lost_features += int(featureless.sum())
        keep = points if keep_empty else points & ~emptied & ~featureless
        chosen = np.flatnonzero(keep)
        labels = labels.take(chosen)
        unlabelled += int((labels.counts == 0).sum())
        labels_out.append(labels)
        if features_out is not None:
            assert isinstance(queries, SparseRows)
            features_out.append(queries.take(chosen))
        elif vectors_out is not None:
            assert isinstance(queries, np.ndarray)
            vectors_out.append(queries[chosen])
        if raw.name == "train":
            class_counts += np.bincount(labels.indices, minlength=len(class_counts))
        kept_rows.append(keep)
    kept = np.concatenate(kept_rows) if kept_rows else np.zeros(0, np.bool_)
    new_rows = np.where(kept, np.cumsum(kept) - 1, -1)[~stray]
    counts = {
        "points": int(kept.sum()),
        "points_read": int((~stray).sum()),
        "emptied_of_labels": lost_labels,
        "emptied_of_features": lost_features,
        "without_label": unlabelled,
        "labels": labels_out.num_entries,
        "unseen_labels_dropped": dropped_labels,
        "feature_entries": 0 if features_out is None else features_out.num_entries,
        "accepted": dict(raw.notes.counts),
    }
    return WrittenSplit(counts, new_rows)


def _final_labels(raw: SparseRows, final_ids: Int64) -> SparseRows:
    ids = np.where(raw.indices >= 0, final_ids[raw.indices], -1)
    return SparseRows(raw.offsets, ids, raw.values).select(ids >= 0)
