"""What a step of a stored variant takes by itself: runs that shared a GPU with others say nothing about time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from owlmine.compare.methods import Method, Setting
from owlmine.compare.options import CompareOptions
from owlmine.compare.runs import StepTimer
from owlmine.data.store import Store
from owlmine.dense.progress import SilentReporter
from owlmine.dense.validation import ValidationPart
from owlmine.recipe.fit import Surroundings, fit
from owlmine.recipe.options import TrainOptions

# Steps after the first report, which comes after 50.
_TIMED_STEPS = 500


def add_step_times(store: Store, name: str, results: dict[str, Any], methods: Mapping[str, Method]) -> None:
    """``seconds_per_step_alone`` of each method in ``results``, one after the other.

    None for a pool that grows, whose first steps are not like its last.
    """
    asked = CompareOptions(**results["options"])
    for entry in results["methods"]:
        options = asked.final_options(methods[entry["name"]], Setting(**entry["setting"]), seed=asked.seed)
        entry["seconds_per_step_alone"] = None if options.loss.pool_start else _seconds_per_step(store, options)
        print(f"{name}: {entry['title']} {step_milliseconds(entry)} ms a step", flush=True)


def step_milliseconds(entry: Mapping[str, Any]) -> str:
    """Of a method in stored results; a dash where it was not timed."""
    seconds = entry.get("seconds_per_step_alone")
    return "–" if seconds is None else f"{1000 * seconds:.2f}"


def _seconds_per_step(store: Store, options: TrainOptions) -> float:
    run, batch_size = options.run, options.steps.batch_size
    points = len(ValidationPart(store, share=run.validation, block=run.validation_block).train_rows)
    short = options.with_(epochs=(_TIMED_STEPS + 50) * batch_size / points)
    # Kernels are compiled in a first run, some of them late: only the second is like those that follow.
    for _ in range(2):
        timer = StepTimer(SilentReporter(), batch_size=batch_size)
        fit(store, short, surroundings=Surroundings(timer))
    assert timer.seconds_per_step is not None
    return timer.seconds_per_step
