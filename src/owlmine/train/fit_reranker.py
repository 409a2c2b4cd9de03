"""A re-ranker for a trained model: classifiers for what it confuses on its training points, how much they count, and
how much rare classes are lifted.

Shapes: N points, S places of a shortlist, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.data.store import Split
from owlmine.evaluate import RankingMetrics, inverse_propensities
from owlmine.model.predictor import Predictor
from owlmine.rerank import LinearRanker, MinedPairs, Reranker, train_linear
from owlmine.train.validate import ValidationPart

# Pairs of a point and a class that it was confused with: what memory and patience allow. Within these bounds longer
# shortlists make better classifiers, as they then have seen more of what they must tell apart.
_MOST_PAIRS = 30_000_000
_SHORTEST, _LONGEST = 10, 100
_BLOCK_ROWS = 4096
# Shares of the linear score to choose from. Dense scores lie in [-1, 1], linear ones mostly too.
_WEIGHTS = (0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.2)
# Shares of the logarithm of inverse propensities, which go from 0 to about 3.
_LIFTS = (0.0, 0.02, 0.04, 0.07, 0.1, 0.15)
# Where there are no validation points.
_UNSEEN_WEIGHT, _UNSEEN_LIFT = 0.2, 0.0
_KS = (1, 3, 5)

Tell = Callable[[str], None]


def fit_reranker(
    predictor: Predictor, split: Split, part: ValidationPart, *, shortlist: int, seed: int, tell: Tell, check: Tell
) -> Reranker:
    """``tell`` is told what goes on; ``check`` is called between blocks of work and may raise to stop it."""
    ranker = _classifiers(predictor, split, part.train_rows, seed=seed, tell=tell, check=check)
    rarity_K = _rarities(predictor)
    weight, lift = _UNSEEN_WEIGHT, _UNSEEN_LIFT
    if len(part):
        (weight, lift), figure = _best_mix(predictor, ranker, rarity_K, part, shortlist=shortlist)
        tell(
            f"the linear model counts {weight:g} times, rare classes are lifted by {lift:g}:"
            f" mean of P@1, P@3 and P@5 {figure:.2f} on validation points"
        )
    return Reranker(ranker, weight, shortlist, np.float32(lift) * rarity_K)


def _rarities(predictor: Predictor) -> Float32:
    """Logarithms of inverse propensities: 0 for a class that is always marked where it fits."""
    weights_K = inverse_propensities(predictor.classes.counts, predictor.classes.num_points)
    return np.log(weights_K).astype(np.float32)


def _classifiers(
    predictor: Predictor, split: Split, rows: Int64, *, seed: int, tell: Tell, check: Tell
) -> LinearRanker:
    shape = predictor.retriever.shape
    length = min(max(_MOST_PAIRS // len(rows), _SHORTEST), _LONGEST, shape.num_classes)
    tell(f"the {length} best classes of each training point, for what the model confuses")
    ranked_NS = np.empty((len(rows), length), np.int32)
    for start in range(0, len(rows), _BLOCK_ROWS):
        check("shortlists")
        batch = split.batch(rows[start : start + _BLOCK_ROWS])
        ranked_NS[start : start + _BLOCK_ROWS] = predictor.shortlist(batch.queries, length)[1]
    batch = split.batch(rows)
    assert isinstance(batch.queries, SparseRows)
    pairs = MinedPairs.of(ranked_NS, batch.labels, num_classes=shape.num_classes)
    tell(f"a linear classifier for each of {shape.num_classes:,} classes, from {len(pairs):,} pairs")
    return train_linear(
        batch.queries,
        pairs,
        num_features=shape.num_features,
        seed=seed,
        progress=lambda done, total: check(f"{done} of {total}"),
    )


def _best_mix(
    predictor: Predictor, ranker: LinearRanker, rarity_K: Float32, part: ValidationPart, *, shortlist: int
) -> tuple[tuple[float, float], float]:
    """Weight and lift with the best mean of P@1, P@3 and P@5 (as many as there are classes for), and that mean."""
    num_classes = predictor.retriever.shape.num_classes
    ks = [k for k in _KS if k <= num_classes]
    metrics = {mix: RankingMetrics(num_classes, ks=ks) for mix in product(_WEIGHTS, _LIFTS)}
    for batch in part.batches():
        assert isinstance(batch.queries, SparseRows)
        scores_NS, ids_NS = predictor.shortlist(batch.queries, max(shortlist, ks[-1]))
        linear_NS = ranker.scores(batch.queries, ids_NS)
        rarity_NS = rarity_K[np.maximum(ids_NS, 0)]
        for (weight, lift), metric in metrics.items():
            mixed_NS = scores_NS + np.float32(weight) * linear_NS + np.float32(lift) * rarity_NS
            metric.update(_best_ids(mixed_NS, ids_NS, ks[-1]), batch.labels)
    means = {mix: float(np.mean([metric.compute()[f"P@{k}"] for k in ks])) for mix, metric in metrics.items()}
    # Of equals the one that changes least.
    best = max(means, key=lambda mix: (means[mix], -mix[0], -mix[1]))
    return best, means[best]


def _best_ids(scores_NS: NDArray[np.float32], ids_NS: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    order_Nk = np.argsort(-scores_NS, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(ids_NS, order_Nk, axis=1)
