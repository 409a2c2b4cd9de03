"""A re-ranker with more classes than it was trained with.

Shapes: K known classes, C new ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_matrix

from owlmine.model.examples import ScoredQueries
from owlmine.model.new_classifiers import FeatureEvidence, with_classifiers
from owlmine.model.new_names import NameEvidence
from owlmine.model.predictor import Predictor
from owlmine.rank.reranker import Reranker

# On validation points of tibkat-gnd.
REACH = 1.5
"""How many times longer vectors of new classes are than what counts of them, where features count beside them: a
shortlist is made by vectors alone, and many new classes would never be on it."""
# What a name must add to help, in shares of what names add to the known class that comes fifth: so that known classes
# lose no more than 0.3 points.
NAME_LEVEL = 1.7


def names_beside(predictor: Predictor, names: list[str], queries: ScoredQueries) -> NameEvidence | None:
    """None without a re-ranker in which names count."""
    if queries.features is None:
        return None
    level = NAME_LEVEL * float(queries.name_lift_N.mean())
    return NameEvidence.of(predictor, names, queries.features, queries.dense_N.float().cpu().numpy(), level)


def wider(
    reranker: Reranker,
    num_new: int,
    lift: float,
    by_features: FeatureEvidence | None,
    by_names: NameEvidence | None,
) -> Reranker:
    """With the new classes, to whose scores ``lift`` is added."""
    ranker, new = reranker.ranker, csr_matrix((num_new, reranker.ranker.num_features), dtype=np.float32)
    weights_K, reach = reranker.dense_weights_K, 1.0
    if by_features is not None:
        new, reach = by_features.classifiers / (by_features.space.mean_length * reranker.weight), REACH
    if weights_K is None and reach != 1:
        weights_K = np.ones(ranker.num_classes, np.float32)
    lifts_C = np.full(num_new, lift, np.float32)
    return replace(
        reranker,
        ranker=with_classifiers(ranker, new),
        offsets_K=np.concatenate([reranker.offsets_K, lifts_C if by_names is None else by_names.lifts(lift)]),
        dense_weights_K=None if weights_K is None else np.concatenate([weights_K, np.full(num_new, 1 / reach, "f4")]),
        names=None if by_names is None else by_names.known.with_more(by_names.weights_CF),
        num_trained=reranker.num_trained or ranker.num_classes,
    )
