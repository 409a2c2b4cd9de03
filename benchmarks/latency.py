"""The time of single queries from Python, and of a batch.

    python benchmarks/latency.py MODEL DATA [--queries 500] [--threads 2] [--exact]
                                 [--tools pecos,omikuji --dataset NAME [--data-root FOLDER] [--work FOLDER]]

DATA: a store, or a table of texts such as test.jsonl. Answers single queries one after the other, with everything: text
to features (for tables), encoder, search, judges, probabilities. Prints the 50th and 95th percentile in milliseconds,
the time per query of the same queries as one batch, and where the time of a single query goes. --tools trains other
tools on the same dataset, each in an environment of its own, and times their single queries in the same way. Figures
go to benchmarks/results/latency.json, by the name of the data, with the machine and the commit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import RESULTS, machine, save_result

sys.path.append(str(Path(__file__).parent / "paper"))
from dataset import DATASETS, Dataset, work_folder
from matrices import export
from peers import all_peers, run_peer

import owlmine
from owlmine.data.rows import SparseRows, concatenate
from owlmine.data.store import Store, is_store
from owlmine.exchange.queries import open_queries
from owlmine.rank.candidates import Encoded

K = 5
WARM_UP = 50


def queries_of(model: owlmine.Model, data: Path, count: int) -> list[Any]:
    """Single queries: texts in lists, or rows of a store."""
    if is_store(data):
        split = Store.open(data)["test"]
        rows = np.sort(np.random.default_rng(0).permutation(len(split))[:count])
        queries = split.batch(rows).queries
        return [queries[number : number + 1] for number in range(len(queries))]
    texts = itertools.chain.from_iterable(block.queries for block in open_queries(model, data))
    return [[text] for text in itertools.islice(texts, count)]


def milliseconds(work: Callable[[Any], Any], queries: list[Any]) -> list[float]:
    times = []
    for query in queries:
        began = time.perf_counter()
        work(query)
        times.append(1000 * (time.perf_counter() - began))
    return times


def parts_of(model: owlmine.Model, queries: list[Any], answer: Callable[[Any], Any]) -> dict[str, float]:
    """Median milliseconds of each stage."""
    prepared = [query if isinstance(query, SparseRows) else model.prepare(query) for query in queries]
    encoded = [Encoded.of(model.dense, features) for features in prepared]
    depth = max(K, model.record.calibration.depth if model.record.calibration else 0)

    def candidates(one: Encoded) -> Any:
        fresh = Encoded(one.queries, one.vectors_ND)
        return model.ranker.candidates(model.dense, fresh, depth, index=model.index)

    listed = [candidates(one) for one in encoded]
    stages: dict[str, list[float]] = {
        "features": [] if isinstance(queries[0], SparseRows) else milliseconds(model.prepare, queries),
        "encoder": milliseconds(lambda features: Encoded.of(model.dense, features), prepared),
        "search of all classes": milliseconds(
            lambda one: model.index.search(one.vectors_ND, max(depth, model.ranker.shortlist)), encoded
        ),
        "candidates, search included": milliseconds(candidates, encoded),
        "judges and order": milliseconds(model.ranker.order, listed),
        "all": milliseconds(answer, queries),
    }
    return {name: round(float(np.median(times)), 3) for name, times in stages.items() if times}


def of_tools(tools: list[str], dataset: str, data_root: Path | None, work: Path | None) -> dict[str, Any]:
    """Single queries of other tools in milliseconds, and their milliseconds a point in a batch."""
    store, work = Dataset.named(dataset).open(data_root), work_folder(work)
    folder = work / "matrices" / dataset
    matrices = folder, export(store, folder)
    figures = {}
    for tool in tools:
        with tempfile.TemporaryDirectory() as results:  # accuracy.py stores what they answer
            peer = run_peer(all_peers()[tool], dataset, store, matrices, work, again=True, results=Path(results))
        assert peer is not None
        figures[tool] = {
            **{f"{name}_ms": round(ms, 3) for name, ms in peer["single_ms"].items()},
            "batch_ms_per_query": round(peer["predict_ms_per_point"], 4),
            "busy": peer["busy"],
        }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--exact", action="store_true", help="without the index that the model may have")
    parser.add_argument("--tools", default="", help="tools to train and time, separated by commas")
    parser.add_argument("--dataset", choices=DATASETS, help="what the tools learn from")
    parser.add_argument("--data-root", type=Path, help="folder with one subfolder per dataset")
    parser.add_argument("--work", type=Path, help="for environments and matrices of the tools; default: the cache")
    arguments = parser.parse_args()
    tools = [tool for tool in arguments.tools.split(",") if tool]
    if tools and not arguments.dataset:
        parser.error("--tools needs --dataset NAME, to train them")
    if unknown := [tool for tool in tools if tool not in all_peers()]:
        parser.error(f"--tools has {unknown[0]!r}; wanted some of {', '.join(all_peers())}")
    torch.set_num_threads(arguments.threads)
    model = owlmine.load(arguments.model, exact=arguments.exact)
    queries = queries_of(model, arguments.data, arguments.queries + WARM_UP)

    def answer(query: Any) -> Any:
        return model.answer(query, K) if isinstance(query, SparseRows) else model.predict(query, K)

    milliseconds(answer, queries[:WARM_UP])
    queries = queries[WARM_UP:]
    singles = milliseconds(answer, queries)
    whole = concatenate(queries) if isinstance(queries[0], SparseRows) else [text for [text] in queries]
    batch = min(milliseconds(answer, [whole] * 5))
    figures = {
        "queries": len(queries),
        "classes": len(model.classes),
        "threads": arguments.threads,
        "index": type(model.index).__name__,
        "p50_ms": round(float(np.percentile(singles, 50)), 3),
        "p95_ms": round(float(np.percentile(singles, 95)), 3),
        "batch_ms_per_query": round(batch / len(queries), 4),
        "stages_ms": parts_of(model, queries, answer),
    }
    if tools:
        figures["tools"] = of_tools(tools, arguments.dataset, arguments.data_root, arguments.work)
    print(json.dumps(figures, indent=1))
    stored = RESULTS / "latency.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    save_result("latency", results | {arguments.data.name: figures | {"machine": machine()}})


if __name__ == "__main__":
    main()
