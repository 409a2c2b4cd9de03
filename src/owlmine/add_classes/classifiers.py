"""Linear classifiers for classes that a re-ranked model was not trained on, from the pooled features of examples.

x_i  the features of example i, divided by the mean length of examples; values below 0 do not count
r_f  log(1 + K / (1 + how many of the K known classifiers use feature f)), scaled so that Σ_f r_f² x_if² is 1 on average
w_f = length · r_f² √(Σ_i g_i x_if² / Σ_i g_i),    g_i = 1, or NAME_WEIGHT for a name

With the root mean square, a word of one example counts for more than its share of the examples: five examples show few
of a class's words. Rare features distinguish classes; r² replaces what training would have learned about frequent ones.
Training points are not used: those that belong to a new class do not have its label.

Shapes: C new classes, F features, N queries, B queries of a block, P pairs of an example and one of its new classes, E
weights in total.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.rank.judge import Judge
from owlmine.rank.linear import LinearJudge
from owlmine.rank.points import checked_rows
from owlmine.rank.sparse_weights import SparseWeights

# Below this, a difference of two equal squares is rounding error.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """The weights of features for new classes."""

    squared_rarities_F: NDArray[np.float64]
    """r²."""
    mean_length: float
    """The mean length of examples."""
    length: float
    """The mean score of a class with one example for that example."""

    @classmethod
    def of(cls, known: SparseWeights, examples: SparseRows, *, length: float) -> FeatureSpace:
        """``examples``: prepared queries, which set the scale of r and of lengths."""
        rows = _matrix(examples, known.num_features)
        mean_length = float(np.sqrt(rows.multiply(rows).sum(axis=1)).mean()) or 1.0
        used_F = np.bincount(known.entries.ids, minlength=known.num_features)
        rarities_F = np.log1p(known.num_classes / (1.0 + used_F)) ** 2
        scale = float((rows.multiply(rows) @ rarities_F).mean()) / mean_length**2
        return cls(rarities_F / (scale or 1.0), mean_length, length)

    def rows(self, queries: SparseRows) -> csr_matrix:
        """x [N, F]."""
        return _matrix(queries, len(self.squared_rarities_F)) / self.mean_length


@dataclass(frozen=True, eq=False)
class FeatureJudgement:
    """The linear judge's data for new classes (a ``NewJudgement``)."""

    space: FeatureSpace
    rows_NF: csr_matrix
    """x of the examples."""
    squares_CF: csr_matrix
    """Σ g x²."""
    totals_C: NDArray[np.float64]
    """Σ g."""

    @classmethod
    def of(
        cls,
        space: FeatureSpace,
        examples: SparseRows,
        rows_P: Int64,
        classes_P: Int64,
        *,
        names: SparseRows | None,
        named_C: NDArray[np.bool_],
        name_weight: float,
    ) -> FeatureJudgement:
        """``names``: those of the classes marked in ``named_C``."""
        rows_NF, totals_C = space.rows(examples), np.bincount(classes_P, minlength=len(named_C)).astype(np.float64)
        squares_CF = _sums(rows_NF[rows_P].power(2), classes_P, len(named_C))
        if names is not None:
            squares_CF += name_weight * _sums(space.rows(names).power(2), np.flatnonzero(named_C), len(named_C))
            totals_C += name_weight * named_C
        return cls(space, rows_NF, squares_CF.tocsr(), totals_C)

    @cached_property
    def classifiers(self) -> csr_matrix:
        """w [C, F]."""
        weights_CF = self.squares_CF.copy()
        totals_E = np.repeat(self.totals_C, np.diff(weights_CF.indptr))
        rarities_E = self.space.squared_rarities_F[weights_CF.indices]
        weights_CF.data = self.space.length * np.sqrt(weights_CF.data / totals_E) * rarities_E
        return weights_CF

    @property
    def offsets(self) -> Float32:
        return np.zeros(len(self.totals_C), np.float32)

    def scores(self, rows_B: Int64) -> NDArray[np.float64]:
        """[B, C] the scores of all new classes for these examples."""
        scores_BC: NDArray[np.float64] = (self.rows_NF[rows_B] @ self.classifiers.T).toarray()
        return scores_BC

    def left_out_scores(self, rows_P: Int64, classes_P: Int64) -> NDArray[np.float64]:
        """[P] the score of each pair's class for its example, with weights computed without it; 0 if nothing is
        left."""
        own_PF = self.rows_NF[rows_P]
        others_PF = (self.squares_CF[classes_P].multiply(own_PF > 0) - own_PF.power(2)).tocsr()
        others_PF.data = np.sqrt(np.where(others_PF.data > _ROUNDING, others_PF.data, 0.0))
        sums_P = others_PF.multiply(own_PF) @ self.space.squared_rarities_F
        left_P = np.maximum(self.totals_C[classes_P] - 1, _ROUNDING)
        scores_P: NDArray[np.float64] = self.space.length * sums_P / np.sqrt(left_P)
        return scores_P

    def are_suggested(self, rows_P: Int64, classes_P: Int64) -> NDArray[np.bool_]:
        return np.zeros(len(rows_P), np.bool_)

    def extend(self, judge: Judge, weight: float) -> LinearJudge:
        assert isinstance(judge, LinearJudge)
        # For features at the scale of queries, in a judge that the mix multiplies.
        return LinearJudge(judge.weights.with_more(self.classifiers / (self.space.mean_length * weight)))


def _sums(rows_PF: csr_matrix, classes_P: Int64, num_classes: int) -> csr_matrix:
    """[C, F] the sum of the rows of each class."""
    places = np.arange(len(classes_P))
    return csr_matrix((np.ones(len(places)), (classes_P, places)), shape=(num_classes, len(places))) @ rows_PF


def _matrix(queries: SparseRows, num_features: int) -> csr_matrix:
    """In double precision, each feature once, with positive values only."""
    matrix = checked_rows(queries, num_features=num_features).to_scipy(num_features).astype(np.float64)
    matrix.sum_duplicates()
    matrix.data = np.maximum(matrix.data, 0.0)
    matrix.eliminate_zeros()
    return matrix
