"""The search for a setting: coordinate-wise, from each start, with a bounded number of runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from owlmine.compare.methods import Method, Setting

# The values within a decade that the search tries. Rates change by factors of 3; a scale needs finer steps.
_DIGITS = {"scale": (1, 2, 5)}
_RATE_DIGITS = (1, 3)
_RATES = ("class_rate", "feature_rate", "map_rate")
# How often a start that learns nothing (because its loss diverges, say) is tried again with all rates divided by ten.
_MOST_TENTHS = 3
# A start with less than this share of the best start's figure gets only the runs that the others leave unused.
_HOPELESS = 0.5


class OutOfRuns(Exception):  # noqa: N818
    """The search has used all its runs."""


class Search:
    """Tries settings of a method with ``measure`` (higher is better), each once and at most ``most_runs``."""

    def __init__(self, method: Method, measure: Callable[[Setting], float], *, most_runs: int) -> None:
        self._method, self._measure = method, measure
        self._most_runs = self._limit = most_runs
        self.tried: dict[Setting, float] = {}
        self.settled = False
        """Whether every start led to a setting that beats its neighbours before the runs were used up."""

    def best(self) -> Setting:
        """The best setting tried; among equal ones, the first."""
        try:
            starts = [self._lowered(start) for start in self._method.starts]
            starts.sort(key=self._score, reverse=True)
        except OutOfRuns:
            return self._best_tried()
        hopeful = [start for start in starts if self._score(start) >= _HOPELESS * self._score(starts[0])]
        # The best start may lead to a worse optimum, so all starts except the far worse ones share the runs. Runs that
        # one leaves unused go to the next starts, and then to those that had too few. Searching again repeats no run.
        for place, start in enumerate(starts):
            left, sharing = self._most_runs - len(self.tried), max(len(hopeful) - place, 1)
            self._walked(start, limit=len(self.tried) + math.ceil(left / sharing))
        self.settled = all(self._walked(start, limit=self._most_runs) for start in starts)
        return self._best_tried()

    def _best_tried(self) -> Setting:
        return max(self.tried, key=self.tried.__getitem__)

    def _walked(self, start: Setting, *, limit: int) -> bool:
        """Whether the search from ``start`` settled within ``limit`` runs in total."""
        self._limit = limit
        try:
            self._walk(start)
        except OutOfRuns:
            return False
        return True

    def _score(self, setting: Setting) -> float:
        if setting not in self.tried:
            if len(self.tried) >= self._limit:
                raise OutOfRuns
            self.tried[setting] = self._measure(setting)
        return self.tried[setting]

    def _lowered(self, start: Setting) -> Setting:
        for _ in range(_MOST_TENTHS):
            if self._score(start) > 0:
                break
            start = replace(start, **{name: stepped(getattr(start, name), name, -2) for name in _RATES})
        return start

    def _walk(self, setting: Setting) -> None:
        """Moves along each knob while that helps, until no knob helps."""
        moved = True
        while moved:
            moved = False
            for knob in self._method.knobs:
                for step in (-1, 1):
                    while self._score(tried := _step(setting, knob, step)) > self._score(setting):
                        setting, moved = tried, True


def _step(setting: Setting, knob: str, step: int) -> Setting:
    return replace(setting, **{knob: stepped(getattr(setting, knob), knob, step)})


def stepped(value: float, knob: str, steps: int) -> float:
    """The value this many steps up (or down) a ladder such as 0.1, 0.3, 1, 3, 10; a value in between is rounded
    first."""
    digits = _DIGITS.get(knob, _RATE_DIGITS)
    place = round(math.log10(value) * len(digits)) + steps
    decade, digit = divmod(place, len(digits))
    return float(f"{digits[digit]}e{decade}")
