"""Mining a batch's pool against sorts in Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.dense.pool_mining import PoolMiner, highest_places
from owlmine.dense.row_table import RowTable
from owlmine.mining import BatchPool, draw_batch_pool


def rows_of(labels: list[list[int]]) -> SparseRows:
    flat = np.array([label for row in labels for label in row], np.int32)
    return SparseRows(offsets_from_counts(np.array([len(row) for row in labels])), flat, None)


def numbers(*shape: int, seed: int, whole: bool) -> Tensor:
    """Whole numbers make many equal scores, and products without rounding."""
    values = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return values.round() if whole else values


def check(
    mined: tuple[Tensor, Tensor | None], scores_NK: Tensor, pool: BatchPool, labels: list[list[int]], kept: int
) -> None:
    """Places are distinct; their scores are the highest of what counts; the rest is marked."""
    places_NT, hidden_NT = mined
    for n, (places, ids) in enumerate(zip(places_NT.tolist(), pool.ids().tolist(), strict=True)):
        counts = sorted((float(scores_NK[n, j]) for j in ids if j not in labels[n]), reverse=True)
        hidden = [False] * kept if hidden_NT is None else hidden_NT[n].tolist()
        found = [int(pool.shared_ids[place]) for place, hide in zip(places, hidden, strict=True) if not hide]
        assert len(set(found)) == len(found)
        assert set(found) <= set(ids) - set(labels[n])
        assert [float(scores_NK[n, j]) for j in found] == pytest.approx(counts[:kept], rel=1e-12, abs=1e-12)
        assert hidden == [rank >= len(counts) for rank in range(kept)]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), whole=st.booleans(), known=st.booleans(), seed=st.integers(0, 10**6))
def test_the_hardest_of_what_counts(data: st.DataObject, whole: bool, known: bool, seed: int) -> None:
    num_classes = data.draw(st.integers(2, 90) | st.integers(1500, 2500))
    pool_size = data.draw(st.integers(1, num_classes - 1))
    kept = data.draw(st.integers(1, min(pool_size, 40)))
    num_points = data.draw(st.integers(1, 5))
    several = st.lists(st.integers(0, num_classes - 1), max_size=min(num_classes, 12), unique=True)
    labels = data.draw(st.lists(several, min_size=num_points, max_size=num_points)) if known else [[]] * num_points
    generator = torch.Generator().manual_seed(seed)
    positives = torch.randint(num_classes, (num_points,), generator=generator)
    pool = draw_batch_pool(positives, num_classes=num_classes, pool_size=pool_size, generator=generator)
    table, queries = numbers(num_classes, 3, seed=seed, whole=whole), numbers(num_points, 3, seed=seed + 1, whole=whole)
    mined = PoolMiner(RowTable(table), kept=kept)(queries, pool, rows_of(labels) if known else None)
    assert mined[0].shape == (num_points, kept)
    check(mined, queries @ table.T, pool, labels, kept)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), whole=st.booleans(), seed=st.integers(0, 10**6))
def test_highest_places_against_topk(data: st.DataObject, whole: bool, seed: int) -> None:
    """Widths on either side of multiples of 16, ties, and rows with few finite scores."""
    width = data.draw(st.integers(1, 70) | st.integers(16 * 40 - 3, 16 * 40 + 20))
    count = data.draw(st.integers(1, min(width, 20)))
    scores = numbers(3, width, seed=seed, whole=whole)
    scores[0, data.draw(st.integers(0, width)) :] = -math.inf
    places = highest_places(scores, count)
    assert all(len(set(row)) == count for row in places.tolist())
    assert torch.equal(scores.gather(1, places), scores.topk(count, dim=1).values)


def test_memory_shared_by_steps_does_not_show() -> None:
    """One miner through batches and pools of several sizes, against a new one for each."""
    table = RowTable(numbers(5000, 8, seed=0, whole=False))
    miner, generator = PoolMiner(table, kept=7), torch.Generator().manual_seed(1)
    for number, (num_points, pool_size) in enumerate([(9, 3000), (9, 3000), (4, 3000), (9, 2900), (1, 40), (9, 4999)]):
        labels = [[int(j) for j in torch.randint(5000, (3,), generator=generator)] for _ in range(num_points)]
        positives = torch.tensor([row[0] for row in labels])
        pool = draw_batch_pool(positives, num_classes=5000, pool_size=pool_size, generator=generator)
        queries = numbers(num_points, 8, seed=number, whole=False).requires_grad_()
        found, expected = (m(queries, pool, rows_of(labels)) for m in (miner, PoolMiner(table, kept=7)))
        assert torch.equal(found[0], expected[0])
        check(found, (queries @ table.weight.T).detach(), pool, labels, 7)


@pytest.mark.parametrize("kept", [1, 3])
def test_scores_that_are_not_numbers_are_found_not_lost(kept: int) -> None:
    """A step that went wrong must show in the loss."""
    table = RowTable(numbers(600, 4, seed=0, whole=False))
    table.weight[417] = math.nan
    pool = draw_batch_pool(torch.tensor([3, 4]), num_classes=600, pool_size=599, generator=torch.Generator())
    places, _ = PoolMiner(table, kept=kept)(numbers(2, 4, seed=1, whole=False), pool, None)
    assert pool.shared_ids[places[:, 0]].tolist() == [417, 417]
