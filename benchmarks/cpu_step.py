"""A CPU training step compared with plain PyTorch: points per second at N = 256, B = 8,192, top 1, for growing K.

    python benchmarks/cpu_step.py [--steps 15]

Plain PyTorch: EmbeddingBag and Embedding with sparse=True, torch.optim.SGD, the whole N x B score matrix under
autograd; it does not even keep its class vectors at unit length, which ours does. All take turns in one run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from machine import machine, save_result
from settings import dense_settings
from torch import nn
from torch.nn import functional

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.data.store import Batch
from owlmine.dense.encoder import SparseBatch
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.dense.step import TrainingStep

NUM_POINTS, POOL_SIZE, DIM, NUM_FEATURES, PER_POINT = 256, 8192, 512, 100_000, 40
CLASSES = (10_000, 100_000, 1_000_000)
Key = tuple[str, int]


def random_batch(num_classes: int, random: np.random.Generator) -> Batch:
    """Points with Zipf-like features, as texts have, and three labels each."""
    ids = [np.unique((NUM_FEATURES * random.random(PER_POINT) ** 3).astype(np.int64)) for _ in range(NUM_POINTS)]
    offsets = offsets_from_counts(np.array([len(row) for row in ids]))
    values = random.random(int(offsets[-1])).astype(np.float32)
    labels = random.integers(0, num_classes, 3 * NUM_POINTS)
    label_offsets = 3 * np.arange(NUM_POINTS + 1, dtype=np.int64)
    return Batch(SparseRows(offsets, np.concatenate(ids), values), SparseRows(label_offsets, labels, None))


def ours(num_classes: int) -> Callable[[Batch, int], None]:
    model = Retriever.new(ModelShape(NUM_FEATURES, num_classes, dim=DIM), seed=0)
    step = TrainingStep(model, dense_settings(model.shape, loss="bowl", pool=POOL_SIZE, top=1))
    return lambda batch, number: float(step(batch, number=number, progress=0.5))


def plain(num_classes: int) -> Callable[[Batch, int], None]:
    bag = nn.EmbeddingBag(NUM_FEATURES, DIM, mode="sum", sparse=True)
    linear = nn.Linear(DIM, DIM, bias=False)
    classes = nn.Embedding(num_classes, DIM, sparse=True)
    tables = torch.optim.SGD([*bag.parameters(), *classes.parameters()], lr=0.1)
    maps = torch.optim.SGD(linear.parameters(), lr=0.001, momentum=0.9)

    def step(batch: Batch, number: int) -> None:
        queries = SparseBatch.of(batch.queries, torch.device("cpu"))
        positives = torch.from_numpy(batch.labels.indices[::3].astype(np.int64))
        pool = torch.randint(num_classes, (POOL_SIZE,))
        hidden = bag(queries.ids_E, queries.offsets_N, per_sample_weights=queries.values_E)
        vectors = functional.normalize(linear(hidden.relu()), dim=1)
        scores = vectors @ classes(pool).T
        scores = scores.masked_fill(pool == positives[:, None], -torch.inf)
        positive = (vectors * classes(positives)).sum(dim=1)
        loss = ((1 - positive).relu() + (1 + scores.max(dim=1).values).relu()).sum()
        loss.backward()
        tables.step()
        maps.step()
        tables.zero_grad()
        maps.zero_grad()

    return step


def seconds_per_step(steps: dict[Key, Callable[[Batch, int], None]], repeats: int) -> dict[Key, float]:
    """Medians. All take turns, so that a slow minute of the machine is shared by all."""
    random = np.random.default_rng(0)
    times: dict[Key, list[float]] = {key: [] for key in steps}
    for number in range(repeats + 3):
        batches = {num_classes: random_batch(num_classes, random) for num_classes in CLASSES}
        for key, step in steps.items():
            start = time.perf_counter()
            step(batches[key[1]], number)
            if number >= 3:
                times[key].append(time.perf_counter() - start)
    return {key: statistics.median(taken) for key, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15, help="timed steps of each way")
    arguments = parser.parse_args()
    ways = {"ours": ours, "plain PyTorch": plain}
    steps = {(name, num_classes): make(num_classes) for num_classes in CLASSES for name, make in ways.items()}
    medians = seconds_per_step(steps, arguments.steps)
    results = {}
    for num_classes in CLASSES:
        own = {name: medians[name, num_classes] for name in ways}
        results[num_classes] = own | {"ratio": own["plain PyTorch"] / own["ours"]}
        print(
            f"K = {num_classes:9,}: {results[num_classes]['ratio']:.2f} times plain PyTorch"
            f" ({NUM_POINTS / own['ours']:,.0f} against {NUM_POINTS / own['plain PyTorch']:,.0f} points/s)"
        )
    flatness = max(r["ours"] for r in results.values()) / min(r["ours"] for r in results.values())
    print(f"slowest over fastest of ours from {CLASSES[0]:,} to {CLASSES[-1]:,} classes: {flatness:.2f}")
    save_result("cpu_step", {"results": results, "flatness": flatness, "machine": machine()})


if __name__ == "__main__":
    main()
