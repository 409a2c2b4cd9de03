"""Candidates: the classes that judges score for each query.

They are the best classes of the dense model, followed by classes that judges suggest: those whose names appear in the
query, and the labels of the nearest training points. A dense model does not list a class that it has hardly seen.
A query is encoded once; its vector is kept here.

Shapes: N queries, K classes, S places of a list, n places for suggested classes, D dimension, E filled places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import Retriever
from owlmine.index import Filter, Index, search
from owlmine.index.exact import products
from owlmine.mining import hardest
from owlmine.mining.coded_rows import first_rows

SUGGESTED = 20
"""Places for the classes that one judge suggests."""

# Classes looked at for the best trained one, as added ones may come before it.
_LOOKED_AT = 10


@runtime_checkable
class Suggests(Protocol):
    """A judge that adds classes to the list, whatever their dense scores."""

    name: ClassVar[str]

    def suggest(self, encoded: Encoded, count: int) -> Int64:
        """Ids [N, n] of at most ``count`` classes; -1 in empty places."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """Queries as features, and as vectors of the dense model."""

    queries: SparseRows | NDArray[np.float32]
    vectors_ND: Tensor
    lookups: dict[Any, Any] = field(default_factory=dict)
    """Cache of lookups by judges."""

    @property
    def sparse_queries(self) -> SparseRows:
        assert isinstance(self.queries, SparseRows)
        return self.queries

    @classmethod
    def of(cls, model: Retriever, queries: SparseRows | NDArray[np.float32]) -> Encoded:
        return cls(queries, model.encode(query_batch(queries, model.device)))

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Lists of classes and their dense scores. An empty place has the id -1 and the score -inf."""

    encoded: Encoded
    ids_NS: Int64
    dense_NS: Float32
    """Scores of the dense model."""
    best_N: Float32
    """The best dense score of all trained classes, listed or not; of the listed classes if no judge suggests any."""
    num_listed: int
    """The number of places of the dense model, which come first."""
    suggested: tuple[str, ...] = ()
    """The judges whose suggestions follow them, with ``SUGGESTED`` places each."""

    @property
    def sparse_queries(self) -> SparseRows:
        return self.encoded.sparse_queries

    @property
    def lookup_ids(self) -> Int64:
        """Ids [N, S] for table lookups: 0 in empty places, where no score counts."""
        return np.maximum(self.ids_NS, 0)


def find_candidates(
    model: Retriever,
    encoded: Encoded,
    count: int,
    *,
    index: Index,
    only: Filter | None = None,
    suggesters: Sequence[Suggests] = (),
    num_trained: int | None = None,
) -> Candidates:
    """The ``count`` best classes of each query, and the classes that judges suggest.

    ``index``: finds the best of all classes. ``only``: the classes to choose from. ``num_trained``: the number of
    trained classes, if others were appended.
    """
    dense_NS, ids_NS = _arrays(*search(index, encoded.vectors_ND, count, only))
    best_N: Float32 = dense_NS.max(axis=1, initial=-np.inf)
    if suggesters and not (only is None and num_trained is None):
        # The scores of names depend on the best of all trained classes, listed or not.
        best_N = _best_trained(model, encoded.vectors_ND, index, num_trained)
    candidates = Candidates(encoded, ids_NS, dense_NS, best_N, count)
    for suggester in suggesters:
        candidates = _with_suggested(model, candidates, suggester, only)
    return candidates


def _arrays(scores: Tensor, ids: Tensor) -> tuple[Float32, Int64]:
    return scores.float().cpu().numpy(), ids.cpu().numpy()


def _best_trained(model: Retriever, vectors_ND: Tensor, index: Index, num_trained: int | None) -> Float32:
    """[N] the best score of all trained classes, by the index unless added classes take its first places."""
    table_KD = first_rows(model.rows, num_trained)
    scores_Nk, ids_Nk = index.search(vectors_ND, min(_LOOKED_AT, model.shape.num_classes))
    scores_Nk = scores_Nk.masked_fill((ids_Nk >= len(table_KD)) | (ids_Nk < 0), -torch.inf)
    best_N = scores_Nk.amax(dim=1)
    if bool((none_N := best_N == -torch.inf).any()):
        best_N[none_N] = hardest(vectors_ND[none_N], table_KD, 1)[0][:, 0].to(best_N.dtype)
    best: Float32 = best_N.float().cpu().numpy()
    return best


def _with_suggested(model: Retriever, candidates: Candidates, suggester: Suggests, only: Filter | None) -> Candidates:
    """A place stays empty if its class is already listed, or is not to be chosen."""
    ids_NS = candidates.ids_NS
    suggested_Nn = _as_places(suggester.suggest(candidates.encoded, SUGGESTED))
    unwanted_Nn = (suggested_Nn[:, :, None] == ids_NS[:, None, :]).any(axis=2)
    if only is not None:
        unwanted_Nn |= ~only.allows(suggested_Nn)
    suggested_Nn = np.where(unwanted_Nn, -1, suggested_Nn)
    dense_Nn = np.full(suggested_Nn.shape, -np.inf, np.float32)
    rows_E, places_E = np.nonzero(suggested_Nn >= 0)
    dense_Nn[rows_E, places_E] = products(
        candidates.encoded.vectors_ND, model.rows, rows_E, suggested_Nn[rows_E, places_E]
    )
    return Candidates(
        candidates.encoded,
        np.concatenate([ids_NS, suggested_Nn], axis=1),
        np.concatenate([candidates.dense_NS, dense_Nn], axis=1),
        candidates.best_N,
        candidates.num_listed,
        (*candidates.suggested, suggester.name),
    )


def _as_places(ids_Nn: Int64) -> Int64:
    """Pads with empty places to ``SUGGESTED``, the same number for every judge."""
    places_Nn = np.full((len(ids_Nn), SUGGESTED), -1, np.int64)
    places_Nn[:, : ids_Nn.shape[1]] = ids_Nn
    return places_Nn
