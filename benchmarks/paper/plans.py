"""The sizes that the plan of ``owlmine train`` chooses, as Markdown: asked of the plan itself, so no table can differ
from it."""

from __future__ import annotations

import math
from textwrap import fill

from tables import markdown

from owlmine.recipe.options import TrainOptions
from owlmine.recipe.plan import (
    EPOCHS_ON_CPU,
    FEW_POINTS,
    HEADS_ON_CPU,
    HEADS_ON_GPU,
    LEAST_BATCH,
    LEAST_POOL,
    LEAST_STEPS,
    LOSS_NUMBERS,
    POOL_ON_CPU,
    POOL_ON_GPU,
    POOL_SHARE,
    Facts,
    Plan,
    resolve,
)

_MANY = 10**9


def sizes() -> str:
    """What the best recipe trains, by the number of training points."""
    limits = sorted({most for table in (HEADS_ON_GPU, HEADS_ON_CPU, EPOCHS_ON_CPU) for most, _ in table})
    rows = []
    for most in limits:
        points = _MANY if math.isinf(most) else int(most)
        plans = [plan(points=points, on_gpu=on_gpu) for on_gpu in (True, False)]
        cells = [f"{one.heads} of {one.model.dim} dimensions, {one.model.epochs:g} epochs" for one in plans]
        rows.append(("more" if math.isinf(most) else f"to {points:,}", *cells))
    gpu, cpu, single = plan(on_gpu=True).judges, plan().judges, plan(recipe="single").model
    assert (gpu.shortlist, gpu.neighbours) == (cpu.shortlist, cpu.neighbours)
    notes = (
        f"Judges score the best {cpu.shortlist} classes of a query (`--shortlist`), and {cpu.neighbours} training"
        f" points vote (`--neighbours`). They are found by {_kinds(cpu.neighbour_kinds)} on a CPU and by"
        f" {_kinds(gpu.neighbour_kinds)} on a GPU. A single model has {single.dim} dimensions and {single.epochs:g}"
        f" epochs on both. Batches have {single.batch_size} points. For up to {FEW_POINTS:,} points of dense columns, batches"
        f" are smaller (at least {LEAST_BATCH} points), and there are more epochs (at least {LEAST_STEPS} steps)."
    )
    return markdown(("training points", "models on a GPU", "models on a CPU"), rows, left=3) + "\n\n" + fill(notes, 120)


def pools() -> str:
    """The pool by the number of classes."""
    eighth = f"1/{POOL_SHARE} of them"
    limits: list[tuple[float, str, str]] = [
        (LEAST_POOL + 1, "all others", "all others"),
        (LEAST_POOL * POOL_SHARE, f"{LEAST_POOL:,}", f"{LEAST_POOL:,}"),
        (POOL_ON_CPU * POOL_SHARE, eighth, eighth),
        (POOL_ON_GPU * POOL_SHARE, f"{POOL_ON_CPU:,}", eighth),
        (math.inf, f"{POOL_ON_CPU:,}", f"{POOL_ON_GPU:,}"),
    ]
    rows = [("more" if math.isinf(most) else f"to {most:,}", cpu, gpu) for most, cpu, gpu in limits]
    return markdown(("classes", "pool on a CPU", "pool on a GPU"), rows, left=1)


def losses() -> str:
    """What suits each loss that was searched on its own."""
    rows = [
        (
            f"`{name}`",
            f"{numbers.top}",
            *(f"{n:g}" for n in (numbers.scale, numbers.class_rate, numbers.feature_rate, numbers.map_rate)),
        )
        for name, numbers in LOSS_NUMBERS.items()
    ]
    return markdown(("loss", "top", "scale", "class rate", "feature rate", "map rate"), rows, left=1)


def plan(*, points: int = _MANY, classes: int = _MANY, on_gpu: bool = False, **options: str) -> Plan:
    """For data of this size, of texts without a dev split."""
    facts = Facts(points, classes, num_features=100_000, dense=False, has_dev=False, on_gpu=on_gpu)
    return resolve(TrainOptions.of(**options), facts)


def _kinds(kinds: tuple[str, ...]) -> str:
    words = {"sparse": "features", "dense": "vectors"}
    return " or ".join(words[kind] for kind in kinds)
