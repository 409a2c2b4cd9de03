"""What is refused at the door, and that nothing heavy is loaded behind it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from owlmine.data.rows import SparseRows
from owlmine.metrics import RankingMetrics, precision_at_k, psndcg_at_k, psp_at_k, recall_at_k

IDS = np.array([[0, 1], [2, -1]])
LABELS = [[0], [1, 2]]


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
        RankingMetrics(5).update(ids, LABELS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0], [5]], "labels hold the class 5; wanted ids from 0 to 4"),
        ([[0], [-1]], "labels hold the class -1; wanted ids from 0 to 4"),
        (csr_array(np.ones((2, 7))), "labels hold the class 6; wanted ids from 0 to 4"),
        ([[0], [1.0]], "labels have the type float64; wanted integer class ids"),
        ([[True], [False]], "labels have the type bool; wanted integer class ids"),
        ([["a"], []], "labels have the type <U1; wanted integer class ids"),
        ([0, 1], "labels hold the row 0; wanted a list of class ids"),
        (["01", "2"], "labels hold the row '01'; wanted a list of class ids"),
        (np.zeros((2, 5)), "labels are a ndarray; wanted SparseRows"),
        ("ab", "labels are a str; wanted SparseRows"),
        ([[0]], "labels have 1 rows; wanted 2"),
        (SparseRows(np.array([0, 1, 3]), np.array([1]), None), "labels hold 1 entries; wanted 3"),
    ],
)
def test_bad_labels(labels: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankingMetrics(5).update(IDS, labels)


@pytest.mark.parametrize("k", [0, -3, 2.0, True, "5"])
def test_bad_cut_offs(k: object) -> None:
    with pytest.raises(ValueError, match=r"k is .*; wanted a whole number of at least 1"):
        RankingMetrics(5, ks=(1, k))
    with pytest.raises(ValueError, match=r"k is .*; wanted a whole number of at least 1"):
        precision_at_k(IDS, LABELS, k)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ks": ()}, "ks is empty; wanted at least one cut-off"),
        ({"num_classes": 0}, "num_classes is 0; wanted a whole number of at least 1"),
        ({"num_classes": 5.0}, "num_classes is 5.0; wanted a whole number"),
        ({"inverse_propensities": np.ones(4)}, r"inverse_propensities have the shape \(4,\); wanted \[5\]"),
        ({"inverse_propensities": np.array([1, 1, 0, 1, 1])}, "inverse_propensities hold 0; wanted finite"),
        ({"inverse_propensities": np.array([1, 1, 1, 1, np.nan])}, "inverse_propensities hold nan; wanted"),
        ({"inverse_propensities": np.array(list("abcde"))}, "inverse_propensities have the type <U1; wanted"),
        ({"class_counts": np.ones(6, np.int64)}, r"class_counts have the shape \(6,\); wanted \[5\]"),
        ({"class_counts": np.ones(5)}, "class_counts have the type float64; wanted integers"),
    ],
)
def test_bad_settings(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankingMetrics(**{"num_classes": 5, **options})


def test_plain_functions_have_the_same_doors() -> None:
    with pytest.raises(ValueError, match="ranked_ids has 0 rows; wanted at least one"):
        recall_at_k(np.empty((0, 3), np.int64), [], 1)
    with pytest.raises(ValueError, match="labels hold the class -1"):
        recall_at_k(IDS, [[0], [-1]], 1)
    for metric in (psp_at_k, psndcg_at_k):
        with pytest.raises(ValueError, match="ranked_ids holds 2; wanted class ids from 0 to 1"):
            metric(IDS, LABELS, 1, np.ones(2))


def test_keys_beyond_64_bits() -> None:
    with pytest.raises(ValueError, match=r"rows times .* classes is too many; wanted less than 2\*\*63"):
        recall_at_k(np.array([[2**62], [1], [1]]), [[1], [1], [1]], 1)


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
