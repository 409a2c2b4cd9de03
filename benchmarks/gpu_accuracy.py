"""Whether steps with kernels learn as well as plain ones: P@1/3/5 on the test split, several seeds of each.

    PYTHONPATH=src python benchmarks/gpu_accuracy.py STORE [--seeds 3] [--epochs 15] [--ways plain,kernels,bfloat16]

``plain``: PyTorch alone. ``kernels``: what ``owlmine train`` does on a GPU, class rows in float32. ``bfloat16``: the
same with class rows in bfloat16, rounded at random. ``all``: kernels that mine all classes. Writes
results/gpu_accuracy.json, one entry per dataset.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from machine import RESULTS, machine, save_result
from settings import dense_settings

from owlmine.data.batches import Batches
from owlmine.data.store import Store
from owlmine.dense.encoder import query_batch
from owlmine.dense.fused_step import FusedStep
from owlmine.dense.loop import HostStep
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.settings import DenseSettings
from owlmine.dense.warm_start import warm_start
from owlmine.metrics import RankingMetrics


def trained(store: Store, way: str, settings: DenseSettings) -> tuple[dict[str, float], float]:
    """P@1/3/5 in percent on the test split, and the seconds of training."""
    split = store["train"]
    shape = ModelShape(store.num_features, store.num_classes, dim=settings.dim)
    model = Retriever.new(shape, seed=settings.seed, device="cuda")
    batches = Batches(split, batch_size=settings.batch_size, seed=settings.seed)
    warm_start(model, split, batches.rows)
    if way == "bfloat16":
        model.classes.weight = model.classes.weight.bfloat16()
    step = HostStep(model, settings, split) if way == "plain" else FusedStep(model, settings, split)
    num_steps = round(settings.epochs * len(batches))
    step(batches.next_rows(), number=0, progress=0.0)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for number in range(1, num_steps):
        step(batches.next_rows(), number=number, progress=number / num_steps)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    model.classes.weight = torch.nn.functional.normalize(model.classes.weight.float(), dim=1)
    metrics = RankingMetrics(store.num_classes, ks=(1, 3, 5))
    for block in store["test"].blocks(4096):
        metrics.update(model.top(query_batch(block.queries, model.device), 5)[1].cpu().numpy(), block.labels)
    figures = metrics.compute()
    return {name: figures[name] for name in ("P@1", "P@3", "P@5")}, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=15.0)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--ways", default="plain,kernels,bfloat16")
    arguments = parser.parse_args()
    store = Store.open(arguments.store)
    results: dict[str, object] = {}
    for way in arguments.ways.split(","):
        runs = []
        for seed in range(arguments.seeds):
            settings = dense_settings(
                ModelShape(store.num_features, store.num_classes),
                num_points=len(store["train"]),
                on_gpu=True,
                loss="bowl",
                epochs=arguments.epochs,
                batch_size=arguments.batch_size,
                seed=seed,
                pool=store.num_classes - 1 if way == "all" else None,
            )
            figures, seconds = trained(store, way, settings)
            runs.append(figures | {"seconds": seconds})
            print(f"{arguments.store.name} {way:9s} seed {seed}: {figures} in {seconds:.1f} s", flush=True)
        means = {name: statistics.mean(run[name] for run in runs) for name in runs[0]}
        results[way] = {"runs": runs, "mean": means}
        print(
            f"{arguments.store.name} {way:9s} mean: " + "  ".join(f"{n} {v:.2f}" for n, v in means.items()), flush=True
        )
    file = RESULTS / "gpu_accuracy.json"
    earlier = json.loads(file.read_text()) if file.exists() else {}
    name = f"{arguments.store.name}, {arguments.epochs:g} epochs, batches of {arguments.batch_size}"
    save_result("gpu_accuracy", earlier | {name: results | {"machine": machine()}})


if __name__ == "__main__":
    main()
