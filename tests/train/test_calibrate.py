"""Trained models carry a calibration, and folders keep it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import owlmine
from owlmine.data import Store
from owlmine.errors import DataError
from owlmine.model.folder import verify_model
from owlmine.rank.probabilities import Calibration
from owlmine.train import train
from owlmine.train.calibrate import fit_calibration, precision_of, rank_points
from owlmine.train.validate import validation_part

from ..answers import assert_same_answers
from ..model.test_calibration import BAD_ENTRIES
from ..sealed import seal
from .runs import small_options


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Path:
    out = tmp_path_factory.mktemp("calibrated") / "out"
    train(store, out, small_options(validation=0.3))
    return out


def test_fitted_to_the_best_ten_of_the_validation_points(folder: Path, store: Store) -> None:
    predictor = owlmine.load(folder)
    part = validation_part(store, small_options(validation=0.3))
    scores, hits = [], []
    assert part.split is not None
    for row in part.rows.tolist():
        batch = part.split.batch(np.array([row]))
        (row_scores,), (ids,) = predictor.top(batch.queries, 10)
        scores.append(row_scores)
        hits.append([c in batch.labels.indices.tolist() for c in ids.tolist()])
    # Scores of one query alone and in a block may differ in the last bit.
    expected = Calibration.fit(-np.sort(-np.array(scores)), np.array(hits))
    found = predictor.calibration
    assert found is not None
    assert found.num_points == len(part) == 120
    np.testing.assert_allclose(
        found.probabilities(np.array(scores)), expected.probabilities(np.array(scores)), atol=1e-4
    )
    assert fit_calibration(rank_points(predictor, part), num_classes=store.num_classes) == found
    assert verify_model(folder) == []


def test_predictions_have_probabilities_that_do_not_hang_on_k(folder: Path, store: Store) -> None:
    predictor = owlmine.load(folder)
    queries = store["test"].batch(np.arange(20)).queries
    scores, ids, whole = predictor.top_with_probabilities(queries, 15)
    assert whole is not None
    assert (np.diff(whole, axis=1) <= 0).all()
    for k in (1, 5, 10):
        few = predictor.top_with_probabilities(queries, k)
        assert_same_answers(few, [part[:, :k] for part in (scores, ids, whole)])
    # Asked about some classes only, each keeps the probability that it has among all.
    chosen = np.unique(ids[:, 4:12])
    _, some_ids, some = predictor.top_with_probabilities(queries, len(chosen), among=chosen)
    assert some is not None
    for row in range(len(ids)):
        among_all = dict(zip(ids[row].tolist(), whole[row].tolist(), strict=True))
        for class_id, p in zip(some_ids[row].tolist(), some[row].tolist(), strict=True):
            if class_id in among_all:
                assert p == pytest.approx(among_all[class_id], abs=1e-5)
    named = predictor.name(scores, ids, whole)
    assert [[one.probability for one in row] for row in named] == whole.tolist()


def test_without_validation_points_there_is_none(tmp_path: Path, store: Store) -> None:
    predictor = train(store, tmp_path / "out", small_options(validation=0, epochs=1.0))
    assert predictor.calibration is None
    assert "calibration" not in json.loads((tmp_path / "out" / "config.json").read_text())
    assert owlmine.load(tmp_path / "out").calibration is None
    queries = store["test"].batch(np.arange(3)).queries
    assert predictor.top_with_probabilities(queries, 2)[2] is None
    assert predictor.name(*predictor.top_with_probabilities(queries, 2))[0][0].probability is None
    nothing = rank_points(predictor, validation_part(store, small_options(validation=0)))
    assert fit_calibration(nothing, num_classes=store.num_classes) is None
    assert precision_of(nothing, num_classes=store.num_classes) == {}


@pytest.mark.parametrize("told", BAD_ENTRIES, ids=range(len(BAD_ENTRIES)))
def test_garbled_calibrations_do_not_load(folder: Path, tmp_path: Path, told: object) -> None:
    _changed(folder, tmp_path / "copy", told)
    with pytest.raises(DataError, match="wanted an unharmed model folder"):
        owlmine.load(tmp_path / "copy")


def test_deeper_than_the_model_has_classes(folder: Path, tmp_path: Path) -> None:
    calibration = owlmine.load(folder).config["calibration"]
    _changed(folder, tmp_path / "copy", calibration | {"depth": 10_000})
    with pytest.raises(DataError, match="the 10000 best classes"):
        owlmine.load(tmp_path / "copy")


def test_none_told_is_none_had(folder: Path, tmp_path: Path) -> None:
    _changed(folder, tmp_path / "copy", None)
    assert owlmine.load(tmp_path / "copy").calibration is None


def _changed(folder: Path, copy: Path, calibration: object) -> None:
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"calibration": calibration}))
    seal(copy)
