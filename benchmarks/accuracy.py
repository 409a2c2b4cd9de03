"""The best recipe compared with popular tools, on the same matrices.

    python benchmarks/accuracy.py DATASET [--data-root FOLDER] [--device auto|cpu|cuda] [--seeds 3] [--tools omikuji]
                                          [--again] [--without-names] [--work FOLDER] [--option name=value]

Runs ``owlmine train`` with its defaults, once for each seed, and the tools of --tools, each in an environment of its
own. Evaluates all of them on the test split, and prints one table with what training and answers cost: seconds, peak
memory of the process that trains, milliseconds a point, and the size of the model on disk. Results are stored as they
come (ours in results/accuracy/, those of the tools in results/paper/), and runs are not repeated without --again. Rows
belong together if the SHA-256 of their matrices is the same. The recipe sees one thing that is not in the matrices:
class names, if queries are texts. --without-names trains without them, for a second row. With ``--again --device cpu
--tools omikuji`` times can be compared: one run on one machine. --option is for experiments, whose results are printed
and not stored.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from machine import RESULTS, machine
from settings import parsed

sys.path.append(str(Path(__file__).parent / "paper"))
from best import stored
from contention import Contention
from dataset import DATASETS, Dataset, work_folder
from judge import judge
from matrices import checksums, export
from peers import all_peers, run_peer
from results import Result, read, read_all, source_changed
from tables import markdown, tool_title
from worker import peak_rss_mib

from owlmine import load
from owlmine.data.store import Store
from owlmine.device import choose_device
from owlmine.errors import OwlmineError
from owlmine.files import write_text
from owlmine.metrics.calibration import expected_calibration_error
from owlmine.metrics.hits import find_hits
from owlmine.rank.predictor import Predictor
from owlmine.recipe.fit import plan_for
from owlmine.recipe.options import TrainOptions
from owlmine.run import train

FIGURES = ("P@1", "P@3", "P@5", "R@5", "PSP@1", "PSP@5")
DEPTH = 5


def run_recipe(dataset: Dataset, store: Store, options: TrainOptions, sums: dict[str, str]) -> Result:
    """Trains in a process of its own, predicts and judges; times are those of ``owlmine train``, with loading,
    validation and saving."""
    with tempfile.TemporaryDirectory() as folder, Contention() as contention:
        out = Path(folder) / "model"
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            costs = process.submit(trained_in, store.path, out, options, dataset.name).result()
        model = load(out, device=choose_device(options.run.device))
        began = time.perf_counter()
        ids, probabilities = predicted(model, store)
        ended = time.perf_counter()
    return {
        "dataset": dataset.name,
        "device": options.run.device,
        "options": options.to_dict(),
        "plan": dict(model.record.plan),
        "matrices": sums,
        "figures": judge(ids, store, dataset.name),
        "validation": dict(model.record.figures),
        "calibration_error": None if probabilities is None else calibration_error(ids, probabilities, store),
        "mix": model.ranker.mix.to_dict(),
        **costs,
        "predict_ms_per_point": 1000 * (ended - began) / len(ids),
        "machine": machine(),
        "source_changed": source_changed(),
        **contention.record,
    }


def trained_in(data: Path, out: Path, options: TrainOptions, name: str) -> dict[str, float]:
    """Runs in a process that does nothing else."""
    began = time.perf_counter()
    train(Store.open(data), out, options, data_name=name)
    seconds = time.perf_counter() - began
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return {"train_seconds": seconds, "train_peak_rss_mib": peak_rss_mib(), "model_mib": size / 2**20}


def predicted(predictor: Predictor, store: Store) -> tuple[np.ndarray, np.ndarray | None]:
    """Ids [N, 5] of test points, and the probability of each where the model has probabilities."""
    answers = [predictor.answer(batch.queries, DEPTH) for batch in store["test"].blocks()]
    ids = np.concatenate([part.ids_Nk for part in answers])
    if predictor.record.calibration is None:
        return ids, None
    return ids, np.concatenate([part.probabilities_Nk for part in answers if part.probabilities_Nk is not None])


def calibration_error(ids: np.ndarray, probabilities: np.ndarray, store: Store) -> float:
    """In percent points, over all predictions."""
    labels = store["test"].labels.slice(0, len(ids))
    hits = find_hits(ids, labels, depth=DEPTH, num_classes=store.num_classes).mask(DEPTH)
    return 100 * expected_calibration_error(probabilities, hits)


def result_file(dataset: str, options: TrainOptions) -> Path:
    without = "" if options.model.names else "-without-names"
    return RESULTS / "accuracy" / f"{dataset}-{options.run.device}{without}-{options.run.seed}.json"


def ours(
    dataset: Dataset, store: Store, sums: dict[str, str], arguments: argparse.Namespace, device: str
) -> list[Result]:
    results = []
    changed = parsed(arguments.option)
    fixed = {"recipe": "best", "device": device, "names": not arguments.without_names}
    for seed in range(arguments.seeds):
        options = TrainOptions.of(**fixed | {"seed": seed} | changed)
        # A result of other sizes is another result.
        plan = plan_for(store, options, name=dataset.name)
        same = {"matrices": sums, "options": options.to_dict(), "plan": plan.to_dict()}
        file = result_file(dataset.name, options)
        stored = None if arguments.again or changed else read(file)
        if stored is None or any(stored.get(name) != value for name, value in same.items()):
            stored = run_recipe(dataset, store, options, sums)
            if not changed:
                file.parent.mkdir(parents=True, exist_ok=True)
                write_text(file, json.dumps(stored, indent=1) + "\n")
            print(f"{dataset.name}, seed {seed}: {stored['figures']}, {stored['train_seconds']:.0f} s", flush=True)
        results.append(stored)
    return results


def table(ours: list[list[Result]], peers: list[Result]) -> str:
    """``ours``: results of all seeds, for each row."""
    head = ("", *FIGURES, "calibration error", "train s", "train GiB", "model MiB", "predict ms/point", "device")
    rows = [_own_row(results) for results in ours]
    rows += [
        (
            tool_title(peer["tool"]),
            *(f"{peer['figures'][name]:.2f}" for name in FIGURES),
            "–",
            f"{peer['train_seconds']:.0f}" + _mark([peer]),
            *_sizes([peer]),
            f"{peer['predict_ms_per_point']:.2g}",
            f"CPU, {peer['machine']['cores']} cores",
        )
        for peer in peers
    ]
    return markdown(head, rows, left=1)


def _own_row(results: list[Result]) -> tuple[str, ...]:
    first, seconds = results[0], statistics.mean(result["train_seconds"] for result in results)
    device = first["device"] if first["device"] == "cuda" else f"CPU, {first['machine']['cores']} cores"
    names = "" if first["options"]["names"] else " without names"
    return (
        f"**owlmine** best{names}, {len(results)} seed{'s' if len(results) > 1 else ''}",
        *(_mean([result["figures"][name] for result in results]) for name in FIGURES),
        _mean([r["calibration_error"] for r in results if r["calibration_error"] is not None]),
        f"{seconds:.0f}" + _mark(results),
        *_sizes(results),
        f"{statistics.mean(result['predict_ms_per_point'] for result in results):.2g}",
        device,
    )


def _sizes(results: list[Result]) -> tuple[str, str]:
    """The most memory of training in GiB, and the size of the model; runs from before they were measured lack them."""
    memory = [result["train_peak_rss_mib"] / 1024 for result in results if "train_peak_rss_mib" in result]
    sizes = [result["model_mib"] for result in results if "model_mib" in result]
    return f"{max(memory):.1f}" if memory else "–", f"{statistics.mean(sizes):,.0f}" if sizes else "–"


def _mean(values: list[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def _mark(results: list[Result]) -> str:
    return " \\*" if any(result["busy"] for result in results) else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("--data-root", type=Path, help="folder with one subfolder per dataset")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--seeds", type=int, default=3, help="trainings of the recipe")
    parser.add_argument("--tools", default="", help="tools to run before the table, separated by commas")
    parser.add_argument("--again", action="store_true", help="run again even if the result is stored")
    parser.add_argument("--without-names", action="store_true", help="train without the names of classes")
    parser.add_argument("--work", type=Path, help="for environments and matrices of the tools; default: the cache")
    parser.add_argument("--option", default="", help="options of training to try, as name=value, separated by spaces")
    arguments = parser.parse_args()
    try:
        run(arguments)
    except OwlmineError as error:
        sys.exit(f"error: {error}")


def run(arguments: argparse.Namespace) -> None:
    dataset = Dataset.named(arguments.dataset)
    store = dataset.open(arguments.data_root)
    sums: dict[str, Any] = checksums(store)
    for tool in filter(None, arguments.tools.split(",")):
        work = work_folder(arguments.work)
        folder = work / "matrices" / dataset.name
        exported = export(store, folder)
        run_peer(all_peers()[tool], dataset.name, store, (folder, exported), work, again=arguments.again)
    device = choose_device(arguments.device).type
    rows = [ours(dataset, store, sums, arguments, device)]
    if not arguments.option:
        others = stored(dataset.name, device, names=arguments.without_names)
        rows.append([result for result in others if result["matrices"] == sums])
    peers = [
        result
        for result in read_all("table3")
        if result["dataset"] == dataset.name and result["tool"] in all_peers() and result["matrices"] == sums
    ]
    print(f"{dataset.title}, percent on the test split\n\n{table([row for row in rows if row], peers)}")


if __name__ == "__main__":
    main()
