"""Complete training steps and epochs with kernels, compared with plain PyTorch."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpu_counts
import numpy as np
import torch
from gpu_counts import Work
from gpu_table import Table, recorded
from plain_pytorch import SCALE, PlainStep, loaded, plain_full_softmax_step, plain_step
from settings import dense_settings
from torch import Tensor

from owlmine.data.batches import Batches
from owlmine.data.store import SparseTable, Split, Store
from owlmine.dense.encoder import SparseBatch
from owlmine.dense.fused_step import FusedStep
from owlmine.dense.retriever import ModelShape, Retriever
from owlmine.recipe.plan import POOL_ON_GPU

N, D = 1024, 512
AMAZON_670K, AMAZON_3M = 670_091, 2_812_281
FEATURES, PER_POINT, POOL = 135_909, 75, POOL_ON_GPU
# Timed steps of the plain epoch, which is extrapolated from them.
PLAIN_STEPS = 150
SIZES: dict[str, Any] = {"num_features": FEATURES, "num_classes": AMAZON_670K, "dim": D, "device": "cuda"}


@dataclass(frozen=True)
class Method:
    """A step to time: our options, the plain step beside it, and what the step has to do."""

    name: str
    chosen: dict[str, Any]
    plain: Callable[[], PlainStep]
    work: Work
    limit: float | None = None
    """Milliseconds."""
    least_times: float | None = None
    """The required speed-up over the plain step, if there is no other limit."""


def methods() -> list[Method]:
    def mined(name: str, kept: int, limit: float | None, *, pool: int = POOL) -> Method:
        work = gpu_counts.mined_step(N, pool, kept, per_point=PER_POINT, dim=D, gathered=pool == POOL)
        chosen = {"loss": "bowl", "top": kept, "pool": pool}
        return Method(name, chosen, lambda: plain_step(**SIZES, pool=POOL, kept=kept), work, limit)

    whole_pool = {passes: gpu_counts.pool_step(N, POOL, per_point=PER_POINT, dim=D, passes=passes) for passes in (1, 2)}
    softmax = gpu_counts.encoder(N, PER_POINT, D)
    softmax += gpu_counts.dense_products(N, AMAZON_670K, D, passes=2, table_bytes=gpu_counts.FLOAT32)
    return [
        mined("top 1", 1, 0.63),
        mined("top 1, all classes", 1, 2.2, pool=AMAZON_670K - 1),
        mined("top 16", 16, None),
        mined("top 256", 256, None),
        Method(
            "negative sampling",
            {"loss": "negative-sampling-bowl", "pool": POOL},
            lambda: plain_step(**SIZES, pool=POOL, kept=None),
            whole_pool[1],
            1.0,
        ),
        Method(
            "sampled softmax",
            {"loss": "sampled-softmax", "pool": POOL, "scale": SCALE},
            lambda: plain_step(**SIZES, pool=POOL, kept=None, softmax=True),
            whole_pool[2],
            1.0,
        ),
        Method(
            "full softmax",
            {"loss": "softmax", "scale": SCALE},
            lambda: plain_full_softmax_step(**SIZES),
            softmax,
            least_times=3,
        ),
    ]


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
    on_device = [SparseBatch.of(split.batch(rows).queries, torch.device("cuda")) for rows in batches]
    positives = [torch.randint(AMAZON_670K, (N,), device="cuda") for _ in batches]
    for method in methods():
        step, turn = method.plain(), _round_robin(list(zip(on_device, positives, strict=True)))
        plain = table.milliseconds(lambda s=step, t=turn: s(*t()))
        del step
        free()
        model = Retriever.new(ModelShape(FEATURES, AMAZON_670K, dim=D), seed=0, device="cuda")
        fused = FusedStep(model, dense_settings(model.shape, on_gpu=True, batch_size=N, **method.chosen), split)
        turn_rows = _round_robin([(rows,) for rows in batches])
        torch.cuda.reset_peak_memory_stats()
        ours = table.milliseconds(lambda f=fused, t=turn_rows: f(*t(), number=1, progress=0.9))
        limit = method.limit if method.least_times is None else plain / method.least_times
        table.add(f"training step, {method.name}", ours, plain=plain, limit=limit, **method.work.as_options())
        beside = torch.cuda.max_memory_allocated() - fused.data_bytes - model.classes.weight.nbytes
        table.notes.append(f"training step, {method.name}: {beside / 2**30:.2f} GiB beside data and class table")
        del model, fused
        free()


def time_chunks(table: Table) -> None:
    """Class side of losses on a whole pool, by how many classes have their slopes in memory at a time."""
    from owlmine.mining.kernels.class_passes import Passes
    from owlmine.mining.kernels.exclusions import Exclusions
    from owlmine.mining.kernels.pool_classes import Pool, PoolForm, pool_class_step

    queries = torch.nn.functional.normalize(torch.randn(N, D, device="cuda"), dim=1)
    classes = torch.nn.functional.normalize(torch.randn(AMAZON_670K, D, device="cuda"), dim=1)
    labels = torch.randint(AMAZON_670K, (N, 3), device="cuda")
    factor, key = torch.tensor([-1e-4], device="cuda"), torch.tensor([7], device="cuda")
    forms = {
        "negative sampling": PoolForm("hinge", 1.0, 1 / POOL),
        "sampled softmax": PoolForm("softmax", SCALE, AMAZON_670K / POOL),
    }
    for name, form in forms.items():
        for chunk in (8192, 16_384, 32_768):

            def work(form: PoolForm = form, chunk: int = chunk) -> tuple[Tensor, Tensor]:
                return pool_class_step(
                    queries,
                    classes,
                    labels[:, 0].contiguous(),
                    factor,
                    form=form,
                    pool=Pool(key, POOL),
                    excluded=Exclusions.of_padded(labels),
                    key=key,
                    passes=Passes(chunk=chunk),
                )

            passes = 2 if form.kind == "softmax" else 1
            products = gpu_counts.dense_products(N, POOL, D, passes=passes, table_bytes=0)
            ours = table.milliseconds(recorded(work))
            table.add(f"{name}, class side, chunks of {chunk:,}", ours, tflop=products.tflop)
    free()


def _round_robin(items: list[tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    """One after the other: the same batch again would lie in the cache."""
    state = {"next": 0}

    def turn() -> tuple[Any, ...]:
        state["next"] = (state["next"] + 1) % len(items)
        return items[state["next"]]

    return turn


def time_epoch(table: Table, store: Store) -> None:
    plain = _plain_epoch_seconds(store)
    table.notes.append(f"epoch by plain PyTorch: scaled up from {PLAIN_STEPS} steps of it, with a pool of {POOL:,}")
    for name, pool, limit in (("", POOL, 1.5), (", all classes", store.num_classes - 1, 3.0)):
        model = Retriever.new(ModelShape(store.num_features, store.num_classes, dim=D), seed=0, device="cuda")
        settings = dense_settings(model.shape, on_gpu=True, batch_size=N, loss="bowl", top=1, pool=pool)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        fused = FusedStep(model, settings, store["train"])
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
        table.add(
            f"epoch of {len(store['train']):,} points{name}",
            total * 1000,
            plain=plain * 1000,
            limit=limit * 1000,
            **_epoch_work(store, pool, num_steps=len(batches)).as_options(),
        )
        table.notes.append(f"epoch{name}: {seconds} s, {loading:.2f} of them for copying the data to the device, once")
        del model, fused
        free()


def _epoch_work(store: Store, pool: int, *, num_steps: int) -> Work:
    queries = store["train"].queries
    assert isinstance(queries, SparseTable)
    per_point = len(queries.indices) / len(store["train"])
    return gpu_counts.mined_step(N, pool, 1, per_point=per_point, dim=D, gathered=pool == POOL).times(num_steps)


def _plain_epoch_seconds(store: Store) -> float:
    """Of a whole epoch, from a part of it: batches put together on the host, copied, and learned from."""
    sizes = {"num_features": store.num_features, "num_classes": store.num_classes, "dim": D, "device": "cuda"}
    step = plain_step(**sizes, pool=POOL, kept=1)
    batches = Batches(store["train"], batch_size=N, seed=0)
    source = loaded(batches, seed=0, device=torch.device("cuda"))
    timed = min(PLAIN_STEPS, len(batches))
    for _ in range(10):
        step(*next(source))
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(timed):
        step(*next(source))
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) * len(batches) / timed
    del step, source
    free()
    return seconds


def free() -> None:
    gc.collect()
    torch.cuda.empty_cache()
