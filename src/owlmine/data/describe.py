"""The description of a dataset: its row of the paper's Table 1, the tail of its classes, and a picture."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from owlmine.data.formats.block import SEPARATOR_NAMES
from owlmine.data.store import Dataset, Store
from owlmine.pictures import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Bands of classes by their number of training points.
_BANDS = ((0, 0), (1, 1), (2, 9), (10, 99), (100, 999), (1000, None))


def describe(store: Store) -> dict[str, Any]:
    """Sizes and tail as plain numbers. ``points_per_class`` is label entries of train over classes, as in Table 1."""
    splits = store.meta["splits"]
    entries = splits["train"]["labels"]
    counts = np.sort(np.asarray(store.class_counts))[::-1]
    return {
        "features": store.num_features,
        "classes": store.num_classes,
        "train_points": splits["train"]["points"],
        "test_points": splits["test"]["points"] if "test" in splits else 0,
        **({"dev_points": splits["dev"]["points"]} if "dev" in splits else {}),
        "points_per_class": entries / store.num_classes,
        "classes_per_point": entries / splits["train"]["points"],
        "features_per_point": (
            splits["train"]["feature_entries"] / splits["train"]["points"]
            if store.meta["queries"] == "sparse"
            else store.num_features
        ),
        "queries": store.meta["queries"],
        "weighting": store.meta["weighting"]["kind"],
        "classes_with_a_training_point": int((counts > 0).sum()),
        "largest_class": int(counts[0]),
        "median_class": float(np.median(counts)),
        "label_share_of_top_percent": float(counts[: max(len(counts) // 100, 1)].sum() / max(entries, 1)),
        "classes_by_training_points": {
            _band_name(low, high): int(((counts >= low) & (counts <= (high if high is not None else counts[0]))).sum())
            for low, high in _BANDS
        },
    }


_NOTES = {
    "crlf_lines": "lines ended with CR LF",
    "blank_lines": "blank lines were skipped",
    "blank_points": "blank lines were read as points without label and feature, as the header counts them",
    "duplicate_labels": "labels were repeated within a point and count once",
    # In stores of earlier releases.
    "label_cells_with_comma": "label cells contain commas; if these separate labels, read the files with"
    " --label-separator ','",
} | {
    f"classes_with_{name}": f"classes contain a {name}, as if labels had been joined; if it separates labels, read the"
    f" files with --label-separator {mark!r}"
    for mark, name in SEPARATOR_NAMES.items()
}


def conversion_notes(store: Dataset, splits: Collection[str] = ("train", "dev", "test")) -> list[str]:
    """What a conversion left out of these splits, and its warnings, one line each."""
    notes: list[str] = []
    for name, split in store.meta["splits"].items():
        if name not in splits:
            continue
        kept_empty = store.meta["keep_empty"] and name != "train"
        notes += [f"{name}: {note}." for note in _split_notes(name, split, kept_empty=kept_empty)]
    return notes


def _split_notes(name: str, split: dict[str, Any], *, kept_empty: bool) -> Iterator[str]:
    no_labels, no_features = split["emptied_of_labels"], split["emptied_of_features"]
    if emptied := no_labels + no_features:
        parts = [
            f"{no_labels:,} points lost all labels (none occurs in train)" if no_labels else "",
            f"{no_features:,} points lost all features" if no_features else "",
        ]
        lost = " and ".join(filter(None, parts))
        if kept_empty:
            yield f"{lost}; they are kept and count as 0 ({split['points'] - emptied:,} points without them)"
        elif name != "train":
            yield f"{lost}; they are left out (--keep-empty keeps them, and counts them as 0)"
        else:
            yield f"{lost}; they are left out"
    if without := split["without_label"] - (no_labels if kept_empty else 0):
        fate = "training skips them" if name == "train" else "they count as 0 in every metric"
        yield f"{without:,} points came without labels; {fate}"
    for what, count in split["accepted"].items():
        yield f"{count:,} {_NOTES.get(what, what)}"


def plot_description(store: Store, path: str | Path) -> None:
    """Draws training points per class in order of size, and labels per training point."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_classes(left, np.sort(np.asarray(store.class_counts))[::-1])
    _draw_labels(right, np.diff(store["train"].labels.offsets))
    save_picture(figure, path, dpi=150)


def _draw_classes(axes: Axes, counts: np.ndarray[Any, Any]) -> None:
    counts = counts[counts > 0]
    # A log-spaced choice of ranks draws the same line as ten million points would.
    ranks = np.unique(np.geomspace(1, len(counts), 2000).astype(np.int64))
    axes.loglog(ranks, counts[ranks - 1], color="#1f4e79", linewidth=2)
    axes.fill_between(ranks, 0.8, counts[ranks - 1], color="#1f4e79", alpha=0.12)
    for level in (10, 100):
        rank = int((counts >= level).sum())
        if 0 < rank < len(counts):
            axes.plot([1, rank, rank], [level, level, 0.8], color="#b3541e", linewidth=0.9, linestyle="--")
            note = f"{rank:,} classes have {level} or more"
            axes.annotate(note, (1, level), xytext=(6, 4), textcoords="offset points", fontsize=8, color="#b3541e")
    axes.set(title="The tail", xlabel="class, by size", ylabel="training points", ylim=(0.8, None), xlim=(1, None))


def _draw_labels(axes: Axes, labels_per_point: np.ndarray[Any, Any]) -> None:
    last = max(int(np.quantile(labels_per_point, 0.995)), 1)
    shares = np.bincount(np.minimum(labels_per_point, last)) / len(labels_per_point) * 100
    axes.bar(np.arange(len(shares)), shares, color="#1f4e79", alpha=0.85)
    axes.set(
        title=f"Labels per point (mean {labels_per_point.mean():.2f})",
        xlabel=f"labels ({last}: {last} or more)",
        ylabel="training points, %",
    )


def _band_name(low: int, high: int | None) -> str:
    if high is None:
        return f"{low}+"
    return str(low) if low == high else f"{low}-{high}"
