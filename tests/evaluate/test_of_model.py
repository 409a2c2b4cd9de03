"""The figures of a model on a split, against a plain loop over all scores."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import owlmine
from owlmine.data import ConvertOptions, Store, SyntheticOptions, convert, synthesize
from owlmine.errors import OwlmineError
from owlmine.evaluate.of_model import Evaluation, evaluate_model
from owlmine.evaluate.picture import plot_evaluation
from owlmine.metrics.propensity import PropensityConstants, inverse_propensities
from owlmine.metrics.ranking_metrics import FrequencyCuts
from owlmine.rank.predictor import Predictor
from owlmine.recipe.fit import fit
from owlmine.recipe.options import TrainOptions

from ..small_models import MODELS, OPTIONS, sparse_model, sparse_store, text_model, text_store


def looped(
    predictor: Predictor,
    split: Any,
    k: int,
    *,
    constants: PropensityConstants | None = None,
    tail: float = 0.0,
) -> dict[str, float]:
    """P, R and PSP from each point's full list of scores, one point at a time."""
    num_classes = len(predictor.classes)
    weights = inverse_propensities(predictor.classes.counts, predictor.classes.num_points, constants=constants)
    left_out = {} if split.filter_pairs is None else split.filter_pairs
    precision = recall = scored = best = 0.0
    for row in range(len(split)):
        batch = split.batch(np.array([row]))
        (order,) = predictor.answer(batch.queries, num_classes, tail=tail, propensity=constants).ids_Nk
        filtered = {int(c) for r, c in left_out if r == row}
        labels = set(batch.labels.indices.tolist()) - filtered
        shown = [c for c in order.tolist() if c not in filtered][:k]
        hits = [c for c in shown if c in labels]
        precision += len(hits) / k
        recall += len(hits) / max(len(labels), 1)
        scored += sum(weights[c] for c in hits)
        best += sum(sorted((weights[c] for c in labels), reverse=True)[:k])
    n = len(split)
    return {"P": 100 * precision / n, "R": 100 * recall / n, "PSP": 100 * scored / best}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("k", [1, 3, 5])
def test_figures_are_those_of_a_loop(kind: str, k: int) -> None:
    model, _, store = MODELS[kind]
    predictor, split = owlmine.load(model()), Store.open(store())["test"]
    figures = evaluate_model(predictor, split, ks=[k]).figures
    for name, value in looped(predictor, split, k).items():
        assert figures[f"{name}@{k}"] == pytest.approx(value), name


def test_filtered_split_has_pairs_and_they_matter() -> None:
    predictor, split = owlmine.load(sparse_model()), Store.open(sparse_store())["test"]
    assert split.filter_pairs is not None
    assert len(split.filter_pairs) > 20
    judged = evaluate_model(predictor, split).figures
    split.filter_pairs = None
    assert evaluate_model(predictor, split).figures["R@1"] != judged["R@1"]


def test_blocks_do_not_change_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor, split = owlmine.load(sparse_model()), Store.open(sparse_store())["test"]
    whole = evaluate_model(predictor, split)
    monkeypatch.setattr("owlmine.evaluate.of_model._BLOCK_ROWS", 7)
    seen: list[tuple[int, int]] = []
    parts = evaluate_model(predictor, split, progress=lambda done, total: seen.append((done, total)))
    assert parts.figures == pytest.approx(whole.figures, nan_ok=True)
    assert seen[0] == (7, 60)
    assert seen[-1] == (60, 60)


def test_never_more_rows_than_a_block_nor_more_places_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor, split = owlmine.load(sparse_model()), Store.open(sparse_store())["test"]
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr("owlmine.evaluate.of_model._BLOCK_ROWS", 16)

    class Watched(Predictor):
        def answer(self, features: Any, k: int, **options: Any) -> Any:
            asked.append((len(features), k))
            return super().answer(features, k, **options)

    predictor = Watched(**{field.name: getattr(predictor, field.name) for field in fields(Predictor)})
    evaluate_model(predictor, split, ks=[3])
    most = max(np.bincount(split.filter_pairs[:, 0]))
    assert max(rows for rows, _ in asked) == 16
    assert max(k for _, k in asked) == 3 + most


def test_points_without_labels_count_as_zero() -> None:
    predictor, split = owlmine.load(text_model()), Store.open(text_store())["test"]
    judged = evaluate_model(predictor, split)
    assert judged.without_label == 1
    labels = [row for row in range(len(split)) if len(split.labels.slice(row, row + 1).indices)]
    hits = evaluate_model(predictor, _only(split, np.array(labels))).figures["P@1"]
    assert judged.figures["P@1"] == pytest.approx(hits * len(labels) / len(split))


def _only(split: Any, rows: Any) -> Any:
    """The same split with these rows alone."""

    class Chosen:
        name, filter_pairs = split.name, None

        def __len__(self) -> int:
            return len(rows)

        def blocks(self, num_rows: int) -> Any:
            for start in range(0, len(rows), num_rows):
                yield split.batch(rows[start : start + num_rows])

    return Chosen()


def test_default_cut_offs_follow_the_classes_and_asked_ones_must_fit() -> None:
    predictor, split = owlmine.load(MODELS["dense"][0]()), Store.open(MODELS["dense"][2]())["test"]
    assert evaluate_model(predictor, split).ks == (1, 3, 5)
    assert evaluate_model(predictor, split, ks=[5, 2, 5]).ks == (2, 5)
    for ks in ([8], [0, 1], []):
        with pytest.raises(OwlmineError, match="wanted 1 to 7"):
            evaluate_model(predictor, split, ks=ks)


def test_an_empty_split_is_refused() -> None:
    predictor, split = owlmine.load(text_model()), Store.open(text_store())["test"]
    with pytest.raises(OwlmineError, match="the test split has no points"):
        evaluate_model(predictor, _only(split, np.zeros(0, np.int64)))


def test_bins_count_classes_and_labels() -> None:
    predictor, split = owlmine.load(text_model()), Store.open(text_store())["test"]
    judged = evaluate_model(predictor, split)
    assert sum(size.classes for size in judged.bins.values()) == 12
    assert sum(size.labels for size in judged.bins.values()) == len(split.labels.indices)
    assert math.isnan(judged.figures["R@1/head"])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Classes of unequal frequency."""
    options = SyntheticOptions(num_classes=30, train_points=600, test_points=50, labels_per_point=2)
    return synthesize(tmp_path_factory.mktemp("evaluate") / "store", options)


@pytest.fixture(scope="module")
def calibrated(store: Store) -> Predictor:
    """A model with probabilities, whose data have a name with propensity constants of its own."""
    return fit(store, OPTIONS.with_(validation=0.2), name="Amazon-670K.store")


def test_propensities_have_the_constants_of_training_unless_others_are_given(
    calibrated: Predictor, store: Store
) -> None:
    split = store["test"]
    amazon, others = PropensityConstants(0.6, 2.6), PropensityConstants(0.5, 0.4)
    assert evaluate_model(calibrated, split).constants == amazon
    for constants in (amazon, others):
        figures = evaluate_model(calibrated, split, ks=[3], constants=constants).figures
        assert figures["PSP@3"] == pytest.approx(looped(calibrated, split, 3, constants=constants)["PSP"])


@pytest.mark.parametrize("constants", [None, PropensityConstants(0.5, 0.4)])
def test_rare_classes_are_lifted_before_anything_is_measured(
    calibrated: Predictor, store: Store, constants: PropensityConstants | None
) -> None:
    split = store["test"]
    lifted = evaluate_model(calibrated, split, ks=[1, 3], constants=constants, tail=1.0)
    own = constants or PropensityConstants(0.6, 2.6)
    for k in (1, 3):
        for name, value in looped(calibrated, split, k, constants=own, tail=1.0).items():
            assert lifted.figures[f"{name}@{k}"] == pytest.approx(value), name
    assert lifted.figures != evaluate_model(calibrated, split, ks=[1, 3], constants=constants).figures


def test_nothing_is_lifted_without_probabilities() -> None:
    predictor, split = owlmine.load(text_model()), Store.open(text_store())["test"]
    with pytest.raises(OwlmineError, match="the model has no probabilities"):
        evaluate_model(predictor, split, tail=0.5)
    with pytest.raises(OwlmineError, match=r"tail is 1\.5; wanted .*0 to 1"):
        evaluate_model(predictor, split, tail=1.5)


def test_calibration_is_measured_on_the_first_places(calibrated: Predictor, store: Store) -> None:
    split = store["test"]
    reliability = evaluate_model(calibrated, split).reliability
    assert reliability is not None
    assert sum(one.count for one in reliability.bins) == 5 * len(split)
    labels = [set(split.labels.slice(row, row + 1).indices.tolist()) for row in range(len(split))]
    answers = calibrated.answer(split.batch(np.arange(len(split))).queries, 5)
    hits = [c in own for ids, own in zip(answers.ids_Nk.tolist(), labels, strict=True) for c in ids]
    assert sum(one.count * one.hits for one in reliability.bins) == pytest.approx(sum(hits))
    expected = sum(one.count * one.probability for one in reliability.bins)
    assert expected == pytest.approx(float(answers.probabilities_Nk.sum()))
    uncalibrated = replace(calibrated, record=replace(calibrated.record, calibration=None))
    assert evaluate_model(uncalibrated, split).reliability is None


def test_json_has_no_nan(calibrated: Predictor, store: Store) -> None:
    split = store["test"]
    record = evaluate_model(calibrated, split, cuts=FrequencyCuts(head=10_000, torso=1)).to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["R@1/head"] is None  # no class is so frequent
    assert record["propensity"] == {"a": 0.6, "b": 2.6}
    assert record["calibration"]["places"] == 5


def test_two_training_points_are_too_few_for_propensities(tmp_path: Path) -> None:
    points = (["red apple", "blue berry"], [["a"], ["b"]])
    store = convert({"train": points, "test": points}, tmp_path / "store", ConvertOptions(min_df=1, max_df=1.0))
    predictor = fit(store, TrainOptions.of(dim=4, epochs=1, validation=0, device="cpu"))
    judged = evaluate_model(predictor, store["test"])
    assert judged.constants is None
    assert "PSP@1" not in judged.figures
    assert "P@1" in judged.figures


def test_picture(tmp_path: Path) -> None:
    predictor, split = owlmine.load(text_model()), Store.open(text_store())["test"]
    judged: Evaluation = evaluate_model(predictor, split, ks=[1])
    plot_evaluation(judged, tmp_path / "one.png", title="a title")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OwlmineError, match="cannot be written: "):
        plot_evaluation(judged, tmp_path / "no" / "one.png", title="a title")
