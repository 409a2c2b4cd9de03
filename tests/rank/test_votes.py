"""Votes of neighbours: compiled, in NumPy, and against a loop."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.data.rows import Int64, SparseRows, offsets_from_counts
from owlmine.rank.votes import (
    compiled_votes,
    most_voted,
    plain_most_voted,
    plain_votes,
    shares_of,
    votes_for,
)

compiled = pytest.mark.skipif(compiled_votes() is None, reason="not compiled")


def task(seed: int, num_queries: int, num_points: int, num_classes: int, count: int) -> Any:
    draw = np.random.default_rng(seed)
    sizes = draw.integers(0, 4, num_points)
    sets = [np.sort(draw.choice(num_classes, min(size, num_classes), replace=False)) for size in sizes]
    flat = np.concatenate([np.zeros(0, np.int64), *sets]).astype(np.int32)
    labels = SparseRows(offsets_from_counts(np.array([len(one) for one in sets])), flat, None)
    points_Nn = draw.integers(0, num_points, (num_queries, count))
    # Few different cosines, so that classes tie; some have none.
    cosines_Nn = (draw.integers(-1, 4, (num_queries, count)) / 4).astype(np.float32)
    return points_Nn, shares_of(cosines_Nn, 2.0), labels


def looped(points_Nn: Int64, shares_Nn: Any, labels: SparseRows) -> list[dict[int, float]]:
    rows = []
    for points, shares in zip(points_Nn, shares_Nn, strict=True):
        votes: dict[int, float] = defaultdict(float)
        for point, share in zip(points, shares, strict=True):
            for label in labels.indices[labels.offsets[point] : labels.offsets[point + 1]]:
                votes[int(label)] += float(share)
        rows.append(votes)
    return rows


sizes = {
    "seed": st.integers(0, 10**6),
    "num_queries": st.integers(0, 40),
    "num_points": st.integers(1, 60),
    "num_classes": st.integers(1, 200),
    "count": st.integers(1, 40),
}


@settings(deadline=None)
@given(**sizes, width=st.integers(0, 30))
def test_votes_and_most_voted_against_a_loop(width: int, num_classes: int, **given: int) -> None:
    points_Nn, shares_Nn, labels = task(num_classes=num_classes, **given)
    expected = looped(points_Nn, shares_Nn, labels)
    ids_NS = np.random.default_rng(1).integers(-2, num_classes + 3, (len(points_Nn), width))
    votes = np.array([[row.get(c, 0.0) for c in ids] for row, ids in zip(expected, ids_NS.tolist(), strict=True)])
    for find in (votes_for, plain_votes):
        found = find(ids_NS, points_Nn, shares_Nn, labels, num_classes)
        assert found.dtype == np.float32
        assert (found == votes.astype(np.float32).reshape(ids_NS.shape)).all()
    for best in (most_voted, plain_most_voted):
        found_ids = best(points_Nn, shares_Nn, labels, num_classes, width).tolist()
        for row, ids in zip(expected, found_ids, strict=True):
            ranked = sorted((c for c, votes in row.items() if votes > 0), key=lambda c: (-row[c], c))[:width]
            assert ids == ranked + [-1] * (width - len(ranked))


def test_shares_are_exact_parts() -> None:
    shares_Nn = shares_of(np.array([[0.9, 0.5, -0.2], [0.0, -1.0, 0.0]], np.float32), 4.0)
    assert shares_Nn[0].sum() == pytest.approx(1, abs=2**-39)
    assert (shares_Nn * 2.0**40 % 1 == 0).all()
    assert shares_Nn[0, 2] == 0
    assert (shares_Nn[1] == 0).all()


@compiled
def test_bad_buffers_are_refused() -> None:
    extension = compiled_votes()
    assert extension is not None
    points_Nn, shares_Nn, labels = task(0, 5, 10, 20, 3)
    good = [points_Nn, shares_Nn, labels.offsets, labels.indices, 5, 3]
    out = np.empty((5, 4), np.int64)
    assert extension.suggest(*good, 4, out, 1) == 5
    far, damaged = points_Nn.copy(), labels.offsets.copy()
    far[2, 1] = 10
    damaged[1:] = damaged[1:] + 10**9
    cases: list[tuple[int, Any]] = [(0, far), (0, -far), (0, points_Nn[:4].copy()), (1, shares_Nn[:4].copy())]
    cases += [(2, damaged), (2, damaged[::-1].copy()), (3, -1 - labels.indices), (4, 6), (5, -1)]
    for place, bad in cases:
        with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
            extension.suggest(*good[:place], bad, *good[place + 1 :], 4, out, 1)
    with pytest.raises(ValueError, match="does not fit"):
        extension.suggest(*good, 5, out, 1)
    ids_NS = np.zeros((5, 2), np.int64)
    with pytest.raises(ValueError, match="does not fit"):
        extension.look_up(*good, ids_NS, 2, np.empty((5, 3), np.float32), 1)
