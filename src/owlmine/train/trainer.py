"""The training loop: schedule, validation, checkpoints, stopping. What a step does stands in ``step.py``."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from owlmine.data.batches import Batches
from owlmine.data.rows import Int64
from owlmine.data.store import Store
from owlmine.dense.pool_growth import LOOK_EVERY, PoolGrowth, pool_growth
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.step import rate_factor
from owlmine.device import choose_device
from owlmine.errors import OwlmineError
from owlmine.files import remove_unfinished, write_text
from owlmine.model.folder import save_model
from owlmine.model.predictor import ClassWords, FeatureWords, Predictor
from owlmine.recipe.options import TrainOptions
from owlmine.train.best import BestWeights
from owlmine.train.calibrate import fit_calibration, rank_points
from owlmine.train.card import model_card
from owlmine.train.checkpoint import Checkpoint, Checkpoints, FoundCheckpoint
from owlmine.train.choose_step import choose_step
from owlmine.train.event_file import FOLDER, EventFile
from owlmine.train.finite import NotFinite, first_not_finite, has_directions, num_without_direction
from owlmine.train.progress import Clock, Progress, Reporter, RunSize
from owlmine.train.run_folder import recipe, remove_working_files, require_run_of, run_description, running_in
from owlmine.train.stopping import Stopped, StopSignal
from owlmine.train.validate import validation_part
from owlmine.train.warm_start import warm_start

# Steps between looks at the loss: each look waits for the device.
_LOOK_EVERY = 50
# Points of train whose vectors are looked at for as much as one that is not 0.
_PROBE = 256
# Where a signal found a run that has nothing left to learn.
_UNSAVED = "before the model was saved"


class Trainer:
    """Trains one model on one store, in a folder of its own."""

    def __init__(self, store: Store, out: Path, options: TrainOptions, reporter: Reporter, *, data_name: str) -> None:
        self.store, self.out, self.options, self.reporter = store, out, options, reporter
        self._data_name = data_name
        self.device = choose_device(options.device)
        self.validation = validation_part(store, options)
        shape = ModelShape(
            num_features=store.num_features,
            num_classes=store.num_classes,
            dense=store.meta["queries"] == "dense",
            kind=options.kind,
            dim=options.dim,
            depth=options.depth,
        )
        self.model = Retriever.new(shape, seed=options.seed, device=self.device)
        self.learn = choose_step(self.model, options, store["train"], reporter.message)
        self.batches = Batches(
            store["train"], batch_size=options.batch_size, seed=options.seed, rows=self.validation.train_rows
        )
        self.num_steps = max(round(options.epochs * len(self.batches)), 1)
        self._growth = pool_growth(options, num_classes=store.num_classes, device=self.device)
        self.step = 0
        self.history: list[dict[str, Any]] = []
        self._best = BestWeights(out / "best.safetensors")
        # Double precision: the sum of an epoch's losses must not depend on how many steps an epoch has.
        self._epoch_loss = torch.zeros((), dtype=torch.float64, device=self.device)
        self._seconds_before = 0.0
        self._checkpoints = Checkpoints(out / "checkpoints")
        self._keeps_old = False
        self._without_direction = 0
        self._events: EventFile | None = None

    def run(self, *, resume: bool, stop: StopSignal) -> Predictor:
        """Trains to the end and leaves the model in the folder."""
        with running_in(self.out, resume=resume):
            self._start(resume=resume, stop=stop)
            self._without_direction = num_without_direction(self.model)
            with ExitStack() as open_now:
                if self.options.tensorboard:
                    events = EventFile(self.out / FOLDER, after_step=self.step, complain=self.reporter.message)
                    self._events = open_now.enter_context(events)
                self._loop(stop)
            return self._finish(stop)

    def _start(self, *, resume: bool, stop: StopSignal) -> None:
        run_file = self.out / "run.json"
        if resume:
            require_run_of(self.out, self.store, self.options)
        checkpoint, complaints = self._checkpoints.newest() if resume else (None, [])
        for complaint in complaints:
            self.reporter.message(complaint)
        if checkpoint is not None:
            self._restore(checkpoint)
            self.reporter.message(f"resumed at step {self.step:,} of {self.num_steps:,}")
            return
        if resume:
            self.reporter.message("no checkpoint to resume from; starting at the beginning")
        try:
            remove_unfinished(self.out)
            write_text(run_file, run_description(self.store, self.options))
        except OSError as error:
            raise OwlmineError(f"{self.out}: cannot be written: {error.strerror}") from error
        self._write_metrics()
        if self.options.warm_start:
            warm_start(
                self.model,
                self.store["train"],
                self.validation.train_rows,
                between=lambda: stop.check("before the first step"),
            )

    def _loop(self, stop: StopSignal) -> None:
        clock = Clock(self.step, seconds_before=self._seconds_before)
        bad = torch.full((), -1, device=self.device)
        while not self._is_over():
            rows = self.batches.next_rows()
            # Before the batch is learned, which would hide its mistakes.
            if self._growth is not None and self.step % LOOK_EVERY == 0:
                self._look_at_pool(self._growth, rows)
            loss = self.learn(rows, number=self.step, progress=self.step / self.num_steps)
            self.step += 1
            self._epoch_loss += loss
            bad = torch.where(~torch.isfinite(loss) & (bad < 0), self.step, bad)
            epoch_ends = self.step % len(self.batches) == 0 or self.step == self.num_steps
            due = clock.checkpoint_due(self.options.checkpoint_minutes) or stop.number is not None
            if not (epoch_ends or due or self.step % _LOOK_EVERY == 0):
                continue
            self._look_for_harm(int(bad))
            self._look(clock, float(self._epoch_loss) / ((self.step - 1) % len(self.batches) + 1))
            if epoch_ends:
                self._look_at_weights()
                self._epoch_ended(clock)
            # Read once: a signal that comes later must find a checkpoint of its own.
            asked = stop.number
            # After the last step too: whatever ends the process from here on, the run is not trained again.
            if due or asked is not None or self._is_over():
                self._seconds_before = clock.seconds()
                self._save_checkpoint()
                clock.saved()
            if asked is not None:
                raise Stopped(asked, f"stopped at step {self.step:,} of {self.num_steps:,}; go on with --resume")

    def _look_at_pool(self, growth: PoolGrowth, rows: Int64) -> None:
        if growth.look(self.model, self.store["train"].batch(rows), number=self.step):
            self.learn.grow(growth.size)
            self.reporter.message(f"after step {self.step:,} the pool grows to {growth.size:,}")

    def _look(self, clock: Clock, loss: float) -> None:
        progress = self._report(clock, loss)
        if self._events is not None:
            figures = {"loss": loss, "points_per_second": progress.points_per_second}
            self._events.write(self.step, figures | {f"rate/{name}": rate for name, rate in self._rates().items()})

    def _report(self, clock: Clock, loss: float) -> Progress:
        size = RunSize(self.num_steps, len(self.batches), self.options.batch_size)
        progress = clock.look(loss, step=self.step, size=size)
        self.reporter.progress(progress)
        return progress

    def _rates(self) -> dict[str, float]:
        """The step sizes that the last step took, of what this run learns."""
        options, shape = self.options, self.model.shape
        rates = {"class": options.class_rate}
        if shape.kind == "embedding":
            rates["feature"] = options.feature_rate
        if (shape.kind == "embedding" and shape.depth) or options.learn_scale:
            rates["map"] = options.map_rate
        factor = rate_factor(options.schedule, (self.step - 1) / self.num_steps)
        return {name: rate * factor for name, rate in rates.items()}

    def _look_for_harm(self, bad_step: int) -> None:
        if bad_step >= 0:
            raise self._harmed(f"the loss of step {bad_step:,} is not a finite number")

    def _look_at_weights(self) -> None:
        """A loss tells of its own step's update only in the next step, which may never come."""
        if (name := first_not_finite(self.model)) is not None:
            raise self._harmed(f"after step {self.step:,} {name} holds numbers that are not finite")
        if self.model.shape.kind == "linear":  # whose classes begin at 0, and whose queries are as they are given
            return
        if (lost := num_without_direction(self.model) - self._without_direction) > 0:
            raise self._harmed(f"by step {self.step:,} {lost:,} class vectors have become 0: their lengths overflow")
        if not has_directions(self.model, self.store["train"].batch(self.validation.train_rows[:_PROBE])):
            raise self._harmed(f"after step {self.step:,} the vectors of queries are 0: their lengths overflow")

    def _harmed(self, what: str) -> NotFinite:
        folder = self.out / "checkpoints"
        kept = f"; checkpoints before it are in {folder}" if any(folder.glob("*.json")) else ""
        return NotFinite(
            f"{what}; lower the rates (--class-rate, --feature-rate, --map-rate) and look for huge feature values,"
            f" then train into a new folder{kept}"
        )

    def _epoch_ended(self, clock: Clock) -> None:
        """Validates, and writes a line of metrics."""
        figures = self.validation.measure(self.model) if len(self.validation) else {}
        record = {"step": self.step, "epoch": self.step / len(self.batches), "loss": clock.loss, **figures}
        record["seconds"] = round(clock.seconds(), 3)
        self.history.append(record)
        self._epoch_loss.zero_()
        self._write_metrics()
        clock.validation = figures
        self._report(clock, clock.loss)
        if self._events is not None:
            self._events.write(self.step, {f"validation/{name}": figure for name, figure in figures.items()})
        if self.options.patience and figures:
            try:
                self._best.offer(record, self.model.tensors())
            except OwlmineError as error:
                self.reporter.message(f"{error}; training goes on")

    def _is_over(self) -> bool:
        return self.step == self.num_steps or self._out_of_patience()

    def _out_of_patience(self) -> bool:
        """Whether so many epochs have passed since the best one. Of the history alone: a resumed run stops as well."""
        if not self.options.patience or self._best.record is None:
            return False
        best_step: int = self._best.record["step"]
        return sum(int(record["step"]) > best_step for record in self.history) >= self.options.patience

    def _finish(self, stop: StopSignal) -> Predictor:
        kept = self.history[-1]
        if self._best.record is not None:
            try:
                self._best.restore(self.model.tensors())
                kept = self._best.record
            except OwlmineError as error:
                self.reporter.message(f"{error}; the last epoch's weights are kept instead of the best")
        config = {
            "options": recipe(self.options),
            "data": {"name": self._data_name, "checksum": self.store.meta["checksum"]},
            "history": self.history,
            "kept": kept,
        }
        predictor = Predictor(self.model, ClassWords.of(self.store), FeatureWords.of(self.store), config)
        ranked = rank_points(predictor, self.validation, between=lambda: stop.check(_UNSAVED))
        if (calibration := fit_calibration(ranked, num_classes=self.store.num_classes)) is not None:
            config["calibration"] = calibration.to_dict()
        stop.check(_UNSAVED)
        save_model(self.out, predictor, model_card(predictor, self.store, self.options))
        # Only now: a run killed before this line goes on from what is removed here.
        remove_working_files(self.out, self.reporter.message)
        return predictor

    def _save_checkpoint(self) -> None:
        self._look_at_weights()
        try:
            self._checkpoints.save(Checkpoint(self.step, self._all_tensors(), self._state()))
        except OwlmineError as error:
            self.reporter.message(f"{error}; training goes on, the checkpoint before it stays")
            return
        try:
            self._checkpoints.remove_old()
        except OSError as error:
            if not self._keeps_old:
                self.reporter.message(
                    f"{self.out / 'checkpoints'}: old checkpoints cannot be removed: {error.strerror}; training goes on"
                )
            self._keeps_old = True

    def _write_metrics(self) -> None:
        """The whole file each time: it is small, and so it is right after a resume and after a full disk."""
        try:
            write_text(self.out / "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in self.history))
        except OSError as error:
            self.reporter.message(f"{self.out / 'metrics.jsonl'}: not written: {error.strerror}; training goes on")

    def _all_tensors(self) -> dict[str, Tensor]:
        model = {f"model.{name}": tensor for name, tensor in self.model.tensors().items()}
        step = {f"step.{name}": tensor for name, tensor in self.learn.state_tensors().items()}
        return model | step | {"epoch_loss": self._epoch_loss}

    def _state(self) -> dict[str, Any]:
        return {
            "batches": self.batches.state_dict(),
            "best": self._best.state_dict(),
            "history": self.history,
            "seconds": self._seconds_before,
            "growth": None if self._growth is None else self._growth.state_dict(),
        }

    def _restore(self, checkpoint: FoundCheckpoint) -> None:
        file = checkpoint.tensors
        for name, tensor in self.model.tensors().items():
            file.read_into(f"model.{name}", tensor)
        file.read_into("epoch_loss", self._epoch_loss)
        self.learn.load_state_tensors(
            {name.removeprefix("step."): file.read(name) for name in file.names if name.startswith("step.")}
        )
        self.batches.load_state_dict(checkpoint.state["batches"])
        self._best.load_state_dict(checkpoint.state["best"])
        if self._growth is not None:
            self._growth.load_state_dict(checkpoint.state["growth"])
            self.learn.grow(self._growth.size)
        self.history, self.step = checkpoint.state["history"], checkpoint.step
        self._seconds_before = checkpoint.state["seconds"]
        with suppress(OSError):  # what stays is removed with the other working files
            remove_unfinished(self.out)
        self._write_metrics()  # epochs after the checkpoint will come again
