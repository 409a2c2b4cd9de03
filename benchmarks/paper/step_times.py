"""What a step of a stored variant takes by itself: runs that shared a GPU with others tell nothing of time."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from owlmine.compare.methods import Method, Setting
from owlmine.compare.options import CompareOptions
from owlmine.compare.timing import StepTimer
from owlmine.data.store import Store
from owlmine.recipe.options import TrainOptions
from owlmine.train import train
from owlmine.train.reporters import SilentReporter
from owlmine.train.validate import validation_part

# Steps after the first report, which comes after 50.
_TIMED_STEPS = 500


def add_step_times(store: Store, name: str, results: dict[str, Any], methods: Mapping[str, Method]) -> None:
    """``seconds_per_step_alone`` of each method in ``results``, one after the other.

    None for a pool that grows, whose first steps are not like its last.
    """
    asked = CompareOptions(**results["options"])
    for told in results["methods"]:
        options = asked.final_options(methods[told["name"]], Setting(**told["setting"]), seed=asked.seed)
        told["seconds_per_step_alone"] = None if options.pool_start else _seconds_per_step(store, options)
        print(f"{name}: {told['title']} {step_milliseconds(told)} ms a step", flush=True)


def step_milliseconds(told: Mapping[str, Any]) -> str:
    """Of a method in stored results; a dash where it was not timed."""
    seconds = told.get("seconds_per_step_alone")
    return "–" if seconds is None else f"{1000 * seconds:.2f}"


def _seconds_per_step(store: Store, options: TrainOptions) -> float:
    points = len(validation_part(store, options).train_rows)
    epochs = (_TIMED_STEPS + 50) * options.batch_size / points
    # Kernels are compiled in a first run, some of them late: only the second is like those that follow.
    for _ in range(2):
        timer = StepTimer(SilentReporter(), batch_size=options.batch_size)
        with tempfile.TemporaryDirectory() as folder:
            train(store, Path(folder) / "model", replace(options, epochs=epochs), reporter=timer)
    assert timer.seconds_per_step is not None
    return timer.seconds_per_step
