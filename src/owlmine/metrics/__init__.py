"""The field's metrics: pure functions of arrays and tensors, and an accumulator over batches."""

from owlmine.metrics.labels import FilterPairs
from owlmine.metrics.metrics import (
    coverage_at_k,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
    retrieval_loss_at_k,
)
from owlmine.metrics.propensity import (
    DATASET_CONSTANTS,
    PropensityConstants,
    inverse_propensities,
    propensity_constants,
)
from owlmine.metrics.rank_scores import rank_scores
from owlmine.metrics.ranking_metrics import BIN_NAMES, FrequencyCuts, RankingMetrics

__all__ = [
    "BIN_NAMES",
    "DATASET_CONSTANTS",
    "FilterPairs",
    "FrequencyCuts",
    "PropensityConstants",
    "RankingMetrics",
    "coverage_at_k",
    "inverse_propensities",
    "ndcg_at_k",
    "precision_at_k",
    "propensity_constants",
    "psndcg_at_k",
    "psp_at_k",
    "rank_scores",
    "recall_at_k",
    "retrieval_loss_at_k",
]
