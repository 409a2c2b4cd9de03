"""Kernels, steps and epochs on a CUDA GPU: checked against float64, then timed against plain PyTorch.

    PYTHONPATH=src python benchmarks/gpu.py [--store STORE] [--only check,kernels,step,chunks,epoch,all-classes,memory]

Every ratio is of medians of one run. Work on a pool and the class side alone are recorded as CUDA graphs, as steps of
training are. STORE (a folder made by ``owlmine data convert``) is the dataset of the epoch.
Ends with one table and writes results/gpu.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gpu_checks
import gpu_counts
import numpy as np
import torch
from gpu_steps import (
    AMAZON_3M,
    AMAZON_670K,
    FEATURES,
    POOL,
    D,
    N,
    free,
    random_split,
    time_chunks,
    time_epoch,
    time_steps,
)
from gpu_table import Table, recorded
from machine import machine, save_result
from plain_pytorch import SCALE, plain_softmax_step
from settings import dense_settings
from torch import Tensor
from torch.nn import functional

from owlmine.data.store import Store
from owlmine.dense.fused_step import FusedStep
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.mining import hardest
from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.hardest import Scored, hardest_scored
from owlmine.mining.kernels.pool_rows import gather_rows


def unit_rows(count: int) -> Tensor:
    """Random unit rows in bfloat16, made in blocks."""
    rows = torch.empty(count, D, dtype=torch.bfloat16, device="cuda")
    for start in range(0, count, 1 << 18):
        block = torch.randn(min(1 << 18, count - start), D, device="cuda")
        rows[start : start + len(block)] = functional.normalize(block, dim=1)
    return rows


def time_kernels(table: Table) -> None:
    queries = unit_rows(N)
    for num_classes, limits in ((AMAZON_3M, {1: 5.6, 16: 6.5, 256: 9.0}), (AMAZON_670K, {1: 1.35, 256: 3.0})):
        classes = unit_rows(num_classes)
        exclude = Exclusions.of_padded(torch.randint(num_classes, (N, 2), device="cuda"))
        # A multiple of 64 rows, which the library's product wants to be fast.
        padded = functional.pad(classes, (0, 0, 0, -num_classes % 64))
        product = table.milliseconds(lambda c=padded: queries @ c.T)
        written, work = gpu_counts.written_scores(N, num_classes, D), gpu_counts.scores(N, num_classes, D)
        table.add(f"scores of {num_classes:,} by torch.mm, written", product, **written.as_options())
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
                **work.as_options(),
            )
        del classes, padded
    time_float32(table, queries)
    classes = unit_rows(AMAZON_670K)
    pool = torch.randperm(AMAZON_670K, device="cuda")[:POOL]
    for kept, limit in ((1, 0.12), (16, None), (64, None), (256, 0.25)):
        plain = table.milliseconds(recorded(lambda k=kept: (queries @ classes[pool].T).topk(k, dim=1)))

        def ours(k: int = kept) -> tuple[Tensor, Tensor]:
            rows = gather_rows(classes, pool, dtype=torch.bfloat16)
            return hardest_scored(queries, Scored(rows, pool), k, exclude=exclude)

        ours_ms = table.milliseconds(recorded(ours))
        work = gpu_counts.pool_gather(POOL, D, table_bytes=gpu_counts.BFLOAT16) + gpu_counts.scores(N, POOL, D)
        table.add(f"hardest {kept} of a pool of {POOL:,}", ours_ms, plain=plain, limit=limit, **work.as_options())


def time_float32(table: Table, queries: Tensor) -> None:
    """What ``predict`` asks for: rows in float32, and exact by that measure."""
    queries, classes = queries.float(), unit_rows(AMAZON_670K).float()
    for kept in (1, 16, 256):
        plain = table.milliseconds(lambda k=kept: (queries @ classes.T).topk(k, dim=1))
        ours = table.milliseconds(lambda k=kept: hardest(queries, classes, k))
        work = gpu_counts.scores(N, AMAZON_670K, 3 * D)
        table.add(f"hardest {kept} of {AMAZON_670K:,}, float32", ours, plain=plain, **work.as_options())


def time_all_classes(table: Table) -> None:
    from owlmine.mining.kernels.all_classes import all_class_step

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
            return all_class_step(vectors, table_KD, positives, factor, loss="softmax", scale=SCALE, key=key)

        ours_ms = table.milliseconds(recorded(ours))
        extra = (torch.cuda.max_memory_allocated() - before) / 2**30
        table.add(
            f"full softmax, class side, {num_classes:,}",
            ours_ms,
            plain=plain if limit else None,
            limit=limit,
            **gpu_counts.dense_products(N, num_classes, D, passes=2, table_bytes=gpu_counts.BFLOAT16).as_options(),
        )
        table.notes.append(f"full softmax at {num_classes:,}: {extra:.2f} GiB in addition to the class table (limit 2)")
        # The function holds the table too.
        del classes, ours
        free()


def measure_memory(table: Table) -> None:
    split = random_split(1 << 16, AMAZON_3M)
    for name, pool in (("", POOL), (", all classes", AMAZON_3M - 1)):
        before = torch.cuda.memory_allocated()
        model = Retriever.new(ModelShape(FEATURES, AMAZON_3M, dim=D), seed=0, device="cuda")
        settings = dense_settings(model.shape, on_gpu=True, batch_size=N, loss="bowl", top=1, pool=pool)
        fused = FusedStep(model, settings, split)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, help="the dataset of the epoch, which is left out without one")
    parser.add_argument("--only", default="check,kernels,step,chunks,epoch,all-classes,memory", help="parts to run")
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
    if "chunks" in parts:
        time_chunks(table)
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
