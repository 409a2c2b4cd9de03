"""Sparse linear classifiers, a row of weights and a bias for each class, and their scores.

Weights are bytes with a scale for each class, so that a model in memory is the one that its folder holds.

``compiled_scores`` works class by class in C; ``plain_scores`` does the same in NumPy without a compiler.

Shapes: K classes, C new ones, E weights in total, N queries, S places of a shortlist, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from owlmine.data.rows import Float32, Int64, SparseRows, gather_rows
from owlmine.dense.retriever import ModelShape
from owlmine.extensions import load_extension
from owlmine.rank.coded_entries import CodedEntries
from owlmine.rank.points import as_arrays, as_tensors, ascends_in_rows, checked_rows

# Places that are sorted by class at a time: 24 bytes each.
_BLOCK_PLACES = 1 << 23
_OWN = {"biases": torch.float32, "num_features": torch.int64}


@dataclass(frozen=True, eq=False)
class SparseWeights:
    """A row of weights for each class, whose ids are features.

    A class without training pairs has no weights and the bias 0: it scores 0 for every query.
    """

    entries: CodedEntries
    biases_K: Float32
    num_features: int

    def __post_init__(self) -> None:
        biases_K, num_classes = self.biases_K, len(self.entries)
        if biases_K.shape != (num_classes,) or not np.isfinite(biases_K).all():
            raise ValueError(
                f"biases have the shape {biases_K.shape}; wanted a finite number for each of {num_classes}"
            )

    @classmethod
    def of(cls, rows: SparseRows, biases_K: NDArray[Any], num_features: int) -> SparseWeights:
        """The nearest weights that bytes can hold. Raises ValueError for inconsistent numbers."""
        _check_width(num_features)
        rows = checked_rows(rows, num_features=num_features)
        if not ascends_in_rows(rows.offsets, rows.indices):
            raise ValueError("the features of a class must be distinct and ascending")
        return cls(CodedEntries.of(rows), np.ascontiguousarray(biases_K, np.float32), num_features)

    @property
    def rows(self) -> SparseRows:
        """The weights as numbers, a row for each class."""
        return self.entries.rows

    @property
    def num_classes(self) -> int:
        return len(self.biases_K)

    @property
    def shape(self) -> tuple[int, int]:
        """Classes and features."""
        return self.num_classes, self.num_features

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays."""
        return self.entries.num_bytes + self.biases_K.nbytes

    def scores(self, queries: SparseRows, ids_NS: NDArray[Any]) -> Float32:
        """[N, S]: <query n, weights of class ids[n, s]> + its bias; 0 where the id is below 0, an empty place."""
        queries = checked_rows(queries, num_features=self.num_features)
        ids_NS = np.asarray(ids_NS)
        if ids_NS.ndim != 2 or len(ids_NS) != len(queries) or ids_NS.dtype.kind not in "iu":
            raise ValueError(
                f"ids have the shape {ids_NS.shape} in {ids_NS.dtype}; wanted [{len(queries)}, S] class ids"
            )
        if ids_NS.size and ids_NS.max() >= self.num_classes:
            raise ValueError(f"ids go up to {ids_NS.max()}; there are {self.num_classes} classes")
        ids_NS = np.ascontiguousarray(ids_NS, np.int64)
        score = plain_scores if compiled_module() is None else compiled_scores
        scores_NS, num_rows = np.empty(ids_NS.shape, np.float32), max(_BLOCK_PLACES // max(ids_NS.shape[1], 1), 1)
        for start in range(0, len(queries), num_rows):
            block = slice(start, start + num_rows)
            scores_NS[block] = score(
                queries[block], self.entries, self.biases_K, ids_NS[block], num_features=self.num_features
            )
        return scores_NS

    def at(self, ids_S: Int64, features_E: Int64) -> Float32:
        """[S, E] the weights of some classes for some features, ascending and distinct."""
        weights_SE = np.zeros((len(ids_S), len(features_E)), np.float32)
        for row, number in enumerate(ids_S.tolist()):
            own = slice(self.entries.offsets_R1[number], self.entries.offsets_R1[number + 1])
            _, places, found = np.intersect1d(
                self.entries.ids[own], features_E, assume_unique=True, return_indices=True
            )
            weights_SE[row, found] = self.entries.codes[own][places] * self.entries.scales_R[number]
        return weights_SE

    def with_more(self, weights_CF: csr_matrix) -> SparseWeights:
        """With a new class appended for each row; their biases are 0."""
        new = weights_CF.tocsr().sorted_indices()
        biases_C = np.zeros(new.shape[0], np.float32)
        more = SparseWeights.of(SparseRows(new.indptr, new.indices, new.data), biases_C, self.num_features)
        biases_K = np.concatenate([self.biases_K, biases_C])
        return SparseWeights(self.entries.with_more(more.entries), biases_K, self.num_features)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors for a file; they share memory with the weights where possible."""
        return as_tensors(
            {
                **self.entries.arrays(),
                "biases": self.biases_K,
                "num_features": np.array(self.num_features, np.int64),
            }
        )

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> SparseWeights:
        """The inverse of ``tensors()``. Raises ValueError for invalid tensors."""
        own = as_arrays({name: tensor for name, tensor in tensors.items() if name in _OWN}, _OWN)
        num_features = int(own["num_features"])
        _check_width(num_features)
        others = {name: tensor for name, tensor in tensors.items() if name not in _OWN}
        return cls(CodedEntries.from_tensors(others, num_columns=num_features), own["biases"], num_features)

    @classmethod
    def of_model(cls, tensors: Mapping[str, Tensor], shape: ModelShape) -> SparseWeights:
        """The same, and checks that there is a row for each class of such a model, with the model's features."""
        weights = cls.from_tensors(tensors)
        if weights.shape != (shape.num_classes, shape.num_features) or shape.dense:
            raise ValueError(
                f"weights are of {weights.num_classes} classes and {weights.num_features} features; wanted those of the"
                f" model, {shape}"
            )
        return weights


def _check_width(num_features: int) -> None:
    if not 0 <= num_features < 2**31:
        raise ValueError(f"num_features is {num_features}; wanted 0 to 2^31 - 1")


def plain_scores(
    queries: SparseRows, weights: CodedEntries, biases_K: Float32, ids_NS: Int64, *, num_features: int
) -> Float32:
    """``compiled_scores`` in NumPy."""
    assert queries.values is not None
    scores_NS, query_F = np.zeros(ids_NS.shape, np.float32), np.zeros(num_features, np.float32)
    for n, ids_S in enumerate(ids_NS):
        own = slice(queries.offsets[n], queries.offsets[n + 1])
        np.add.at(query_F, queries.indices[own], queries.values[own])
        places = np.flatnonzero(ids_S >= 0)
        offsets, positions = gather_rows(weights.offsets_R1, ids_S[places])
        values = weights.codes[positions] * np.repeat(weights.scales_R[ids_S[places]], np.diff(offsets))
        products = values.astype(np.float64) * query_F[weights.ids[positions]]
        sums = np.bincount(np.repeat(np.arange(len(places)), np.diff(offsets)), products, minlength=len(places))
        scores_NS[n, places] = biases_K[ids_S[places]] + sums
        query_F[queries.indices[own]] = 0
    return scores_NS


def compiled_scores(
    queries: SparseRows, weights: CodedEntries, biases_K: Float32, ids_NS: Int64, *, num_features: int
) -> Float32:
    """[N, S]: <query n, weights of class ids[n, s]> + its bias; 0 where the id is negative."""
    extension = compiled_module()
    assert extension is not None
    scores_NS = np.zeros(ids_NS.shape, np.float32)
    # Class by class: the weights of a class are expanded once for all queries that have it.
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
        weights.offsets_R1,
        weights.ids,
        weights.codes,
        weights.scales_R,
        biases_K,
        ids[starts],
        np.append(starts, len(ids)),
        places,
        ids_NS.shape[1],
        scores_NS,
        torch.get_num_threads(),
    )
    return scores_NS


def compiled_module() -> ModuleType | None:
    return load_extension("owlmine.rank._linear")
