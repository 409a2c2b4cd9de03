"""Exact search for training: no class found is further below the best than rounding to bytes can explain.

Shapes: N queries, K classes, D dimension, k best classes.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from owlmine.index import exact
from owlmine.index.exact import ExactIndex
from owlmine.mining import hardest
from owlmine.mining.int8 import cpu_multiplies_int8

needs_bytes = pytest.mark.skipif(not cpu_multiplies_int8(), reason="this CPU has no products of bytes in 32 bits")


def drawn(num_rows: int, dim: int, seed: int) -> Tensor:
    return torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(seed))


def sets(ids_Nk: Tensor) -> list[set[int]]:
    return [set(row) for row in ids_Nk.tolist()]


def largest_errors(queries_ND: Tensor, table_KD: Tensor) -> Tensor:
    """[N, K] how far a product of rounded rows may be from that of the rows: |q - q'| |c| + |q'| |c - c'|. Rounding
    moves a row by no more than half its unit in each dimension; the table has one unit."""
    moved_q_N = math.sqrt(queries_ND.shape[1]) * queries_ND.abs().amax(dim=1) / 127 / 2
    moved_c = math.sqrt(table_KD.shape[1]) * float(table_KD.abs().max()) / 127 / 2
    return moved_q_N[:, None] * table_KD.norm(dim=1) + (queries_ND.norm(dim=1) + moved_q_N)[:, None] * moved_c


@needs_bytes
@pytest.mark.parametrize(
    ("num_queries", "num_classes", "dim", "k"),
    [(40, 3000, 128, 100), (1, 100, 16, 5), (300, 17, 33, 17), (5, 1, 16, 1), (70, 1111, 384, 10), (0, 50, 20, 3)],
)
def test_none_is_far_below_the_best(num_queries: int, num_classes: int, dim: int, k: int) -> None:
    queries_ND, table_KD = drawn(num_queries, dim, 1), drawn(num_classes, dim, 2) * drawn(num_classes, 1, 3).abs()
    ids_Nk = ExactIndex(table_KD).rough(queries_ND, k)
    assert ids_Nk.shape == (num_queries, k)
    assert all(len(own) == k for own in sets(ids_Nk))
    exact_NK = queries_ND.double() @ table_KD.double().T
    errors_NK = largest_errors(queries_ND.double(), table_KD.double())
    lowest_N = (exact_NK - errors_NK).sort(dim=1, descending=True).values[:, k - 1]
    assert ((exact_NK + errors_NK).gather(1, ids_Nk) >= lowest_N[:, None]).all()


@needs_bytes
def test_nearly_all_are_among_the_best() -> None:
    queries_ND, table_KD = drawn(50, 128, 1), drawn(5000, 128, 2)
    found, wanted = ExactIndex(table_KD).rough(queries_ND, 100), hardest(queries_ND, table_KD, 100)[1]
    shared = [len(a & b) for a, b in zip(sets(found), sets(wanted), strict=True)]
    assert min(shared) >= 93, "96 on the CPU that this was measured on"
    assert min(shared) < 100, "bytes do round"


@needs_bytes
def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    queries_ND, table_KD = drawn(100, 32, 1), drawn(200, 32, 2)
    whole = ExactIndex(table_KD).rough(queries_ND, 7)
    for name, most in (("_MOST_QUERIES", 33), ("_MOST_CLASSES", 64), ("_MOST_PRODUCTS", 33 * 64)):
        monkeypatch.setattr(exact, name, most)
    assert sets(ExactIndex(table_KD).rough(queries_ND, 7)) == sets(whole)


@needs_bytes
@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_a_row_that_has_no_scale_harms_no_other(value: float) -> None:
    queries_ND, table_KD = drawn(10, 32, 1), drawn(60, 32, 2)
    whole = sets(ExactIndex(table_KD).rough(queries_ND, 20))
    queries_ND[3] = value
    found = sets(ExactIndex(table_KD).rough(queries_ND, 20))
    assert [own for row, own in enumerate(found) if row != 3] == [own for row, own in enumerate(whole) if row != 3]
    assert len(found[3]) == 20


@pytest.mark.parametrize("case", ["no bytes", "one dimension"])
def test_otherwise_they_are_the_hardest(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dim = 1 if case == "one dimension" else 32
    if case == "no bytes":
        monkeypatch.setattr(exact, "cpu_multiplies_int8", lambda: False)
    queries_ND, table_KD = drawn(20, dim, 1), drawn(200, dim, 2)
    torch.testing.assert_close(ExactIndex(table_KD).rough(queries_ND, 9), hardest(queries_ND, table_KD, 9)[1])
