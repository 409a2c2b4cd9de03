"""Propensities: the formula, and the constants of datasets by name."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.metrics import (
    DATASET_CONSTANTS,
    PropensityConstants,
    inverse_propensities,
    propensity_constants,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 500), max_size=8), st.floats(0.1, 2.0), st.floats(0.1, 5.0))
def test_the_formula(counts: list[int], a: float, b: float) -> None:
    c = (log(500) - 1) * (b + 1) ** a
    wanted = [1 + c * (n + b) ** -a for n in counts]
    ours = inverse_propensities(np.array(counts, np.int64), 500, constants=PropensityConstants(a, b))
    assert ours.dtype == np.float64
    assert ours.tolist() == pytest.approx(wanted, rel=1e-12)


def test_rarer_classes_weigh_more_and_none_less_than_one() -> None:
    weights = inverse_propensities(np.arange(300), 300)
    assert (np.diff(weights) < 0).all()
    assert (weights > 1).all()
    assert (inverse_propensities(np.arange(4), 3) > 1).all()


@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("WikiLSHTC-325K", (0.5, 0.4)),
        ("wikilshtc325k", (0.5, 0.4)),
        ("Wikipedia-500K", (0.5, 0.4)),
        ("LF_WikiTitles_500K", (0.5, 0.4)),
        ("AMAZON 670k", (0.6, 2.6)),
        ("amazon_3m", (0.6, 2.6)),
        ("lf-amazontitles-131k", (0.6, 2.6)),
        ("LF-AmazonTitles-1.3M", (0.6, 2.6)),
        ("AmazonTitles-670K", (0.6, 2.6)),
        ("AmazonCat-13K", (0.55, 1.5)),
        ("LF-WikiSeeAlsoTitles-320K", (0.55, 1.5)),
        ("Bibtex", (0.55, 1.5)),
        ("", (0.55, 1.5)),
        (None, (0.55, 1.5)),
    ],
)
def test_constants_by_name(name: str | None, constants: tuple[float, float]) -> None:
    found = propensity_constants(name)
    assert (found.a, found.b) == constants


def test_every_name_of_the_table_finds_itself() -> None:
    for name, constants in DATASET_CONSTANTS.items():
        assert propensity_constants(name) is constants


def test_default_constants_are_the_defaults_of_the_weights() -> None:
    counts = np.array([0, 3, 9])
    by_name = inverse_propensities(counts, 20, constants=propensity_constants("eurlex"))
    assert inverse_propensities(counts, 20).tolist() == by_name.tolist()


@pytest.mark.parametrize(
    ("counts", "num_points", "message"),
    [
        ([1, -2], 9, "class_counts contain -2; wanted at least 0"),
        ([1.5], 9, "class_counts have the type float64; wanted integers"),
        ([[1]], 9, r"class_counts have the shape \(1, 1\); wanted one per class"),
        ([10], 9, "class_counts contain 10; wanted at most 9"),
        ([1], 2, "num_points is 2; wanted at least 3"),
    ],
)
def test_bad_counts(counts: list, num_points: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inverse_propensities(np.array(counts), num_points)


@pytest.mark.parametrize(
    "constants", [(0.0, 1.0), (1.0, -1.0), (float("nan"), 1.0), (1.0, float("inf")), (1000.0, 1.0), (1.0, 2**63)]
)
def test_bad_constants(constants: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"propensity constants are A = .* wanted both"):
        PropensityConstants(*constants)


@pytest.mark.parametrize("a", [0.001, 100.0])
@pytest.mark.parametrize("b", [0.001, 100.0])
def test_the_most_extreme_constants_give_finite_weights(a: float, b: float) -> None:
    counts = np.array([0, 1, 10**6, 2**62])
    weights = inverse_propensities(counts, 2**62, constants=PropensityConstants(a, b))
    assert np.isfinite(weights).all()
    assert (weights >= 1).all()
