"""The judge of names for classes that a re-ranked model was not trained on.

A name counts like that of a known class, minus a threshold. Most known classes among the best for a query have matching
names, so a new class needs as good a match to compete with them.

Shapes: C new classes, F features, N examples, B examples of a block, n suggested classes, P pairs of an example and one
of its new classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.rank.candidates import SUGGESTED
from owlmine.rank.judge import Judge
from owlmine.rank.names import NameJudge, name_weights
from owlmine.rank.predictor import Predictor


@dataclass(frozen=True, eq=False)
class NameJudgement:
    """The name judge's data for new classes (a ``NewJudgement``)."""

    weights_CF: csr_matrix
    """The matches of words and new classes; classes without a name have none."""
    examples: SparseRows
    dense_N: Float32
    """The best dense score for each example."""
    floor_N: Float32
    """The match of the last known class that names suggest for an example; 0 if they suggest fewer."""
    weight: float
    """The weight of the judge in the mix."""
    level: float
    """The threshold: a new class gets what its name adds, minus this."""

    @classmethod
    def of(
        cls, predictor: Predictor, names: Sequence[str], examples: SparseRows, dense_N: Float32, level: float
    ) -> NameJudgement | None:
        """``names``: one for each new class, empty if it has none. None if names do not count."""
        judge, words = predictor.ranker.judges.get(NameJudge.name), predictor.features.vocabulary
        if not isinstance(judge, NameJudge) or words is None:
            return None
        weights_CF = name_weights(list(words), predictor.features.rarities(predictor.classes.num_points), names)
        weight = predictor.ranker.mix.weights[judge.name]
        return cls(weights_CF, examples, dense_N, _last_match(judge, examples), weight, level)

    @cached_property
    def own(self) -> NameJudge:
        """For the new classes only."""
        return NameJudge.from_matrix(self.weights_CF)

    @cached_property
    def offsets(self) -> Float32:
        """[C] minus the threshold; 0 if no known word is spelled like the name."""
        has_words_C = np.diff(self.weights_CF.indptr) > 0
        return np.where(has_words_C, np.float32(-self.level), np.float32(0))

    def scores(self, rows_B: Int64) -> Float32:
        """[B, C] the scores of all new classes for these examples, relative to a class without a name."""
        num_classes = self.weights_CF.shape[0]
        return self._scores(rows_B, np.broadcast_to(np.arange(num_classes), (len(rows_B), num_classes)))

    def left_out_scores(self, rows_P: Int64, classes_P: Int64) -> Float32:
        """[P] the same for each pair's class and example; names do not depend on examples."""
        return self._scores(rows_P, classes_P[:, None])[:, 0]

    def are_suggested(self, rows_P: Int64, classes_P: Int64) -> NDArray[np.bool_]:
        matches_P = self.own.weights.scores(self.examples.take(rows_P), classes_P[:, None])[:, 0]
        return (matches_P > 0) & (matches_P >= self.floor_N[rows_P])

    def extend(self, judge: Judge, weight: float) -> NameJudge:
        del weight  # a name counts like that of any class
        assert isinstance(judge, NameJudge)
        return judge.with_more(self.weights_CF)

    def _scores(self, rows_B: Int64, ids_BS: Int64) -> Float32:
        scores_BS = self.own.scores_of(self.examples.take(rows_B), ids_BS, self.dense_N[rows_B])
        return np.float32(self.weight) * scores_BS + self.offsets[ids_BS]


def _last_match(judge: NameJudge, examples: SparseRows) -> Float32:
    cosines_Nn, ids_Nn = judge.lists.nearest(examples, None, SUGGESTED)
    ids_Nn = np.where(cosines_Nn > 0, ids_Nn, -1)
    last_N: Float32 = judge.weights.scores(examples, ids_Nn).min(axis=1, initial=np.inf)
    return last_N
