"""What their names say of classes that a re-ranked model was not trained on.

A name counts as that of a known class does, and less a level that it has to reach: most known classes that are among
the best have names that say something, which the scores of others must come up to.

Shapes: C new classes, F features, N examples, B of them, P pairs of an example and a new class of its.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.model.named_lists import NAMED
from owlmine.model.predictor import Predictor
from owlmine.rank.names import NameMatches, name_weights


@dataclass(frozen=True, eq=False)
class NameEvidence:
    """Names of the new classes beside some examples."""

    known: NameMatches
    """Of the classes that the model has."""
    weights_CF: csr_matrix
    """Of words for the new classes; those without a name have none."""
    examples: SparseRows
    dense_N: Float32
    """The best score that the dense model has for each example."""
    floor_N: Float32
    """How well the last of the known classes matches that names suggest for an example; 0 where they suggest fewer."""
    weight: float
    level: float
    """What a name has to add to help: a new class with a name gets what it says, less this."""

    @classmethod
    def of(
        cls, predictor: Predictor, names: Sequence[str], examples: SparseRows, dense_N: Float32, level: float
    ) -> NameEvidence | None:
        """``names``: one for each new class, empty where there is none. None where names do not count."""
        reranker, words = predictor.reranker, predictor.features.vocabulary
        if reranker is None or reranker.names is None or words is None:
            return None
        rarities_F = predictor.features.rarities(predictor.classes.num_points)
        weights_CF = name_weights(list(words), rarities_F, names)
        floor_N = _last_match(reranker.names, examples)
        return cls(reranker.names, weights_CF, examples, dense_N, floor_N, reranker.name_weight, level)

    @cached_property
    def matches(self) -> NameMatches:
        return NameMatches.from_weights(self.weights_CF)

    @cached_property
    def levels(self) -> Float32:
        """[C] what a name has to add before it helps: nothing where no word is known that is spelled like it."""
        levels_C: Float32 = np.float32(self.level) * (np.diff(self.weights_CF.indptr) > 0)
        return levels_C

    def scores(self, rows_B: Int64) -> Float32:
        """[B, C] of all new classes for these examples, above what a class without a name gets."""
        ids_BC = np.broadcast_to(np.arange(self.matches.num_classes), (len(rows_B), self.matches.num_classes))
        return self._scores(rows_B, ids_BC) - self.levels

    def pair_scores(self, rows_P: Int64, classes_P: Int64) -> Float32:
        """[P] the same of each pair's class for its example."""
        return self._scores(rows_P, classes_P[:, None])[:, 0] - self.levels[classes_P]

    def are_listed(self, rows_P: Int64, classes_P: Int64) -> NDArray[np.bool_]:
        """[P] whether its name alone puts the class on the example's list."""
        matches_P = self.matches.ranker.scores(self.examples.take(rows_P), classes_P[:, None])[:, 0]
        return (matches_P > 0) & (matches_P >= self.floor_N[rows_P])

    def lifts(self, lift: float) -> Float32:
        """[C] what is added to the scores of new classes, ``lift`` where there is no name."""
        return np.float32(lift) - self.levels

    def _scores(self, rows_B: Int64, ids_BS: NDArray[np.int64]) -> Float32:
        scores_BS: Float32 = np.float32(self.weight) * self.matches.scores(
            self.examples.take(rows_B), ids_BS, self.dense_N[rows_B]
        )
        return scores_BS


def _last_match(names: NameMatches, examples: SparseRows) -> Float32:
    ids_Nn = names.best(examples, NAMED)
    last_N: Float32 = names.ranker.scores(examples, ids_Nn).min(axis=1, initial=np.inf)
    return last_N
