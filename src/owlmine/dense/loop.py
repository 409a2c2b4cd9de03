"""The training of one model, in memory: schedule, validation, patience, and where it may be interrupted.

``Watch`` is everything around it: progress reports, snapshots, requests to stop. The one here saves nothing; ``run/``
has one with a folder. Neither changes what is learned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from owlmine.data.batches import Batches
from owlmine.data.rows import Int64
from owlmine.data.store import Split
from owlmine.dense import compiled_step
from owlmine.dense.finite import NotFinite, first_not_finite, has_directions, num_without_direction
from owlmine.dense.objective import PoolObjective
from owlmine.dense.pool_growth import LOOK_EVERY, pool_growth
from owlmine.dense.progress import Clock, Progress, Reporter, RunSize, SilentReporter
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.settings import DenseSettings
from owlmine.dense.side_by_side import Cancelled
from owlmine.dense.step import TrainingStep, rate_factor
from owlmine.dense.validation import ValidationPart
from owlmine.dense.warm_start import warm_start
from owlmine.errors import OwlmineError
from owlmine.mining.hardest_classes import have_triton

# Steps between checks of the loss: each check waits for the device.
_LOOK_EVERY = 50
# Training points checked for a nonzero vector.
_PROBE = 256

Record = dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """The state of a training run at the end of a step: every tensor, and everything else needed to resume.

    The tensors are the training's own memory, to be copied or written before the next step.
    """

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


class TensorSource(Protocol):
    """Saved tensors, read one by one."""

    @property
    def names(self) -> list[str]: ...
    def read(self, name: str) -> Tensor: ...
    def read_into(self, name: str, tensor: Tensor) -> None: ...


class SavedSnapshot(Protocol):
    """A snapshot that was saved. Its tensors stay where they are until they are read."""

    @property
    def step(self) -> int: ...
    @property
    def tensors(self) -> TensorSource: ...
    @property
    def state(self) -> dict[str, Any]: ...


class Best(Protocol):
    """The weights of the best epoch so far. ``record`` is that epoch's line of metrics, None before the first."""

    record: Record | None

    def offer(self, record: Record, tensors: dict[str, Tensor]) -> None:
        """Saves the weights if their P@1 is higher. Raises OwlmineError if that fails."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Loads the saved weights into these tensors. Raises OwlmineError if they are lost."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class MemoryBest:
    """A second copy of the weights in memory."""

    def __init__(self) -> None:
        self.record: Record | None = None
        self._tensors: dict[str, Tensor] = {}

    def offer(self, record: Record, tensors: dict[str, Tensor]) -> None:
        if self.record is None or record["P@1"] > self.record["P@1"]:
            self._tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
            self.record = record

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            tensor.copy_(self._tensors[name])

    def state_dict(self) -> dict[str, Any]:
        return {"record": self.record, "tensors": self._tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.record, self._tensors = state["record"], state["tensors"]


class Watch:
    """What surrounds the training of a model. This one shows progress and saves nothing."""

    def __init__(self, reporter: Reporter | None = None) -> None:
        self.reporter = reporter or SilentReporter()
        self.best: Best = MemoryBest()
        self.cancelled = False
        """Set by another thread: the training ends soon, with ``Cancelled``, and saves nothing."""

    def restore(self) -> SavedSnapshot | None:
        """The snapshot that training starts from; None: from the beginning."""
        return None

    @property
    def stopping(self) -> bool:
        """Whether the training was asked to stop."""
        return False

    def stop(self, where: str) -> None:
        """Ends the training with an exception. Called after ``stopping`` was true and a snapshot was saved."""

    def check(self, where: str) -> None:
        """Stops here if requested: nothing is lost."""
        self.check_cancelled()
        if self.stopping:
            self.stop(where)

    def check_cancelled(self) -> None:
        if self.cancelled:
            raise Cancelled

    def due(self) -> bool:
        """Whether it is time for a snapshot."""
        return False

    def save(self, take: Callable[[], Snapshot], *, is_last: bool) -> None:
        """Saves a snapshot created by ``take``; the last one perhaps later, since no step follows that would change
        it."""

    def epoch_ended(self, history: list[Record]) -> None:
        """Called when a line was added to the history, and after a restore, which removes later lines."""

    def figures(self, step: int, figures: dict[str, float]) -> None:
        """Points of curves."""

    def advice(self) -> str:
        """Advice after a failure, for the end of the error message."""
        return ""


@dataclass(frozen=True, eq=False)
class DenseFit:
    """A trained model and its history."""

    model: Retriever
    history: list[Record]
    best: Record
    """The line of the history that belongs to these weights."""


def train_dense(
    train: Split,
    shape: ModelShape,
    settings: DenseSettings,
    validation: ValidationPart,
    *,
    device: torch.device,
    watch: Watch | None = None,
) -> DenseFit:
    """Trains one model on the rows of ``train`` that are not validation points."""
    return DenseTraining(train, shape, settings, validation, device=device, watch=watch or Watch()).run()


class DenseTraining:
    """One model and the state of its training."""

    def __init__(
        self,
        train: Split,
        shape: ModelShape,
        settings: DenseSettings,
        validation: ValidationPart,
        *,
        device: torch.device,
        watch: Watch,
    ) -> None:
        self.settings, self.watch, self._train, self._validation = settings, watch, train, validation
        self.model = Retriever.new(shape, seed=settings.seed, device=device)
        self._learn = choose_step(self.model, settings, train, watch.reporter.message)
        self._batches = Batches(train, batch_size=settings.batch_size, seed=settings.seed, rows=validation.train_rows)
        self.num_steps = max(round(settings.epochs * len(self._batches)), 1)
        self._growth = pool_growth(settings)
        self.step = 0
        self.history: list[Record] = []
        self._epoch_loss = 0.0
        self._seconds_before = 0.0
        self._without_direction = 0

    def run(self) -> DenseFit:
        saved = self.watch.restore()
        if saved is not None:
            self._restore(saved)
            self.watch.reporter.message(f"resumed at step {self.step:,} of {self.num_steps:,}")
        elif self.settings.warm_start:
            warm_start(
                self.model,
                self._train,
                self._validation.train_rows,
                between=lambda: self.watch.check("before the first step"),
            )
        self._without_direction = num_without_direction(self.model)
        self._loop()
        best = self.history[-1]
        if self.watch.best.record is not None:
            try:
                self.watch.best.restore(self.model.tensors())
                best = self.watch.best.record
            except OwlmineError as error:
                self.watch.reporter.message(f"{error}; the model keeps the last epoch's weights instead of the best")
        return DenseFit(self.model, self.history, best)

    def _loop(self) -> None:
        clock, num_new = Clock(self.step, seconds_before=self._seconds_before), 0
        losses = torch.zeros(_LOOK_EVERY, device=self.model.device)
        while not self._is_over():
            rows = self._batches.next_rows()
            self._look_at_pool(rows)
            losses[self.step % _LOOK_EVERY] = self._learn(rows, number=self.step, progress=self.step / self.num_steps)
            self.step += 1
            num_new += 1
            epoch_ends = self.step % len(self._batches) == 0 or self.step == self.num_steps
            due = self.watch.due() or self.watch.stopping
            if not (epoch_ends or due or self.step % _LOOK_EVERY == 0):
                continue
            self.watch.check_cancelled()
            self._look_at_losses(losses, num_new)
            num_new = 0
            self._look(clock, self._epoch_loss / ((self.step - 1) % len(self._batches) + 1))
            if epoch_ends:
                self._look_at_weights()
                self._epoch_ended(clock)
            # Read once: a later signal must get its own snapshot.
            stopping = self.watch.stopping
            # After the last step too: if the process ends from here on, nothing is trained again.
            if due or stopping or self._is_over():
                self._look_at_weights()
                self._seconds_before = clock.seconds()
                self.watch.save(self._snapshot, is_last=self._is_over() and not stopping)
            if stopping:
                self.watch.stop(f"at step {self.step:,} of {self.num_steps:,}")

    def _look_at_pool(self, rows: Int64) -> None:
        """Lets the pool grow. Before the step on this batch, which would hide its mistakes."""
        if self._growth is None or self.step % LOOK_EVERY:
            return
        if self._growth.look(self.model, self._train.batch(rows), number=self.step):
            self._learn.grow(self._growth.size)
            self.watch.reporter.message(f"after step {self.step:,} the pool grows to {self._growth.size:,}")

    def _look_at_losses(self, losses: Tensor, num_new: int) -> None:
        """Adds up the losses of the last steps: that of step n is at place n modulo the length."""
        places = torch.arange(self.step - num_new, self.step) % len(losses)
        last = losses.cpu()[places]
        if not bool(torch.isfinite(last).all()):
            number = self.step - num_new + int(torch.isfinite(last).int().argmin()) + 1
            raise self._broken(f"the loss of step {number:,} is not a finite number")
        # One after the other: the sum must not depend on how often they are looked at.
        for loss in last.tolist():
            self._epoch_loss += loss

    def _look(self, clock: Clock, loss: float) -> None:
        progress = self._report(clock, loss)
        figures = {"loss": loss, "points_per_second": progress.points_per_second}
        self.watch.figures(self.step, figures | {f"rate/{name}": rate for name, rate in self._rates().items()})

    def _report(self, clock: Clock, loss: float) -> Progress:
        size = RunSize(self.num_steps, len(self._batches), self.settings.batch_size)
        progress = clock.look(loss, step=self.step, size=size)
        self.watch.reporter.progress(progress)
        return progress

    def _rates(self) -> dict[str, float]:
        """The step sizes of the last step, for the parts that this model learns."""
        settings, shape = self.settings, self.model.shape
        rates = {"class": settings.class_rate}
        if shape.kind == "embedding":
            rates["feature"] = settings.feature_rate
        if (shape.kind == "embedding" and shape.depth) or settings.learn_scale:
            rates["map"] = settings.map_rate
        factor = rate_factor(settings.schedule, (self.step - 1) / self.num_steps)
        return {name: rate * factor for name, rate in rates.items()}

    def _look_at_weights(self) -> None:
        """Checks the weights: a loss shows the update of its step only in the next step, which may never come."""
        if (name := first_not_finite(self.model)) is not None:
            raise self._broken(f"after step {self.step:,} {name} has numbers that are not finite")
        if self.model.shape.kind == "linear":  # its classes start at 0, and its queries do not change
            return
        if (lost := num_without_direction(self.model) - self._without_direction) > 0:
            raise self._broken(f"by step {self.step:,} {lost:,} class vectors have become 0: their lengths overflow")
        if not has_directions(self.model, self._train.batch(self._validation.train_rows[:_PROBE])):
            raise self._broken(f"after step {self.step:,} the vectors of queries are 0: their lengths overflow")

    def _broken(self, what: str) -> NotFinite:
        return NotFinite(
            f"{what}; lower the rates (--class-rate, --feature-rate, --map-rate) and look for huge feature values, then"
            f" train into a new folder{self.watch.advice()}"
        )

    def _epoch_ended(self, clock: Clock) -> None:
        """Validates, and adds a line to the history."""
        # Patience decides by these figures; otherwise they are only shown.
        is_shown_only = not self.settings.patience
        figures = self._validation.measure(self.model, briefly=is_shown_only) if len(self._validation) else {}
        record = {"step": self.step, "epoch": self.step / len(self._batches), "loss": clock.loss, **figures}
        record["seconds"] = round(clock.seconds(), 3)
        self.history.append(record)
        self._epoch_loss = 0.0
        self.watch.epoch_ended(self.history)
        clock.validation = figures
        self._report(clock, clock.loss)
        self.watch.figures(self.step, {f"validation/{name}": figure for name, figure in figures.items()})
        if self.settings.patience and figures:
            try:
                self.watch.best.offer(record, self.model.tensors())
            except OwlmineError as error:
                self.watch.reporter.message(f"{error}; training continues")

    def _is_over(self) -> bool:
        return self.step == self.num_steps or self._out_of_patience()

    def _out_of_patience(self) -> bool:
        """Whether the patience is exhausted. Computed from the history alone, so that resumed runs stop as well."""
        best = self.watch.best.record
        if not self.settings.patience or best is None:
            return False
        best_step: int = best["step"]
        return sum(int(record["step"]) > best_step for record in self.history) >= self.settings.patience

    def _snapshot(self) -> Snapshot:
        model = {f"model.{name}": tensor for name, tensor in self.model.tensors().items()}
        step = {f"step.{name}": tensor for name, tensor in self._learn.state_tensors().items()}
        state = {
            "batches": self._batches.state_dict(),
            "best": self.watch.best.state_dict(),
            "history": list(self.history),
            "seconds": self._seconds_before,
            "growth": None if self._growth is None else self._growth.state_dict(),
        }
        return Snapshot(
            self.step, model | step | {"epoch_loss": torch.tensor(self._epoch_loss, dtype=torch.float64)}, state
        )

    def _restore(self, saved: SavedSnapshot) -> None:
        file = saved.tensors
        for name, tensor in self.model.tensors().items():
            file.read_into(f"model.{name}", tensor)
        self._epoch_loss = float(file.read("epoch_loss"))
        self._learn.load_state_tensors(
            {name.removeprefix("step."): file.read(name) for name in file.names if name.startswith("step.")}
        )
        self._batches.load_state_dict(saved.state["batches"])
        self.watch.best.load_state_dict(saved.state["best"])
        if self._growth is not None:
            self._growth.load_state_dict(saved.state["growth"])
            self._learn.grow(self._growth.size)
        self.history, self.step = list(saved.state["history"]), saved.step
        self._seconds_before = saved.state["seconds"]
        self.watch.epoch_ended(self.history)  # epochs after the snapshot come again


class Step(Protocol):
    """Learns from points of the training split."""

    def __call__(self, rows: Int64, *, number: int, progress: float) -> Tensor:
        """Mean loss (0-d, on the device) of the points with these row numbers. ``progress``: share of the run."""

    def grow(self, pool_size: int) -> None:
        """Sets the size of pools from now on. For losses that mine."""

    def parts(self) -> list[Callable[[], object]]:
        """Parts of a step with kernels of their own, which can be compiled at the same time. They leave the model
        useless."""

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that changes during training except the model's tensors."""

    def load_state_tensors(self, state: dict[str, Tensor]) -> None:
        """Restores the result of ``state_tensors``."""


class HostStep:
    """The plain step: the host reads its points."""

    def __init__(self, model: Retriever, settings: DenseSettings, split: Split) -> None:
        self._learn, self._split = TrainingStep(model, settings), split
        self.state_tensors, self.load_state_tensors = self._learn.state_tensors, self._learn.load_state_tensors

    def __call__(self, rows: Int64, *, number: int, progress: float) -> Tensor:
        return self._learn(self._split.batch(rows), number=number, progress=progress)

    def grow(self, pool_size: int) -> None:
        objective = self._learn.objective
        assert isinstance(objective, PoolObjective)
        objective.pool_size = pool_size

    def parts(self) -> list[Callable[[], object]]:
        return []


def choose_step(model: Retriever, settings: DenseSettings, split: Split, explain: Callable[[str], None]) -> Step:
    """With kernels if the device has them and they support the settings; otherwise ``explain`` gets the reason. On a
    CPU, compiled steps where they suit."""
    if model.device.type == "cuda" and settings.kernels and have_triton():
        from owlmine.dense.fused_step import FusedStep, why_not_fused  # Triton is an optional part.

        reason = why_not_fused(model, settings, split)
        if reason is None:
            return FusedStep(model, settings, split)
        explain(f"steps use plain PyTorch because {reason}")
    if compiled_step.suits(model, settings, split):
        return compiled_step.CompiledStep(model, settings, split)
    return HostStep(model, settings, split)
