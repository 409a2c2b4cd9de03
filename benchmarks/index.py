"""The kinds of search for the best classes: exact in float32, exact by way of bytes, and the kinds of index.

    python benchmarks/index.py [MODEL DATA] [--queries 500] [--threads 2] [--kinds ivf hnsw]

MODEL: a model folder; without it, a single model is trained on the sample. DATA: queries, as for benchmarks/latency.py:
a store (of which the test split is searched), or a table of texts. For each kind: seconds of building and MB in memory
beyond the class vectors, how many of the 10 and 50 best classes it finds (in percent of exact search), and the
milliseconds per query for a list of 50, alone (the median, and the fastest tenth) and in one batch. Ratios are to exact
search in float32 in the same run. The same figures go to benchmarks/results/index.json, by the name of the data, with
the machine and the commit.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from latency import queries_of
from machine import RESULTS, machine, save_result
from torch import Tensor

import owlmine
from owlmine.data.rows import SparseRows
from owlmine.dense.encoder import query_batch
from owlmine.index import ApproximateIndex, ExactIndex
from owlmine.index.approximate import KINDS
from owlmine.index.exact import ByteTable
from owlmine.mining import hardest

LISTED, BEST = 50, 10
WARM_UP, TURN = 3, 25
REPEATED = 3
Search = Callable[[Tensor, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Kind:
    name: str
    search: Search
    build_s: float = 0.0
    num_bytes: int = 0


def kinds_of(table_KD: Tensor, kinds: list[str]) -> list[Kind]:
    found = [Kind("exact, float32", lambda queries, k: hardest(queries, table_KD, k))]
    if ExactIndex(table_KD)._suits_bytes:
        began = time.perf_counter()
        table = ByteTable(table_KD)
        seconds = time.perf_counter() - began
        found.append(
            Kind("exact, bytes", lambda queries, k: table.search(queries, table_KD, k), seconds, table.codes_KD.numel())
        )
    for name in kinds:
        began = time.perf_counter()
        index = ApproximateIndex.build(table_KD, kind=name)
        seconds = time.perf_counter() - began
        found.append(Kind(name, index.search, seconds, index.to_bytes().nbytes))
    return found


def singles_ms(search: Search, queries_ND: Tensor) -> list[float]:
    times = []
    for row in range(len(queries_ND)):
        began = time.perf_counter()
        search(queries_ND[row : row + 1], LISTED)
        times.append(1000 * (time.perf_counter() - began))
    return times


def batch_ms(search: Search, queries_ND: Tensor) -> float:
    """Per query."""
    began = time.perf_counter()
    search(queries_ND, LISTED)
    return 1000 * (time.perf_counter() - began) / len(queries_ND)


def recall(found_Nk: Tensor, exact_Nk: Tensor) -> float:
    """In percent."""
    return 100 * float((found_Nk[:, :, None] == exact_Nk[:, None, :]).any(dim=1).float().mean())


def measured(table_KD: Tensor, queries_ND: Tensor, names: list[str]) -> dict[str, dict[str, Any]]:
    """The figures of each kind, with ratios to the first. The kinds take turns, so that a busy moment is shared."""
    kinds, exact_Nk = kinds_of(table_KD, names), hardest(queries_ND, table_KD, LISTED)[1]
    alone: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    for start in range(0, len(queries_ND), TURN):
        for kind in kinds:
            singles_ms(kind.search, queries_ND[start : start + WARM_UP])
            alone[kind.name] += singles_ms(kind.search, queries_ND[start : start + TURN])
    batches: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    for _ in range(REPEATED):
        for kind in kinds:
            batches[kind.name].append(batch_ms(kind.search, queries_ND))
    figures = {
        kind.name: {
            "build_s": round(kind.build_s, 2),
            "mb": round(kind.num_bytes / 2**20, 1),
            f"recall@{BEST}": round(recall(kind.search(queries_ND, BEST)[1], exact_Nk[:, :BEST]), 2),
            f"recall@{LISTED}": round(recall(kind.search(queries_ND, LISTED)[1], exact_Nk), 2),
            "alone_ms": round(float(np.median(alone[kind.name])), 3),
            "alone_best_ms": round(float(np.percentile(alone[kind.name], 10)), 3),
            "batch_ms": round(min(batches[kind.name]), 4),
        }
        for kind in kinds
    }
    first = next(iter(figures.values()))
    for own in figures.values():
        for name in ("alone", "alone_best", "batch"):
            own[f"{name}_ratio"] = round(own[f"{name}_ms"] / first[f"{name}_ms"], 3)
    return figures


def print_table(figures: dict[str, dict[str, Any]]) -> None:
    columns = list(next(iter(figures.values())))
    print("| | " + " | ".join(columns) + " |\n|---|" + "---:|" * len(columns))
    for name, own in figures.items():
        print(f"| {name} | " + " | ".join(str(own[column]) for column in columns) + " |")


def trained() -> tuple[owlmine.Model, str]:
    """A small model of the sample: its speed does not depend on how long it was trained."""
    return owlmine.fit("sample", options={"recipe": "single", "dim": 128, "epochs": 2.0, "device": "cpu"}), "sample"


def vectors_of(model: owlmine.Model, data: Path | None, count: int) -> Tensor:
    if data is None:
        split = owlmine.data.open_dataset("sample")["test"]
        features = split.batch(np.arange(min(count, len(split)))).queries
    else:
        own = queries_of(model, data, count)
        is_prepared = isinstance(own[0], SparseRows)
        features = owlmine.data.rows.concatenate(own) if is_prepared else model.prepare([text for [text] in own])
    return model.dense.encode(query_batch(features, model.dense.device)).detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--name", help="of the data, in the results")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    arguments = parser.parse_args()
    if (arguments.model is None) != (arguments.data is None):
        parser.error("MODEL and DATA come together")
    torch.set_num_threads(arguments.threads)
    if arguments.model is None:
        model, name = trained()
    else:
        model, name = owlmine.load(arguments.model, exact=True), arguments.data.name
    queries_ND = vectors_of(model, arguments.data, arguments.queries)
    table_KD = model.dense.classes.weight.detach()
    kinds = measured(table_KD, queries_ND, arguments.kinds)
    print_table(kinds)
    result = {
        "classes": len(table_KD),
        "dim": table_KD.shape[1],
        "queries": len(queries_ND),
        "threads": arguments.threads,
        "kinds": kinds,
        "machine": machine(),
    }
    stored = RESULTS / "index.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    save_result("index", results | {arguments.name or name: result})


if __name__ == "__main__":
    main()
