"""From the records of runs to the contents of ``results.json``, ``figures.csv`` and ``table.tex``."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from owlmine.compare.figures import NAMES, paper_figures, ratios
from owlmine.compare.methods import BASELINE, Method, Setting
from owlmine.compare.options import CompareOptions
from owlmine.compare.runs import RunRecord, machine
from owlmine.data.describe import describe
from owlmine.data.store import Store
from owlmine.device import choose_device
from owlmine.version import __version__


@dataclass(frozen=True)
class MethodRuns:
    """Everything that was run for one method."""

    method: Method
    setting: Setting
    tried: list[RunRecord]
    """The runs of the search; empty if the setting was given."""
    finals: list[RunRecord]
    settled: bool
    """Whether the search converged before it ran out of runs."""


def make_results(
    store: Store, options: CompareOptions, compared: Sequence[MethodRuns], *, notes: list[str], data: str
) -> dict[str, Any]:
    """The content of ``results.json``: means, deviations, ratios, costs."""
    methods = [_summary(runs) for runs in compared]
    baseline = next((method for method in methods if method["name"] == BASELINE), None)
    for method in methods:
        method["ratio"] = None if baseline is None else ratios(method["mean"], baseline["mean"])
    name = Path(data).name
    part = options.validation_part(store)
    return {
        "written_by": f"owlmine {__version__}",
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
        "paper": paper_figures(name, store.num_classes, [runs.method.name for runs in compared]),
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
            "validation P@1": max((record["validation"]["P@1"] for record in runs.tried), default=None),
            "tried": [
                {**record["setting"], "P@1": record["validation"]["P@1"], "finite": record["finite"]}
                for record in runs.tried
            ],
        },
        "finals": [
            {key: record[key] for key in _OF_FINAL_RUNS} | {"validation P@1": record["validation"]["P@1"]}
            for record in finals
        ],
    }


_OF_FINAL_RUNS = ("key", "seed", "test", "finite", "steps", "points_seen", "seconds_per_step", "seconds", "model")


def _deviation(values: Sequence[float]) -> float | None:
    """Sample standard deviation (divided by n - 1); None for a single value."""
    return statistics.stdev(values) if len(values) > 1 else None


def _mean(values: Sequence[float]) -> float | None:
    return statistics.mean(values) if values else None


def _run_notes(compared: Sequence[MethodRuns]) -> list[str]:
    """Warnings about the figures."""
    notes = []
    for runs in compared:
        failed = sum(not record["finite"] for record in runs.finals)
        if failed:
            notes.append(
                f"{runs.method.title}: {failed} of {len(runs.finals)} final runs diverged (a loss or a weight was not"
                " finite) and count as 0"
            )
    if unsettled := [runs.method.title for runs in compared if not runs.settled]:
        notes.append(
            f"The search ran out of runs before it converged for {', '.join(unsettled)}; more runs (--search-runs) may"
            " find better settings"
        )
    if len({str(sorted(record["machine"].items())) for runs in compared for record in runs.finals}) > 1:
        notes.append("Final runs come from different machines or versions, so their times cannot be compared")
    return notes


_SETTING = ("class_rate", "feature_rate", "map_rate", "scale")


def figures_csv(results: dict[str, Any]) -> str:
    """One row per method, numbers at full precision; empty if there is no number."""
    names = [f"{name} {what}" for name in NAMES for what in ("mean", "deviation", "ratio")]
    rest = ("seconds_per_step", "seconds", "points_seen", *_SETTING, "search_runs", "search_seconds")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "title", "seeds", *names, *rest])
    for method in results["methods"]:
        ratio = method["ratio"] or dict.fromkeys(NAMES)
        figures = [column[name] for name in NAMES for column in (method["mean"], method["deviation"], ratio)]
        cost = [method["seconds_per_step"], method["seconds"], method["points_seen"]]
        setting = [method["setting"][name] for name in _SETTING]
        search = [method["search"]["runs"], method["search"]["seconds"]]
        writer.writerow([method["name"], method["title"], len(method["finals"]), *figures, *cost, *setting, *search])
    return text.getvalue()


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    c: f"\\{c}" for c in "&%$#_{}"
}


def table_tex(results: dict[str, Any]) -> str:
    """A tabular with booktabs rules; the best mean of each column in bold."""
    best = {name: max(method["mean"][name] for method in results["methods"]) for name in NAMES}
    lines = [
        f"% {results['written_by']}: percent on the test split of {' '.join(results['data']['name'].split())},"
        f" seeds: {results['options']['seeds']}. Needs \\usepackage{{booktabs}}.",
        rf"\begin{{tabular}}{{l{'r' * (len(NAMES) + 1)}}}",
        r"\toprule",
        " & ".join(["", *NAMES, "ms/step"]) + r" \\",
        r"\midrule",
    ]
    for method in results["methods"]:
        cells = [_cell(method, name, bold=method["mean"][name] == best[name]) for name in NAMES]
        step = method["seconds_per_step"]
        time = "--" if step is None else f"{1000 * step:.1f}"
        lines.append(" & ".join([tex(method["title"]), *cells, time]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def tex(text: str) -> str:
    """Escapes text for LaTeX."""
    return "".join(_TEX.get(letter, letter) for letter in text)


def _cell(method: dict[str, Any], name: str, *, bold: bool) -> str:
    mean, deviation = f"{method['mean'][name]:.2f}", method["deviation"][name]
    shown = rf"\mathbf{{{mean}}}" if bold else mean
    return f"${shown}$" if deviation is None else rf"${shown} \pm {deviation:.2f}$"
