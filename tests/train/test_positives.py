"""The positive of a step: uniform among a point's labels, or in proportion to their weights."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chisquare

from owlmine.data.rows import SparseRows
from owlmine.dense.step import draw_positives, step_seed

REPEATS = 4000


def drawn_counts(weights: list[list[float]], *, weighted: bool) -> list[list[int]]:
    """How often each label is drawn; all points in one batch, REPEATS times over."""
    offsets = np.cumsum([0, *[len(row) for row in weights]])
    ids = np.arange(offsets[-1], dtype=np.int32) + 100
    values = np.array([w for row in weights for w in row], np.float32) if weighted else None
    labels, rng = SparseRows(offsets, ids, values), np.random.default_rng(5)
    counts = np.zeros(offsets[-1], np.int64)
    for _ in range(REPEATS):
        positives = draw_positives(labels, rng) - 100
        assert (positives >= offsets[:-1]).all()
        assert (positives < offsets[1:]).all()
        counts[positives] += 1
    return [counts[low:high].tolist() for low, high in pairwise(offsets)]


def test_uniform() -> None:
    for counts in drawn_counts([[1] * n for n in (1, 2, 7, 3)], weighted=False):
        assert sum(counts) == REPEATS
        if len(counts) > 1:
            assert chisquare(counts).pvalue > 1e-4


def test_in_proportion_to_weights() -> None:
    weights = [[1.0, 3.0], [5.0], [0.1, 0.2, 0.3, 0.4], [1e-3, 2e-3], [1e6, 1e6]]
    for counts, row in zip(drawn_counts(weights, weighted=True), weights, strict=True):
        assert sum(counts) == REPEATS
        if len(row) > 1:
            expected = np.array(row) / sum(row) * REPEATS
            assert chisquare(counts, expected).pvalue > 1e-4


def test_a_label_of_weight_zero_is_not_drawn() -> None:
    (counts,) = drawn_counts([[0.0, 1.0, 0.0]], weighted=True)
    assert counts == [0, REPEATS, 0]


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_seeds_of_steps_differ(seed: int) -> None:
    seeds = {step_seed(own, number) for own in (seed, seed ^ 1) for number in range(2000)}
    assert len(seeds) == 4000
    assert all(0 <= value < 2**63 for value in seeds)
