"""The best recipe beside the tools on every dataset, from the results that ``benchmarks/accuracy.py`` has stored."""

from __future__ import annotations

import statistics
from typing import Any

from dataset import DATASETS, Dataset
from peers import all_peers
from results import RESULTS, Result, read, read_all
from tables import markdown

FIGURES = ("P@1", "P@3", "P@5")
_DEVICES = {"cuda": "GPU", "cpu": "CPU"}


def stored(dataset: str, device: str, *, names: bool = True) -> list[Result]:
    """One result a seed. ``names``: whether the names of classes could count, as they do by default."""
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


def _own_cells(results: list[Result]) -> tuple[str, ...]:
    means = [_mean([result["figures"][figure] for result in results]) for figure in FIGURES]
    errors = [result["calibration_error"] for result in results if result["calibration_error"] is not None]
    seconds = statistics.mean(result["train_seconds"] for result in results)
    mark = " \\*" if any(result["busy"] for result in results) else ""
    return (*means, f"{statistics.mean(errors):.2f}" if errors else "–", str(len(results)), f"{seconds:.0f}{mark}")


def _peer_cells(dataset: str, matrices: Any) -> tuple[str, ...]:
    """The highest figure at each k, of whichever tool."""
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
