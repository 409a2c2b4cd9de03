"""What a run in a folder adds around a fit: signals that end it, and files of models that are not finished."""

from __future__ import annotations

import json
import re
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import owlmine.run
from owlmine.data import Store
from owlmine.dense import loop
from owlmine.dense.retriever import join_models
from owlmine.dense.validation import ValidationPart
from owlmine.errors import OwlmineError
from owlmine.folder import model_folder
from owlmine.model import load
from owlmine.rank import Evidence
from owlmine.rank.linear import LinearJudge
from owlmine.rank.predictor import Predictor
from owlmine.rank.probabilities import Calibration
from owlmine.recipe import fit as recipe
from owlmine.run import Stopped, train
from owlmine.run.surroundings import FolderSurroundings, FolderWatch

from .runs import (
    Listener,
    best_options,
    contents,
    ensemble_options,
    interrupted,
    signal_once,
    signals_to_nobody,
    small_options,
    stop_after,
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_given_back(store: Store, tmp_path: Path, number: signal.Signals) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with pytest.MonkeyPatch.context() as patch:
        stop_after(3, patch, number)
        with pytest.raises(Stopped) as stopped:
            train(store, tmp_path / "out", small_options())
    assert stopped.value.signal == number
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize(("owner", "name"), [(ValidationPart, "measure"), (FolderWatch, "epoch_ended")])
def test_a_signal_while_an_epoch_ends(store: Store, tmp_path: Path, owner: Any, name: str) -> None:
    """Between two steps: the checkpoint must be written all the same."""
    out, original = tmp_path / "out", getattr(owner, name)

    def signalled(self: Any, given: Any, **named: Any) -> Any:
        if given:  # not the history of a run that begins
            signal.raise_signal(signal.SIGINT)
        return original(self, given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, signalled)
        with pytest.raises(Stopped, match="stopped at step 10 of 20"):
            train(store, out, small_options())
    assert [file.name for file in (out / "checkpoints").glob("*.json")] == ["step-0000000010.json"]
    train(store, out, small_options(), resume=True)
    train(store, tmp_path / "whole", small_options())
    assert contents(out) == contents(tmp_path / "whole")


def test_a_signal_in_the_last_step(store: Store, tmp_path: Path) -> None:
    """Nothing is left to learn then, and nothing is learned again."""
    interrupted(store, tmp_path / "out", small_options(epochs=1.0), at=10)
    listener = Listener()
    train(store, tmp_path / "out", small_options(epochs=1.0), resume=True, reporter=listener)
    assert (listener.messages, listener.steps) == (["resumed at step 10 of 10"], [])
    train(store, tmp_path / "whole", small_options(epochs=1.0))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


AFTER_THE_LAST_STEP = {
    "ranking": (Predictor, "answer", False),
    "calibration": (Calibration, "fit", False),
    "metrics": (owlmine.run, "write_metrics", True),
    "card": (model_folder, "model_card", True),
    "saving": (owlmine.run, "save_model", True),
    "tidying up": (owlmine.run, "remove_working_files", True),
}


@pytest.mark.parametrize("patience", [0, 2])
@pytest.mark.parametrize("moment", AFTER_THE_LAST_STEP)
def test_a_signal_after_the_last_step(store: Store, tmp_path: Path, moment: str, patience: int) -> None:
    """What was learned is safe: resumed, the run takes no further step. One that is being saved is saved."""
    out, options = tmp_path / "out", small_options(patience=patience)
    owner, name, saved = AFTER_THE_LAST_STEP[moment]
    with pytest.MonkeyPatch.context() as patch, signals_to_nobody():
        signal_once(patch, owner, name)
        message = f"stopped after the model was finished; it is in {out}"
        if not saved:
            message = "stopped before the model was saved; continue with --resume"
        with pytest.raises(Stopped, match=f"^{re.escape(message)}$") as stopped:
            train(store, out, options)
    assert stopped.value.signal == signal.SIGTERM
    assert (out / "config.json").exists() == saved
    listener = Listener()
    train(store, out, options, resume=True, reporter=listener)
    assert listener.steps == []
    train(store, tmp_path / "whole", options)
    assert contents(out) == contents(tmp_path / "whole")


def test_a_signal_at_the_warm_start(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch, signals_to_nobody():
        signal_once(patch, loop, "warm_start")
        with pytest.raises(Stopped, match=r"^stopped before the first step; continue with --resume"):
            train(store, out, small_options())
    train(store, out, small_options(), resume=True)
    train(store, tmp_path / "whole", small_options())
    assert contents(out) == contents(tmp_path / "whole")


def test_trains_outside_the_main_thread(store: Store, tmp_path: Path) -> None:
    """Where Python allows no signal handlers."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            train(store, tmp_path / "out", small_options(epochs=0.2))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert errors == []
    load(tmp_path / "out")


# An ensemble, judges and a rehearsal.


def test_members_are_ordinary_runs(store: Store, tmp_path: Path) -> None:
    options, listener = ensemble_options(), Listener()
    trained = train(store, tmp_path / "model", options, reporter=listener)
    alone = [
        train(store, tmp_path / str(seed), options.with_(seed=seed, heads=None, shortlist=None)).dense
        for seed in (6, 7)
    ]
    for name, tensor in join_models(alone).tensors().items():
        assert torch.equal(trained.dense.tensors()[name], tensor), name
    assert [message for message in listener.messages if message.startswith("model")] == ["model 1 of 2", "model 2 of 2"]
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == [
        "README.md",
        "classes.safetensors",
        "config.json",
        "features.safetensors",
        "metrics.jsonl",
        "ranker.safetensors",
        "run.json",
        "weights.safetensors",
    ]
    lines = [json.loads(line) for line in (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["model"], line["epoch"]) for line in lines] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert lines == json.loads((tmp_path / "model" / "config.json").read_text())["record"]["history"]


def test_where_unfinished_models_lie(store: Store, tmp_path: Path) -> None:
    """Those of a rehearsal in a folder of their own; a single model in that of the run."""
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        signal_once(patch, FolderWatch, "save")
        with pytest.raises(Stopped):
            train(store, out, best_options(patience=0))
    assert [file.name for file in (out / "members").iterdir()] == ["rehearsal"]
    assert files_in(out / "members" / "rehearsal" / "0") == ["checkpoints", "metrics.jsonl"]
    with pytest.MonkeyPatch.context() as patch:
        signal_once(patch, FolderSurroundings, "remember")
        with pytest.raises(Stopped, match="before model 1 of 2"):
            train(store, out, best_options(), resume=True)
    assert files_in(out) == ["members", "run.json"]
    assert files_in(out / "members") == ["rehearsal", "rehearsal.json"]
    assert files_in(out / "members" / "rehearsal") == ["0", "1"]
    interrupted(store, out, best_options(), at=3, resume=True)
    assert files_in(out / "members") == ["0", "rehearsal", "rehearsal.json"]
    interrupted(store, tmp_path / "single", small_options(patience=1), at=13)
    assert files_in(tmp_path / "single") == ["best.safetensors", "checkpoints", "metrics.jsonl", "run.json"]


def files_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("stops", [[3], [7, 7], [10, 2, 4]])
def test_an_ensemble_stopped_and_resumed(store: Store, tmp_path: Path, stops: list[int]) -> None:
    """Steps of each model are numbered anew; a model that is finished does not come to one of them again."""
    options = ensemble_options(patience=2)
    train(store, tmp_path / "whole", options)
    for number, at in enumerate(stops):
        interrupted(store, tmp_path / "parts", options, at=at, resume=number > 0)
    train(store, tmp_path / "parts", options, resume=True)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_a_signal_at_the_judges(store: Store, tmp_path: Path) -> None:
    options, out = ensemble_options(), tmp_path / "model"
    with pytest.MonkeyPatch.context() as patch, signals_to_nobody():
        signal_once(patch, LinearJudge, "fit")
        with pytest.raises(Stopped, match=r"^stopped while fitting the judges \(shortlists\); continue with --resume$"):
            train(store, out, options)
    assert not (out / "config.json").exists()
    listener = Listener()
    train(store, out, options, resume=True, reporter=listener)
    assert not listener.steps, "finished models are not trained again"
    assert not (out / "members").exists()


class StoppingAtNames(Listener):
    """A run that is asked to stop as it begins to compare names."""

    def message(self, text: str) -> None:
        super().message(text)
        if "class names, compared with" in text:
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_at_the_names(text_store: Store, tmp_path: Path) -> None:
    """Of which there may be a million, and words as many."""
    options, out = ensemble_options(heads=None, shortlist=5, epochs=0.2), tmp_path / "parts"
    with (
        signals_to_nobody(),
        pytest.raises(Stopped, match=r"^stopped while fitting the judges \(names\); continue with --resume$"),
    ):
        train(text_store, out, options, reporter=StoppingAtNames())
    assert not (out / "config.json").exists()
    train(text_store, out, options, resume=True)
    assert "names" in train(text_store, tmp_path / "whole", options).ranker.judges
    assert contents(out) == contents(tmp_path / "whole")


class StoppingAtEachMessage(Listener):
    """A run that is asked to stop whenever it says something new."""

    def message(self, text: str) -> None:
        if text not in self.messages and not text.startswith("resumed"):
            super().message(text)
            signal.raise_signal(signal.SIGTERM)


def test_stopped_at_each_of_its_parts(store: Store, tmp_path: Path) -> None:
    """Before and between models, at shortlists, classifiers, neighbours and the mix, in a rehearsal and after it."""
    options = best_options()
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


PARTS = {
    "member": (loop, "DenseFit", "before model 2 of 2; continue with --resume"),
    "joining": (recipe, "join_models", r"while fitting the judges \(shortlists\); continue with --resume"),
    "mix": (recipe, "choose_mix", r"while fitting the judges \(validation\); continue with --resume"),
    "weights": (Evidence, "precision", "while fitting the probabilities; continue with --resume"),
    "calibration": (Calibration, "fit", "before the model was saved; continue with --resume"),
    "metrics": (owlmine.run, "write_metrics", "after the model was finished; it is in .*parts"),
    "saving": (owlmine.run, "save_model", "after the model was finished; it is in .*parts"),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_signal_where_a_part_ends(store: Store, tmp_path: Path, part: str) -> None:
    """One that a part leaves unheard is heard by the next."""
    options, out = ensemble_options(epochs=1.0), tmp_path / "parts"
    owner, name, where = PARTS[part]
    with pytest.MonkeyPatch.context() as patch, signals_to_nobody():
        signal_once(patch, owner, name)
        with pytest.raises(Stopped, match=f"^stopped {where}$"):
            train(store, out, options)
    train(store, out, options, resume=True)
    train(store, tmp_path / "whole", options)
    assert contents(out) == contents(tmp_path / "whole")


def test_metrics_that_cannot_be_written_end_no_training(store: Store, tmp_path: Path) -> None:
    out, listener, options = tmp_path / "out", Listener(), small_options()
    interrupted(store, out, options, at=3)
    (out / "metrics.jsonl").unlink(missing_ok=True)
    (out / "metrics.jsonl").mkdir()
    train(store, out, options, resume=True, reporter=listener)
    assert listener.messages.count(f"{out / 'metrics.jsonl'}: not written: Is a directory; training continues") >= 2
    assert [record["step"] for record in load(out).record.history] == [10, 20]


def test_a_folder_of_a_member_that_cannot_be_made(store: Store, tmp_path: Path) -> None:
    """Refused before anything is learned that could not be saved."""
    out, options = tmp_path / "out", ensemble_options()
    with pytest.MonkeyPatch.context() as patch:
        signal_once(patch, owlmine.run, "_begin")
        with pytest.raises(Stopped):
            train(store, out, options)
    (out / "members").write_text("mine")
    with pytest.raises(OwlmineError, match=r"members/0: cannot be written: Not a directory"):
        train(store, out, options, resume=True)
    assert (out / "members").read_text() == "mine"
