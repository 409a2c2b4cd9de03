"""Small random datasets, what a store must hold of them, and what a store does hold: all as plain Python values."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from owlmine.data import SparseRows, Store

Features = dict[int, float]
Splits = dict[str, list["Point"]]
Row = tuple[dict[str, float], dict[str, float] | list[float]]
"""Labels with weights, and features by number or token (or the dense vector)."""


@dataclass
class Point:
    labels: dict[str, float] = field(default_factory=dict)
    """Weights by class key."""
    features: Features = field(default_factory=dict)
    vector: list[float] = field(default_factory=list)
    text: str = ""


@dataclass(frozen=True)
class Dataset:
    kind: str
    splits: Splits
    num_features: int
    num_classes: int


def tokens_of(text: str) -> list[str]:
    """Runs of letters and digits, lower-cased; single ASCII characters are none."""
    runs = re.findall(r"[^\W_]+", text.lower())
    return [run for run in runs if len(run) > 1 or not run.isascii()]


def query_of(point: Point, kind: str, known: set[str]) -> dict[str, float] | list[float]:
    if kind == "dense":
        return point.vector
    if kind == "sparse":
        return {str(number): value for number, value in point.features.items() if value != 0}
    return dict(Counter(token for token in tokens_of(point.text) if token in known))


def expected_rows(data: Dataset, *, blank_is_stray: bool = False) -> dict[str, list[Row]]:
    """The population rules, point by point, for ``weighting="none"`` and every token of train kept."""
    seen = {key for point in data.splits["train"] for key in point.labels}
    known = {token for point in data.splits["train"] for token in tokens_of(point.text)}
    rows: dict[str, list[Row]] = {}
    for split, points in data.splits.items():
        rows[split] = []
        for point in points:
            labels = {key: weight for key, weight in point.labels.items() if key in seen}
            query = query_of(point, data.kind, known)
            if point.labels and not labels:
                continue
            if not query and (data.kind == "text" or (data.kind == "sparse" and point.features)):
                continue
            if blank_is_stray and not point.labels and not point.features:
                continue
            rows[split].append((labels, query))
    return rows


def stored_rows(store: Store) -> dict[str, list[Row]]:
    """Everything a store holds, by class key and by feature number or token."""
    keys = list(store.class_keys)
    names = [str(n) for n in range(store.num_features)] if store.vocabulary is None else list(store.vocabulary)
    rows: dict[str, list[Row]] = {}
    for split in store.splits:
        batch = store[split].batch(np.arange(len(store[split])))
        rows[split] = []
        for row in range(len(batch)):
            query: dict[str, float] | list[float]
            if isinstance(batch.queries, SparseRows):
                query = entries(batch.queries[row : row + 1], names)
            else:
                query = batch.queries[row].tolist()
            rows[split].append((entries(batch.labels[row : row + 1], keys), query))
    return rows


def entries(row: SparseRows, names: list[str]) -> dict[str, float]:
    values = [1.0] * len(row.indices) if row.values is None else row.values.tolist()
    found = {names[index]: value for index, value in zip(row.indices.tolist(), values, strict=True)}
    assert len(found) == len(row.indices)
    return found


def numeric_order(keys: set[str]) -> list[str]:
    return sorted(keys, key=int)


def float32s(minimum: float, maximum: float) -> st.SearchStrategy[float]:
    return st.floats(minimum, maximum, width=32, allow_nan=False, allow_subnormal=False)


VALUES = float32s(-1024, 1024) | st.sampled_from([0.0, 1.0, 0.5, 2.0**-100, float(np.finfo(np.float32).max)])
WEIGHTS = float32s(2.0**-10, 1024)
TEXTS = st.lists(
    st.sampled_from(
        ["owl", "Owl", "mine", "ärger", "日", "x", "7", "42", "snow_owl", "İ", "ß", "\t", "'", '"', ",", "[", "~"]
    ),
    max_size=6,
).map(" ".join)
NAMES = st.sampled_from(["a", "b", "c d", "ü", "comma, here", "line\nbreak", '"quoted"', "[x]", "x;y", "12", "-3"])


@st.composite
def datasets(draw: st.DrawFn, kind: str, *, named: bool, weighted: bool) -> Dataset:
    num_features, num_classes = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    keys = NAMES if named else st.integers(0, num_classes - 1).map(str)
    weights = WEIGHTS if weighted and draw(st.booleans()) else st.just(1.0)
    points = st.builds(
        Point,
        st.dictionaries(keys, weights, max_size=3),
        st.dictionaries(st.integers(0, num_features - 1), VALUES, max_size=4) if kind == "sparse" else st.just({}),
        st.lists(VALUES, min_size=num_features, max_size=num_features) if kind == "dense" else st.just([]),
        TEXTS if kind == "text" else st.just(""),
    )
    first = Point({draw(keys): draw(weights)}, {0: 1.0}, [1.0] * num_features, "first owl")
    splits = {"train": [first, *draw(st.lists(points, max_size=5))]}
    for split in ("dev", "test"):
        if draw(st.booleans()):
            splits[split] = draw(st.lists(points, min_size=1, max_size=4))
    return Dataset(kind, splits, num_features, num_classes)
