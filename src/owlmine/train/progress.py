"""Where a run stands, who is told, and what the clock has to do with it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol


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


@dataclass(frozen=True)
class RunSize:
    """How long a run is."""

    num_steps: int
    steps_per_epoch: int
    batch_size: int


class Clock:
    """Speed, time left, and when the next checkpoint is due."""

    def __init__(self, first_step: int, *, seconds_before: float) -> None:
        self._began = self._saved = time.monotonic()
        self._seconds_before = seconds_before
        self._first_step = first_step
        self.loss = math.nan
        self.validation: dict[str, float] = {}

    def seconds(self) -> float:
        """Of the whole run, earlier parts included."""
        return self._seconds_before + time.monotonic() - self._began

    def checkpoint_due(self, minutes: float) -> bool:
        return time.monotonic() - self._saved >= 60 * minutes

    def saved(self) -> None:
        self._saved = time.monotonic()

    def look(self, loss: float, *, step: int, size: RunSize) -> Progress:
        """Where the run stands now."""
        self.loss = loss
        steps_per_second = (step - self._first_step) / max(time.monotonic() - self._began, 1e-9)
        return Progress(
            step=step,
            num_steps=size.num_steps,
            epoch=step / size.steps_per_epoch,
            loss=loss,
            points_per_second=steps_per_second * size.batch_size,
            seconds_left=(size.num_steps - step) / max(steps_per_second, 1e-9),
            validation=self.validation,
        )
