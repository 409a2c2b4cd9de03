"""From the records of runs to what ``results.json`` holds: means, deviations, ratios, costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import owlmine
from owlmine.compare.machine import machine
from owlmine.compare.methods import BASELINE, Method, Setting
from owlmine.compare.options import CompareOptions
from owlmine.compare.runs import Record
from owlmine.data.describe import describe
from owlmine.data.store import Store
from owlmine.demo.figures import NAMES, ratios
from owlmine.demo.paper import PAPER_CLASSES, TABLE_2
from owlmine.device import choose_device
from owlmine.train.validate import validation_part


@dataclass(frozen=True)
class MethodRuns:
    """Everything that was run for one method."""

    method: Method
    setting: Setting
    tried: list[Record]
    finals: list[Record]
    settled: bool
    """Whether the search ended by itself."""


def make_results(
    store: Store, options: CompareOptions, compared: Sequence[MethodRuns], *, notes: list[str], data: str
) -> dict[str, Any]:
    methods = [_summary(runs) for runs in compared]
    baseline = next((method for method in methods if method["name"] == BASELINE), None)
    for method in methods:
        method["ratio"] = None if baseline is None else ratios(method["mean"], baseline["mean"])
    name = Path(data).name
    part = validation_part(store, options)
    return {
        "written_by": f"owlmine {owlmine.__version__}",
        "data": {
            "name": name,
            "checksum": store.meta["checksum"],
            "validation_points": len(part),
            "validation_from": "dev" if "dev" in store.splits else "train",
            "learnt_points": len(part.train_rows),
            **describe(store),
        },
        "options": asdict(options),
        "baseline": None if baseline is None else BASELINE,
        "paper": _paper(name, store.num_classes, [runs.method.name for runs in compared]),
        "methods": methods,
        "notes": notes + _run_notes(compared),
        "seconds": sum(method["search"]["seconds"] + method["final_seconds"] for method in methods),
        "machine": machine(choose_device(options.device)),
    }


def _summary(runs: MethodRuns) -> dict[str, Any]:
    method, finals = runs.method, runs.finals
    timed = [record for record in finals if record["finite"]]
    return {
        "name": method.name,
        "title": method.title,
        "number": method.number,
        "loss": method.loss,
        "top": method.top,
        "own": dict(method.own),
        "setting": asdict(runs.setting),
        "searched": list(method.knobs),
        "mean": {name: statistics.mean(record["test"][name] for record in finals) for name in NAMES},
        "deviation": {name: _deviation([record["test"][name] for record in finals]) for name in NAMES},
        "seconds_per_step": _mean([record["seconds_per_step"] for record in timed]),
        "seconds": _mean([record["seconds"] for record in timed]),
        "points_seen": timed[0]["points_seen"] if timed else None,
        "curve": finals[0]["curve"],
        "final_seconds": sum(record["wall_seconds"] for record in finals),
        "search": {
            "runs": len(runs.tried),
            "settled": runs.settled,
            "seconds": sum(record["wall_seconds"] for record in runs.tried),
            "validation P@1": max(record["validation"]["P@1"] for record in runs.tried),
            "tried": [
                {**record["setting"], "P@1": record["validation"]["P@1"], "finite": record["finite"]}
                for record in runs.tried
            ],
        },
        "finals": [
            {key: record[key] for key in _KEPT_OF_RUN} | {"validation P@1": record["validation"]["P@1"]}
            for record in finals
        ],
    }


_KEPT_OF_RUN = ("key", "seed", "test", "finite", "steps", "points_seen", "seconds_per_step", "seconds", "model")


def _deviation(values: Sequence[float]) -> float | None:
    """Of a sample (divided by n - 1); one value has none."""
    return statistics.stdev(values) if len(values) > 1 else None


def _mean(values: Sequence[float]) -> float | None:
    return statistics.mean(values) if values else None


def _paper(name: str, num_classes: int, compared: list[str]) -> dict[str, Any]:
    """The paper's ratios for this dataset, or for the one with the nearest number of classes."""
    nearest = min(PAPER_CLASSES, key=lambda dataset: abs(math.log(PAPER_CLASSES[dataset] / num_classes)))
    dataset = next((known for known in PAPER_CLASSES if name.lower().startswith(known.lower())), nearest)
    return {
        "dataset": dataset,
        "ratios": {method: ratios for method, ratios in TABLE_2[dataset].items() if method in compared},
    }


def _run_notes(compared: Sequence[MethodRuns]) -> list[str]:
    """What a reader must know before trusting the figures."""
    notes = []
    for runs in compared:
        lost = sum(not record["finite"] for record in runs.finals)
        if lost:
            notes.append(
                f"{runs.method.title}: the loss of {lost} of {len(runs.finals)} final runs left the numbers;"
                " they count as 0"
            )
    if unsettled := [runs.method.title for runs in compared if not runs.settled]:
        notes.append(
            f"The search ran out of runs before it settled: {', '.join(unsettled)}; more (--search-runs) may do better"
        )
    if len({str(sorted(record["machine"].items())) for runs in compared for record in runs.finals}) > 1:
        notes.append("Final runs were made on several machines or versions; their seconds cannot be compared")
    return notes
