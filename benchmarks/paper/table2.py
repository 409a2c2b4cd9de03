"""The paper's Table 2 on one dataset: mining against negative sampling, each method at its own rates.

The same as ``owlmine compare`` with the dataset's options, if necessary in parts: finished runs stay in the work
folder. Runs that share a GPU say nothing about time, so steps are timed afterwards, one method after the other, alone
on the machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from comparing import compare, store_results
from dataset import DATASETS, Dataset
from results import PAPER
from step_times import add_step_times, step_milliseconds
from tables import markdown

from owlmine.compare.figures import NAMES
from owlmine.compare.methods import METHODS, Setting
from owlmine.compare.options import CompareOptions
from owlmine.data.store import Store
from owlmine.errors import OwlmineError
from owlmine.run.run_folder import mark_of

_REST = tuple(figure for figure in NAMES if figure != "P@1")
_RATES = ("class_rate", "feature_rate", "map_rate")


def table2(
    store: Store,
    name: str,
    options: dict[str, Any],
    *,
    work: Path,
    keep: bool = True,
    settings: dict[str, Setting] | None = None,
) -> Path | None:
    """Where the results are stored; None where they are not to be stored. ``settings`` by method take the place of the
    search, which is then one run."""
    asked = CompareOptions(**options)
    methods = [METHODS[method] for method in asked.methods.split(",")]
    if settings is not None:
        methods = [replace(method, knobs=(), starts=(settings[method.name],)) for method in methods]
    results = compare(store, name, methods, asked, work=work)
    return store_results(results, "table2", name) if keep else None


def settings_of(file: Path) -> dict[str, Setting]:
    """The settings that the methods chose, from stored results."""
    results = json.loads(file.read_text("utf-8"))
    return {method["name"]: Setting(**method["setting"]) for method in results["methods"]}


def in_parts(name: str, options: dict[str, Any], command: Sequence[str], *, work: Path) -> None:
    """Runs ``command`` once for each method, all at once and each in its own work folder, and collects the runs in
    ``work``. For a GPU, which one small model does not keep busy. Exits if one did not finish."""
    methods = options["methods"].split(",")
    parts = {method: subprocess.Popen([*command, "--method", method]) for method in methods}
    unfinished = [method for method, part in parts.items() if part.wait() != 0]
    for method in methods:
        _gather(part_folder(work, method), work)
    if unfinished:
        sys.exit(f"{name}: not finished ({', '.join(unfinished)}); the same command resumes")


def part_folder(work: Path, method: str) -> Path:
    """The folder for the runs of one method, next to that of all methods."""
    return work.with_name(f"{work.name}-{method}")


def _gather(part: Path, work: Path) -> None:
    # Without the marker file, ``work`` would be rejected as a foreign folder; a part has it before its first run.
    if not mark_of(part, "compare").is_file():
        return
    (work / "runs").mkdir(parents=True, exist_ok=True)
    shutil.copy(mark_of(part, "compare"), work)
    for file in (part / "runs").glob("*.json"):
        shutil.copy(file, work / "runs")


def time_steps(store: Store, name: str) -> Path:
    """Adds seconds per step of each method, measured alone, to the stored results."""
    results = stored().get(name)
    if results is None:
        raise OwlmineError(f"{name}: no stored results of Table 2; run it before timing its steps")
    add_step_times(store, name, results, METHODS)
    return store_results(results, "table2", name)


def stored() -> dict[str, dict[str, Any]]:
    """Results by dataset, smaller datasets first."""
    files = {name: PAPER / "table2" / f"{name}.json" for name in DATASETS}
    return {name: json.loads(file.read_text("utf-8")) for name, file in files.items() if file.exists()}


def figure_table() -> str:
    """Absolute figures, the time of a step if it was timed alone, and the chosen rates."""
    rows = []
    for name, results in stored().items():
        for number, method in enumerate(results["methods"]):
            deviation = method["deviation"]["P@1"]
            rows.append(
                (
                    Dataset.named(name).title if number == 0 else "",
                    method["title"],
                    f"{method['mean']['P@1']:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}"),
                    *(f"{method['mean'][figure]:.2f}" for figure in _REST),
                    _searched(method),
                    step_milliseconds(method),
                    " / ".join(f"{method['setting'][rate]:g}" for rate in _RATES),
                )
            )
    head = ("", "", "P@1", *_REST, "validation P@1 of the search", "ms a step", "class / feature / map rate")
    return markdown(head, rows, left=2)


def ratio_table() -> str:
    """The paper's Table 2: every figure divided by that of negative sampling."""
    rows = [
        (
            Dataset.named(name).title if number == 0 else "",
            method["title"],
            *(f"{method['ratio'][figure]:.2f}" for figure in NAMES),
        )
        for name, results in stored().items()
        for number, method in enumerate(results["methods"])
        if method["name"] != results["baseline"]
    ]
    return markdown(("", "", *NAMES), rows, left=2)


def _searched(method: dict[str, Any]) -> str:
    """Validation P@1 of the search; a dash if the setting was given and there was no search."""
    validated = method["search"]["validation P@1"]
    return "–" if validated is None else f"{validated:.2f}"
