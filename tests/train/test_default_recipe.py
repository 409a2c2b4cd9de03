"""What a run without options does, with data of every size, and what it says of itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import owlmine
from owlmine.data import ConvertOptions, Store, convert
from owlmine.errors import OwlmineError
from owlmine.train import Stopped, TrainOptions, train

from .runs import Listener, curves_of, small_options, stop_after


def brief_options(**changes: Any) -> TrainOptions:
    """The default recipe, of small and few models."""
    chosen = {"dim": 8, "epochs": 1.0, "batch_size": 40, "heads": 2, "device": "cpu"}
    return TrainOptions(**(chosen | changes))


def card_of(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8")


def test_a_model_and_its_card_without_any_option(store: Store, tmp_path: Path) -> None:
    predictor = train(store, tmp_path / "model")
    assert predictor.reranker is not None
    assert predictor.config["options"]["recipe"] == "best"
    assert (predictor.retriever.shape.heads, predictor.retriever.shape.dim) == (5, 5 * 128)
    assert owlmine.load(tmp_path / "model").reranker is not None
    card = card_of(tmp_path / "model")
    assert "5 models side by side, each embedding, dimension 128, depth 1." in card
    assert "Options that differ from the defaults: none." in card
    assert "Its 50 best classes are judged again by linear classifiers" in card


def test_a_single_model_and_its_card(store: Store, tmp_path: Path) -> None:
    predictor = train(store, tmp_path / "model", TrainOptions(recipe="single", epochs=0.1, device="cpu"))
    assert predictor.reranker is None
    assert predictor.retriever.shape.heads == 1
    card = card_of(tmp_path / "model")
    assert "parameters: embedding, dimension 512, depth 1." in card
    assert "Options that differ from the defaults: epochs = 0.1, recipe = single, device = cpu." in card
    assert "judged again" not in card


@pytest.mark.parametrize("num_points", [2, 3, 4, 5, 12])
def test_a_handful_of_points(tmp_path: Path, num_points: int) -> None:
    words = ("apple", "berry", "castle", "desert")
    points = [f"{words[n % 4]} {words[n % 3]} {n % 5}" for n in range(num_points)], [[n % 2] for n in range(num_points)]
    store = convert({"train": points}, tmp_path / "store", ConvertOptions(min_df=1, max_df=1.0))
    predictor = train(store, tmp_path / "model", brief_options())
    assert predictor.reranker is not None
    answers = owlmine.load(tmp_path / "model").predict(["apple", "desert"], k=2)
    assert [sorted(answer.key for answer in row) for row in answers] == [["0", "1"], ["0", "1"]]


def test_without_validation_points_it_is_said_what_counts(store: Store, tmp_path: Path) -> None:
    listener = Listener()
    predictor = train(store, tmp_path / "model", brief_options(validation=0.0), reporter=listener)
    assert predictor.reranker is not None
    assert (predictor.reranker.weight, predictor.reranker.neighbours) == (0.2, None)
    told = [message for message in listener.messages if "no validation points" in message]
    assert told == [
        "the linear model (cost 1) counts 0.2 times, no neighbours vote, rare classes are lifted by 0,"
        " as there are no validation points to choose by"
    ]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"pool": 60}, "pool is 60; wanted at most 59"),
        ({"depth": 9}, "depth is 9; wanted 0 to 8"),
        ({"kind": "square"}, "kind is 'square'; wanted embedding or linear"),
        ({"loss": "softmax", "shared_pool": False}, "shared_pool is off; wanted it on with a loss over all classes"),
        ({"validation_block": 400}, "validation_block is 400 with validation 0.02, which takes all 400 points"),
        ({"validation_block": 6_000}, "validation_block is 6000; wanted at most 5,000"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_no_model_can_be_trained_with_leaves_nothing(
    store: Store, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(OwlmineError, match=told):
        train(store, tmp_path / "deep" / "model", brief_options(**changes))
    assert list(tmp_path.iterdir()) == []


def test_a_linear_model_is_judged_again_too(store: Store, tmp_path: Path) -> None:
    predictor = train(store, tmp_path / "model", brief_options(kind="linear", heads=0))
    assert predictor.reranker is not None
    assert predictor.retriever.shape.heads == 1
    assert "parameters: linear." in card_of(tmp_path / "model")


def test_patience_keeps_the_best_epoch_of_each_model(store: Store, tmp_path: Path) -> None:
    options = brief_options(epochs=6.0, patience=6, validation=0.1)
    history = train(store, tmp_path / "model", options).config["history"]
    card = card_of(tmp_path / "model")
    for number in (1, 2):
        figures = [record["P@1"] for record in history if record["model"] == number]
        assert len(figures) == 6
        assert f"| model {number} | {max(figures):.2f} |" in card


def test_curves_of_a_rehearsal_are_kept(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train(store, tmp_path / "model", brief_options(tensorboard=True))
    folder = tmp_path / "model" / "tensorboard"
    for number in (1, 2):
        assert "validation/P@1" in curves_of(folder / "rehearsal" / f"model-{number}")
        # The model itself has learned from all points.
        assert "validation/P@1" not in curves_of(folder / f"model-{number}")
        assert "loss" in curves_of(folder / f"model-{number}")


def test_what_differs_is_named(store: Store, store_with_dev: Store, tmp_path: Path) -> None:
    options = small_options(pool=10)
    with pytest.MonkeyPatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(Stopped):
            train(store, tmp_path / "model", options)
    best = replace(options, recipe="best", epochs=0.0)
    with pytest.raises(OwlmineError, match=r"\(epochs is 8.0, was 2.0; recipe is 'best', was 'single'\)"):
        train(store, tmp_path / "model", best, resume=True)
    with pytest.raises(OwlmineError, match=r"\(the data are others\)"):
        train(store_with_dev, tmp_path / "model", options, resume=True)


def test_a_run_from_before_recipes_is_one_of_a_single_model(store: Store, tmp_path: Path) -> None:
    train(store, tmp_path / "model", small_options())
    file = tmp_path / "model" / "run.json"
    told = json.loads(file.read_text())
    del told["options"]["recipe"]
    file.write_text(json.dumps(told))
    train(store, tmp_path / "model", small_options(), resume=True)
    with pytest.raises(OwlmineError, match="recipe is 'best', was 'single'"):
        train(store, tmp_path / "model", replace(small_options(), recipe="best"), resume=True)
