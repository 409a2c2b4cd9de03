"""Votes of neighbours for their labels: looked up for classes, or the classes with the most.

``_votes.c`` has the same, query by query on all threads.

Shapes: N queries, S classes of a query, n neighbours, E labels of all neighbours, V pairs of a query and a class with
votes.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray

from owlmine.data.rows import Float32, Int64, SparseRows, gather_rows
from owlmine.extensions import load_extension

Float64 = NDArray[np.float64]

# Shares of votes are multiples of one part in so many. Their sums are then exact, and classes with the same shares are
# equal, in whatever order those are added.
_PARTS = 2.0**40


def shares_of(cosines_Nn: Float32, power: float) -> Float64:
    """[N, n] the share of each neighbour in the votes of its query: s^power / Σ s^power, s the cosine or 0."""
    shares_Nn = np.maximum(cosines_Nn, 0.0).astype(np.float64) ** power
    shares_Nn /= np.maximum(shares_Nn.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    shares: Float64 = np.rint(shares_Nn * _PARTS) / _PARTS
    return shares


def votes_for(ids_NS: Int64, points_Nn: Int64, shares_Nn: Float64, labels: SparseRows, num_classes: int) -> Float32:
    """Votes [N, S] for classes; 0 where the id is below 0. ``labels``: a row for each point, of ids below
    ``num_classes``."""
    find = plain_votes if compiled_votes() is None else _compiled_votes
    return find(np.ascontiguousarray(ids_NS, np.int64), points_Nn, shares_Nn, labels, num_classes)


def most_voted(points_Nn: Int64, shares_Nn: Float64, labels: SparseRows, num_classes: int, count: int) -> Int64:
    """Ids [N, count] of the classes with the most votes, ties by smaller id; -1 if no further class has any."""
    find = plain_most_voted if compiled_votes() is None else _compiled_most_voted
    return find(points_Nn, shares_Nn, labels, num_classes, count)


def compiled_votes() -> ModuleType | None:
    return load_extension("owlmine.rank._votes")


def _compiled_votes(
    ids_NS: Int64, points_Nn: Int64, shares_Nn: Float64, labels: SparseRows, num_classes: int
) -> Float32:
    del num_classes
    extension, votes_NS = compiled_votes(), np.empty(ids_NS.shape, np.float32)
    assert extension is not None
    neighbours = _neighbours(points_Nn, shares_Nn, labels)
    extension.look_up(*neighbours, ids_NS, ids_NS.shape[1], votes_NS, torch.get_num_threads())
    return votes_NS


def _compiled_most_voted(
    points_Nn: Int64, shares_Nn: Float64, labels: SparseRows, num_classes: int, count: int
) -> Int64:
    del num_classes
    extension, ids_Nn = compiled_votes(), np.empty((len(points_Nn), count), np.int64)
    assert extension is not None
    extension.suggest(*_neighbours(points_Nn, shares_Nn, labels), count, ids_Nn, torch.get_num_threads())
    return ids_Nn


def _neighbours(points_Nn: Int64, shares_Nn: Float64, labels: SparseRows) -> tuple[object, ...]:
    points_Nn, shares_Nn = np.ascontiguousarray(points_Nn, np.int64), np.ascontiguousarray(shares_Nn)
    return points_Nn, shares_Nn, labels.offsets, labels.indices, *points_Nn.shape


def plain_votes(ids_NS: Int64, points_Nn: Int64, shares_Nn: Float64, labels: SparseRows, num_classes: int) -> Float32:
    """``votes_for`` in NumPy."""
    rows_V, ids_V, votes_V = _pairs(points_Nn, shares_Nn, labels, num_classes)
    if not len(votes_V):
        return np.zeros(ids_NS.shape, np.float32)
    keys_V = rows_V * num_classes + ids_V
    wanted_NS = np.arange(len(ids_NS))[:, None] * num_classes + ids_NS
    found_NS = np.searchsorted(keys_V, wanted_NS).clip(max=len(keys_V) - 1)
    # Ids of added classes are larger than those of all labels.
    is_voted_NS = (keys_V[found_NS] == wanted_NS) & (ids_NS >= 0) & (ids_NS < num_classes)
    return np.where(is_voted_NS, votes_V[found_NS], 0.0).astype(np.float32)


def plain_most_voted(points_Nn: Int64, shares_Nn: Float64, labels: SparseRows, num_classes: int, count: int) -> Int64:
    """``most_voted`` in NumPy."""
    rows_V, ids_V, votes_V = _pairs(points_Nn, shares_Nn, labels, num_classes)
    order_V = np.lexsort((ids_V, -votes_V, rows_V))
    order_V = order_V[votes_V[order_V] > 0]
    rows_V, ids_V = rows_V[order_V], ids_V[order_V]
    starts_N = np.searchsorted(rows_V, np.arange(len(points_Nn)))
    places_V = np.arange(len(rows_V)) - starts_N[rows_V]
    suggested_Nn = np.full((len(points_Nn), count), -1, np.int64)
    is_in_V = places_V < count
    suggested_Nn[rows_V[is_in_V], places_V[is_in_V]] = ids_V[is_in_V]
    return suggested_Nn


def _pairs(
    points_Nn: Int64, shares_Nn: Float64, labels: SparseRows, num_classes: int
) -> tuple[Int64, Int64, NDArray[np.float64]]:
    """Query, class and votes [V] of all pairs with votes, sorted by query and class."""
    offsets, positions_E = gather_rows(labels.offsets, points_Nn.ravel())
    counts = np.diff(offsets)
    rows_E = np.repeat(np.repeat(np.arange(len(points_Nn)), points_Nn.shape[1]), counts)
    keys_E = rows_E * num_classes + labels.indices[positions_E]
    # A label of several neighbours gets the sum of their shares.
    keys_V, places_E = np.unique(keys_E, return_inverse=True)
    votes_V = np.bincount(places_E, np.repeat(shares_Nn.ravel(), counts), minlength=len(keys_V))
    rows_V, ids_V = np.divmod(keys_V, num_classes)
    return rows_V, ids_V, votes_V.astype(np.float64, copy=False)
