"""The hardest classes; pools drawn uniformly without the positive, and masks for other known positives."""

from owlmine.mining.distinct import draw_distinct, draw_distinct_fixed
from owlmine.mining.hardest_classes import hardest
from owlmine.mining.known import Known, known_in_batch_pool, known_in_pools
from owlmine.mining.pool import BatchPool, draw_batch_pool, draw_pool_with_positives, draw_pools, draw_pools_fixed

__all__ = [
    "BatchPool",
    "Known",
    "draw_batch_pool",
    "draw_distinct",
    "draw_distinct_fixed",
    "draw_pool_with_positives",
    "draw_pools",
    "draw_pools_fixed",
    "hardest",
    "known_in_batch_pool",
    "known_in_pools",
]
