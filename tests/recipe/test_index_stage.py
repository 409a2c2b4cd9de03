"""The index in the recipe: built where classes are many, used for every list, and saved with the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from owlmine.data import Store, convert
from owlmine.errors import OwlmineError
from owlmine.index import ApproximateIndex, ExactIndex, approximate
from owlmine.model import load
from owlmine.recipe import plan
from owlmine.recipe.options import TrainOptions
from owlmine.run import train

from .test_fit import fitted

pytest.importorskip("faiss")

NUM_CLASSES = 1_200
OPTIONS = TrainOptions.of(dim=8, heads=1, epochs=1, device="cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    numbers = np.arange(3 * NUM_CLASSES) % NUM_CLASSES
    texts = [f"a{n % 40} b{n % 31} c{n % 29} d{n % 37}" for n in numbers]
    points = (texts, [[f"class {n}"] for n in numbers])
    return convert({"train": points, "test": points}, tmp_path_factory.mktemp("data") / "many.store")


@pytest.fixture(autouse=True)
def few_classes_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "INDEX_FROM", NUM_CLASSES)


def no_faiss(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plan, approximate):
        monkeypatch.setattr(module, "faiss_module", lambda: None)


def test_all_lists_come_from_one_index(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searching: list[ApproximateIndex] = []
    for name in ("search", "rough"):
        found = getattr(ApproximateIndex, name)
        monkeypatch.setattr(
            ApproximateIndex, name, lambda own, *rest, found=found: searching.append(own) or found(own, *rest)
        )
    predictor, messages = fitted(store, OPTIONS)
    assert isinstance(predictor.index, ApproximateIndex)
    assert len(set(map(id, searching))) == 2, "of the rehearsal and of the model"
    assert "an index of 1,200 classes" in messages
    model = train(store, tmp_path / "model", OPTIONS)
    assert model.record.plan["index"] is True
    queries = store["test"].batch(np.arange(40)).queries
    loaded = load(tmp_path / "model")
    assert isinstance(loaded.index, ApproximateIndex)
    for other in (predictor, loaded):
        np.testing.assert_array_equal(other.answer(queries, 5).ids_Nk, model.answer(queries, 5).ids_Nk)


def test_without_faiss_it_says_what_faiss_would_bring(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    no_faiss(monkeypatch)
    predictor, messages = fitted(store, OPTIONS)
    assert isinstance(predictor.index, ExactIndex)
    assert sum("pip install '.[index]'" in message for message in messages) == 1


def test_few_classes_need_no_faiss(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "INDEX_FROM", NUM_CLASSES + 1)
    no_faiss(monkeypatch)
    predictor, messages = fitted(store, OPTIONS)
    assert isinstance(predictor.index, ExactIndex)
    assert not any("faiss" in message for message in messages)


def test_a_run_with_faiss_is_not_resumed_without(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(store, tmp_path / "model", OPTIONS)
    (tmp_path / "model" / "config.json").unlink()  # as if it had been killed at the end
    no_faiss(monkeypatch)
    with pytest.raises(OwlmineError, match="index is False, was True"):
        train(store, tmp_path / "model", OPTIONS, resume=True)
