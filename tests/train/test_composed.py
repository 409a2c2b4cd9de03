"""Models side by side with a re-ranker: what is trained, kept, resumed and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import owlmine
from owlmine.data import Store
from owlmine.errors import DataError, OwlmineError
from owlmine.evaluate import inverse_propensities
from owlmine.model.folder import verify_model
from owlmine.model.heads import join_models
from owlmine.rerank import LinearRanker
from owlmine.train import Stopped, TrainOptions, choose_mix, fit_reranker, train
from owlmine.train.composition import composition, without_open_sizes
from owlmine.train.validate import validation_part

from .runs import Listener, small_options, stop_after


def composed_options(**changes: Any) -> TrainOptions:
    chosen = {"loss": "mined-softmax", "heads": 2, "shortlist": 8, "validation": 0.2, "seed": 3, "feature_rate": 0.3}
    return small_options(**(chosen | changes))


def let_neighbours_vote(kind: str, patch: pytest.MonkeyPatch) -> None:
    """Whatever validation says."""
    mix = choose_mix.Mix(kind=kind, power=4.0, vote_weight=0.4)
    patch.setattr(fit_reranker, "choose_mix", lambda *given: (mix, 0.0))


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    predictor = owlmine.load(folder)
    assert predictor.reranker is not None
    return predictor.retriever.tensors() | {f"ranker.{n}": t for n, t in predictor.reranker.tensors().items()}


def test_members_are_ordinary_runs(store: Store, tmp_path: Path) -> None:
    options, listener = composed_options(), Listener()
    predictor = train(store, tmp_path / "model", options, reporter=listener)
    alone = [
        train(store, tmp_path / str(seed), replace(options, seed=seed, heads=0, shortlist=0)).retriever
        for seed in (6, 7)
    ]
    for name, tensor in join_models(alone).tensors().items():
        assert torch.equal(predictor.retriever.tensors()[name], tensor), name
    assert [message for message in listener.messages if message.startswith("model")] == ["model 1 of 2", "model 2 of 2"]
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == [
        "README.md",
        "classes.safetensors",
        "config.json",
        "features.safetensors",
        "metrics.jsonl",
        "reranker.safetensors",
        "run.json",
        "weights.safetensors",
    ]
    lines = [json.loads(line) for line in (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["model"], line["epoch"]) for line in lines] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert "| together, re-ranked |" in (tmp_path / "model" / "README.md").read_text("utf-8")


def test_a_loaded_model_answers_alike(store: Store, tmp_path: Path) -> None:
    predictor = train(store, tmp_path / "model", composed_options())
    loaded, queries = owlmine.load(tmp_path / "model"), store["test"].batch(np.arange(20)).queries
    assert verify_model(tmp_path / "model") == []
    for k in (1, 8, 20, 60):
        for found, wanted in zip(loaded.top(queries, k), predictor.top(queries, k), strict=True):
            np.testing.assert_array_equal(found, wanted)
    few = np.array([3, 5, 8], np.int64)
    assert set(loaded.top(queries, 3, among=few)[1].ravel().tolist()) == set(few.tolist())


def test_the_order_is_that_of_both_scores(store: Store, tmp_path: Path) -> None:
    predictor = train(store, tmp_path / "model", composed_options())
    assert predictor.reranker is not None
    predictor.reranker = replace(predictor.reranker, weight=0.5)
    queries = store["test"].batch(np.arange(20)).queries
    scores, ids = predictor.shortlist(queries, 8)
    both = scores + 0.5 * predictor.reranker.ranker.scores(queries, ids)  # type: ignore[arg-type]
    both += predictor.reranker.offsets_K[ids]
    np.testing.assert_array_equal(
        predictor.top(queries, 3)[1], np.take_along_axis(ids, np.argsort(-both, axis=1)[:, :3], axis=1)
    )


@pytest.mark.parametrize("at", [3, 17])
def test_stopped_and_resumed(store: Store, tmp_path: Path, at: int) -> None:
    """In the first model, and, as the steps of each are numbered anew, twice in a run of two."""
    options = composed_options()
    train(store, tmp_path / "whole", options)
    with pytest.MonkeyPatch.context() as patch:
        stop_after(at % 10, patch)
        with pytest.raises(Stopped):
            train(store, tmp_path / "parts", options)
        if at > 10:
            with pytest.raises(Stopped):
                train(store, tmp_path / "parts", options, resume=True)
    train(store, tmp_path / "parts", options, resume=True)
    whole, parts = tensors_of(tmp_path / "whole"), tensors_of(tmp_path / "parts")
    for name, tensor in whole.items():
        assert torch.equal(tensor, parts[name]), name


def test_stopped_at_the_reranker(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = composed_options()

    def fails(*given: Any, **named: Any) -> LinearRanker:
        raise Stopped(15, "stopped")

    with monkeypatch.context() as patch:
        patch.setattr(fit_reranker, "train_linear", fails)
        with pytest.raises(Stopped):
            train(store, tmp_path / "model", options)
    assert not (tmp_path / "model" / "config.json").exists()
    listener = Listener()
    train(store, tmp_path / "model", options, resume=True, reporter=listener)
    assert not listener.steps, "finished models are not trained again"
    assert not (tmp_path / "model" / "members").exists()


def test_event_files_of_all_models_are_kept(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train(store, tmp_path / "model", composed_options(tensorboard=True))
    folders = sorted(folder.name for folder in (tmp_path / "model" / "tensorboard").iterdir())
    assert folders == ["model-1", "model-2"]


def test_other_options_are_not_resumed(store: Store, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(Stopped):
            train(store, tmp_path / "model", composed_options())
    with pytest.raises(OwlmineError, match="tells of other options or data"):
        train(store, tmp_path / "model", composed_options(shortlist=9), resume=True)


def test_the_mix_is_chosen_on_validation_points(store: Store, tmp_path: Path) -> None:
    options = composed_options(heads=0)
    predictor = train(store, tmp_path / "model", options)
    part, reranker = validation_part(store, options), predictor.reranker
    assert reranker is not None
    rarity = np.log(inverse_propensities(store.class_counts, len(store["train"]))).astype(np.float32)

    def figure() -> float:
        hits = []
        for batch in part.batches():
            ids = predictor.top(batch.queries, 5)[1]
            labels = [set(batch.labels[i : i + 1].indices.tolist()) for i in range(len(batch.labels))]
            hits += [[c in own for c in row] for row, own in zip(ids.tolist(), labels, strict=True)]
        return float(np.mean([100 * np.array(hits)[:, :k].mean() for k in (1, 3, 5)]))

    chosen, others = figure(), []
    for weight in choose_mix._WEIGHTS[::3]:
        for lift in choose_mix._LIFTS[::2]:
            predictor.reranker = replace(reranker, weight=weight, offsets_K=np.float32(lift) * rarity)
            others.append(figure())
    assert chosen >= max(others) - 1e-9
    assert max(others) > min(others)


def test_without_validation_points(store: Store, tmp_path: Path) -> None:
    predictor = train(store, tmp_path / "model", composed_options(heads=0, validation=0.0))
    assert predictor.reranker is not None
    assert predictor.reranker.weight == 0.2
    assert predictor.config["kept"] == {}


@pytest.mark.parametrize(
    ("chosen", "device", "num_points", "expected"),
    [
        ({"recipe": "single"}, "cuda", 10**6, (1, 0, 0)),
        ({"recipe": "best"}, "cuda", 10**6, (3, 50, 30)),
        ({}, "cuda", 10**6, (3, 50, 30)),
        ({}, "cuda", 100_000, (5, 50, 30)),
        ({}, "cuda", 5_000, (8, 50, 30)),
        ({}, "cpu", 10**6, (1, 50, 30)),
        ({}, "cpu", 20, (5, 50, 20)),
        ({}, "cpu", 45_000, (3, 50, 30)),
        ({"heads": 2, "shortlist": 9, "neighbours": 4}, "cpu", 10**6, (2, 9, 4)),
        ({"kind": "linear"}, "cuda", 10**6, (1, 50, 30)),
        ({"recipe": "single", "shortlist": 500}, "cpu", 10**6, (1, 60, 0)),
    ],
)
def test_what_a_recipe_stands_for(
    chosen: dict[str, Any], device: str, num_points: int, expected: tuple[int, int, int]
) -> None:
    parts = composition(
        TrainOptions(**chosen),
        device=torch.device(device),
        dense=False,
        num_classes=60,
        num_points=num_points,
        has_dev=False,
    )
    assert (parts.heads, parts.shortlist, parts.neighbours) == expected
    assert parts.dense_neighbours == (device == "cuda" or "neighbours" in chosen)


@pytest.mark.parametrize(
    ("chosen", "num_points", "has_dev", "share"),
    [
        ({}, 4_880, False, 0.2),
        ({}, 20_000, False, 0.05),
        ({}, 25_000, False, 0.0),
        ({}, 4_880, True, 0.0),
        ({"validation": 0.0}, 4_880, False, 0.0),
        ({"validation": 0.2}, 4_880, False, 0.0),
        ({"validation": 0.3}, 1_000, False, 0.3),
        ({"patience": 2}, 4_880, False, 0.0),
        ({"validation_block": 50}, 40, False, 0.0),
        ({}, 4, False, 0.0),
        ({"recipe": "single", "shortlist": 5}, 4_880, False, 0.0),
    ],
)
def test_when_there_is_a_rehearsal(chosen: dict[str, Any], num_points: int, has_dev: bool, share: float) -> None:
    options = TrainOptions(**chosen)
    parts = composition(
        options, device=torch.device("cpu"), dense=False, num_classes=60, num_points=num_points, has_dev=has_dev
    )
    assert parts.rehearsal == pytest.approx(share)


def test_a_rehearsal_chooses_and_all_points_are_learned_from(store: Store, tmp_path: Path) -> None:
    listener = Listener()
    options = small_options(recipe="best", heads=2, shortlist=8, seed=3, feature_rate=0.3, loss="mined-softmax")
    predictor = train(store, tmp_path / "model", options, reporter=listener)
    assert "a rehearsal, which leaves out 20% of the training points to choose on" in listener.messages
    alone = [
        train(
            store,
            tmp_path / str(seed),
            replace(options, recipe="single", heads=0, shortlist=0, seed=seed, validation=0.0),
        ).retriever
        for seed in (6, 7)
    ]
    for name, tensor in join_models(alone).tensors().items():
        assert torch.equal(predictor.retriever.tensors()[name], tensor), name
    assert predictor.config["kept"]["P@1"] > 0
    assert predictor.calibration is not None
    assert predictor.calibration.num_points == len(store["train"]) // 5
    assert predictor.config["options"]["validation"] == options.validation
    card = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert "the same models trained without 20% of the training points" in card


@pytest.mark.parametrize("stops", [1, 2])
def test_a_rehearsal_is_resumed(store: Store, tmp_path: Path, stops: int) -> None:
    options = small_options(recipe="best", heads=1, shortlist=8, seed=3, feature_rate=0.3, loss="mined-softmax")
    train(store, tmp_path / "whole", options)
    for number in range(stops):
        with pytest.MonkeyPatch.context() as patch:
            stop_after(7, patch)
            with pytest.raises(Stopped):
                train(store, tmp_path / "parts", options, resume=number > 0)
    train(store, tmp_path / "parts", options, resume=True)
    whole, parts = tensors_of(tmp_path / "whole"), tensors_of(tmp_path / "parts")
    for name, tensor in whole.items():
        assert torch.equal(tensor, parts[name]), name


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_neighbours_that_vote_are_kept(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    let_neighbours_vote(kind, monkeypatch)
    predictor = train(store, tmp_path / "model", composed_options(neighbours=5))
    loaded, queries = owlmine.load(tmp_path / "model"), store["test"].batch(np.arange(20)).queries
    assert loaded.reranker is not None
    assert loaded.reranker.neighbours is not None
    assert (loaded.reranker.neighbours.kind, loaded.reranker.neighbours.count) == (kind, 5)
    for found, wanted in zip(loaded.top(queries, 8), predictor.top(queries, 8), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert verify_model(tmp_path / "model") == []
    loaded.reranker = replace(loaded.reranker, vote_weight=0.0)
    assert not np.array_equal(loaded.top(queries, 8)[0], predictor.top(queries, 8)[0])


@pytest.mark.parametrize("change", [{"num_classes": 10**6}, {"kind": "sparse"}])
def test_neighbours_of_another_model_are_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    let_neighbours_vote("dense", monkeypatch)
    train(store, tmp_path / "model", composed_options(heads=0, epochs=0.2, neighbours=5))
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    config["reranker"]["neighbours"] |= change
    file.write_text(json.dumps(config))
    with pytest.raises(DataError, match="a model that cannot be read"):
        owlmine.load(tmp_path / "model")


def test_the_best_recipe_leaves_sizes_to_the_device() -> None:
    open_sizes = TrainOptions(recipe="best")
    assert (open_sizes.dim, open_sizes.epochs) == (0, 0.0)
    for device, num_points, expected in (
        ("cuda", 10**6, (512, 15.0)),
        ("cpu", 10**6, (128, 5.0)),
        ("cpu", 45_000, (128, 8.0)),
    ):
        found = without_open_sizes(open_sizes, device=torch.device(device), dense=False, num_points=num_points)
        assert (found.dim, found.epochs) == expected
    given = TrainOptions(recipe="best", dim=64, epochs=2.0)
    assert without_open_sizes(given, device=torch.device("cpu"), dense=False, num_points=5) == given


@pytest.mark.parametrize(("kind", "dense"), [("linear", False), ("embedding", True)])
def test_no_small_model_where_nothing_makes_up_for_it(kind: str, dense: bool) -> None:
    options = TrainOptions(recipe="best", kind=kind)
    found = without_open_sizes(options, device=torch.device("cpu"), dense=dense, num_points=10**6)
    assert (found.dim, found.epochs) == (512, 15.0)


def test_sizes_of_a_single_model() -> None:
    single = TrainOptions(recipe="single")
    assert (single.dim, single.epochs) == (512, 15.0)
    assert replace(TrainOptions(), recipe="single") == single


def test_dense_queries_have_no_reranker(dense_store: Store, tmp_path: Path) -> None:
    options = small_options(recipe="best", loss="mined-softmax", map_rate=0.01)
    assert train(dense_store, tmp_path / "model", options).reranker is None
    with pytest.raises(OwlmineError, match="shortlist is 5; wanted 0 with dense queries"):
        train(dense_store, tmp_path / "other", replace(options, shortlist=5))
    with pytest.raises(OwlmineError, match="neighbours is 5; wanted 0 with dense queries"):
        train(dense_store, tmp_path / "other", replace(options, neighbours=5))


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_queries_are_encoded_again_for_their_vectors_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    let_neighbours_vote(kind, monkeypatch)
    predictor = train(store, tmp_path / "model", composed_options(heads=0, epochs=0.2, neighbours=5))
    calls = []
    encode = predictor.retriever.encode
    monkeypatch.setattr(predictor.retriever, "encode", lambda queries: calls.append(1) or encode(queries))
    predictor.top(store["test"].batch(np.arange(20)).queries, 3)
    assert len(calls) == (2 if kind == "dense" else 1)


def test_a_run_from_before_an_option_came_is_known(store: Store, tmp_path: Path) -> None:
    options = small_options()
    train(store, tmp_path / "model", options)
    file = tmp_path / "model" / "run.json"
    told = json.loads(file.read_text())
    del told["options"]["neighbours"]
    file.write_text(json.dumps(told))
    train(store, tmp_path / "model", options, resume=True)


def test_neighbours_need_a_shortlist(store: Store, tmp_path: Path) -> None:
    with pytest.raises(OwlmineError, match="neighbours is 5; wanted 0 without --shortlist or --recipe best"):
        train(store, tmp_path / "model", small_options(neighbours=5))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("heads", -1, "heads is -1; wanted 0 or more"),
        ("shortlist", -1, "shortlist is -1; wanted 0 or more"),
        ("neighbours", -1, "neighbours is -1; wanted 0 or more"),
        ("dim", -1, "dim is -1; wanted 1 or more, or 0"),
        ("epochs", -1.0, "epochs is -1.0; wanted above 0, or 0"),
        ("recipe", "worst", "recipe is 'worst'; wanted one of best, single"),
    ],
)
def test_bad_options(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainOptions(**{name: value})


@pytest.mark.parametrize("told", [{"weight": "much", "shortlist": 5}, {"weight": 1.0}, {"weight": -1, "shortlist": 5}])
def test_a_harmed_reranker_is_refused(store: Store, tmp_path: Path, told: dict[str, Any]) -> None:
    train(store, tmp_path / "model", composed_options(heads=0, epochs=0.2))
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"reranker": told}))
    with pytest.raises(DataError, match="a model that cannot be read"):
        owlmine.load(tmp_path / "model")
    assert "config.json" in verify_model(tmp_path / "model")
