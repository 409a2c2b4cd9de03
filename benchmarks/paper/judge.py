"""One evaluation for all tools: ranked class ids of the test split in, percentages out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.store import Store
from owlmine.metrics import RankingMetrics, inverse_propensities, propensity_constants

KS = (1, 3, 5)
METRICS = ("P", "R", "nDCG", "PSP")


def judge(ranked_ids: NDArray[Any], store: Store, dataset: str) -> dict[str, float]:
    """P, R, nDCG and PSP at 1, 3 and 5 of lists [N, at least 5], one per test point; -1 marks an empty place."""
    test, train = store["test"], store["train"]
    if len(ranked_ids) != len(test):
        raise ValueError(f"{len(ranked_ids):,} ranked lists were given; wanted {len(test):,}, one per test point")
    weights_K = inverse_propensities(store.class_counts, len(train), constants=propensity_constants(dataset))
    metrics = RankingMetrics(store.num_classes, ks=KS, inverse_propensities=weights_K)
    labels = test.labels.slice(0, len(test))
    metrics.update(np.asarray(ranked_ids, np.int64), labels)
    figures = metrics.compute()
    return {f"{name}@{k}": round(figures[f"{name}@{k}"], 4) for name in METRICS for k in KS}
