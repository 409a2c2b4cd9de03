"""Classes whose names are spelled like words of the query.

w_cf = cosine of name c and word f (``spelling``) · rarity of f,    where that cosine is no less than 0.3 and name c
                                                                    among the 64 nearest of the word
match = Σ_f w_cf x_f
score = match · (1 - s),    s the best score that the dense model has for the query, the bracket within 0 and 1

A linear classifier that nobody had to train: it knows rare classes as well as frequent ones. Where the dense model is
sure it has seen queries like this one, and what it learned from them is worth more than how a name is spelled.

Shapes: N queries, S places of a shortlist, F features, C or K classes, n best classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack
from torch import Tensor

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.rank.linear import LinearRanker
from owlmine.rank.points import SparsePoints
from owlmine.rank.spelling import nearest_names

# On validation points of debian-depends and tibkat-gnd; others do nearly as well (docs/research/log.md).
_NEAREST = 64
_LEAST_COSINE = 0.3


@dataclass(frozen=True, eq=False)
class NameMatches:
    """``ranker`` holds w, ``lists`` the same by feature."""

    ranker: LinearRanker
    lists: SparsePoints

    @classmethod
    def over(cls, ranker: LinearRanker) -> NameMatches:
        """ValueError where these cannot be cosines times rarities."""
        weights = SparseRows(ranker.offsets_K1, ranker.features, ranker.weights).to_scipy(ranker.num_features).tocsc()
        if (weights.data < 0).any() or ranker.biases_K.any():
            raise ValueError("names speak against a class, or for it whatever the query; wanted weights from 0 to 1")
        return cls(
            ranker, SparsePoints(weights.indptr.astype(np.int64), weights.indices, weights.data, ranker.num_classes)
        )

    @classmethod
    def of(
        cls,
        words: Sequence[str],
        rarities_F: NDArray[np.float64],
        names: Sequence[str],
        *,
        between: Callable[[], None] = lambda: None,
    ) -> NameMatches:
        """``between`` is called now and then, and may raise to stop."""
        return cls.from_weights(name_weights(words, rarities_F, names, between=between))

    @classmethod
    def from_weights(cls, weights_KF: csr_matrix) -> NameMatches:
        """From w, with the features of each row in ascending order."""
        (num_classes, num_features), offsets = weights_KF.shape, weights_KF.indptr.astype(np.int64)
        none_K = np.zeros(num_classes, np.float32)
        return cls.over(LinearRanker(offsets, weights_KF.indices, weights_KF.data, none_K, num_features))

    def with_more(self, weights_CF: csr_matrix) -> NameMatches:
        """With classes behind those that there are."""
        ranker = self.ranker
        own_KF = csr_matrix((ranker.weights, ranker.features, ranker.offsets_K1), shape=ranker.shape)
        return self.from_weights(vstack([own_KF, weights_CF], format="csr"))

    @property
    def num_classes(self) -> int:
        return self.ranker.num_classes

    def scores(self, queries: SparseRows, ids_NS: NDArray[Any], dense_N: NDArray[Any]) -> Float32:
        """[N, S] for the classes of shortlists; 0 where the id is below 0, an empty place. ``dense_N`` is s."""
        doubts_N1: Float32 = (1 - dense_N[:, None]).clip(0, 1).astype(np.float32)
        return doubts_N1 * self.ranker.scores(queries, ids_NS)

    def best(self, queries: SparseRows, count: int) -> Int64:
        """The ids [N, n] of the classes that match best, n = min(count, K); -1 where no further one does at all."""
        cosines_Nn, ids_Nn = self.lists.nearest(queries, None, count)
        return np.where(cosines_Nn > 0, ids_Nn, -1)

    def __bool__(self) -> bool:
        """Whether any name is spelled like any word."""
        return len(self.ranker.weights) > 0

    def tensors(self) -> dict[str, Tensor]:
        return self.ranker.tensors()

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> NameMatches:
        """Back from ``tensors()``; ValueError where that cannot be what they are."""
        return cls.over(LinearRanker.from_tensors(tensors))


def name_weights(
    words: Sequence[str],
    rarities_F: NDArray[np.float64],
    names: Sequence[str],
    *,
    between: Callable[[], None] = lambda: None,
) -> csr_matrix:
    """w [C, F]."""
    shape = (len(names), len(words))
    if not all(shape):
        return csr_matrix(shape, dtype=np.float32)
    cosines_Fn, names_Fn = nearest_names(words, names, _NEAREST, between=between)
    near_Fn = cosines_Fn >= _LEAST_COSINE
    words_E = np.flatnonzero(near_Fn) // near_Fn.shape[1]
    values_E = np.minimum(cosines_Fn[near_Fn], 1.0) * rarities_F[words_E]
    weights_CF = csr_matrix((values_E.astype(np.float32), (names_Fn[near_Fn], words_E)), shape=shape)
    weights_CF.sort_indices()
    return weights_CF


def rarities(frequencies_F: NDArray[np.int64], num_documents: int) -> NDArray[np.float64]:
    """(ln(N / df) + 1) / (ln N + 1): 1 for a word of a single document. 0 for one of none."""
    with np.errstate(divide="ignore"):
        idf_F = np.log(num_documents / frequencies_F) + 1
    return np.where(frequencies_F > 0, np.minimum(idf_F / (np.log(num_documents) + 1), 1.0), 0.0)
