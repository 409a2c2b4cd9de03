"""What the demo measures: figures on the test split, curves of a run, and the ratio to the baseline."""

from __future__ import annotations

from typing import Any

from owlmine.data.store import Split, Store
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import Retriever
from owlmine.metrics import RankingMetrics
from owlmine.recipe.options import TrainOptions
from owlmine.train.reporters import SilentReporter
from owlmine.train.trainer import Trainer
from owlmine.train.warm_start import warm_start

KS = (1, 3, 5)
NAMES = tuple(f"{letter}@{k}" for letter in "RP" for k in KS)

# Queries scored at once.
_BLOCK_ROWS = 1024


def judge(model: Retriever, split: Split) -> dict[str, float]:
    """R and P at 1, 3 and 5 in percent, over every point of the split and every class."""
    metrics = RankingMetrics(model.shape.num_classes, ks=KS)
    for batch in split.blocks(_BLOCK_ROWS):
        _, ids = model.top(query_batch(batch.queries, model.device), KS[-1])
        metrics.update(ids.cpu().numpy(), batch.labels)
    figures = metrics.compute()
    return {name: figures[name] for name in NAMES}


def judge_start(store: Store, options: TrainOptions) -> dict[str, dict[str, float]]:
    """The figures before the first step: each class vector is the mean of its points. All methods share this start."""
    trainer = Trainer(store, store.path, options, SilentReporter(), data_name="")
    warm_start(trainer.model, store["train"], trainer.validation.train_rows)
    return {"validation": trainer.validation.measure(trainer.model), "test": judge(trainer.model, store["test"])}


def curve(history: list[dict[str, Any]], *, num_points: int) -> list[dict[str, float]]:
    """Validation P@1 by points seen and by seconds of training; ``num_points`` is the points of an epoch."""
    return [
        {"points": round(record["epoch"] * num_points), "seconds": record["seconds"], "P@1": record["P@1"]}
        for record in history
    ]


def ratios(figures: dict[str, float], baseline: dict[str, float]) -> dict[str, float | None]:
    """Each figure divided by the baseline's, as in the paper's Table 2; None where the baseline has 0."""
    return {name: figures[name] / baseline[name] if baseline[name] else None for name in NAMES}
