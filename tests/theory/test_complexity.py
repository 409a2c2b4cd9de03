"""Monte Carlo against closed forms, a loop over all signs, and the bounds."""

import math
from itertools import product

import numpy as np
import pytest

from owlmine.theory import (
    completed_complexity_bound,
    completed_gaussian_complexity,
    complexity_bound,
    gaussian_complexity,
    rademacher_complexity,
    worst_rademacher_bound,
)

OPTIONS = {"radius": 2.5, "repetitions": 4000}


def mean_chi(degrees: int) -> float:
    """The expected length of a standard Gaussian vector."""
    return math.sqrt(2) * math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2))


def close(estimate, exact: float) -> bool:
    """Within 5 standard errors, and these small enough to mean something."""
    assert estimate.standard_error < 0.02 * exact
    return abs(estimate.mean - exact) < 5 * estimate.standard_error


def test_orthonormal_queries_have_a_closed_form():
    generator = np.random.default_rng(0)
    queries, classes = np.eye(6, 8), np.array([0, 1, 1, 2, 0, 4])
    exact = OPTIONS["radius"] / 6 * mean_chi(6)
    assert close(gaussian_complexity(queries, classes, **OPTIONS, generator=generator), exact)
    # All signs give the same length, so signs reach the bound without error.
    signs = rademacher_complexity(queries, classes, **OPTIONS, generator=generator)
    assert signs.mean == pytest.approx(complexity_bound(queries, radius=2.5))
    completed = completed_gaussian_complexity(queries, num_classes=9, **OPTIONS, generator=generator)
    assert close(completed, OPTIONS["radius"] / 54 * mean_chi(54))


def test_signs_against_all_of_them():
    generator = np.random.default_rng(1)
    queries, classes = generator.standard_normal((5, 3)), np.array([0, 2, 0, 2, 2])
    lengths = []
    for signs in product([-1, 1], repeat=5):
        rows = {0: np.zeros(3), 2: np.zeros(3)}
        for sign, query, label in zip(signs, queries, classes, strict=True):
            rows[int(label)] += sign * query
        lengths.append(math.sqrt(sum(float(row @ row) for row in rows.values())))
    exact = OPTIONS["radius"] / 5 * math.fsum(lengths) / len(lengths)
    assert close(rademacher_complexity(queries, classes, **OPTIONS, generator=generator), exact)


def test_the_supremum_is_a_scorer_of_the_class():
    """sup over ‖W‖_F <= Λ of Σ g w_y·x is Λ times the length: no random scorer does better, the aligned one does it."""
    generator = np.random.default_rng(2)
    queries, classes, g = generator.standard_normal((4, 3)), np.array([0, 1, 1, 2]), generator.standard_normal(4)
    sums = np.zeros((3, 3))
    for i in range(4):
        sums[classes[i]] += g[i] * queries[i]

    def value(scorer) -> float:
        scorer = scorer / np.linalg.norm(scorer)
        return sum(float(g[i] * (scorer[classes[i]] @ queries[i])) for i in range(4))

    best = np.linalg.norm(sums)
    assert value(sums) == pytest.approx(best)
    assert all(value(scorer) <= best for scorer in generator.standard_normal((200, 3, 3)))


def test_the_completion_agrees_with_its_definition():
    """Every query with every class, as points of their own: n K pairs."""
    generator = np.random.default_rng(3)
    queries, num_classes = generator.standard_normal((4, 3)), 5
    options = {"radius": 1.0, "repetitions": 6000}
    direct = gaussian_complexity(
        np.repeat(queries, num_classes, axis=0), np.tile(np.arange(num_classes), 4), **options, generator=generator
    )
    fast = completed_gaussian_complexity(queries, num_classes=num_classes, **options, generator=generator)
    error = math.hypot(direct.standard_error, fast.standard_error)
    assert abs(direct.mean - fast.mean) < 5 * error < 0.1 * direct.mean


@pytest.mark.parametrize("seed", range(4))
def test_bounds_from_above_and_below(seed):
    generator = np.random.default_rng(seed)
    queries = generator.standard_normal((7, 4)) * generator.uniform(0.1, 3, size=(7, 1))
    classes, num_classes = generator.integers(0, 3, 7), 3
    bound = complexity_bound(queries, radius=2.5)
    gaussian = gaussian_complexity(queries, classes, **OPTIONS, generator=generator)
    signs = rademacher_complexity(queries, classes, **OPTIONS, generator=generator)
    for estimate, share in ((gaussian, math.sqrt(2 / math.pi)), (signs, math.sqrt(1 / 2))):
        slack = 5 * estimate.standard_error
        assert share * bound - slack <= estimate.mean <= bound + slack
    completed = completed_gaussian_complexity(queries, num_classes=num_classes, **OPTIONS, generator=generator)
    above = completed_complexity_bound(queries, num_classes=num_classes, radius=2.5)
    assert completed.mean <= above + 5 * completed.standard_error
    assert completed.mean >= 0.9 * above


def test_the_worst_multi_subset_comes_close_to_its_bound():
    queries, num_classes = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]]), 40
    bound = worst_rademacher_bound(queries, num_classes=num_classes, radius=1.0)
    # The longest query, each class 3 times: 120 pairs, as many as the completion has.
    longest, classes = np.repeat(queries[:1], 120, axis=0), np.tile(np.arange(num_classes), 3)
    generator = np.random.default_rng(4)
    found = rademacher_complexity(longest, classes, radius=1.0, repetitions=500, generator=generator)
    assert 0.95 * bound < found.mean <= bound
    everything = rademacher_complexity(
        np.repeat(queries, num_classes, axis=0),
        np.tile(np.arange(num_classes), 3),
        radius=1.0,
        repetitions=500,
        generator=generator,
    )
    assert everything.mean < bound


def test_the_same_generator_gives_the_same_estimate():
    queries, classes = np.eye(3), np.arange(3)
    for complexity in (gaussian_complexity, rademacher_complexity):
        first, second = (
            complexity(queries, classes, radius=1.0, repetitions=20, generator=np.random.default_rng(9))
            for _ in range(2)
        )
        assert first == second


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": np.zeros((0, 2))}, r"queries: given shape \(0, 2\)"),
        ({"queries": np.zeros(3)}, "queries: given shape"),
        ({"classes": np.zeros(2, np.int64)}, r"classes: given shape \(2,\)"),
        ({"radius": 0.0}, "radius: given 0"),
        ({"repetitions": 0}, "repetitions: given 0"),
    ],
)
def test_bad_input(change, message):
    given = {"queries": np.eye(3), "classes": np.arange(3), "radius": 1.0, "repetitions": 2} | change
    queries, classes = given.pop("queries"), given.pop("classes")
    with pytest.raises(ValueError, match=message):
        gaussian_complexity(queries, classes, **given, generator=np.random.default_rng(0))
