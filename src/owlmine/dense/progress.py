"""The progress of a training run, and its reporters."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Progress:
    """The progress of a run."""

    step: int
    num_steps: int
    epoch: float
    loss: float
    points_per_second: float
    seconds_left: float
    validation: dict[str, float]
    """The last validation figures, in percent; empty before the first."""


class Reporter(Protocol):
    """Shows the progress of a run."""

    def progress(self, progress: Progress) -> None: ...

    def message(self, text: str) -> None: ...


class SilentReporter:
    """Shows nothing."""

    def progress(self, progress: Progress) -> None:
        del progress

    def message(self, text: str) -> None:
        del text


@dataclass(frozen=True)
class RunSize:
    """The length of a run."""

    num_steps: int
    steps_per_epoch: int
    batch_size: int


class Clock:
    """Speed and time left."""

    def __init__(self, first_step: int, *, seconds_before: float) -> None:
        self._began = time.monotonic()
        self._seconds_before = seconds_before
        self._first_step = first_step
        self.loss = math.nan
        self.validation: dict[str, float] = {}

    def seconds(self) -> float:
        """Seconds of the whole run, including earlier parts."""
        return self._seconds_before + time.monotonic() - self._began

    def look(self, loss: float, *, step: int, size: RunSize) -> Progress:
        """The progress now."""
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


_SECONDS = 15.0


class Heartbeat:
    """Progress messages for work without steps: ``show`` gets a message with the number done of ``total``, at most
    every 15 seconds and not at the end."""

    def __init__(self, show: Callable[[str], None], what: str, total: int) -> None:
        self._show, self._what, self._total = show, what, total
        self._last = time.monotonic()

    def __call__(self, done: int) -> None:
        if done < self._total and time.monotonic() - self._last >= _SECONDS:
            self._last = time.monotonic()
            self._show(f"{self._what}: {done:,} of {self._total:,}")
