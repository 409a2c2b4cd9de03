"""Rows that compiled code may take: what is wrong with others is told with its row."""

from __future__ import annotations

import numpy as np
import pytest

from owlmine.data.rows import SparseRows, check_rows
from owlmine.errors import DataError

OFFSETS, IDS, VALUES = np.array([0, 2, 2, 3]), np.array([4, 0, 2], np.int32), np.array([1.0, 0.5, 2.0], np.float32)


def test_good_rows_pass() -> None:
    check_rows(SparseRows(OFFSETS, IDS, VALUES), num_columns=5, what="points")
    check_rows(SparseRows(OFFSETS, IDS, None), num_columns=5, what="points")
    check_rows(SparseRows(np.zeros(1, np.int64), IDS[:0], VALUES[:0]), num_columns=0, what="points")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (SparseRows(OFFSETS[:0], IDS, VALUES), "no offsets"),
        (SparseRows(OFFSETS + 1, IDS, VALUES), "offset 1"),
        (SparseRows(np.array([0, 2, -(10**8), 3]), IDS, VALUES), "fall from 2 to -100000000 at row 1"),
        (SparseRows(np.array([0, 2**62, 3]), IDS, VALUES), "at row 1"),
        (SparseRows(OFFSETS[::-1], IDS, VALUES), "offset 3"),
        (SparseRows(OFFSETS.tolist(), IDS, VALUES), "offsets in a list"),  # type: ignore[arg-type]
        (SparseRows(np.array([0, 2, 2, 4]), IDS, VALUES), "3 ids and a last offset of 4"),
        (SparseRows(OFFSETS, IDS + 1, VALUES), "id 5 in row 0"),
        (SparseRows(OFFSETS, IDS - 1, VALUES), "id -1 in row 0"),
        (SparseRows(OFFSETS, IDS.astype(np.float32), VALUES), "float32"),
        (SparseRows(OFFSETS, IDS, VALUES[:2]), "2 values for 3 ids"),
        (SparseRows(OFFSETS, IDS, np.array([1, 2, np.nan], np.float32)), "nan in row 2"),
        (SparseRows(OFFSETS, IDS, np.array([1, -np.inf, 2], np.float32)), "-inf in row 0"),
        (SparseRows(OFFSETS, IDS, np.array(["a", "b", "c"])), "<U1"),  # type: ignore[arg-type]
        (SparseRows(OFFSETS[:, None], IDS, VALUES), "shape"),
    ],
)
def test_rows_that_cannot_be_read_are_refused(rows: SparseRows, told: str) -> None:
    with pytest.raises(DataError, match=f"^points: found .*{told}.*; wanted"):
        check_rows(rows, num_columns=5, what="points")
