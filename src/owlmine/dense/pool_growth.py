"""A pool that grows with the model: doubled when half of it would find markedly fewer mistakes.

A pool contains a mistake of a point if one of its classes scores above the point's label. Let V(B) be the share of
points for which a pool of B classes contains a mistake. At the start any few classes contain one, V(B) = V(B/2), and a
larger pool finds nothing that a smaller one would miss. As the model learns, mistakes become rare among all classes,
V(B) approaches 2 V(B/2), and a pool of twice the size finds nearly twice as many. So the ratio of the two, from 1 to 2,
measures the benefit of doubling, independently of the scale of the scores; above a threshold the pool is doubled.

Shapes: N points, D dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from owlmine.data.store import Batch
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import Retriever
from owlmine.dense.settings import DenseSettings
from owlmine.dense.step import draw_positives, step_seed
from owlmine.mining import draw_distinct, hardest

LOOK_EVERY = 20
"""Steps between checks: one costs about as much as the mining of a step."""
_THRESHOLD = 1.2
# Points checked before a decision.
_POINTS = 1_000


def pool_growth(settings: DenseSettings) -> PoolGrowth | None:
    """None if the pool does not grow."""
    if settings.pool_start is None:
        return None
    return PoolGrowth(start=settings.pool_start, most=settings.pool, seed=settings.seed)


class PoolGrowth:
    """The size of the pool, from ``start`` up to ``most``, and the counts since it last grew."""

    def __init__(self, *, start: int, most: int, seed: int) -> None:
        self.size, self._most, self._seed = start, most, seed
        self._points = self._whole = self._half = 0

    @torch.no_grad()
    def look(self, model: Retriever, batch: Batch, *, number: int) -> bool:
        """Counts mistakes of the batch in a pool drawn for this check. Returns whether the pool has grown."""
        if self.size == self._most:
            return False
        generator = torch.Generator(model.device).manual_seed(step_seed(self._seed, number) ^ 0x5DEECE66D)
        positives = draw_positives(batch.labels, np.random.default_rng([self._seed, number, 2]))
        classes_KD = model.classes.weight
        queries_ND = model.encoder(query_batch(batch.queries, model.device))
        positives_N = torch.from_numpy(positives).to(model.device)
        scores_N = (queries_ND * classes_KD.index_select(0, positives_N)).sum(dim=1)
        known = tuple(
            torch.from_numpy(array.astype("int64")).to(model.device)
            for array in (batch.labels.offsets, batch.labels.indices)
        )
        pool = draw_distinct(1, self.size, num_classes=len(classes_KD), generator=generator)[0]
        mistaken = [
            hardest(queries_ND, classes_KD, 1, pool=half, exclude=(known[0], known[1]))[0][:, 0] > scores_N
            for half in pool.tensor_split(2)
        ]
        self._points += len(scores_N)
        self._half += int(mistaken[0].sum()) + int(mistaken[1].sum())  # both halves: twice V(B/2)
        self._whole += int((mistaken[0] | mistaken[1]).sum())
        return self._decide()

    def _decide(self) -> bool:
        if self._points < _POINTS:
            return False
        # No mistake at all: the pool is far too small.
        grows = 2 * self._whole >= _THRESHOLD * self._half
        self.size = min(2 * self.size, self._most) if grows else self.size
        self._points = self._whole = self._half = 0
        return grows

    def state_dict(self) -> dict[str, Any]:
        return {"size": self.size, "points": self._points, "whole": self._whole, "half": self._half}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.size, self._points = state["size"], state["points"]
        self._whole, self._half = state["whole"], state["half"]
