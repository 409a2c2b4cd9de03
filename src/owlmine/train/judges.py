"""What may judge shortlists again, before it is known how much each counts.

Shapes: N points, S places of a shortlist, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from owlmine.data.rows import Float32, SparseRows
from owlmine.data.store import Batch
from owlmine.dense.encoder import query_batch
from owlmine.metrics import inverse_propensities
from owlmine.metrics.hits import find_hits
from owlmine.model.named_lists import with_named
from owlmine.model.predictor import Predictor
from owlmine.rank import LinearRanker, NameMatches, Neighbours
from owlmine.train.choose_mix import Evidence, Shortlists

# Training points below which there are no propensities.
_FEWEST_POINTS = 3


@dataclass(frozen=True, eq=False)
class Judges:
    """``rankers`` by cost. ``voters`` by kind, those of a kind alike but for their power."""

    predictor: Predictor
    shortlist: int
    rankers: Mapping[float, LinearRanker]
    voters: Mapping[str, list[Neighbours]]
    names: NameMatches | None

    @cached_property
    def _rarities(self) -> Float32:
        return rarities_of(self.predictor)

    def evidence(self, batch: Batch) -> Evidence:
        """What each says of the shortlists of these points."""
        queries, retriever = batch.queries, self.predictor.retriever
        assert isinstance(queries, SparseRows)
        scores_NS, ids_NS = self.predictor.shortlist(queries, self.shortlist)
        vectors_ND, names_NS = None, None
        if "dense" in self.voters or self.names is not None:
            vectors_ND = retriever.encode(query_batch(queries, retriever.device))
        if self.names is not None:
            assert vectors_ND is not None
            scores_NS, ids_NS = with_named(retriever, self.names, queries, vectors_ND, scores_NS, ids_NS)
            names_NS = self.names.scores(queries, ids_NS, scores_NS[:, 0])
        votes: dict[tuple[str, float], Float32] = {}
        for kind, voters in self.voters.items():
            nearest = voters[0].points.nearest(queries, vectors_ND, voters[0].count)
            votes |= {(kind, voter.power): voter.votes_of(*nearest, ids_NS) for voter in voters}
        depth, num_classes = ids_NS.shape[1], retriever.shape.num_classes
        hits_NS = find_hits(ids_NS, batch.labels, depth=depth, num_classes=num_classes).mask(depth)
        return Evidence(
            Shortlists(scores_NS, hits_NS, self._rarities[np.maximum(ids_NS, 0)]),
            self.shortlist,
            {cost: ranker.scores(queries, ids_NS) for cost, ranker in self.rankers.items()},
            votes,
            names_NS,
        )


def rarities_of(predictor: Predictor) -> Float32:
    """[K] logarithms of inverse propensities: 0 for a class that is always marked where it fits, and for all where
    points are too few to tell."""
    if predictor.classes.num_points < _FEWEST_POINTS:
        return np.zeros(len(predictor.classes.counts), np.float32)
    weights_K = inverse_propensities(predictor.classes.counts, predictor.classes.num_points)
    return np.log(weights_K).astype(np.float32)
