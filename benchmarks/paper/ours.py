"""owlmine on one dataset of the study, with the options of its file in ``configs``; judged and stored as the peers are.

    python benchmarks/paper/ours.py DATASET [--tool ours|ours-bowl] [--data-root FOLDER] [--device cpu|cuda]
                                            [--out MODEL] [--again]

A run is a process of its own, as the peers' are, so that its peak of memory is its own. Where owlmine is not
installed, ``PYTHONPATH=src`` does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contention import Contention
from dataset import DATASETS, OURS, Dataset
from judge import KS, judge
from matrices import checksums
from numpy.typing import NDArray
from results import PAPER, Result, found_before, save_run, save_table1
from worker import peak_rss_mib

import owlmine
from owlmine.data.store import Split, Store
from owlmine.device import choose_device
from owlmine.rank.predictor import Predictor
from owlmine.recipe.options import TrainOptions
from owlmine.run import train

# Options that change nothing of what is learned, or say where.
_NOT_THE_RECIPE = ("device", "tensorboard", "checkpoint_minutes")


@dataclass(frozen=True)
class Run:
    """What was trained, and how long it took."""

    predictor: Predictor
    ranked_ids: NDArray[Any]
    times: dict[str, float]


def identity_of(dataset: Dataset, tool: str, sums: dict[str, str], options: TrainOptions) -> Result:
    import torch

    recipe = {name: value for name, value in options.to_dict().items() if name not in _NOT_THE_RECIPE}
    return {
        "dataset": dataset.name,
        "tool": tool,
        "device": options.run.device,
        "matrices": sums,
        "versions": {"owlmine": owlmine.__version__, "torch": torch.__version__},
        "options": recipe,
    }


def train_and_predict(store: Store, out: Path, options: TrainOptions, data_name: str) -> Run:
    """Training time is that of ``owlmine train``: loading, validation and the saving of the model are in it."""
    began, cpu_began = time.perf_counter(), time.process_time()
    predictor = train(store, out, options, data_name=data_name)
    trained, cpu_trained = time.perf_counter(), time.process_time()
    ranked_ids = predict(predictor, store["test"])
    predicted, cpu_predicted = time.perf_counter(), time.process_time()
    times = {
        "train_seconds": trained - began,
        "train_cpu_seconds": cpu_trained - cpu_began,
        "predict_seconds": predicted - trained,
        "predict_cpu_seconds": cpu_predicted - cpu_trained,
        "predict_ms_per_point": 1000 * (predicted - trained) / len(ranked_ids),
    }
    return Run(predictor, ranked_ids, times)


def predict(predictor: Predictor, split: Split) -> NDArray[np.int64]:
    """The best classes of every point, found among all classes, none left out."""
    return np.concatenate([predictor.answer(batch.queries, KS[-1]).ids_Nk for batch in split.blocks()])


def run_ours(
    dataset: Dataset,
    store: Store,
    *,
    tool: str = "ours",
    device: str = "cpu",
    out: Path | None = None,
    again: bool = False,
    results: Path = PAPER,
) -> Result | None:
    """Trains, judges and stores the result. None where it was there before."""
    own = dataset.ours | OURS[tool]
    options = TrainOptions.of(recipe="single", device=choose_device(device).type, **own)
    sums = checksums(store)
    save_table1(dataset.name, store, sums, results)
    identity = identity_of(dataset, tool, sums, options)
    if not again and found_before(identity, results) is not None:
        return None
    with tempfile.TemporaryDirectory() as folder, Contention() as contention:
        run = train_and_predict(store, out or Path(folder) / "model", options, dataset.name)
    measured = {
        "figures": judge(run.ranked_ids, store, dataset.name),
        **run.times,
        "peak_rss_mib": peak_rss_mib(),
        "parameters": run.predictor.dense.shape.num_parameters,
        **_gpu(options.run.device),
        **contention.record,
    }
    save_run(identity, measured, results)
    return identity | measured


def _gpu(device: str) -> dict[str, Any]:
    """The name and the peak of the card's memory, where there is one."""
    if device != "cuda":
        return {}
    import torch

    return {"gpu": torch.cuda.get_device_name(), "peak_gpu_mib": torch.cuda.max_memory_allocated() / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("--data-root", type=Path, help="folder with one subfolder per dataset")
    parser.add_argument("--tool", default="ours", choices=OURS)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda", "auto"])
    parser.add_argument("--out", type=Path, help="keep the model in this new folder")
    parser.add_argument("--again", action="store_true", help="run again even if the result is stored")
    parser.add_argument("--results", type=Path, default=PAPER, help="where results are stored")
    arguments = parser.parse_args()
    dataset = Dataset.named(arguments.dataset)
    store = dataset.open(arguments.data_root)
    result = run_ours(
        dataset,
        store,
        tool=arguments.tool,
        device=arguments.device,
        out=arguments.out,
        again=arguments.again,
        results=arguments.results,
    )
    print(f"{dataset.name}, {arguments.tool}: {'stored before' if result is None else result['figures']}")


if __name__ == "__main__":
    main()
