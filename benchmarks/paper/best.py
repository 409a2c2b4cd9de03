"""The best recipe compared with the tools on every dataset, from the stored results of ``benchmarks/accuracy.py``."""

from __future__ import annotations

import statistics
from typing import Any

import matplotlib
from dataset import DATASETS, Dataset
from peers import all_peers
from results import IMAGES, RESULTS, Result, read, read_all
from tables import markdown

matplotlib.use("Agg")
from matplotlib import pyplot

FIGURES = ("P@1", "P@3", "P@5")
_DEVICES = {"cuda": "GPU", "cpu": "CPU"}


def stored(dataset: str, device: str, *, names: bool = True) -> list[Result]:
    """One result per seed. ``names``: with class names, as by default, or without."""
    without = "" if names else "-without-names"
    files = sorted((RESULTS / "accuracy").glob(f"{dataset}-{device}{without}-[0-9]*.json"))
    return [result for file in files if (result := read(file)) is not None]


def best_table() -> str:
    rows: list[tuple[Any, ...]] = []
    for name in DATASETS:
        title = Dataset.named(name).title
        ours = {device: found for device in _DEVICES if (found := stored(name, device))}
        for device, results in ours.items():
            rows.append((title, f"**owlmine** best, {_DEVICES[device]}", *_own_cells(results)))
            title = ""
            if without := stored(name, device, names=False):
                rows.append((title, f"the same without names, {_DEVICES[device]}", *_own_cells(without)))
        for matrices in {str(results[0]["matrices"]): results[0]["matrices"] for results in ours.values()}.values():
            rows += [(title, "the best of the three tools", *_peer_cells(name, matrices))]
    head = ("", "", *FIGURES, "calibration error", "seeds", "train s")
    return markdown(head, rows, left=2)


def summary_table() -> str:
    """One row per dataset: the default recipe on both devices, and the best tool."""
    rows = []
    for name in DATASETS:
        cells: list[str] = [Dataset.named(name).title]
        for device in _DEVICES:
            found = stored(name, device)
            cells.append(" / ".join(f"{_mean_of(found, figure):.2f}" for figure in FIGURES) if found else "–")
        cells.append(" / ".join(_peer_cells(name, _matrices(name))[: len(FIGURES)]))
        rows.append(tuple(cells))
    return markdown(
        ("P@1 / 3 / 5, percent", "owlmine, GPU", "owlmine, two CPU cores", "best of the tools"), rows, left=1
    )


def draw_summary() -> None:
    """Draws P@1 of the default recipe and of each tool into docs/images/accuracy.png."""
    bars = {f"owlmine, {_DEVICES[device]}": device for device in _DEVICES}
    names, width = list(DATASETS), 0.16
    figure, panel = pyplot.subplots(figsize=(8.4, 2.9))
    colours = ("#1f5f8b", "#7fb2d6", "#8a8a8a", "#a9a9a9", "#c9c9c9")
    series = {label: [_mean_of(stored(name, device), "P@1") for name in names] for label, device in bars.items()}
    series |= {peer.title: [_tool_figure(name, tool, "P@1") for name in names] for tool, peer in all_peers().items()}
    for number, ((label, values), colour) in enumerate(zip(series.items(), colours, strict=True)):
        places = [place + (number - 2) * width for place in range(len(names))]
        known = [(place, value) for place, value in zip(places, values, strict=True) if value is not None]
        panel.bar([place for place, _ in known], [value for _, value in known], width, color=colour, label=label)
    panel.set_xticks(range(len(names)), [Dataset.named(name).title for name in names], fontsize=9)
    panel.set_ylabel("P@1, percent")
    panel.set_ylim(0, 75)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=8, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.16))
    figure.tight_layout()
    figure.savefig(IMAGES / "accuracy.png", dpi=150)
    pyplot.close(figure)


def _mean_of(results: list[Result], figure: str) -> float | None:
    return statistics.mean(result["figures"][figure] for result in results) if results else None


def _matrices(name: str) -> Any:
    return next(found[0]["matrices"] for device in _DEVICES if (found := stored(name, device)))


def _tool_figure(name: str, tool: str, figure: str) -> float | None:
    peers = (r for r in read_all("table3") if r["dataset"] == name and r["tool"] == tool)
    return next((peer["figures"][figure] for peer in peers if peer["matrices"] == _matrices(name)), None)


def _own_cells(results: list[Result]) -> tuple[str, ...]:
    means = [_mean([result["figures"][figure] for result in results]) for figure in FIGURES]
    errors = [result["calibration_error"] for result in results if result["calibration_error"] is not None]
    seconds = statistics.mean(result["train_seconds"] for result in results)
    mark = " \\*" if any(result["busy"] for result in results) else ""
    return (*means, f"{statistics.mean(errors):.2f}" if errors else "–", str(len(results)), f"{seconds:.0f}{mark}")


def _peer_cells(dataset: str, matrices: Any) -> tuple[str, ...]:
    """The highest figure at each k, from any tool."""
    peers = [
        result
        for result in read_all("table3")
        if result["dataset"] == dataset and result["tool"] in all_peers() and result["matrices"] == matrices
    ]
    highest = (max((peer["figures"][figure] for peer in peers), default=None) for figure in FIGURES)
    return (*("–" if value is None else f"{value:.2f}" for value in highest), "–", "1", "–")


def _mean(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"
