"""The same classifiers, learned and scored in C on all threads.

Shapes: N points, F features, C classes of a chunk, S places of a shortlist.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import torch

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.extensions import load_extension
from owlmine.rerank.options import LinearOptions
from owlmine.rerank.task import Task


def compiled_module() -> ModuleType | None:
    return load_extension("owlmine.rerank._linear")


class CompiledTrainer:
    """Learns a chunk of classes at a time; chunks write to the same memory, because fresh pages cost time."""

    def __init__(self, task: Task, options: LinearOptions, seed: int) -> None:
        self._task, self._options, self._seed = task, options, seed
        self._features, self._weights = np.empty(0, np.int32), np.empty(0, np.float32)

    def __call__(self, classes: range, room_C1: Int64) -> tuple[SparseRows, Float32]:
        """Weights of consecutive classes, a row each, and biases [C]; ``room_C1``: offsets of what they could write."""
        extension = compiled_module()
        assert extension is not None
        task, options, room = self._task, self._options, int(room_C1[-1])
        if len(self._features) < room:
            self._features, self._weights = np.empty(room, np.int32), np.empty(room, np.float32)
        offsets_C1, biases_C = np.zeros(len(classes) + 1, np.int64), np.empty(len(classes), np.float32)
        total = extension.train(
            task.queries.offsets,
            task.queries.indices,
            task.queries.values,
            task.num_features,
            task.squares_N,
            task.pairs.offsets_K1[classes.start : classes.stop + 1],
            task.pairs.points,
            task.pairs.targets,
            classes.start,
            (options.highest_alpha, options.ridge, options.tolerance, options.threshold),
            options.max_passes,
            self._seed,
            room_C1,
            self._features,
            self._weights,
            offsets_C1[1:],
            biases_C,
            torch.get_num_threads(),
        )
        np.cumsum(offsets_C1, out=offsets_C1)
        return SparseRows(offsets_C1, self._features[:total].copy(), self._weights[:total].copy()), biases_C


def compiled_scores(
    queries: SparseRows, weights: SparseRows, biases_K: Float32, ids_NS: Int64, *, num_features: int
) -> Float32:
    """[N, S]: <query n, weights of class ids[n, s]> + its bias; 0 where the id is negative."""
    extension = compiled_module()
    assert extension is not None
    scores_NS = np.zeros(ids_NS.shape, np.float32)
    # Class by class: the weights of one are spread out once for all queries that have it.
    places = np.argsort(ids_NS, axis=None)
    ids = ids_NS.ravel()[places]
    num_empty = int(np.searchsorted(ids, 0))
    places, ids = places[num_empty:], ids[num_empty:]
    if len(ids) == 0:
        return scores_NS
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    extension.score(
        queries.offsets,
        queries.indices,
        queries.values,
        num_features,
        weights.offsets,
        weights.indices,
        weights.values,
        biases_K,
        ids[starts],
        np.append(starts, len(ids)),
        places,
        ids_NS.shape[1],
        scores_NS,
        torch.get_num_threads(),
    )
    return scores_NS
