"""The answers to the questions, from stored results: a picture (docs/images/study-QUESTION.png) and a table each."""

from __future__ import annotations

from typing import Any

import matplotlib
from dataset import Dataset
from questions import Question, stored
from results import IMAGES
from step_times import step_milliseconds
from tables import markdown

matplotlib.use("Agg")
from matplotlib import pyplot

_COLOURS = {
    "debian-depends": "#b3541e",
    "tibkat-gnd": "#1f5f8b",
    "yso-finna-en": "#4a7c3a",
    "commit-files": "#6b4c8a",
}


def table(question: Question) -> str:
    rows, found = [], stored(question)
    timed = any(method.get("seconds_per_step_alone") for results in found.values() for method in results["methods"])
    for name, results in found.items():
        for number, method in enumerate(results["methods"]):
            title = Dataset.named(name).title if number == 0 else ""
            deviation = method["deviation"]["P@1"]
            mean = f"{method['mean']['P@1']:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")
            others = (f"{method['mean'][figure]:.2f}" for figure in ("P@3", "P@5", "R@5"))
            validated = f"{_validated(method):.2f}"
            times = (step_milliseconds(method),) if timed else ()
            rows.append((title, method["title"], mean, *others, validated, *times))
    heads = ("P@1", "P@3", "P@5", "R@5", "validation P@1", *(("ms a step",) if timed else ()))
    return markdown(("", question.axis, *heads), rows, left=2)


def _validated(method: dict[str, Any]) -> float:
    figures = [final["validation P@1"] for final in method["finals"]]
    return sum(figures) / len(figures)


def draw(question: Question) -> None:
    """P@1 of every variant, one panel per dataset."""
    found = stored(question)
    if not found:
        return
    figure, panels = pyplot.subplots(1, len(found), figsize=(0.6 + 3.6 * len(found), 2.9), squeeze=False)
    for panel, (name, results) in zip(panels[0], found.items(), strict=True):
        labels = [method["title"] for method in results["methods"]]
        means = [method["mean"]["P@1"] for method in results["methods"]]
        errors = [method["deviation"]["P@1"] or 0.0 for method in results["methods"]]
        numbers = _numbers(labels)
        if numbers is None:
            places: list[float] = list(range(len(labels)))
            panel.set_xticks(places, labels, rotation=30, ha="right", fontsize=8)
            style = "o"
        else:
            places, style = numbers, "o-"
            if min(numbers) > 0:
                panel.set_xscale("log")
            panel.set_xticks(numbers, [f"{int(n):,}" if n == int(n) else f"{n:g}" for n in numbers], fontsize=7)
            panel.tick_params(axis="x", rotation=30)
            panel.minorticks_off()
        panel.errorbar(places, means, yerr=errors, fmt=style, color=_COLOURS[name], capsize=3, markersize=4)
        panel.tick_params(axis="y", labelsize=8)
        panel.set_title(Dataset.named(name).title, fontsize=9)
        panel.set_xlabel(question.axis, fontsize=8)
        panel.grid(axis="y", alpha=0.3)
        panel.margins(x=0.08, y=0.15)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    panels[0][0].set_ylabel("test P@1, %", fontsize=8)
    figure.tight_layout()
    figure.savefig(IMAGES / f"study-{question.name}.png", dpi=130)
    pyplot.close(figure)


def _numbers(labels: list[str]) -> list[float] | None:
    """None if the labels are words, or numbers that neither a linear nor a logarithmic axis would separate."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return None
    above = [number for number in numbers if number > 0]
    return None if min(numbers) == 0 and max(above) > 20 * min(above) else numbers
