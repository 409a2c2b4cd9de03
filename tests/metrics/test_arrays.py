"""Ranked lists at the door: what is refused, and whose library they come from."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from owlmine.metrics import RankingMetrics, ndcg_at_k

IDS = np.array([[0, 1], [2, -1]])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[0, 1], [2, 3]], r"ranked_ids is a list; wanted an integer array or tensor \[rows, places\]"),
        (np.array([0, 1]), r"ranked_ids has the shape \(2,\); wanted \[rows, places\]"),
        (torch.tensor([0, 1]), r"ranked_ids has the shape \(2,\); wanted \[rows, places\]"),
        (IDS.astype(np.float64), "ranked_ids has the type float64; wanted integers"),
        (torch.from_numpy(IDS).float(), "ranked_ids has the type torch.float32; wanted integers"),
        (IDS > 0, "ranked_ids has the type bool; wanted integers"),
        (torch.from_numpy(IDS > 0), "ranked_ids has the type torch.bool; wanted integers"),
        (np.array([[0, 5], [1, 1]]), "ranked_ids holds 5; wanted class ids from 0 to 4, or -1"),
        (torch.tensor([[0, 5], [1, 1]]), "ranked_ids holds 5; wanted class ids from 0 to 4, or -1"),
        (np.array([[0, -2], [1, 1]]), "ranked_ids holds -2; wanted class ids from 0 to 4, or -1"),
        (IDS[:1], "labels have 2 rows; wanted 1, as many as ranked_ids"),
    ],
)
def test_bad_ranked_ids(ids: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankingMetrics(5).update(ids, [[0], [1, 2]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
def test_any_integer_type_and_memory_order_of_ids(dtype: type) -> None:
    ids = np.array([[3, 1, 2], [0, 2, 1]])
    expected = ndcg_at_k(ids, [[1, 2], [1]], 3)
    assert ndcg_at_k(np.asfortranarray(ids.astype(dtype)), [[1, 2], [1]], 3) == expected
    if dtype is not np.uint64:
        transposed = torch.from_numpy(np.ascontiguousarray(ids.T.astype(dtype))).T
        assert ndcg_at_k(transposed, [[1, 2], [1]], 3) == expected


def test_torch_is_loaded_only_by_those_who_use_it() -> None:
    program = (
        "import sys, numpy as np\n"
        "from owlmine.metrics import RankingMetrics, rank_scores\n"
        "metrics = RankingMetrics(4)\n"
        "metrics.update(rank_scores(np.eye(4), 2), [[0], [1], [2], [3]])\n"
        "assert metrics.compute()['P@1'] == 100.0\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
