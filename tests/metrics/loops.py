"""Every metric once more, as loops over Python floats; and random cases.

A list is a Python list of ids with -1 for an empty place; labels are sets. None is shared with the library.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

import numpy as np
from hypothesis import strategies as st

NUM_CLASSES = 12


@dataclass
class Case:
    lists: list[list[int]]
    labels: list[set[int]]
    weights: list[float]
    class_counts: list[int]

    @property
    def ranked_ids(self) -> np.ndarray:
        width = max((len(ranked) for ranked in self.lists), default=0)
        rows = [ranked + [-1] * (width - len(ranked)) for ranked in self.lists]
        return np.array(rows, np.int64).reshape(len(rows), width)

    @property
    def label_lists(self) -> list[list[int]]:
        return [list(row) for row in self.labels]

    def rows(self, order: list[int]) -> Case:
        return Case([self.lists[i] for i in order], [self.labels[i] for i in order], self.weights, self.class_counts)


@st.composite
def cases(draw: st.DrawFn, *, unique: bool = False, max_rows: int = 6, max_places: int = 7) -> Case:
    """Short lists of few classes, so that hits, repeats, empty places and empty rows are all common."""
    lowest = 0 if unique else -1
    one_list = st.lists(st.integers(lowest, NUM_CLASSES - 1), max_size=max_places, unique=unique)
    one_set = st.sets(st.integers(0, NUM_CLASSES - 1), max_size=5)
    num_rows = draw(st.integers(1, max_rows))
    return Case(
        draw(st.lists(one_list, min_size=num_rows, max_size=num_rows)),
        draw(st.lists(one_set, min_size=num_rows, max_size=num_rows)),
        draw(st.lists(st.floats(1.0, 50.0), min_size=NUM_CLASSES, max_size=NUM_CLASSES)),
        draw(st.lists(st.integers(0, 200), min_size=NUM_CLASSES, max_size=NUM_CLASSES)),
    )


def hit_flags(ranked: list[int], labels: set[int], k: int) -> list[bool]:
    flags, met = [], set()
    for class_id in ranked[:k]:
        flags.append(class_id in labels and class_id not in met)
        met.add(class_id)
    return flags


def precision(case: Case, k: int) -> float:
    total = 0.0
    for ranked, labels in zip(case.lists, case.labels, strict=True):
        total += sum(hit_flags(ranked, labels, k)) / k
    return total / len(case.lists)


def recall(case: Case, k: int) -> float:
    total = 0.0
    for ranked, labels in zip(case.lists, case.labels, strict=True):
        if labels:
            total += sum(hit_flags(ranked, labels, k)) / len(labels)
    return total / len(case.lists)


def ideal_gain(num_labels: int, k: int) -> float:
    return sum(1.0 / log2(1 + rank) for rank in range(1, min(k, num_labels) + 1))


def ndcg(case: Case, k: int) -> float:
    total = 0.0
    for ranked, labels in zip(case.lists, case.labels, strict=True):
        if labels:
            flags = hit_flags(ranked, labels, k)
            gain = sum(1.0 / log2(1 + rank) for rank, hit in enumerate(flags, 1) if hit)
            total += gain / ideal_gain(len(labels), k)
    return total / len(case.lists)


def psp(case: Case, k: int) -> float:
    got = best = 0.0
    for ranked, labels in zip(case.lists, case.labels, strict=True):
        flags = hit_flags(ranked, labels, k)
        got += sum(case.weights[c] for c, hit in zip(ranked, flags, strict=False) if hit) / k
        best += sum(sorted((case.weights[c] for c in labels), reverse=True)[:k]) / k
    return got / best if best else 0.0


def psndcg(case: Case, k: int) -> float:
    got = best = 0.0
    for ranked, labels in zip(case.lists, case.labels, strict=True):
        if not labels:
            continue
        norm = ideal_gain(len(labels), k)
        for rank, (class_id, hit) in enumerate(zip(ranked, hit_flags(ranked, labels, k), strict=False), 1):
            got += case.weights[class_id] / log2(1 + rank) / norm if hit else 0.0
        falling = sorted((case.weights[c] for c in labels), reverse=True)[:k]
        best += sum(weight / log2(1 + rank) for rank, weight in enumerate(falling, 1)) / norm
    return got / best if best else 0.0


def coverage(case: Case, k: int) -> float:
    met, known = set(), set()
    for ranked, labels in zip(case.lists, case.labels, strict=True):
        met |= set(ranked[:k]) & labels
        known |= labels
    return len(met) / len(known) if known else 0.0


def bin_recall(case: Case, k: int, in_bin: set[int]) -> float:
    ratios = []
    for ranked, labels in zip(case.lists, case.labels, strict=True):
        wanted = labels & in_bin
        if wanted:
            ratios.append(len(set(ranked[:k]) & wanted) / len(wanted))
    return sum(ratios) / len(ratios) if ratios else float("nan")


def bin_precision(case: Case, k: int, in_bin: set[int]) -> float:
    total = 0.0
    for ranked, labels in zip(case.lists, case.labels, strict=True):
        total += len(set(ranked[:k]) & labels & in_bin) / k
    return total / len(case.lists)
