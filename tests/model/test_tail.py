"""Rare classes lifted: the order by probability and inverse propensity, and what it trades."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.data import ConvertOptions, Store, SyntheticOptions, convert, synthesize
from owlmine.errors import OwlmineError
from owlmine.metrics import inverse_propensities
from owlmine.metrics.propensity import PropensityConstants
from owlmine.model.predictor import Predictor
from owlmine.model.tail import lifted_order
from owlmine.train import TrainOptions, train

from ..answers import assert_same_answers


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    options = SyntheticOptions(num_classes=60, train_points=500, test_points=100, labels_per_point=3, noise_features=6)
    return synthesize(tmp_path_factory.mktemp("tail") / "store", options)


@pytest.fixture
def predictor(store: Store, tmp_path: Path) -> Predictor:
    options = TrainOptions(recipe="single", dim=16, epochs=4, validation=0.2, device="cpu")
    return train(store, tmp_path / "model", options)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_order_against_a_loop(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    probabilities = data.draw(st.lists(st.floats(0.0, 1.0, width=32), min_size=count, max_size=count))
    ids = data.draw(st.lists(st.integers(-1, 7), min_size=count, max_size=count))
    strength = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    weights = np.array([1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0])
    found = lifted_order(np.array([probabilities], np.float32), np.array([ids]), weights, strength=strength)[0]
    worth = [-1.0 if c < 0 else p * weights[c] ** strength for p, c in zip(probabilities, ids, strict=True)]
    assert found.tolist() == sorted(range(count), key=lambda place: -worth[place])


def test_nothing_changes_without_strength(store: Store, predictor: Predictor) -> None:
    queries = store["test"].batch(np.arange(50)).queries
    before = predictor.top(queries, 5)
    predictor.lift_tail(0.0)
    for found, wanted in zip(predictor.top(queries, 5), before, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_model_of_two_points_has_no_propensities_and_needs_none(tmp_path: Path) -> None:
    points = ["red apple", "blue sky"], [["fruit"], ["weather"]]
    store = convert({"train": points}, tmp_path / "store", ConvertOptions(min_df=1, max_df=1.0))
    predictor = train(store, tmp_path / "model", TrainOptions(recipe="single", dim=4, epochs=1, device="cpu"))
    predictor.lift_tail(0.0)
    assert predictor.tail == 0


def test_precision_is_traded_for_propensity_scored_precision(store: Store, predictor: Predictor) -> None:
    """Judged by what the model expects: probabilities in place of hits, so that chance has no say."""
    queries = store["test"].batch(np.arange(100)).queries
    weights = inverse_propensities(store.class_counts, len(store["train"]))
    expected = []
    for strength in (0.0, 0.5, 1.0):
        predictor.lift_tail(strength, PropensityConstants())
        _, ids, probabilities = predictor.top_with_probabilities(queries, 3)
        assert probabilities is not None
        expected.append((float(probabilities.sum()), float((probabilities * weights[ids]).sum())))
    precision, scored = zip(*expected, strict=True)
    assert precision[0] > precision[1] > precision[2]
    assert scored[0] < scored[1] < scored[2]


def test_top_and_probabilities_agree(store: Store, predictor: Predictor) -> None:
    predictor.lift_tail(0.7)
    queries = store["test"].batch(np.arange(30)).queries
    scores, ids, probabilities = predictor.top_with_probabilities(queries, 4)
    assert_same_answers(predictor.top(queries, 4), (scores, ids))
    few = np.array([2, 3, 5, 8])
    assert set(predictor.top(queries, 4, among=few)[1].ravel().tolist()) == set(few.tolist())
    assert probabilities is not None
    assert ((probabilities >= 0) & (probabilities <= 1)).all()


def test_what_cannot_be_lifted(store: Store, predictor: Predictor, tmp_path: Path) -> None:
    for strength in (-0.1, 1.5, float("nan")):
        with pytest.raises(OwlmineError, match=r"strength is .*; wanted 0 to 1"):
            predictor.lift_tail(strength)
    options = TrainOptions(recipe="single", dim=16, epochs=1, validation=0.0, device="cpu")
    blind = train(store, tmp_path / "blind", options)
    with pytest.raises(OwlmineError, match="the model tells no probabilities"):
        blind.lift_tail(0.5)
