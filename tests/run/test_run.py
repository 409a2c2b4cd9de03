"""What a run leaves behind when nothing disturbs it: a model, and a card that says what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from owlmine.data import Store
from owlmine.index import Filter
from owlmine.model import load
from owlmine.recipe.options import TrainOptions
from owlmine.run import train
from owlmine.run.checkpoints import BestWeights

from ..answers import assert_same_answers
from .runs import best_options, ensemble_options, measure_by_hand, metrics_of, small_options


def card_of(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8")


def test_a_model_and_its_card_without_any_option(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "model"
    model = train(store, out)
    heads, dim = (8, 512) if torch.cuda.is_available() else (5, 128)
    assert (model.dense.shape.heads, model.dense.shape.dim) == (heads, heads * dim)
    assert model.record.options == TrainOptions().binding()
    assert model.record.options["recipe"] == "best"
    assert {"linear", "rarity"} <= set(model.ranker.judges)
    assert load(out).ranker.mix == model.ranker.mix
    card = card_of(out)
    assert f"an ensemble of {heads} encoders, dimension {dim}, depth 1 each." in card
    assert "Options that differ from the defaults: none." in card
    assert f"The best 50 classes are re-ranked; {model.ranker.mix}." in card
    assert "| complete model | " in card
    assert "a rehearsal: the same recipe trained without 20% of the training points" in card


def test_a_single_model_and_its_card(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "model"
    model = train(store, out, TrainOptions.of(recipe="single", epochs=0.1, device="cpu"))
    assert model.ranker.judges == {}
    assert model.dense.shape.heads == 1
    card = card_of(out)
    assert "parameters: an encoder, dimension 512, depth 1." in card
    assert "Options that differ from the defaults: recipe = single, epochs = 0.1, device = cpu." in card
    assert "Classes are ordered by the dense score." in card
    assert "re-ranked" not in card


def test_a_linear_model_and_its_card(store: Store, tmp_path: Path) -> None:
    options = best_options(kind="linear", heads=None, loss="bowl", epochs=1.0)
    assert train(store, tmp_path / "model", options).ranker.judges
    assert "parameters: a linear model. The best 8 classes are re-ranked;" in card_of(tmp_path / "model")


def test_the_folder_holds_the_model_that_the_run_gives(store: Store, tmp_path: Path) -> None:
    """The same answers within rounding, and the same record."""
    model = train(store, tmp_path / "model", ensemble_options(neighbours=5))
    again, queries = load(tmp_path / "model"), store["test"].batch(np.arange(20)).queries
    assert again.record == model.record
    few = np.array([3, 5, 8], np.int64)
    for k, among in ((1, None), (8, None), (20, None), (60, None), (3, few)):
        only = None if among is None else Filter.allowing(among, len(model.classes))
        found, wanted = again.answer(queries, k, only=only), model.answer(queries, k, only=only)
        assert_same_answers((found.scores_Nk, found.ids_Nk), (wanted.scores_Nk, wanted.ids_Nk))
    assert set(again.answer(queries, 3, only=Filter.allowing(few, len(model.classes))).ids_Nk.ravel().tolist()) == set(
        few.tolist()
    )


# The best epoch.


def test_the_best_epoch_of_each_model_is_on_the_card(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so of the last one too. The lines of metrics mark them."""
    measure_by_hand([10.0, 20.0, 15.0, 5.0, 6.0, 7.0], monkeypatch)
    out = tmp_path / "model"
    train(store, out, ensemble_options(epochs=3.0, patience=6))
    card = card_of(out)
    assert "| model 1, epoch 2 | 20.00 |" in card
    assert "| model 2, last epoch | 7.00 |" in card
    assert [(line["model"], line["epoch"]) for line in metrics_of(out) if line.get("best")] == [(1, 2), (2, 3)]


def test_figures_of_each_model_are_those_of_its_best_epoch(store: Store, tmp_path: Path) -> None:
    options = ensemble_options(epochs=6.0, patience=6, shortlist=None)
    history = train(store, tmp_path / "model", options).record.history
    for number in (1, 2):
        figures = [line["P@1"] for line in history if line["model"] == number]
        (row,) = (line for line in card_of(tmp_path / "model").splitlines() if line.startswith(f"| model {number}, "))
        assert len(figures) == 6
        assert row.split(" | ")[1] == f"{max(figures):.2f}"


@pytest.mark.parametrize("patience", [0, 1])
def test_without_validation_points_no_epoch_is_the_best(store: Store, tmp_path: Path, patience: int) -> None:
    train(store, tmp_path / "model", small_options(validation=0.0, patience=patience))
    assert not [line for line in metrics_of(tmp_path / "model") if "best" in line]
    card = card_of(tmp_path / "model")
    assert "P@1" not in card
    assert "weights are those" not in card


def test_a_card_does_not_claim_weights_that_were_lost(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best epoch was the first; its weights are gone, and the model has those of the last."""
    measure_by_hand([20.0, 10.0], monkeypatch)
    out, restore = tmp_path / "model", BestWeights.restore

    def lost(self: BestWeights, tensors: dict[str, Any]) -> None:
        (out / "best.safetensors").unlink()
        restore(self, tensors)

    monkeypatch.setattr(BestWeights, "restore", lost)
    train(store, out, small_options(patience=5))
    assert "The weights are those of epoch 2.\n" in card_of(out)
