"""Kernels, steps and epochs on a CUDA GPU: checked against float64, then timed beside plain PyTorch.

    PYTHONPATH=src python benchmarks/gpu.py [--store STORE] [--only check,kernels,step,epoch,all-classes,memory]

Every ratio is of medians of one run. STORE (a folder made by ``owlmine data convert``) is the dataset of the epoch.
Ends with one table and writes results/gpu.json.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_checks
import numpy as np
import torch
from gpu_table import Table
from machine import machine, save_result
from plain_pytorch import plain_softmax_step, plain_step
from torch import Tensor
from torch.nn import functional

from owlmine.data.batches import Batches
from owlmine.data.store import SparseTable, Split, Store
from owlmine.kernels.exclusions import Exclusions
from owlmine.kernels.hardest import Scored, hardest_scored
from owlmine.kernels.pool_rows import gather_rows
from owlmine.model import ModelShape, Retriever, SparseBatch
from owlmine.train.fused_step import FusedStep
from owlmine.train.options import TrainOptions

N, D = 1024, 512
AMAZON_670K, AMAZON_3M = 670_091, 2_812_281
FEATURES, PER_POINT, POOL = 135_909, 75, 32_768


def unit_rows(count: int) -> Tensor:
    """Random unit rows in bfloat16, made in blocks."""
    rows = torch.empty(count, D, dtype=torch.bfloat16, device="cuda")
    for start in range(0, count, 1 << 18):
        block = torch.randn(min(1 << 18, count - start), D, device="cuda")
        rows[start : start + len(block)] = functional.normalize(block, dim=1)
    return rows


def product_tflop(num_classes: int) -> float:
    return 2 * N * num_classes * D / 1e12


def time_kernels(table: Table) -> None:
    queries = unit_rows(N)
    for num_classes, limits in ((AMAZON_3M, {1: 5.6, 16: 6.5, 256: 9.0}), (AMAZON_670K, {1: 1.35, 256: 3.0})):
        classes = unit_rows(num_classes)
        exclude = Exclusions.of_padded(torch.randint(num_classes, (N, 2), device="cuda"))
        # A multiple of 64 rows, which the library's product wants to be fast.
        padded = functional.pad(classes, (0, 0, 0, -num_classes % 64))
        product = table.milliseconds(lambda c=padded: queries @ c.T)
        table.add(f"scores of {num_classes:,} by torch.mm, written", product, tflop=product_tflop(num_classes))
        for kept in (1, 16, 64, 256):
            plain = table.milliseconds(lambda c=padded, k=kept: (queries @ c.T).topk(k, dim=1))
            ours = table.milliseconds(
                lambda c=classes, k=kept, e=exclude: hardest_scored(queries, Scored(c), k, exclude=e)
            )
            table.add(
                f"hardest {kept} of {num_classes:,}",
                ours,
                plain=plain,
                limit=limits.get(kept),
                tflop=product_tflop(num_classes),
                gigabytes=num_classes * D * 2 / 1e9,
            )
        del classes, padded
    classes = unit_rows(AMAZON_670K)
    pool = torch.randperm(AMAZON_670K, device="cuda")[:POOL]
    for kept, limit in ((1, 0.12), (16, None), (64, None), (256, 0.25)):
        plain = table.milliseconds(lambda k=kept: (queries @ classes[pool].T).topk(k, dim=1))

        def ours(k: int = kept) -> tuple[Tensor, Tensor]:
            rows = gather_rows(classes, pool, dtype=torch.bfloat16)
            return hardest_scored(queries, Scored(rows, pool), k, exclude=exclude)

        ours_ms = table.milliseconds(ours)
        table.add(f"hardest {kept} of a pool of {POOL:,}", ours_ms, plain=plain, limit=limit, tflop=product_tflop(POOL))


def random_split(num_points: int, num_classes: int) -> Split:
    """Points with Zipf-like features, as texts have, and three labels each."""
    random = np.random.default_rng(0)
    ids = (FEATURES * random.random(num_points * PER_POINT) ** 3).astype(np.int32)
    values = random.random(len(ids)).astype(np.float32) / PER_POINT
    labels = random.integers(0, num_classes, 3 * num_points).astype(np.int32)
    offsets = np.arange(num_points + 1, dtype=np.int64)
    return Split("train", SparseTable(offsets * PER_POINT, ids, values), SparseTable(offsets * 3, labels, None), None)


def time_steps(table: Table) -> None:
    split = random_split(1 << 16, AMAZON_670K)
    batches = [np.random.default_rng(i).permutation(1 << 16)[:N] for i in range(8)]
    device = torch.device("cuda")
    on_device = [SparseBatch.of(split.batch(rows).queries, device) for rows in batches]
    positives = [torch.randint(AMAZON_670K, (N,), device="cuda") for _ in batches]
    methods: list[tuple[str, dict[str, Any], int | None, float | None]] = [
        ("top 1", {"top": 1, "pool": POOL}, 1, 0.63),
        ("top 1, all classes", {"top": 1, "pool": AMAZON_670K - 1}, 1, 2.2),
        ("top 16", {"top": 16, "pool": POOL}, 16, None),
        ("top 256", {"top": 256, "pool": POOL}, 256, None),
        ("negative sampling", {"loss": "negative-sampling-bowl", "pool": POOL}, None, None),
    ]
    for name, chosen, kept, limit in methods:
        step = plain_step(num_features=FEATURES, num_classes=AMAZON_670K, dim=D, pool=POOL, kept=kept, device="cuda")
        turn = _round_robin(list(zip(on_device, positives, strict=True)))
        plain = table.milliseconds(lambda s=step, t=turn: s(*t()))
        del step
        free()
        model = Retriever.new(ModelShape(FEATURES, AMAZON_670K, dim=D), seed=0, device="cuda")
        fused = FusedStep(model, TrainOptions(batch_size=N, **chosen), split)
        turn_rows = _round_robin([(rows,) for rows in batches])
        ours = table.milliseconds(lambda f=fused, t=turn_rows: f(*t(), number=1, progress=0.9))
        table.add(f"training step, {name}", ours, plain=plain, limit=limit)
        del model, fused
        free()
    model = Retriever.new(ModelShape(FEATURES, AMAZON_670K, dim=D), seed=0, device="cuda")
    fused = FusedStep(model, TrainOptions(batch_size=N, loss="softmax", scale=20.0), split)
    turn_rows = _round_robin([(rows,) for rows in batches])
    table.add("training step, full softmax", table.milliseconds(lambda: fused(*turn_rows(), number=1, progress=0.9)))
    free()


def _round_robin(items: list[tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    """One after the other: the same batch again would lie in the cache."""
    state = {"next": 0}

    def turn() -> tuple[Any, ...]:
        state["next"] = (state["next"] + 1) % len(items)
        return items[state["next"]]

    return turn


def time_epoch(table: Table, store: Store) -> None:
    for name, pool, limit in (("", POOL, 1.5), (", all classes", store.num_classes - 1, 3.0)):
        model = Retriever.new(ModelShape(store.num_features, store.num_classes, dim=D), seed=0, device="cuda")
        options = TrainOptions(batch_size=N, top=1, pool=pool)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        fused = FusedStep(model, options, store["train"])
        batches = Batches(store["train"], batch_size=N, seed=0)
        end.record()
        torch.cuda.synchronize()
        loading = start.elapsed_time(end) / 1000
        seconds = []
        for epoch in range(3):
            start.record()
            for number in range(len(batches)):
                fused(batches.next_rows(), number=epoch * len(batches) + number, progress=epoch / 3)
            end.record()
            torch.cuda.synchronize()
            seconds.append(start.elapsed_time(end) / 1000)
        # The first epoch compiles; the data reach the device once for all epochs and are counted whole.
        total = min(seconds[1:]) + loading
        table.add(f"epoch of {len(store['train']):,} points{name}", total * 1000, limit=limit * 1000)
        table.notes.append(f"epoch{name}: {seconds} s, of which the data's way to the device {loading:.2f} s once")
        del model, fused
        free()


def time_all_classes(table: Table) -> None:
    from owlmine.kernels.all_classes import all_class_step

    queries, positives = unit_rows(N), torch.randint(AMAZON_670K, (N,), device="cuda")
    vectors = queries.float()
    step = plain_softmax_step(num_classes=AMAZON_670K, dim=D, device="cuda")
    leaf = queries.clone().requires_grad_()
    plain = table.milliseconds(lambda plain_softmax=step: plain_softmax(leaf, positives))
    del step
    free()
    factor, key = torch.tensor([-0.1], device="cuda"), torch.tensor([1], device="cuda")
    for num_classes, limit in ((AMAZON_670K, plain / 3), (AMAZON_3M, None)):
        classes = unit_rows(num_classes)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()

        def ours(table_KD: Tensor = classes) -> object:
            return all_class_step(vectors, table_KD, positives, factor, loss="softmax", scale=20.0, key=key)

        ours_ms = table.milliseconds(ours)
        extra = (torch.cuda.max_memory_allocated() - before) / 2**30
        table.add(
            f"full softmax, class side, {num_classes:,}",
            ours_ms,
            plain=plain if limit else None,
            limit=limit,
            tflop=4 * product_tflop(num_classes),
        )
        table.notes.append(f"full softmax at {num_classes:,}: {extra:.2f} GiB beside the class table (limit 2)")
        del classes
        free()


def measure_memory(table: Table) -> None:
    split = random_split(1 << 16, AMAZON_3M)
    for name, pool in (("", POOL), (", all classes", AMAZON_3M - 1)):
        before = torch.cuda.memory_allocated()
        model = Retriever.new(ModelShape(FEATURES, AMAZON_3M, dim=D), seed=0, device="cuda")
        fused = FusedStep(model, TrainOptions(batch_size=N, top=1, pool=pool), split)
        data = fused.data_bytes
        torch.cuda.reset_peak_memory_stats()
        for number in range(4):
            fused(np.arange(N), number=number, progress=0.5)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before - data
        state = (
            4 * model.shape.num_parameters + sum(t.nbytes for t in fused.state_tensors().values()) + fused.copy_bytes
        )
        table.notes.append(
            f"peak memory of training at K = {AMAZON_3M:,}{name}: {peak / 2**30:.2f} GiB, {peak / state:.3f} times"
            " parameters and optimiser state (limit 1.15)"
        )
        del model, fused
        free()


def free() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path)
    parser.add_argument("--only", default="check,kernels,step,epoch,all-classes,memory")
    arguments = parser.parse_args()
    torch.manual_seed(torch.seed() % 2**32)
    table = Table()
    parts = arguments.only.split(",")
    if "check" in parts:
        wrong = gpu_checks.run_all()
        table.notes.append(f"comparisons with float64 on fresh random data that failed: {wrong}")
    if "kernels" in parts:
        time_kernels(table)
        free()
    if "step" in parts:
        time_steps(table)
    if "epoch" in parts and arguments.store is not None:
        time_epoch(table, Store.open(arguments.store))
    if "all-classes" in parts:
        time_all_classes(table)
    if "memory" in parts:
        measure_memory(table)
    print(table.text())
    result = {"device": torch.cuda.get_device_name(), "rows": table.rows, "notes": table.notes, "machine": machine()}
    print("raw results in", save_result("gpu", result))


if __name__ == "__main__":
    main()
