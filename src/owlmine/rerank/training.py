"""One sparse linear classifier per class, from the pairs that were mined for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from owlmine.data.rows import Float32, SparseRows, concatenate
from owlmine.rerank.compiled_linear import CompiledTrainer, compiled_module
from owlmine.rerank.coordinate_descent import PlainTrainer
from owlmine.rerank.linear_ranker import LinearRanker
from owlmine.rerank.mined_pairs import MinedPairs
from owlmine.rerank.options import LinearOptions
from owlmine.rerank.task import Task

Progress = Callable[[int, int], None]
"""Called with the classes that are done and all there are; may raise to stop."""


def train_linear(
    queries: SparseRows,
    pairs: MinedPairs,
    *,
    num_features: int,
    options: LinearOptions | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> LinearRanker:
    """``queries``: the points that pairs speak of; each feature once in a row, in ascending order.

    A class without a point of each kind gets no weights and the bias 0. The order in which the points of a class are
    visited depends on ``seed`` and the class alone, so the number of threads does not show.
    """
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed is {seed}; wanted 0 to 2^63 - 1")
    task, options = Task.of(queries, pairs, num_features=num_features), options or LinearOptions()
    trainer = (PlainTrainer if compiled_module() is None else CompiledTrainer)(task, options, seed)
    parts: list[SparseRows] = [SparseRows(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))]
    biases: list[Float32] = [np.zeros(0, np.float32)]
    for classes, room_C1 in task.chunks():
        weights, biases_C = trainer(classes, room_C1)
        parts.append(weights)
        biases.append(biases_C)
        if progress is not None:
            progress(classes.stop, task.pairs.num_classes)
    rows = concatenate(parts)
    assert rows.values is not None
    return LinearRanker(rows.offsets, rows.indices, rows.values, np.concatenate(biases), num_features)
