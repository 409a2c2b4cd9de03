"""Validation points, and the figures of a model on them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from owlmine.data.rows import Int64
from owlmine.data.store import Batch, Dataset, Split
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import Retriever
from owlmine.metrics import RankingMetrics

_MAX_POINTS = 5_000
_BLOCK_ROWS = 1024
# A brief look, after every epoch and only to be shown, computes about so many scores, for at least so many points.
_BRIEF_SCORES, _BRIEF_POINTS = 1 << 24, 500


class ValidationPart:
    """The dev split, or points held out from train; ``train_rows`` are those left to learn from.

    ``seed`` is not that of the training: models with different seeds are evaluated on the same points, and no member of
    an ensemble trains on them.

    ``block``: points of train are held out in runs of this many neighbours. If neighbours belong together and the test
    split does not share them, single points would have siblings in train and be too easy. Raises ValueError if a run
    has more than ``_MAX_POINTS``, or nothing is left to train on.
    """

    def __init__(self, data: Dataset, *, share: float, seed: int = 0, block: int = 1) -> None:
        train = data["train"]
        everything: Int64 = np.arange(len(train))
        self.split: Split | None = None
        self.train_rows, self.rows = everything, everything[:0]
        if "dev" in data.splits:
            self.split = data["dev"]
            self.rows = _chosen(len(self.split), min(len(self.split), _MAX_POINTS), seed)
        elif share > 0:
            self.split = train
            self.rows = _chosen_blocks(len(train), min(int(len(train) * share), _MAX_POINTS), seed, block=block)
            self.train_rows = np.delete(everything, self.rows)
            if not len(self.train_rows):
                raise ValueError(
                    f"validation_block is {block} with validation {share:g}, which takes all {len(train):,} points of"
                    " train; wanted some left to learn from"
                )

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, step: int = 1) -> Iterator[Batch]:
        """All points, or every ``step``-th."""
        rows = self.rows[::step]
        if self.split is not None:
            for start in range(0, len(rows), _BLOCK_ROWS):
                yield self.split.batch(rows[start : start + _BLOCK_ROWS])

    def brief_step(self, num_classes: int) -> int:
        """A brief look takes every so many points."""
        return max(len(self) // max(_BRIEF_SCORES // num_classes, _BRIEF_POINTS), 1)

    def measure(self, model: Retriever, *, briefly: bool = False) -> dict[str, float]:
        """P@1, P@3 and P@5 in percent (those with enough classes).

        ``briefly``: with very many classes on only some of the points, because each is compared with every class.
        """
        num_classes = model.shape.num_classes
        ks = cutoffs(num_classes)
        metrics = RankingMetrics(num_classes, ks=ks)
        for batch in self.batches(self.brief_step(num_classes) if briefly else 1):
            _, ids = model.top(query_batch(batch.queries, model.device), ks[-1])
            metrics.update(ids.cpu().numpy(), batch.labels)
        return precisions(metrics)


def cutoffs(limit: int) -> list[int]:
    """The k for which P@k is shown: at most ``limit``, the number of classes or places."""
    return [k for k in (1, 3, 5) if k <= limit]


def precisions(metrics: RankingMetrics) -> dict[str, float]:
    return {name: value for name, value in metrics.compute().items() if name.startswith("P@")}


def _chosen_blocks(num_rows: int, count: int, seed: int, *, block: int) -> Int64:
    """Ascending row numbers in runs of ``block`` (the last run of the split may be shorter): as many runs as come
    closest to ``count`` rows, at least one (none for a count of 0), and at most ``_MAX_POINTS`` rows."""
    if block == 1 or count == 0:
        return _chosen(num_rows, count, seed)
    if block > _MAX_POINTS:
        raise ValueError(f"validation_block is {block}; wanted at most {_MAX_POINTS:,}, the most points to validate on")
    num_blocks = min(max(round(count / block), 1), _MAX_POINTS // block)
    blocks = _chosen(-(-num_rows // block), num_blocks, seed)
    rows = (blocks[:, None] * block + np.arange(block)).ravel()
    return rows[rows < num_rows]


def _chosen(num_rows: int, count: int, seed: int) -> Int64:
    """Ascending row numbers, the same for the same seed."""
    rows: Int64 = np.sort(np.random.default_rng([seed, 7]).permutation(num_rows)[:count])
    return rows
