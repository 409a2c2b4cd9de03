"""How long a step takes, seen from the reports of a run: without validation, and without the first steps."""

from __future__ import annotations

import time

from owlmine.train.progress import Progress, Reporter


class StepTimer:
    """A reporter that hands everything on to another and watches the clock.

    A run reports before it validates and again after, at the same step: the time between is no training. What comes
    before the first report (loading, compiling) counts only where there is nothing else to go by.
    """

    def __init__(self, reporter: Reporter, *, batch_size: int) -> None:
        self._reporter, self._batch_size = reporter, batch_size
        self._last: tuple[int, float] | None = None
        self._first_guess: float | None = None
        self._steps, self._seconds = 0, 0.0

    def progress(self, progress: Progress) -> None:
        now = time.monotonic()
        if self._last is None:
            self._first_guess = self._batch_size / progress.points_per_second
        elif progress.step > self._last[0]:
            self._steps += progress.step - self._last[0]
            self._seconds += now - self._last[1]
        self._reporter.progress(progress)
        self._last = progress.step, time.monotonic()

    def message(self, text: str) -> None:
        self._reporter.message(text)

    @property
    def seconds_per_step(self) -> float | None:
        """None for a run that never reported."""
        return self._seconds / self._steps if self._steps else self._first_guess
