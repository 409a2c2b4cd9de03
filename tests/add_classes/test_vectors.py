"""Vectors of new classes against loops: the formula, and the ranks of left-out examples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.add_classes.examples import PLACES
from owlmine.add_classes.vectors import QuerySpace, left_out_ranks, query_spread


def spread_by_loops(classes: list[list[float]], counts: list[float], square_length: float) -> list[list[float]]:
    dim, total = len(classes[0]), sum(counts)
    means = [sum(n * row[i] for n, row in zip(counts, classes, strict=True)) / total for i in range(dim)]
    covariance = [
        [
            sum(n * (row[i] - means[i]) * (row[j] - means[j]) for n, row in zip(counts, classes, strict=True)) / total
            for j in range(dim)
        ]
        for i in range(dim)
    ]
    trace = sum(covariance[i][i] for i in range(dim))
    return [[square_length / 2 * (covariance[i][j] / trace + (i == j) / dim) for j in range(dim)] for i in range(dim)]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), num_classes=st.integers(2, 9), dim=st.integers(1, 6))
def test_spread_and_vectors_against_loops(seed: int, num_classes: int, dim: int) -> None:
    random = np.random.default_rng(seed)
    classes, queries = random.normal(size=(num_classes, dim)), random.normal(size=(4, dim))
    counts = random.integers(0, 9, num_classes).astype(float)
    counts[0] = 3
    square_length = float((queries**2).sum(axis=1).mean())
    if (counts > 0).sum() == 1:
        expected = np.eye(dim) * square_length / dim
    else:
        expected = np.array(spread_by_loops(classes.tolist(), counts.tolist(), square_length))
    spread = query_spread(torch.from_numpy(classes), torch.from_numpy(counts), square_length=square_length)
    np.testing.assert_allclose(spread.numpy(), expected, atol=1e-9)
    sums = random.normal(size=(3, dim))
    sums[1] = 0
    space = QuerySpace.of(
        torch.from_numpy(classes), torch.from_numpy(counts), torch.from_numpy(queries), level=0.4, caution=5
    )
    vectors = space.class_vectors(torch.from_numpy(sums)).numpy()
    z = 5 / math.sqrt(1 + 25 / dim)
    for row, vector in zip(sums, vectors, strict=True):
        solved = np.linalg.solve(expected, row)
        wanted = 0.4 / z * solved / math.sqrt(row @ solved) if row.any() else np.zeros(dim)
        np.testing.assert_allclose(vector, wanted, rtol=1e-7, atol=1e-12)
    # The scores of such a vector have the stated standard deviation over queries that spread like S.
    np.testing.assert_allclose(np.sqrt(vectors[0] @ expected @ vectors[0]), 0.4 / z)


def test_the_length_of_examples_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    classes, queries = torch.randn(30, 8, generator=generator), torch.randn(5, 8, generator=generator)
    space = QuerySpace.of(classes, torch.ones(30), queries, level=0.3)
    torch.testing.assert_close(space.class_vectors(queries), space.class_vectors(7 * queries))
    longer = QuerySpace.of(classes, torch.ones(30), queries, level=0.6)
    torch.testing.assert_close(longer.class_vectors(queries), 2 * space.class_vectors(queries))


def test_class_vectors_that_are_all_the_same() -> None:
    same = torch.nn.functional.normalize(torch.full((500, 12), 0.1), dim=1) + 1e-7 * torch.randn(
        500, 12, generator=torch.Generator().manual_seed(0)
    )
    spread = query_spread(same, torch.ones(500), square_length=3.0)
    torch.testing.assert_close(spread, torch.eye(12, dtype=torch.float64) / 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 0.3, "caution": 0}, "caution is 0"),
        ({"level": 0.3, "caution": math.nan}, "caution is nan"),
        ({"level": 0.0}, "level is 0.0"),
        ({"level": math.nan}, "level is nan"),
    ],
)
def test_bad_options(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QuerySpace.of(torch.eye(3), torch.ones(3), torch.eye(3), **options)


def test_classes_without_training_points() -> None:
    with pytest.raises(ValueError, match="no known class has a training point"):
        QuerySpace.of(torch.eye(3), torch.zeros(3), torch.eye(3), level=0.3)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), num_examples=st.integers(1, 8), num_new=st.integers(1, 4))
def test_left_out_ranks_against_loops(seed: int, num_examples: int, num_new: int) -> None:
    random, dim, num_known = np.random.default_rng(seed), 5, 12
    classes = torch.from_numpy(random.normal(size=(num_known, dim)))
    examples = torch.from_numpy(random.normal(size=(num_examples, dim)))
    labels = random.random((num_examples, num_new)) < 0.6
    labels[0, 0] = True
    rows, own = np.nonzero(labels)
    space = QuerySpace.of(classes, torch.ones(num_known), examples, level=1.0, caution=1.5)
    sums = torch.from_numpy(labels.T.astype(float)) @ examples
    best = (examples @ classes.T).topk(PLACES, dim=1).values
    ranks = left_out_ranks(space, examples, rows, own, sums, best)
    for rank, row, new in zip(ranks.tolist(), rows.tolist(), own.tolist(), strict=True):
        if labels[:, new].sum() == 1:
            assert rank == 0
            continue
        # Every class of the example does without it; one that has no other example is not there at all.
        made = sums - torch.from_numpy(labels[row].astype(float))[:, None] * examples[row]
        there = [c for c in range(num_new) if not (labels[row, c] and labels[:, c].sum() == 1)]
        scores = space.class_vectors(made) @ examples[row]
        # Classes of the same examples tie, but for rounding: either may come first.
        rivals = torch.cat([scores[[c for c in there if c != new]], classes @ examples[row]])
        least, most = (1 + int((rivals > scores[new] + slack).sum()) for slack in (1e-9, -1e-9))
        assert least <= rank <= most or (rank > PLACES and most > PLACES)
