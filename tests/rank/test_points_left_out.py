"""Lists that a search leaves out, and the rows that it computes instead, change nothing."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.data.rows import SparseRows, concatenate
from owlmine.rank import points as rank_points
from owlmine.rank.points import SparsePoints, compiled_nearest, unit_rows

from .small_tasks import needs_build


@pytest.fixture(autouse=True, scope="module")
def rows_of_few_points() -> Iterator[None]:
    """So many points as it takes would take too long."""
    with mock.patch.object(rank_points, "_FEW_POINTS", 1_000):
        yield


def uneven_rows(generator: np.random.Generator, *, num_rows: int, num_features: int) -> SparseRows:
    """Rows of frequent features with small values and rare ones with large values, as texts have them."""
    counts = generator.integers(1, 12, num_rows)
    ranks = generator.random(int(counts.sum())) ** 4
    keys = np.unique(np.repeat(np.arange(num_rows), counts) * num_features + (ranks * num_features).astype(np.int64))
    offsets, features = np.searchsorted(keys, np.arange(num_rows + 1) * num_features), keys % num_features
    values = (1 + features) ** 0.4 * generator.choice([1.0, 1.5, -0.5], len(keys), p=[0.7, 0.25, 0.05])
    return SparseRows(offsets, features.astype(np.int32), values.astype(np.float32))


@needs_build
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_points=st.sampled_from([4_000, 33_000, 70_000]),
    num_features=st.sampled_from([50, 2_000]),
    count=st.sampled_from([1, 7, 40, 3_000]),
)
def test_lists_left_out_do_not_show(seed: int, num_points: int, num_features: int, count: int) -> None:
    """Equal to the bit where all lists are walked, and where long ones are left out and close points computed."""
    generator = np.random.default_rng(seed)
    train = uneven_rows(generator, num_rows=num_points, num_features=num_features)
    train = concatenate([train, train[:300]])  # points that are equal, in several blocks
    queries = concatenate([uneven_rows(generator, num_rows=4, num_features=num_features), train[100:102]])
    index = SparsePoints.of(train, num_features=num_features)
    assert index.by_point[1] > 0
    walked = SparsePoints(index.lists, len(index))
    walked.__dict__["by_point"] = SparsePoints.of(train[:1], num_features=num_features).by_point  # empty
    assert not walked.by_point[1]
    rows = unit_rows(queries, num_features=num_features)
    for found, expected in zip(
        compiled_nearest(index, rows, count), compiled_nearest(walked, rows, count), strict=True
    ):
        assert np.array_equal(found, expected)


@needs_build
def test_points_one_by_one() -> None:
    train = uneven_rows(np.random.default_rng(0), num_rows=5_000, num_features=300)
    index = SparsePoints.of(train, num_features=300)
    (offsets_P1, features, codes, masses_P), longest = index.by_point
    values = codes * index.lists.scales_R[features]
    numbers = np.arange(len(index))
    for found, expected in zip((offsets_P1, features, values), vars(index.rows(numbers)).values(), strict=True):
        assert np.array_equal(found, expected)
    squares_P = np.add.reduceat(values.astype(np.float64) ** 2, offsets_P1[:-1])
    assert longest == pytest.approx(np.sqrt(squares_P.max()), rel=1e-12)
    is_long_F = np.diff(index.lists.offsets_R1) > len(index) // 32
    assert 0 < is_long_F.sum() < 300
    of_long_P = np.sqrt(np.add.reduceat(is_long_F[features] * values.astype(np.float64) ** 2, offsets_P1[:-1]))
    assert (masses_P * longest / 255 >= of_long_P * (1 - 1e-12)).all()
    assert (masses_P * longest / 255 < of_long_P + longest / 255).all()


@needs_build
def test_a_copy_has_the_lists_alone() -> None:
    train = uneven_rows(np.random.default_rng(0), num_rows=4_000, num_features=300)
    index = SparsePoints.of(train, num_features=300)
    expected = index.nearest(train[:5], None, 3)
    again = copy.deepcopy(index)
    assert "by_point" in vars(index)
    assert "by_point" not in vars(again)
    for found, wanted in zip(again.nearest(train[:5], None, 3), expected, strict=True):
        assert np.array_equal(found, wanted)
