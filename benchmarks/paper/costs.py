"""What training and answers cost on a CPU, for owlmine and the tools, from stored results as Markdown."""

from __future__ import annotations

from typing import Any

from best import stored
from dataset import DATASETS, Dataset
from peers import all_peers
from results import RESULTS, Result, read, read_all
from tables import markdown, tool_title

FIGURES = ("P@1", "P@3", "P@5")
_MEASURED = ("train_peak_rss_mib", "model_mib")
_NONE = "Not measured yet."


def costs_table() -> str:
    """Runs on a CPU with memory and sizes: the first seed of the recipe, and the tools on the same matrices."""
    rows: list[tuple[str, ...]] = []
    for name in DATASETS:
        ours = [result for result in stored(name, "cpu") if _has_sizes(result)][:1]
        rows += [(Dataset.named(name).title, "**owlmine**", *_cells(result)) for result in ours]
        for peer in read_all("table3"):
            is_same = ours and peer["dataset"] == name and peer["matrices"] == ours[0]["matrices"]
            if is_same and peer["tool"] in all_peers() and _has_sizes(peer):
                rows.append(("", tool_title(peer["tool"]), *_cells(peer)))
    head = ("", "", *FIGURES, "train s", "train GiB", "model MiB", "ms/point")
    return markdown(head, rows, left=2) if rows else _NONE


def _has_sizes(result: Result) -> bool:
    return all(name in result for name in _MEASURED)


def _cells(result: Result) -> tuple[str, ...]:
    mark = " \\*" if result["busy"] else ""
    return (
        *(f"{result['figures'][figure]:.2f}" for figure in FIGURES),
        f"{result['train_seconds']:.0f}{mark}",
        f"{result['train_peak_rss_mib'] / 1024:.1f}",
        f"{result['model_mib']:,.0f}",
        f"{result['predict_ms_per_point']:.2g}{mark}",
    )


def latency_table() -> str:
    """Single queries, and a batch, of owlmine and the tools that were timed in the same run."""
    rows: list[tuple[str, ...]] = []
    for data, figures in (read(RESULTS / "latency.json") or {}).items():
        rows.append((data, "**owlmine**", *_times(figures)))
        rows += [("", tool_title(tool), *_times(of_tool)) for tool, of_tool in figures.get("tools", {}).items()]
    head = ("", "", "one query, p50 ms", "p95 ms", "in a batch, ms")
    return markdown(head, rows, left=2) if rows else _NONE


def _times(figures: dict[str, Any]) -> tuple[str, ...]:
    mark = " \\*" if figures.get("busy") else ""
    return (
        *(f"{figures[name]:.2f}{mark}" for name in ("p50_ms", "p95_ms")),
        f"{figures['batch_ms_per_query']:.2f}{mark}",
    )
