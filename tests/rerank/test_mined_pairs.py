"""Pairs to learn from, against a loop over points and places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.rank import MinedPairs


def label_rows(labels: list[list[int]]) -> SparseRows:
    counts = np.array([len(row) for row in labels], np.int64)
    return SparseRows(offsets_from_counts(counts), np.array([one for row in labels for one in row], np.int32), None)


def expected_pairs(ranked: list[list[int]], labels: list[list[int]], num_classes: int) -> list[list[tuple[int, int]]]:
    pairs: list[dict[int, int]] = [{} for _ in range(num_classes)]
    for point, (places, own) in enumerate(zip(ranked, labels, strict=True)):
        for class_id in places:
            if class_id >= 0:
                pairs[class_id][point] = -1
        for class_id in own:
            pairs[class_id][point] = 1
    return [sorted(of_class.items()) for of_class in pairs]


@settings(max_examples=150, deadline=None)
@given(data=st.data(), num_classes=st.integers(1, 9), num_points=st.integers(0, 8), width=st.integers(0, 6))
def test_pairs_against_a_loop(data: st.DataObject, num_classes: int, num_points: int, width: int) -> None:
    shortlist = st.lists(st.integers(-2, num_classes - 1), min_size=width, max_size=width)
    own = st.lists(st.integers(0, num_classes - 1), max_size=4)
    ranked = data.draw(st.lists(shortlist, min_size=num_points, max_size=num_points))
    labels = data.draw(st.lists(own, min_size=num_points, max_size=num_points))
    dtype = data.draw(st.sampled_from([np.int64, np.int32]))
    ranked_NS = np.array(ranked, dtype).reshape(num_points, width)
    pairs = MinedPairs.of(ranked_NS, label_rows(labels), num_classes=num_classes)
    found = [
        list(zip(pairs.points[start:stop].tolist(), pairs.targets[start:stop].tolist(), strict=True))
        for start, stop in zip(pairs.offsets_K1[:-1], pairs.offsets_K1[1:], strict=True)
    ]
    assert found == expected_pairs(ranked, labels, num_classes)
    assert (pairs.num_classes, len(pairs)) == (num_classes, sum(map(len, found)))
    assert (pairs.offsets_K1.dtype, pairs.points.dtype, pairs.targets.dtype) == (np.int64, np.int32, np.int8)


def test_a_label_outside_the_shortlist_counts_and_one_inside_is_no_mistake() -> None:
    pairs = MinedPairs.of(np.array([[2, 1, -1], [1, 2, 2]]), label_rows([[0, 2], [2]]), num_classes=4)
    assert pairs.offsets_K1.tolist() == [0, 1, 3, 5, 5]
    assert pairs.points.tolist() == [0, 0, 1, 0, 1]
    assert pairs.targets.tolist() == [1, -1, -1, 1, 1]


def test_numbers_past_32_bits() -> None:
    """Class times point does not fit 32 bits, even where both came in 32."""
    num_points, num_classes = 70_000, 2_000_000_000
    labels = SparseRows(np.arange(num_points + 1), np.full(num_points, 0, np.int32), None)
    ranked = np.full((num_points, 1), -1, np.int32)
    ranked[-1] = 99_999
    pairs = MinedPairs.of(ranked, labels, num_classes=100_000)
    assert (pairs.points[-1], pairs.targets[-1], pairs.offsets_K1[99_999]) == (num_points - 1, -1, num_points)
    with pytest.raises(ValueError, match="below 2\\^62"):
        MinedPairs.of(ranked, labels, num_classes=num_classes**2)


@pytest.mark.parametrize(
    ("ranked", "labels", "num_classes", "message"),
    [
        (np.array([[0, 3]]), [[0]], 3, "shortlists hold ids from 0 to 3; wanted ids below 3"),
        (np.array([[0, 1]]), [[3]], 3, "labels hold ids from 3 to 3"),
        (np.array([[0, 1]]), [[-1]], 3, "labels hold ids from -1 to -1"),
        (np.array([[0, 1]]), [[0], [1]], 3, "labels for 2 points; wanted 1"),
        (np.array([0, 1]), [[0], [1]], 3, r"the shape \(2,\)"),
        (np.array([[0.0, 1.0]]), [[0]], 3, "in float64"),
        (np.array([[0]]), [[0]], -1, "-1 classes"),
    ],
)
def test_bad_inputs(ranked: np.ndarray, labels: list[list[int]], num_classes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MinedPairs.of(ranked, label_rows(labels), num_classes=num_classes)
