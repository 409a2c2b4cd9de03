"""Tables 1 and 3 from stored results, as Markdown.

    python benchmarks/paper/tables.py

``write_docs.py`` puts them into the documentation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from dataset import DATASETS, OURS, Dataset
from peers import all_peers
from results import PAPER, Result, read_all

COLUMNS = ("P@1", "P@3", "P@5", "R@1", "R@5")


def table1(folder: Path = PAPER) -> str:
    """The paper's Table 1 for our datasets."""
    head = ("", "train points", "test points", "features", "classes", "points per class", "classes per point")
    by_name = {result["dataset"]: result["sizes"] for result in read_all("table1", folder)}
    rows = [
        (
            Dataset.named(name).title,
            *(f"{by_name[name][size]:,}" for size in ("train_points", "test_points", "features", "classes")),
            *(f"{by_name[name][size]:.2f}" for size in ("points_per_class", "classes_per_point")),
        )
        for name in DATASETS
        if name in by_name
    ]
    return markdown(head, rows, left=1)


def joined(folder: Path = PAPER) -> tuple[dict[str, list[Result]], list[str]]:
    """Results by dataset that were measured on exactly the matrices of Table 1, and why others are left out."""
    wanted = {result["dataset"]: result["matrices"] for result in read_all("table1", folder)}
    by_dataset: dict[str, list[Result]] = {name: [] for name in DATASETS if name in wanted}
    left_out = []
    for result in read_all("table3", folder):
        name, title = result["dataset"], f"{result['dataset']}, {tool_title(result['tool'])} on {result['device']}"
        if name not in wanted:
            left_out.append(f"{title}: Table 1 has no such dataset")
        elif other := sorted(key for key, sum_ in wanted[name].items() if result["matrices"].get(key) != sum_):
            left_out.append(f"{title}: measured on another {', '.join(other)}")
        else:
            by_dataset[name].append(result)
    order = [*OURS, *all_peers()]
    for results in by_dataset.values():
        results.sort(key=lambda result: (order.index(result["tool"]), result["device"]))
    return by_dataset, left_out


def table3(folder: Path = PAPER) -> str:
    """Every tool on every dataset, with what is left out and why below."""
    by_dataset, left_out = joined(folder)
    notes = ["All tools learn from the same matrices and are scored by the same code; percent on the test split."]
    if any(result["busy"] for results in by_dataset.values() for result in results):
        notes.append("\\* a time measured while other jobs were running: only a rough figure.")
    if any(Dataset.named(name).published for name in by_dataset):
        notes.append("† as published, with different preprocessing: only roughly comparable.")
    for name, results in by_dataset.items():
        dataset, there = Dataset.named(name), {result["tool"] for result in results}
        left_out += [f"{name}, {tool_title(tool)}: {why}" for tool, why in dataset.left_out.items()]
        missing = [tool for tool in dataset.tools if tool not in there and tool not in dataset.left_out]
        left_out += [f"{name}, {tool_title(tool)}: not run yet" for tool in missing]
    notes += [f"Left out: {why}." for why in left_out]
    head = ("", "", *COLUMNS, "train s", "predict ms/point", "device")
    rows = [row for name, results in by_dataset.items() for row in dataset_rows(Dataset.named(name), results)]
    return markdown(head, rows, left=2) + "\n" + "\n".join(f"\n{note}" for note in notes)


def dataset_rows(dataset: Dataset, results: Iterable[Result]) -> list[tuple[str, ...]]:
    rows = [result_row(result) for result in results]
    for one in dataset.published:
        figures = (f"{one[name]:.2f}" if name in one else "–" for name in COLUMNS)
        rows.append((f"{one['title']} †", *figures, "–", "–", "–"))
    return [(dataset.title if number == 0 else "", *row) for number, row in enumerate(rows)]


def result_row(result: Result) -> tuple[str, ...]:
    mark = " \\*" if result["busy"] else ""
    seconds, ms = result["train_seconds"], result["predict_ms_per_point"]
    return (
        tool_title(result["tool"]),
        *(f"{result['figures'][name]:.2f}" for name in COLUMNS),
        (f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}") + mark,
        f"{ms:.2g}" + mark,
        result["gpu"] if "gpu" in result else f"CPU, {result['machine']['cores']} cores",
    )


def tool_title(tool: str) -> str:
    if tool in OURS:
        return ", ".join(["**owlmine** single", *OURS[tool].values()])
    peer = all_peers()[tool]
    return f"{peer.title} {peer.version}"


def markdown(head: tuple[str, ...], rows: list[tuple[str, ...]], *, left: int) -> str:
    """The first ``left`` columns are words, the others numbers."""
    rule = ("---",) * left + ("---:",) * (len(head) - left)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"{table1()}\n\n{table3()}")
