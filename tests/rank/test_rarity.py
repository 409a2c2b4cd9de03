"""The judge that knows how rare a class is, against the formula of propensities."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from owlmine.rank.rarity import RarityJudge

from .small_world import world


def test_the_logarithm_of_inverse_propensities() -> None:
    """1 / p = 1 + C (n + B)^-A with C = (ln N - 1)(B + 1)^A, A = 0.55 and B = 1.5."""
    small = world()
    ((variant, judge),) = RarityJudge.fit(small.training, None).items()
    assert variant is None
    classes = small.training.classes
    factor = (math.log(classes.num_points) - 1) * 2.5**0.55
    wanted = [math.log(1 + factor * (n + 1.5) ** -0.55) for n in classes.counts.tolist()]
    np.testing.assert_allclose(judge.offsets_K, wanted, rtol=1e-6)
    candidates = small.candidates()
    found = judge.scores(candidates)
    for ids, scores in zip(candidates.ids_NS.tolist(), found.tolist(), strict=True):
        assert scores == [judge.offsets_K[c] for c in ids]


@pytest.mark.parametrize("num_points", [0, 2, 3])
def test_too_few_points_for_propensities(num_points: int) -> None:
    """ln N - 1 is below 0 then, and rare classes would be lowered."""
    training = world().training
    classes = replace(training.classes, counts=np.zeros(24, np.int64), num_points=num_points)
    judge = RarityJudge.fit(replace(training, classes=classes), None)[None]
    assert judge.offsets_K.shape == (24,)
    assert judge.offsets_K.any() == (num_points == 3)


@pytest.mark.parametrize(
    "offsets", [np.zeros(3), np.zeros((3, 1), np.float32), np.array([0, np.nan], np.float32), np.arange(3)]
)
def test_offsets_that_cannot_be(offsets: np.ndarray) -> None:
    with pytest.raises(ValueError, match="wanted a finite float32 for each class"):
        RarityJudge(offsets)
