"""Sparse rows as bytes: how far values move, and the same rows from a file, whatever the distances of their ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.rank import coded_entries
from owlmine.rank.coded_entries import CodedEntries, narrowest
from owlmine.rank.points import as_tensors

from .small_tasks import sparse_rows


def rows_with(ids: list[list[int]]) -> SparseRows:
    offsets = offsets_from_counts(np.array([len(row) for row in ids], np.int64))
    flat = np.array([number for row in ids for number in row], np.int32)
    return SparseRows(offsets, flat, np.random.default_rng(0).normal(size=len(flat)).astype(np.float32))


_ids = st.lists(st.integers(0, 2**31 - 2) | st.integers(0, 700) | st.integers(65_530, 65_540), unique=True, max_size=30)


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(_ids.map(sorted), max_size=8), block=st.sampled_from([1, 5, 1 << 22]))
def test_ids_come_back_from_a_file(rows: list[list[int]], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coded_entries, "_BLOCK_ENTRIES", block)
        coded = CodedEntries.of(rows_with(rows))
        again = CodedEntries.from_tensors(as_tensors(coded.arrays()), num_columns=2**31 - 1)
    found = [
        again.ids[start:stop].tolist() for start, stop in zip(again.offsets_R1, again.offsets_R1[1:], strict=False)
    ]
    assert found == rows
    assert again.ids.dtype == np.int32
    assert np.array_equal(again.values, coded.values)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), num_rows=st.integers(0, 9), size=st.sampled_from([1.0, 1e-25, 1e25]))
def test_values_move_by_half_a_scale_at_most(seed: int, num_rows: int, size: float) -> None:
    rows = sparse_rows(seed, num_rows=num_rows, num_features=20)
    assert rows.values is not None
    rows = SparseRows(rows.offsets, rows.indices, rows.values * np.float32(size))
    coded = CodedEntries.of(rows)
    scales_E = np.repeat(coded.scales_R, rows.counts).astype(np.float64)
    assert np.array_equal(coded.values, coded.codes * scales_E), "every product is exact in float32"
    assert (np.abs(coded.values.astype(np.float64) - rows.values) <= 0.501 * scales_E).all()
    again = CodedEntries.of(coded.rows)
    assert np.array_equal(again.codes, coded.codes)
    assert np.array_equal(again.scales_R, coded.scales_R)


def test_steps_take_one_byte_where_most_are_short_and_two_where_most_are_not() -> None:
    near, far = list(range(0, 4000, 9)), list(range(0, 10**6, 5000))
    for ids, kind, num_long in ((near, np.uint8, 0), ([*near, 10**6], np.uint8, 1), (far, np.uint16, 0)):
        arrays = CodedEntries.of(rows_with([ids])).arrays()
        assert (arrays["steps"].dtype, len(arrays["long_steps"])) == (kind, num_long)
    arrays = CodedEntries.of(rows_with([list(range(0, 10**9, 10**6))])).arrays()
    assert arrays["steps"].dtype == np.int32


def test_rows_are_appended_and_the_known_ones_keep_their_bits() -> None:
    one, other = (CodedEntries.of(sparse_rows(seed, num_rows=4, num_features=9)) for seed in (0, 1))
    both = one.with_more(other)
    assert len(both) == 8
    assert np.array_equal(both.values, np.concatenate([one.values, other.values]))
    assert np.array_equal(both.ids, np.concatenate([one.ids, other.ids]))
    assert np.array_equal(
        np.diff(both.offsets_R1), np.concatenate([np.diff(one.offsets_R1), np.diff(other.offsets_R1)])
    )


@pytest.mark.parametrize(
    ("largest", "kind"), [(255, np.uint8), (256, np.uint16), (65_535, np.uint16), (65_536, np.int32)]
)
def test_the_narrowest_type_that_holds_all(largest: int, kind: type) -> None:
    numbers = np.array([0, largest], np.int64)
    assert narrowest(numbers).dtype == kind
    assert narrowest(numbers).tolist() == [0, largest]
