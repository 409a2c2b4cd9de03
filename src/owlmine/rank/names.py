"""The judge of names: classes whose names are spelled like words of the query.

w_cf = cosine of name c and word f (``spelling``) · rarity of f,    if that cosine is at least 0.3 and name c is
                                                                    among the 64 nearest to the word
match = Σ_f w_cf x_f
score = match · (1 - s),    s the best dense score of the query, and 1 - s clipped to [0, 1]

This is a linear classifier without training: it knows rare classes as well as frequent ones. If the dense model is
sure, it has seen similar queries, and what it learned from them is worth more than the spelling of a name.

Shapes: N queries, S places of a shortlist, F features, C or K classes, n best classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.dense.retriever import ModelShape
from owlmine.rank.candidates import Candidates, Encoded
from owlmine.rank.judge import Training, Variant, check_settings, register
from owlmine.rank.points import SparsePoints
from owlmine.rank.sparse_weights import SparseWeights
from owlmine.rank.spelling import nearest_names

# Chosen on validation points of debian-depends and tibkat-gnd; other values do nearly as well (docs/research/log.md).
_NEAREST = 64
_LEAST_COSINE = 0.3
# More names or words are not compared: a million names of two words take a minute or two, and 4 GiB.
_MOST_NAMES = 2_000_000


@register
@dataclass(frozen=True, eq=False)
class NameJudge:
    """``weights`` holds w; ``lists`` holds the same by feature."""

    name: ClassVar[str] = "names"
    title: ClassVar[str] = "class names that appear in the text"
    prior: ClassVar[float] = 1.5
    must_help: ClassVar[bool] = True
    is_default: ClassVar[bool] = True
    default_variant: ClassVar[Variant] = None
    effect: ClassVar[str] = "name"

    weights: SparseWeights
    lists: SparsePoints

    @classmethod
    def fit(cls, training: Training, chosen: Variant | None) -> Mapping[Variant, Self]:
        """Empty if there are no words to compare names with, or too many names or words."""
        del chosen
        words, classes = training.features, training.classes
        if not training.sizes.names or words.vocabulary is None or words.frequencies is None:
            return {}
        if max(len(words.vocabulary), len(classes.names)) > _MOST_NAMES:
            training.message(f"names are off: more than {_MOST_NAMES:,} names or words")
            return {}
        training.message(
            f"{len(classes.names):,} class names, compared with {len(words.vocabulary):,} words of queries"
        )
        judge = cls.of(
            list(words.vocabulary),
            words.rarities(classes.num_points),
            list(classes.names),
            between=lambda: training.check("names"),
        )
        return {None: judge} if judge else {}

    @classmethod
    def over(cls, weights: SparseWeights) -> Self:
        """Raises ValueError if these weights cannot be cosines times rarities."""
        lists = weights.rows.to_scipy(weights.num_features).tocsc()
        if (lists.data < 0).any() or weights.biases_K.any():
            raise ValueError("names have a negative weight or a bias; wanted weights from 0 to 1 and no biases")
        points = SparsePoints.listed(SparseRows(lists.indptr, lists.indices, lists.data), weights.num_classes)
        return cls(weights, points)

    @classmethod
    def of(
        cls,
        words: Sequence[str],
        rarities_F: NDArray[np.float64],
        names: Sequence[str],
        *,
        between: Callable[[], None] = lambda: None,
    ) -> Self:
        """``between`` is called from time to time and may raise to stop."""
        return cls.from_matrix(name_weights(words, rarities_F, names, between=between))

    @classmethod
    def from_matrix(cls, weights_KF: csr_matrix) -> Self:
        """From w, with the features of each row in ascending order."""
        num_classes, num_features = weights_KF.shape
        rows = SparseRows(weights_KF.indptr, weights_KF.indices, weights_KF.data)
        return cls.over(SparseWeights.of(rows, np.zeros(num_classes, np.float32), num_features))

    def with_more(self, weights_CF: csr_matrix) -> Self:
        """With a class appended for each row."""
        return self.over(self.weights.with_more(weights_CF))

    def scores(self, candidates: Candidates) -> Float32:
        """0 in empty places, where the id is below 0."""
        return self.scores_of(candidates.sparse_queries, candidates.ids_NS, candidates.best_N)

    def effects(self, candidates: Candidates, query: SparseRows) -> Float32:
        """See ``ByFeatures``."""
        return _doubts(candidates.best_N) * self.matches(candidates.ids_NS[0], query)

    def biases(self, ids_S: Int64) -> Float32:
        return np.zeros(len(ids_S), np.float32)

    def matches(self, ids_S: Int64, query: SparseRows) -> Float32:
        """[S, E] w_cf x_f of some classes and the features of one query: above 0 where a word spells a name."""
        assert query.values is not None
        return self.weights.at(ids_S, query.indices) * query.values

    def scores_of(self, queries: SparseRows, ids_NS: NDArray[Any], dense_N: NDArray[Any]) -> Float32:
        """Scores [N, S] of these classes; ``dense_N`` is s."""
        return _doubts(dense_N) * self.weights.scores(queries, ids_NS)

    def suggest(self, encoded: Encoded, count: int) -> Int64:
        """The ids [N, n] of the classes that match best, n = min(count, K); -1 if no further class matches."""
        cosines_Nn, ids_Nn = self.lists.nearest(encoded.sparse_queries, None, count)
        return np.where(cosines_Nn > 0, ids_Nn, -1)

    def __bool__(self) -> bool:
        """Whether any name is spelled like any word."""
        return len(self.weights.entries.codes) > 0

    def with_classes(self, num_new: int) -> Self:
        return self.with_more(csr_matrix((num_new, self.weights.num_features), dtype=np.float32))

    def on(self, device: torch.device) -> Self:
        del device  # names stay on the CPU
        return self

    def tensors(self) -> dict[str, Tensor]:
        return self.weights.tensors()

    def settings(self) -> dict[str, Any]:
        return {}

    @classmethod
    def load(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], shape: ModelShape) -> Self:
        check_settings(settings, {})
        return cls.over(SparseWeights.of_model(tensors, shape))


def _doubts(dense_N: NDArray[Any]) -> Float32:
    """[N, 1] 1 - s."""
    doubts_N1: Float32 = (1 - dense_N[:, None]).clip(0, 1).astype(np.float32)
    return doubts_N1


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
