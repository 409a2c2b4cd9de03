"""A run that was stopped ends as if it never had been, bit for bit."""

from __future__ import annotations

import json
import math
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import owlmine
from owlmine.data import Store
from owlmine.dense.step import RowSGD
from owlmine.errors import OwlmineError
from owlmine.model.predictor import Predictor
from owlmine.rank.probabilities import Calibration
from owlmine.train import Stopped, train, trainer

from .runs import (
    STEPS_PER_EPOCH,
    Listener,
    contents,
    interrupted,
    metrics_of,
    signals_to_nobody,
    small_options,
    stop_after,
    use_step,
)

CHANGES: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adaptive": {"optimiser": "adaptive", "class_rate": 0.01, "feature_rate": 0.1},
    "learned scale": {"loss": "sampled-softmax", "learn_scale": True, "scale": 5.0, "map_rate": 0.01},
    "patience": {"patience": 1, "epochs": 6.0},
    "depth 2, whole pool": {"depth": 2, "loss": "negative-sampling-bowl"},
    "no maps": {"depth": 0, "top": 3},
    "linear": {"kind": "linear", "class_rate": 1.0},
    "no validation": {"validation": 0.0, "epochs": 1.7},
    "pools of each point": {"shared_pool": False, "top": 2},
}


def check_resume(store: Store, tmp_path: Path, changes: dict[str, Any]) -> None:
    options = small_options(**changes)
    train(store, tmp_path / "whole", options)
    expected = contents(tmp_path / "whole")
    interrupted(store, tmp_path / "parts", options, at=6)
    assert len(list((tmp_path / "parts" / "checkpoints").iterdir())) == 2
    interrupted(store, tmp_path / "parts", options, at=STEPS_PER_EPOCH + 2, resume=True)
    assert not (tmp_path / "parts" / "config.json").exists()
    train(store, tmp_path / "parts", options, resume=True)
    assert contents(tmp_path / "parts") == expected


@pytest.mark.parametrize("name", CHANGES)
def test_stopped_twice(store: Store, tmp_path: Path, name: str) -> None:
    check_resume(store, tmp_path, CHANGES[name])


@pytest.mark.parametrize("patience", [0, 2])
def test_stopped_twice_with_a_dev_split(store_with_dev: Store, tmp_path: Path, patience: int) -> None:
    check_resume(store_with_dev, tmp_path, {"pool": 10, "patience": patience, "epochs": 3.0})


def test_stopped_twice_with_dense_queries(dense_store: Store, tmp_path: Path) -> None:
    check_resume(dense_store, tmp_path, {"map_rate": 0.01})


def test_ten_steps_are_six_and_four(store: Store, tmp_path: Path) -> None:
    options = small_options(epochs=1.0)
    train(store, tmp_path / "ten", options)
    interrupted(store, tmp_path / "six", options, at=6)
    listener = Listener()
    train(store, tmp_path / "six", options, resume=True, reporter=listener)
    assert listener.messages == ["resumed at step 6 of 10"]
    assert contents(tmp_path / "six") == contents(tmp_path / "ten")


@pytest.mark.parametrize("threads", [1, 2])
def test_same_seed_same_model(store: Store, tmp_path: Path, threads: int) -> None:
    torch.set_num_threads(threads)
    options = small_options(dim=64, batch_size=128, pool=50, top=3)
    for name in ("first", "second"):
        train(store, tmp_path / name, options)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


def test_other_seed_other_model(store: Store, tmp_path: Path) -> None:
    weights = [
        train(store, tmp_path / str(seed), small_options(epochs=0.2, seed=seed)).retriever.tensors() for seed in (0, 1)
    ]
    for name in weights[0]:
        assert not torch.equal(weights[0][name], weights[1][name])


def test_checkpoints_by_the_clock_change_nothing(store: Store, tmp_path: Path) -> None:
    """One after every step: a look at the run must leave no trace in it, the reported losses included."""
    train(store, tmp_path / "rare", small_options())
    train(store, tmp_path / "often", small_options(checkpoint_minutes=1e-9))
    rare, often = contents(tmp_path / "rare"), contents(tmp_path / "often")
    del rare["config"]["options"], often["config"]["options"]
    assert often == rare


def test_the_loss_of_an_epoch_is_the_mean_over_its_steps(store: Store, tmp_path: Path) -> None:
    from owlmine.dense.step import TrainingStep

    losses: list[float] = []

    class Watched(TrainingStep):
        def __call__(self, *args: Any, **options: Any) -> Any:
            loss = super().__call__(*args, **options)
            losses.append(float(loss))
            return loss

    with pytest.MonkeyPatch.context() as patch:
        use_step(Watched, patch)
        train(store, tmp_path / "out", small_options(epochs=1.5))
    told = [record["loss"] for record in metrics_of(tmp_path / "out")]
    assert told == pytest.approx([sum(losses[:10]) / 10, sum(losses[10:]) / 5])


def test_steps_are_numbered_and_know_how_far_the_run_is(store: Store, tmp_path: Path) -> None:
    """Random draws go by the number, step sizes by the progress; both go on in a resumed run."""
    from owlmine.dense.step import TrainingStep

    asked: list[tuple[int, float]] = []

    class Watched(TrainingStep):
        def __call__(self, batch: Any, *, number: int, progress: float) -> Any:
            asked.append((number, progress))
            if number == 6:
                signal.raise_signal(signal.SIGTERM)
            return super().__call__(batch, number=number, progress=progress)

    with pytest.MonkeyPatch.context() as patch:
        use_step(Watched, patch)
        with pytest.raises(Stopped):
            train(store, tmp_path / "out", small_options())
        train(store, tmp_path / "out", small_options(), resume=True)
    assert asked == [(number, number / 20) for number in range(20)]


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_step_sizes_fall_by_the_schedule(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    """Those that reach the tables: of the class and feature rates, the share that is due."""
    taken: list[float] = []
    step = RowSGD.step
    monkeypatch.setattr(RowSGD, "step", lambda self, rate: taken.append(rate) or step(self, rate))
    train(store, tmp_path / "out", small_options(schedule=schedule))
    shares = {
        "linear": [1 - number / 20 for number in range(20)],
        "cosine": [(1 + math.cos(math.pi * number / 20)) / 2 for number in range(20)],
        "constant": [1.0] * 20,
    }
    assert taken[::2] == pytest.approx([0.05 * share for share in shares[schedule]])
    assert taken[1::2] == pytest.approx([1.0 * share for share in shares[schedule]])


def test_metrics_after_a_resume(store: Store, tmp_path: Path) -> None:
    """One line per epoch, each epoch once, although the second was begun twice; times go on."""
    out, options = tmp_path / "out", small_options(epochs=3.0)
    interrupted(store, out, options, at=STEPS_PER_EPOCH + 5)
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 20, "ep')  # as if killed in the middle of a line
    train(store, out, options, resume=True)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [10, 20, 30]
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert all(0 <= record[f"P@{k}"] <= 100 for record in records for k in (1, 3, 5))
    seconds = [record["seconds"] for record in records]
    assert seconds == sorted(seconds)
    assert json.loads((out / "config.json").read_text())["history"] == records


def test_best_epoch_is_kept(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures by hand: better, better, worse, equal. The weights of the second epoch must come back."""
    from owlmine.train.validate import ValidationPart

    figures = iter([10.0, 20.0, 15.0, 20.0, 99.0])
    seen: list[dict[str, bytes]] = []

    def measure(self: ValidationPart, model: Any) -> dict[str, float]:
        seen.append({name: tensor.numpy().tobytes() for name, tensor in model.tensors().items()})
        return {"P@1": next(figures), "P@3": 0.0, "P@5": 0.0}

    monkeypatch.setattr(ValidationPart, "measure", measure)
    out = tmp_path / "out"
    predictor = train(store, out, small_options(epochs=9.0, patience=2))
    assert len(seen) == 4, "stopped after two epochs that were not better"
    for model in (predictor, owlmine.load(out)):
        assert {n: t.numpy().tobytes() for n, t in model.retriever.tensors().items()} == seen[1]
        assert model.config["kept"]["epoch"] == 2
        assert len(model.config["history"]) == 4
    assert not (out / "best.safetensors").exists()
    assert "The weights are those of epoch 2" in (out / "README.md").read_text()


def test_a_run_out_of_patience_stays_so_when_resumed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when it had decided to stop but not yet written the model: it must not train on."""
    from owlmine.train.validate import ValidationPart

    out, options = tmp_path / "out", small_options(epochs=9.0, patience=1, checkpoint_minutes=1e-9)
    monkeypatch.setattr(ValidationPart, "measure", lambda self, model: {"P@1": 10.0, "P@3": 0.0, "P@5": 0.0})
    train(store, tmp_path / "whole", options)

    def killed(*args: Any) -> None:
        raise RuntimeError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "save_model", killed)
        with pytest.raises(RuntimeError, match="killed"):
            train(store, out, options)
    assert (out / "best.safetensors").exists(), "needed by the run that goes on"
    train(store, out, options, resume=True)
    assert len(metrics_of(out)) == 2
    assert contents(out) == contents(tmp_path / "whole")


def test_killed_while_tidying_up(store: Store, tmp_path: Path) -> None:
    """The model is there; what is left of the run goes, and the model is given."""
    out, options = tmp_path / "out", small_options(patience=3, checkpoint_minutes=1e-9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "remove_working_files", lambda folder, tell: None)
        train(store, out, options)
    assert (out / "checkpoints").exists()
    again = train(store, out, options, resume=True)
    train(store, tmp_path / "whole", options)
    assert contents(out) == contents(tmp_path / "whole")
    expected = owlmine.load(tmp_path / "whole").retriever.tensors()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in again.retriever.tensors().items())
    with pytest.raises(OwlmineError, match="finished model of other options or data"):
        train(store, out, small_options(seed=3), resume=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_given_back(store: Store, tmp_path: Path, number: signal.Signals) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with pytest.MonkeyPatch.context() as patch:
        stop_after(3, patch, number)
        with pytest.raises(Stopped) as stopped:
            train(store, tmp_path / "out", small_options())
    assert stopped.value.signal == number
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("place", ["measure", "write_metrics"])
def test_a_signal_while_an_epoch_ends(store: Store, tmp_path: Path, place: str) -> None:
    """Between two steps: the checkpoint must be written all the same."""
    from owlmine.train.trainer import Trainer
    from owlmine.train.validate import ValidationPart

    out = tmp_path / "out"
    owner, name = (ValidationPart, "measure") if place == "measure" else (Trainer, "_write_metrics")
    original = getattr(owner, name)

    def signalled(self: Any, *args: Any) -> Any:
        if place == "measure" or self.history:
            signal.raise_signal(signal.SIGINT)
        return original(self, *args)

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


def once(patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """SIGTERM comes as a function is entered for the first time from now on."""
    original, entered = getattr(owner, name), []

    def signalled(*given: Any, **named: Any) -> Any:
        if not entered:
            entered.append(name)
            signal.raise_signal(signal.SIGTERM)
        return original(*given, **named)

    patch.setattr(owner, name, signalled)


AFTER_THE_LAST_STEP = {
    "ranking": (Predictor, "top", False),
    "calibration": (Calibration, "fit", False),
    "card": (trainer, "model_card", True),
    "saving": (trainer, "save_model", True),
    "tidying up": (trainer, "remove_working_files", True),
}


@pytest.mark.parametrize("patience", [0, 2])
@pytest.mark.parametrize("moment", AFTER_THE_LAST_STEP)
def test_a_signal_after_the_last_step(store: Store, tmp_path: Path, moment: str, patience: int) -> None:
    """What was learned is kept: resumed, the run takes no further step. One that is being saved is saved."""
    out, options = tmp_path / "out", small_options(patience=patience)
    owner, name, saved = AFTER_THE_LAST_STEP[moment]
    with pytest.MonkeyPatch.context() as patch, signals_to_nobody():
        once(patch, owner, name)
        told = f"stopped when the model was finished; it is in {out}" if saved else "stopped before the model was saved"
        with pytest.raises(Stopped, match=f"^{re.escape(told)}") as stopped:
            train(store, out, options)
    assert stopped.value.signal == signal.SIGTERM
    assert (out / "config.json").exists() == saved
    listener = Listener()
    train(store, out, options, resume=True, reporter=listener)
    assert listener.steps == []
    train(store, tmp_path / "whole", options)
    assert contents(out) == contents(tmp_path / "whole")


def test_killed_after_the_last_step(store: Store, tmp_path: Path) -> None:
    """What no process can answer to: out of memory, a machine that loses its power."""
    out = tmp_path / "out"

    def killed(*given: Any) -> None:
        raise MemoryError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Calibration, "fit", killed)
        with pytest.raises(MemoryError):
            train(store, out, small_options())
    listener = Listener()
    train(store, out, small_options(), resume=True, reporter=listener)
    assert (listener.messages, listener.steps) == (["resumed at step 20 of 20"], [])
    train(store, tmp_path / "whole", small_options())
    assert contents(out) == contents(tmp_path / "whole")


def test_a_signal_at_the_warm_start(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch, signals_to_nobody():
        once(patch, trainer, "warm_start")
        with pytest.raises(Stopped, match=r"^stopped before the first step; go on with --resume"):
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
    owlmine.load(tmp_path / "out")


def test_one_process_at_a_time(store: Store, tmp_path: Path) -> None:
    """Two that write the same checkpoints would harm both runs."""
    from owlmine.train.run_folder import working_in

    out, options = tmp_path / "out", small_options()
    interrupted(store, out, options, at=6)
    with working_in(out), pytest.raises(OwlmineError, match="another process is training in this folder"):
        train(store, out, options, resume=True)
    train(store, out, options, resume=True)
