"""The training loop: schedule, validation, checkpoints, stopping. What a step does stands in ``step.py``."""

from __future__ import annotations

import json
import math
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor

from owlmine.data.batches import Batches
from owlmine.data.store import Store
from owlmine.errors import OwlmineError
from owlmine.model.folder import save_model, write_text
from owlmine.model.predictor import ClassWords, FeatureWords, Predictor
from owlmine.model.retriever import ModelShape, Retriever
from owlmine.train.card import model_card
from owlmine.train.checkpoint import Checkpoint, Checkpoints
from owlmine.train.options import TrainOptions
from owlmine.train.step import TrainingStep
from owlmine.train.validate import ValidationPart
from owlmine.train.warm_start import warm_start

# Steps between looks at the loss: each look waits for the device.
_LOOK_EVERY = 50


@dataclass(frozen=True)
class Progress:
    """Where a run stands."""

    step: int
    num_steps: int
    epoch: float
    loss: float
    points_per_second: float
    seconds_left: float
    validation: dict[str, float]
    """The last validation figures, in percent; empty before the first."""


class Reporter(Protocol):
    """Shows a run to somebody."""

    def progress(self, progress: Progress) -> None: ...

    def message(self, text: str) -> None: ...


class Stopped(OwlmineError):  # noqa: N818
    """The run was asked to stop and can be resumed."""

    def __init__(self, number: int, text: str) -> None:
        self.signal: int | None = number
        super().__init__(text)


class Trainer:
    """Trains one model on one store, in a folder of its own."""

    def __init__(self, store: Store, out: Path, options: TrainOptions, reporter: Reporter, *, data_name: str) -> None:
        self.store, self.out, self.options, self.reporter = store, out, options, reporter
        self._data_name = data_name
        self.device = choose_device(options.device)
        self.validation = ValidationPart(store, share=options.validation, seed=options.seed)
        shape = ModelShape(
            num_features=store.num_features,
            num_classes=store.num_classes,
            dense=store.meta["queries"] == "dense",
            kind=options.kind,
            dim=options.dim,
            depth=options.depth,
        )
        self.model = Retriever.new(shape, seed=options.seed, device=self.device)
        self.learn = TrainingStep(self.model, options)
        self.batches = Batches(
            store["train"], batch_size=options.batch_size, seed=options.seed, rows=self.validation.train_rows
        )
        self.num_steps = max(round(options.epochs * len(self.batches)), 1)
        self.step = 0
        self.best: dict[str, Any] = {"P@1": -1.0, "epoch": 0}
        self.history: list[dict[str, Any]] = []
        self._checkpoints = Checkpoints(out / "checkpoints")
        self._signal: int | None = None

    def run(self, *, resume: bool) -> Predictor:
        """Trains to the end and leaves the model in the folder."""
        self._start(resume=resume)
        previous = {number: signal.signal(number, self._asked_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._loop()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        return self._finish()

    def _start(self, *, resume: bool) -> None:
        told = json.dumps({"options": asdict(self.options), "data": self.store.meta["checksum"]}, indent=1)
        run_file = self.out / "run.json"
        checkpoint, complaints = self._checkpoints.newest() if resume else (None, [])
        for complaint in complaints:
            self.reporter.message(complaint)
        if resume and run_file.exists() and run_file.read_text("utf-8") != told:
            raise OwlmineError(f"{run_file}: tells of other options or data; resume with the same, or train anew")
        if checkpoint is None:
            if resume:
                self.reporter.message("no checkpoint to resume from; starting at the beginning")
            try:
                self.out.mkdir(parents=True, exist_ok=True)
                write_text(run_file, told)
                write_text(self.out / "metrics.jsonl", "")
            except OSError as error:
                raise OwlmineError(f"{self.out}: cannot be written: {error.strerror}") from error
            if self.options.warm_start:
                warm_start(self.model, self.store["train"], self.validation.train_rows)
            return
        self._restore(checkpoint)
        self.reporter.message(f"resumed at step {self.step:,} of {self.num_steps:,}")

    def _loop(self) -> None:
        clock = _Clock(self.step)
        sums, bad = torch.zeros((), device=self.device), torch.full((), -1, device=self.device)
        looked = self.step
        while self.step < self.num_steps:
            _, batch = self.batches.next()
            loss = self.learn(batch, number=self.step, progress=self.step / self.num_steps)
            self.step += 1
            sums += loss
            bad = torch.where(~torch.isfinite(loss) & (bad < 0), self.step, bad)
            epoch_ends = self.step % len(self.batches) == 0 or self.step == self.num_steps
            due = clock.checkpoint_due(self.options.checkpoint_minutes) or self._signal is not None
            if not (epoch_ends or due or self.step % _LOOK_EVERY == 0):
                continue
            self._look_for_harm(int(bad))
            clock.look(self, float(sums) / (self.step - looked))
            sums, looked = torch.zeros_like(sums), self.step
            stop = epoch_ends and self._epoch_ended(clock)
            if due:
                self._save_checkpoint()
                clock.saved()
            if self._signal is not None and self.step < self.num_steps:
                raise Stopped(self._signal, f"stopped at step {self.step:,} of {self.num_steps:,}; go on with --resume")
            if stop:
                break

    def _look_for_harm(self, bad_step: int) -> None:
        if bad_step >= 0:
            raise OwlmineError(
                f"the loss of step {bad_step:,} is not a number; lower the rates (--class-rate, --feature-rate,"
                f" --map-rate). Checkpoints before it are kept in {self.out / 'checkpoints'}"
            )

    def _epoch_ended(self, clock: _Clock) -> bool:
        """Validates, writes a line of metrics, and says whether to stop early."""
        figures = self.validation.measure(self.model) if len(self.validation) else {}
        record = {"step": self.step, "epoch": self.step / len(self.batches), "loss": clock.loss, **figures}
        record["seconds"] = round(clock.seconds(), 3)
        self.history.append(record)
        with (self.out / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        clock.validation = figures
        clock.look(self, clock.loss)
        if not self.options.patience or not figures:
            return False
        if figures["P@1"] > self.best["P@1"]:
            self.best = {"P@1": figures["P@1"], "epoch": len(self.history)}
            self._save_best()
        return len(self.history) - int(self.best["epoch"]) >= self.options.patience

    def _finish(self) -> Predictor:
        if self.options.patience and self.best["P@1"] >= 0:
            self._restore_best()
        config = {
            "options": asdict(self.options),
            "data": {"name": self._data_name, "checksum": self.store.meta["checksum"]},
            "history": self.history,
        }
        predictor = Predictor(self.model, ClassWords.of(self.store), FeatureWords.of(self.store), config)
        save_model(self.out, predictor, model_card(predictor, self.store, self.options))
        self._checkpoints.remove_all()
        return predictor

    def _save_best(self) -> None:
        from owlmine.model.folder import write_tensors

        write_tensors(self.out / "best.safetensors", self.model.tensors())

    def _restore_best(self) -> None:
        from safetensors.torch import load_file

        best = self.out / "best.safetensors"
        for name, tensor in load_file(best).items():
            self.model.tensors()[name].copy_(tensor)
        best.unlink()

    def _save_checkpoint(self) -> None:
        try:
            self._checkpoints.save(Checkpoint(self.step, self._all_tensors(), self._state()))
        except OwlmineError as error:
            self.reporter.message(f"{error}; training goes on, the checkpoint before it stays")

    def _all_tensors(self) -> dict[str, Tensor]:
        model = {f"model.{name}": tensor for name, tensor in self.model.tensors().items()}
        return model | {f"step.{name}": tensor for name, tensor in self.learn.state_tensors().items()}

    def _state(self) -> dict[str, Any]:
        return {"batches": self.batches.state_dict(), "best": self.best, "history": self.history}

    def _restore(self, checkpoint: Checkpoint) -> None:
        tensors = checkpoint.tensors
        for name, tensor in self.model.tensors().items():
            tensor.copy_(tensors[f"model.{name}"])
        self.learn.load_state_tensors(
            {name.removeprefix("step."): t for name, t in tensors.items() if name.startswith("step.")}
        )
        self.batches.load_state_dict(checkpoint.state["batches"])
        self.best, self.history, self.step = checkpoint.state["best"], checkpoint.state["history"], checkpoint.step
        # Lines of epochs after the checkpoint will be written again.
        write_text(self.out / "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in self.history))

    def _asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._signal = number


class _Clock:
    """Speed, time left, and when the next checkpoint is due."""

    def __init__(self, first_step: int) -> None:
        self._began = self._saved = time.monotonic()
        self._first_step = first_step
        self.loss = math.nan
        self.validation: dict[str, float] = {}

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def checkpoint_due(self, minutes: float) -> bool:
        return time.monotonic() - self._saved >= 60 * minutes

    def saved(self) -> None:
        self._saved = time.monotonic()

    def look(self, trainer: Trainer, loss: float) -> None:
        """Tells the reporter."""
        self.loss = loss
        steps_per_second = (trainer.step - self._first_step) / max(self.seconds(), 1e-9)
        trainer.reporter.progress(
            Progress(
                step=trainer.step,
                num_steps=trainer.num_steps,
                epoch=trainer.step / len(trainer.batches),
                loss=loss,
                points_per_second=steps_per_second * trainer.options.batch_size,
                seconds_left=(trainer.num_steps - trainer.step) / max(steps_per_second, 1e-9),
                validation=self.validation,
            )
        )


def choose_device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise OwlmineError("device is cuda; this machine has none that PyTorch can use")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")
