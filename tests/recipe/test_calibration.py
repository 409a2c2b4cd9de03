"""Fits with validation points end in a calibration, made of what the model answers on them."""

from __future__ import annotations

import numpy as np
import pytest

from owlmine.data import Store
from owlmine.dense.validation import ValidationPart
from owlmine.rank.probabilities import Calibration
from owlmine.recipe.fit import fit
from owlmine.recipe.options import TrainOptions

OPTIONS = TrainOptions.of(dim=16, epochs=2.0, batch_size=32, device="cpu", names=False, heads=1)


@pytest.mark.parametrize("recipe", ["single", "best"])
def test_it_is_fitted_to_the_best_ten_of_the_validation_points(store_with_dev: Store, recipe: str) -> None:
    model = fit(store_with_dev, OPTIONS.with_(recipe=recipe, shortlist=5 if recipe == "best" else 0))
    part = ValidationPart(store_with_dev, share=0.1)
    assert part.split is not None
    scores, hits = [], []
    for row in part.rows.tolist():
        batch = part.split.batch(np.array([row]))
        answers = model.answer(batch.queries, 10)
        scores.append(answers.scores_Nk[0])
        hits.append([c in batch.labels.indices.tolist() for c in answers.ids_Nk[0].tolist()])
    found = model.record.calibration
    assert found is not None
    assert found.num_points == len(part) == 50
    # Scores of one query alone and in a block may differ in the last bit.
    expected = Calibration.fit(-np.sort(-np.array(scores)), np.array(hits))
    np.testing.assert_allclose(
        found.probabilities(np.array(scores)), expected.probabilities(np.array(scores)), atol=1e-4
    )
    k = min(5, len(hits[0]))
    figure = 100 * float(np.mean([sum(row[:k]) / k for row in hits]))
    assert model.record.figures["P@5"] == pytest.approx(figure)


def test_without_validation_points_there_is_none(store: Store) -> None:
    model = fit(store, OPTIONS.with_(recipe="single", validation=0.0))
    assert model.record.calibration is None
    assert model.record.figures == {}
    assert model.answer(store["test"].batch(np.arange(3)).queries, 2).probabilities_Nk is None
