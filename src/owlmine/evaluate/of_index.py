"""The quality of an index: its recall against exact search, and its speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from owlmine.data.rows import Int64
from owlmine.data.store import Split
from owlmine.dense.encoder import query_batch
from owlmine.errors import OwlmineError
from owlmine.index import ApproximateIndex, ExactIndex
from owlmine.index.approximate import DEFAULT_KIND
from owlmine.rank.neighbours import NeighbourJudge
from owlmine.rank.points import SparsePoints
from owlmine.rank.predictor import Features, Predictor

_QUERIES, _SINGLE_QUERIES, _SEED = 2_000, 200, 0


@dataclass(frozen=True)
class IndexFigures:
    """Figures of one index. Recall: the percentage of exact search's classes that it finds."""

    queries: int
    best: int
    """The number of classes in the first recall: 10, or all if there are fewer."""
    recall_of_best: float
    listed: int
    """The number of classes on the list of a query, which judges score."""
    recall_of_list: float
    index_ms: float
    """Per query, in one batch."""
    exact_ms: float
    one_query_ms: float
    """The median over single queries."""
    one_query_exact_ms: float


def index_model(predictor: Predictor, kind: str = DEFAULT_KIND) -> Predictor:
    """The model with an index of its classes."""
    if predictor.dense.shape.kind != "embedding" or predictor.dense.device.type != "cpu":
        raise OwlmineError("only an embedding model on the CPU can have an index")
    return replace(predictor, index=ApproximateIndex.build(predictor.dense.rows, kind=kind))


def queries_of(split: Split) -> Features:
    """Up to 2,000 queries of a split."""
    if not len(split):
        raise OwlmineError(f"the {split.name} split has no points; wanted queries to measure the index with")
    return split.batch(_some(len(split))).queries


def training_queries(predictor: Predictor) -> Features:
    """Up to 2,000 of the training points that the model keeps for neighbour votes."""
    judge = predictor.ranker.judges.get(NeighbourJudge.name)
    if judge is None:
        raise OwlmineError(
            "the model keeps no training points to measure the index with; give queries: owlmine index MODEL DATA"
        )
    assert isinstance(judge, NeighbourJudge)
    assert isinstance(judge.points, SparsePoints)
    return judge.points.rows(_some(len(judge.points)))


def _some(num_points: int) -> Int64:
    return np.sort(np.random.default_rng(_SEED).permutation(num_points)[:_QUERIES])


@torch.no_grad()
def measure_index(predictor: Predictor, queries: Features) -> IndexFigures:
    """Compares the model's index with exact search."""
    index, exact, num_classes = predictor.index, ExactIndex(predictor.dense.rows), len(predictor.classes)
    queries_ND = predictor.dense.encode(query_batch(queries, predictor.dense.device))
    listed, best = min(max(predictor.ranker.shortlist, 10), num_classes), min(10, num_classes)

    def by_index(vectors_ND: Tensor) -> Tensor:
        return index.search(vectors_ND, listed)[1]

    def exactly(vectors_ND: Tensor) -> Tensor:
        return exact.search(vectors_ND, listed)[1]

    index_ms, found_Nk = _timed(by_index, queries_ND)
    exact_ms, exact_Nk = _timed(exactly, queries_ND)
    singles = [queries_ND[row : row + 1] for row in range(min(len(queries), _SINGLE_QUERIES))]
    return IndexFigures(
        queries=len(queries),
        best=best,
        recall_of_best=_recall(found_Nk[:, :best], exact_Nk[:, :best]),
        listed=listed,
        recall_of_list=_recall(found_Nk, exact_Nk),
        index_ms=index_ms / len(queries),
        exact_ms=exact_ms / len(queries),
        one_query_ms=float(np.median([_timed(by_index, query_1D)[0] for query_1D in singles])),
        one_query_exact_ms=float(np.median([_timed(exactly, query_1D)[0] for query_1D in singles])),
    )


def _timed(search: Callable[[Tensor], Tensor], queries_ND: Tensor) -> tuple[float, Tensor]:
    """Milliseconds, and the ids found."""
    began = time.perf_counter()
    found = search(queries_ND)
    return 1000 * (time.perf_counter() - began), found


def _recall(found_Nk: Tensor, exact_Nk: Tensor) -> float:
    """In percent."""
    same_NK = (found_Nk[:, :, None] == exact_Nk[:, None, :]).any(dim=1)
    return 100 * float(same_NK.float().mean())
