"""Tensors on a GPU give what arrays give, and stay there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from owlmine.metrics import FilterPairs, RankingMetrics, rank_scores

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_metrics_of_tensors_on_the_device() -> None:
    rng = np.random.default_rng(2)
    num_rows, num_classes = 500, 60
    ids = rng.integers(-1, num_classes, (num_rows, 12))
    labels = [rng.integers(0, num_classes, rng.integers(0, 9)).tolist() for _ in range(num_rows)]
    pairs = FilterPairs(np.stack((rng.integers(0, num_rows, 900), rng.integers(0, num_classes, 900)), axis=1))
    figures = []
    for given in (ids, torch.from_numpy(ids).cuda(), torch.from_numpy(ids).int().cuda()):
        metrics = RankingMetrics(
            num_classes,
            inverse_propensities=np.linspace(1, 9, num_classes),
            class_counts=np.arange(num_classes),
        )
        metrics.update(given, labels)
        metrics.update(given, labels, filter_pairs=pairs)
        figures.append(metrics.compute())
    assert figures[0]["P@1"] > 0
    assert figures[1] == pytest.approx(figures[0], rel=0, abs=1e-12, nan_ok=True)
    assert figures[2] == pytest.approx(figures[0], rel=0, abs=1e-12, nan_ok=True)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_ranking_on_the_device(dtype: torch.dtype) -> None:
    scores = np.random.default_rng(3).integers(0, 9, (33, 2001)).astype(np.float32)
    wanted = rank_scores(scores, 50)
    ranked = rank_scores(torch.from_numpy(scores).cuda().to(dtype), 50)
    assert ranked.is_cuda
    assert np.array_equal(ranked.cpu().numpy(), wanted)
    sparse = torch.from_numpy(scores).cuda().to(dtype).to_sparse_csr()
    assert np.array_equal(rank_scores(sparse, 50).cpu().numpy(), wanted)
