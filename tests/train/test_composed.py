"""Models side by side with a re-ranker: what is trained, kept, resumed and refused."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import owlmine
from owlmine.data import ConvertOptions, Store, convert
from owlmine.dense.retriever import join_models
from owlmine.errors import DataError, OwlmineError
from owlmine.metrics import inverse_propensities
from owlmine.model.folder import verify_model
from owlmine.model.predictor import Predictor
from owlmine.rank import LinearRanker, NameMatches
from owlmine.rank.names import rarities
from owlmine.train import Stopped, TrainOptions, choose_mix, composed, fit_reranker, train, trainer
from owlmine.train.composed import ComposedRun
from owlmine.train.composition import composition, without_open_sizes
from owlmine.train.validate import validation_part

from ..answers import assert_same_answers
from ..sealed import seal
from ..small_models import write_jsonl
from .runs import Listener, contents, signals_to_nobody, small_options, stop_after

COMMON = ("river", "castle", "falcon", "copper", "meadow", "lantern", "harbour", "pepper", "glacier", "saddle")
RARE = (
    *("accordion", "bassoon", "clarinet", "dulcimer", "euphonium", "flugelhorn", "harpsichord", "kettledrum"),
    *("mandolin", "piccolo", "recorder", "saxophone", "tambourine", "ukulele", "vibraphone", "zither"),
)
KEYS = {name: f"c{number:02}" for number, name in enumerate(COMMON + RARE)}


def composed_options(**changes: Any) -> TrainOptions:
    chosen = {"loss": "mined-softmax", "heads": 2, "shortlist": 8, "validation": 0.2, "seed": 3, "feature_rate": 0.3}
    return small_options(**(chosen | changes))


def let_neighbours_vote(kind: str, patch: pytest.MonkeyPatch) -> None:
    """Whatever validation says."""
    mix = choose_mix.Mix(kind=kind, power=4.0, vote_weight=0.4)
    patch.setattr(fit_reranker, "choose_mix", lambda evidence: (mix, 0.0))


def let_names_count(patch: pytest.MonkeyPatch, *, kind: str | None = None) -> list[choose_mix.Evidence]:
    """Whatever validation says, beside neighbours of a kind or without; back comes what it was asked by."""
    asked: list[choose_mix.Evidence] = []
    mix = choose_mix.Mix(name_weight=0.7)
    if kind is not None:
        mix = replace(mix, kind=kind, power=4.0, vote_weight=0.4)
    patch.setattr(fit_reranker, "choose_mix", lambda evidence: asked.append(evidence) or (mix, 0.0))
    return asked


def common_point(number: int) -> tuple[str, str]:
    """About one of ten things; an instrument is there too, in the plural, and says nothing."""
    one, other = COMMON[number % 10], COMMON[(number // 10 + 3) % 10]
    return f"{one} {one} with {RARE[number * 7 % 16]}s by a {('big', 'small', 'quiet')[number % 3]} {other}", one


def rare_points(first: int) -> list[tuple[str, str]]:
    """Every other instrument, with a word that stands beside each."""
    return [(f"{name}s by something {('big', 'small', 'quiet')[n % 3]}", name) for n, name in enumerate(RARE[first::2])]


def write_texts(folder: Path, *, names_beside: bool) -> Path:
    """Of each instrument training has a single text, which does not speak of it. Names are the keys of classes, or
    stand in a file beside them."""
    splits = {
        "train": [common_point(number) for number in range(200)] + [("nothing of note", name) for name in RARE],
        "dev": rare_points(0) + [common_point(number) for number in range(200, 208)],
        "test": rare_points(1),
    }
    folder.mkdir()
    for split, points in splits.items():
        rows = [{"text": text, "labels": [KEYS[name] if names_beside else name]} for text, name in points]
        write_jsonl(folder / f"{split}.jsonl", rows)
    if names_beside:
        lines = [f"{key}\t{name.title()} ({key})\n" for name, key in KEYS.items()]
        (folder / "labels.tsv").write_text("".join(lines))
    return folder


def train_points(folder: Path) -> tuple[list[str], list[list[str]]]:
    """Without the dev split beside them."""
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    return [row["text"] for row in rows], [row["labels"] for row in rows]


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("texts") / "data", names_beside=False)


@pytest.fixture(scope="session")
def text_store(text_folder: Path) -> Store:
    return convert(text_folder, text_folder.parent / "store")


@pytest.fixture(scope="session")
def labelled_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = write_texts(tmp_path_factory.mktemp("labelled") / "data", names_beside=True)
    return convert(folder, folder.parent / "store")


def text_options(**changes: Any) -> TrainOptions:
    return composed_options(**({"heads": 0, "shortlist": 5, "epochs": 3.0} | changes))


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
        assert_same_answers(loaded.top(queries, k), predictor.top(queries, k))
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


class StoppingAtEachMessage(Listener):
    """A run that is asked to stop whenever it tells something new."""

    def message(self, text: str) -> None:
        if text not in self.messages and not text.startswith("resumed"):
            super().message(text)
            signal.raise_signal(signal.SIGTERM)


def test_stopped_at_each_of_its_parts(store: Store, tmp_path: Path) -> None:
    """Before and between models, at shortlists, classifiers, neighbours and the mix, in a rehearsal and after it."""
    options = small_options(recipe="best", heads=2, shortlist=8, seed=3, feature_rate=0.3, loss="mined-softmax")
    out, listener, stops = tmp_path / "parts", StoppingAtEachMessage(), 0
    with signals_to_nobody():
        while not (out / "config.json").exists():
            with suppress(Stopped):
                train(store, out, options, resume=stops > 0, reporter=listener)
            stops += 1
            assert stops == len(listener.messages) or (out / "config.json").exists(), "each message stopped it"
    assert stops == len(listener.messages) + 1 >= 12
    train(store, tmp_path / "whole", options)
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("moment", ["member", "calibration", "curves", "saving"])
def test_a_signal_where_a_part_ends(store: Store, tmp_path: Path, moment: str) -> None:
    """One that a finished model leaves unheard is heard by the next; the last one is asked to stop once it is saved."""
    options, out = composed_options(), tmp_path / "parts"
    owner, name = {
        "member": (trainer, "save_model"),
        "calibration": (composed, "rank_points"),
        "curves": (ComposedRun, "_keep_curves"),
        "saving": (composed, "save_model"),
    }[moment]
    original = getattr(owner, name)

    def signalled(*given: Any, **named: Any) -> Any:
        patch.undo()
        signal.raise_signal(signal.SIGTERM)
        return original(*given, **named)

    told = {"member": "before model 2 of 2; go", "calibration": "at the calibration; go"}
    with pytest.MonkeyPatch.context() as patch, signals_to_nobody():
        patch.setattr(owner, name, signalled)
        with pytest.raises(Stopped, match=f"^stopped {told.get(moment, 'when the model was finished; it is in')}"):
            train(store, out, options)
    train(store, out, options, resume=True)
    train(store, tmp_path / "whole", options)
    assert contents(out) == contents(tmp_path / "whole")


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


def let_validation_choose(patch: pytest.MonkeyPatch) -> list[tuple[choose_mix.Evidence, choose_mix.Mix, float]]:
    """As ever; back comes what it was asked by and what it said."""
    chosen: list[tuple[choose_mix.Evidence, choose_mix.Mix, float]] = []

    def choose(evidence: choose_mix.Evidence) -> tuple[choose_mix.Mix, float]:
        chosen.append((evidence, *choose_mix.choose_mix(evidence)))
        return chosen[-1][1:]

    patch.setattr(fit_reranker, "choose_mix", choose)
    return chosen


def mean_precision(predictor: Predictor, store: Store, options: TrainOptions) -> float:
    """Of P@1, P@3 and P@5 in percent, by a loop over validation points."""
    found = []
    for batch in validation_part(store, options).batches():
        for row, ids in enumerate(predictor.top(batch.queries, 5)[1].tolist()):
            own = batch.labels[row : row + 1].indices.tolist()
            found.append(np.mean([sum(c in own for c in ids[:k]) / k for k in (1, 3, 5)]))
    return 100 * float(np.mean(found))


def test_the_mix_is_chosen_on_validation_points(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, chosen = composed_options(heads=0), let_validation_choose(monkeypatch)
    predictor = train(store, tmp_path / "model", options)
    (evidence, mix, figure), reranker = chosen[0], predictor.reranker
    assert reranker is not None
    rarity = np.log(inverse_propensities(store.class_counts, len(store["train"]))).astype(np.float32)
    batches = list(validation_part(store, options).batches())
    assert len(batches) == 1
    queries, labels = batches[0].queries, batches[0].labels
    scores, ids = predictor.shortlist(queries, 8)
    hits = [[c in labels[row : row + 1].indices for c in own] for row, own in enumerate(ids.tolist())]
    np.testing.assert_allclose(evidence.lists.scores_NS, scores, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(evidence.lists.hits_NS, hits)
    np.testing.assert_array_equal(evidence.lists.rarities_NS, rarity[ids])
    np.testing.assert_array_equal(evidence.linear[mix.cost], reranker.ranker.scores(queries, ids))  # type: ignore[arg-type]
    assert evidence.names_NS is None
    assert reranker.weight == mix.weight
    np.testing.assert_array_equal(reranker.offsets_K, np.float32(mix.lift) * rarity)
    assert figure == pytest.approx(mean_precision(predictor, store, options))


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
    assert_same_answers(loaded.top(queries, 8), predictor.top(queries, 8))
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
    seal(tmp_path / "model")
    with pytest.raises(DataError, match=r"reranker.safetensors: found content that cannot be read"):
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


@pytest.mark.parametrize("option", ["neighbours", "names"])
def test_a_run_from_before_an_option_came_is_known(store: Store, tmp_path: Path, option: str) -> None:
    options = small_options()
    train(store, tmp_path / "model", options)
    file = tmp_path / "model" / "run.json"
    told = json.loads(file.read_text())
    del told["options"][option]
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
    seal(tmp_path / "model")
    with pytest.raises(DataError, match=r"reranker.safetensors: found content that cannot be read"):
        owlmine.load(tmp_path / "model")


@pytest.mark.parametrize("which", ["text_store", "labelled_store"])
def test_a_class_that_was_seen_once_is_found_by_its_name(
    which: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its only training text does not speak of it, and the plural of its name stands in texts of others alone."""
    store: Store = request.getfixturevalue(which)
    batch = store["test"].batch(np.arange(8))
    wanted = batch.labels.indices[:, None]
    assert (store.class_counts[wanted] == 1).all()
    with_names = train(store, tmp_path / "with", text_options())
    assert with_names.reranker is not None
    assert with_names.reranker.name_weight > 0
    found = with_names.top(batch.queries, 5)[1] == wanted
    assert found.any(axis=1).all()
    assert found[:, 0].mean() > 0.5
    answers = with_names.predict(["mostly kettledrums"], k=5)[0]
    assert "kettledrum" in " ".join(one.name.lower() for one in answers)
    without = train(store, tmp_path / "without", text_options(names=False))
    assert without.reranker is not None
    assert without.reranker.names is None
    assert not (without.top(batch.queries, 5)[1] == wanted).any()
    assert with_names.config["kept"]["P@1"] > without.config["kept"]["P@1"] + 20


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, None),
        ({"heads": 2, "neighbours": 5}, "dense"),
        ({"neighbours": 5}, "sparse"),
    ],
)
def test_names_that_count_are_kept(
    text_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], kind: str | None
) -> None:
    let_names_count(monkeypatch, kind=kind)
    predictor = train(text_store, tmp_path / "model", text_options(**change))
    loaded, queries = owlmine.load(tmp_path / "model"), text_store["test"].batch(np.arange(8)).queries
    assert verify_model(tmp_path / "model") == []
    assert loaded.reranker is not None
    assert loaded.reranker.names is not None
    assert loaded.reranker.name_weight == 0.7
    assert (None if loaded.reranker.neighbours is None else loaded.reranker.neighbours.kind) == kind
    few = np.array([1, 12, 20], np.int64)
    for k, among in ((1, None), (5, None), (len(KEYS), None), (3, few)):
        assert_same_answers(loaded.top(queries, k, among=among), predictor.top(queries, k, among=among))
        assert (loaded.top(queries, k, among=among)[1] >= 0).all()
    assert "Names of classes that the query spells join them, and count 0.7 times." in (
        (tmp_path / "model" / "README.md").read_text("utf-8")
    )
    # Of a query that mixes topics the dense model is not sure, so names have room to count.
    mixed = predictor.prepare(["a piccolo and a kettledrum by the castle near a glacier"])
    before = predictor.top(mixed, 5)[0]
    predictor.reranker = replace(loaded.reranker, names=None, name_weight=0.0)
    assert np.abs(before - predictor.top(mixed, 5)[0]).max() > 0.01


@pytest.mark.parametrize("num_strange", [0, 90])
def test_names_are_weighed_by_the_words_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_strange: int
) -> None:
    """By names and not by keys, and by the share of documents that hold a word: texts of which no word is known are
    documents, and no points."""
    folder = write_texts(tmp_path / "data", names_beside=True)
    with (folder / "train.jsonl").open("a") as file:
        for number in range(num_strange):
            file.write(json.dumps({"text": f"strange{number}", "labels": [KEYS["river"]]}) + "\n")
    store = convert(folder, tmp_path / "store")
    let_names_count(monkeypatch)
    listener = Listener()
    predictor = train(store, tmp_path / "model", text_options(epochs=0.2), reporter=listener)
    words, frequencies = store.vocabulary, store.array("weighting.frequencies")
    assert words is not None
    assert frequencies is not None
    assert f"26 names of classes, beside {len(words)} words of queries" in listener.messages
    assert len(store["train"]) == 216
    wanted = NameMatches.of(list(words), rarities(frequencies, 216 + num_strange), list(store.class_names))
    assert predictor.reranker is not None
    assert predictor.reranker.names is not None
    for name, tensor in wanted.tensors().items():
        assert torch.equal(predictor.reranker.names.tensors()[name], tensor), name
    assert len(wanted.ranker.weights) >= len(KEYS)


def test_what_the_choice_of_names_is_made_by(
    text_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shortlists and what names suggest beside them, each with the score of its name: less where the dense model is
    sure."""
    asked = let_names_count(monkeypatch)
    predictor = train(text_store, tmp_path / "model", text_options(neighbours=5))
    names_NS, lists = asked[0].names_NS, asked[0].lists
    assert names_NS is not None
    assert asked[0].listed == 5
    queries, labels = text_store["dev"].batch(np.arange(8)).queries, text_store["dev"].batch(np.arange(8)).labels
    for parts in (names_NS, lists.scores_NS, lists.hits_NS, lists.rarities_NS, *asked[0].linear.values()):
        assert parts.shape == (16, 5 + 20)
    assert all(votes.shape == names_NS.shape for votes in asked[0].votes.values())
    assert predictor.reranker is not None
    assert predictor.reranker.names is not None
    best, ids = predictor.shortlist(queries, 5)
    np.testing.assert_allclose(lists.scores_NS[:8, :5], best, rtol=1e-6)
    own = predictor.reranker.names.scores(queries, labels.indices[:, None], best[:, 0])  # type: ignore[arg-type]
    np.testing.assert_allclose((names_NS[:8] * lists.hits_NS[:8]).sum(axis=1), own[:, 0], rtol=1e-5)
    assert (own > 0).all()
    # What the model then adds to the scores of the classes it has listed.
    added = predictor.reranker.names.ranker.scores(queries, ids) * (1 - best[:, :1])  # type: ignore[arg-type]
    np.testing.assert_allclose(names_NS[:8, :5], added, rtol=1e-5, atol=1e-7)
    listed, joined = lists.hits_NS[:, :5].any(axis=1), lists.hits_NS[:, 5:].any(axis=1)
    assert joined[:8].any()
    assert (listed[:8] ^ joined[:8]).all(), "each label is there once"
    assert not names_NS[np.isneginf(lists.scores_NS)].any()


def test_the_figure_of_names_is_what_the_model_then_has(
    text_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, options = let_validation_choose(monkeypatch), text_options(neighbours=5)
    predictor = train(text_store, tmp_path / "model", options)
    _, mix, figure = chosen[0]
    assert mix.name_weight > 0
    assert figure == pytest.approx(mean_precision(predictor, text_store, options))


def test_names_that_are_not_taken_leave_no_trace(
    text_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is chosen on the shortlists that the model will have, without what names suggest."""
    monkeypatch.setattr(choose_mix, "_LEAST_GAIN", 1000.0)
    kept = []
    for names in (True, False):
        options, listener = text_options(names=names), Listener()
        reranker = train(text_store, tmp_path / str(names), options, reporter=listener).reranker
        assert reranker is not None
        assert reranker.names is None
        kept.append((listener.messages[-1], reranker.weight, reranker.offsets_K.tolist()))
    assert kept[0] == kept[1]


def another_shape(tensors: dict[str, torch.Tensor]) -> None:
    tensors["names.num_features"] += 1


def fewer_classes(tensors: dict[str, torch.Tensor]) -> None:
    last = int(tensors["names.offsets"][-2])
    tensors["names.offsets"] = tensors["names.offsets"][:-1].clone()
    tensors["names.biases"] = tensors["names.biases"][:-1].clone()
    for name in ("names.features", "names.weights"):
        tensors[name] = tensors[name][:last].clone()


def too_large(tensors: dict[str, torch.Tensor]) -> None:
    tensors["names.weights"] *= 9


def left_out(tensors: dict[str, torch.Tensor]) -> None:
    del tensors["names.weights"]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (another_shape, "names of .* classes and features; wanted"),
        (fewer_classes, r"names of \(25, .* classes and features; wanted \(26, "),
        (too_large, "away from 0"),
        (left_out, "tensors are"),
    ],
)
def test_names_of_another_model_are_refused(
    text_store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[dict[str, torch.Tensor]], None],
    message: str,
) -> None:
    let_names_count(monkeypatch)
    train(text_store, tmp_path / "model", text_options(epochs=0.2))
    file = tmp_path / "model" / "reranker.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    harm(tensors)
    save_file(tensors, file)
    assert [error.path for error in verify_model(tmp_path / "model")] == [str(file)]
    seal(tmp_path / "model")
    with pytest.raises(DataError, match=rf"content that cannot be read \(ValueError: .*{message}"):
        owlmine.load(tmp_path / "model")


def names_asked_about(store: Store, out: Path, patch: pytest.MonkeyPatch, **changes: Any) -> tuple[bool, list[str]]:
    """Whether the choice was told of names, and what was said on the way."""
    chosen, listener = let_validation_choose(patch), Listener()
    predictor = train(store, out, text_options(epochs=0.2, **changes), reporter=listener)
    assert predictor.reranker is not None
    are_asked = chosen[0][0].names_NS is not None
    if not are_asked:
        assert predictor.reranker.names is None
        assert "Names of classes" not in (out / "README.md").read_text("utf-8")
    return are_asked, [message for message in listener.messages if "names" in message]


def test_names_are_asked_about_where_there_are_words(
    text_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert names_asked_about(text_store, tmp_path / "model", monkeypatch)[0]


def test_a_linear_model_has_no_names(text_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of its queries and classes are as long as there are features."""
    change = {"kind": "linear", "loss": "bowl"}
    assert names_asked_about(text_store, tmp_path / "model", monkeypatch, **change) == (False, [])
    without = train(text_store, tmp_path / "without", text_options(epochs=0.2, validation=0.0, **change))
    assert without.reranker is not None
    assert (without.reranker.names, without.reranker.name_weight) == (None, 0.0)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, True),
        ({"names": False}, False),
        ({"kind": "linear"}, False),
        ({"recipe": "single"}, False),
        ({"recipe": "single", "shortlist": 5}, True),
        ({"recipe": "single", "shortlist": 5, "kind": "linear"}, False),
    ],
)
def test_what_has_names(change: dict[str, Any], names: bool) -> None:
    """What has a shortlist to which they can add."""
    for device in ("cpu", "cuda"):
        parts = composition(
            TrainOptions(**change),
            device=torch.device(device),
            dense=False,
            num_classes=60,
            num_points=1000,
            has_dev=False,
        )
        assert parts.names == names


class StoppingAtNames(Listener):
    """The run is asked to stop as it begins to compare them."""

    def message(self, text: str) -> None:
        super().message(text)
        if "names of classes, beside" in text:
            signal.raise_signal(signal.SIGTERM)


def test_stopped_at_the_names(text_store: Store, tmp_path: Path) -> None:
    """Of which there may be a million, and words as many."""
    options = text_options(epochs=0.2)
    with pytest.raises(Stopped, match=r"stopped at the re-ranker \(names\); go on with --resume"):
        train(text_store, tmp_path / "parts", options, reporter=StoppingAtNames())
    assert not (tmp_path / "parts" / "config.json").exists()
    train(text_store, tmp_path / "parts", options, resume=True)
    train(text_store, tmp_path / "whole", options)
    whole, parts = tensors_of(tmp_path / "whole"), tensors_of(tmp_path / "parts")
    assert any("names" in name for name in whole)
    for name, tensor in whole.items():
        assert torch.equal(tensor, parts[name]), name


def test_names_may_be_left_out(text_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names_asked_about(text_store, tmp_path / "model", monkeypatch, names=False) == (False, [])


def test_without_words_no_names(
    text_folder: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of features that are numbers, or of hashed words, nobody knows how they are spelled."""
    hashed = convert(text_folder, tmp_path / "hashed", ConvertOptions(hash_bits=10))
    for number, one in enumerate((store, hashed)):
        assert names_asked_about(one, tmp_path / str(number), monkeypatch) == (False, [])


def test_names_beside_sequences_of_words(text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_names_count(monkeypatch)
    store = convert(text_folder, tmp_path / "store", ConvertOptions(ngrams=2))
    assert store.vocabulary is not None
    assert any(" " in word for word in store.vocabulary)
    predictor = train(store, tmp_path / "model", text_options())
    batch = store["test"].batch(np.arange(8))
    assert predictor.reranker is not None
    # The dense model is rather sure of what it does not know, and leaves a third of that weight or less.
    predictor.reranker = replace(predictor.reranker, name_weight=20.0)
    assert (predictor.top(batch.queries, 1)[1] == batch.labels.indices[:, None]).all()


@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_names_that_no_word_is_spelled_like(text_folder: Path, tmp_path: Path, validation: float) -> None:
    """Nothing comes of them, and nothing of them is kept."""
    texts, labels = train_points(text_folder)
    keys = {name: f"{number:02}" for number, name in enumerate(KEYS)}
    store = convert({"train": (texts, [[keys[name] for name in own] for own in labels])}, tmp_path / "store")
    answers = []
    for names in (True, False):
        listener = Listener()
        options = text_options(validation=validation, epochs=0.2, names=names)
        train(store, tmp_path / str(names), options, reporter=listener)
        assert any("26 names of classes" in message for message in listener.messages) == names
        loaded = owlmine.load(tmp_path / str(names))
        assert loaded.reranker is not None
        assert (loaded.reranker.names, loaded.reranker.name_weight) == (None, 0.0)
        answers.append(loaded.predict(texts[::40], k=5))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(("most", "are_asked"), [(25, False), (31, False), (32, True)])
def test_too_many_names_or_words(
    text_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, are_asked: bool
) -> None:
    assert text_store.vocabulary is not None
    assert (len(KEYS), len(text_store.vocabulary)) == (26, 32)
    monkeypatch.setattr(fit_reranker, "_MOST_NAMES", most)
    found, messages = names_asked_about(text_store, tmp_path / "model", monkeypatch)
    assert found == are_asked
    assert (f"names do not count: more than {most} of them, or of words" in messages) == (not are_asked)


@pytest.mark.parametrize("names", [True, False])
def test_names_without_validation_points(
    text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: bool
) -> None:
    store = convert({"train": train_points(text_folder)}, tmp_path / "store")
    monkeypatch.setattr(fit_reranker, "choose_mix", None)
    predictor = train(store, tmp_path / "model", text_options(validation=0.0, epochs=0.2, names=names))
    assert predictor.reranker is not None
    assert (predictor.reranker.names is not None) == names
    assert predictor.reranker.name_weight == choose_mix.usual_mix(names=names).name_weight
    assert (predictor.reranker.name_weight > 0) == names


def test_a_rehearsal_passes_the_weight_of_names_on(
    text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = convert({"train": train_points(text_folder)}, tmp_path / "store")
    asked = let_names_count(monkeypatch)
    options = small_options(recipe="best", heads=1, shortlist=5, loss="mined-softmax", feature_rate=0.3, epochs=1.0)
    predictor = train(store, tmp_path / "model", options)
    assert len(asked) == 1, "the rehearsal chooses, and nobody after it"
    assert predictor.config["rehearsal"] == 0.2
    loaded = owlmine.load(tmp_path / "model").reranker
    for reranker in (predictor.reranker, loaded):
        assert reranker is not None
        assert reranker.names is not None
        assert reranker.name_weight == 0.7


@pytest.mark.parametrize(("among", "times"), [(None, 2), (np.array([1, 12, 20], np.int64), 3)])
def test_queries_are_encoded_again_for_names(
    text_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, among: np.ndarray | None, times: int
) -> None:
    """Once for the list, once for what joins it, and for the best of all classes where the list has only some."""
    let_names_count(monkeypatch)
    predictor = train(text_store, tmp_path / "model", text_options(epochs=0.2))
    calls, encode = [], predictor.retriever.encode
    monkeypatch.setattr(predictor.retriever, "encode", lambda queries: calls.append(1) or encode(queries))
    predictor.top(text_store["test"].batch(np.arange(8)).queries, 3, among=among)
    assert len(calls) <= times
