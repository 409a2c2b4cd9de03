"""Which places of a list hit: repeats, empty places, ids of any size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from owlmine.metrics import ndcg_at_k, precision_at_k, recall_at_k


def test_a_repeat_hits_once_and_keeps_its_place() -> None:
    ids = np.array([[4, 4, 7, 7]])
    assert precision_at_k(ids, [[4, 7]], 2) == 1 / 2
    assert recall_at_k(ids, [[4, 7]], 3) == 1.0
    # 7 stands at rank 3, not at the rank 2 it would have without the repeat.
    assert ndcg_at_k(ids, [[4, 7]], 4) == pytest.approx((1 + 1 / 2) / (1 + 1 / np.log2(3)), abs=1e-15)


def test_an_empty_place_is_not_the_last_class_of_the_row_before() -> None:
    assert precision_at_k(np.array([[0], [-1]]), [[0, 1], []], 1) == 1 / 2
    assert precision_at_k(np.array([[-1], [-1]]), [[1], [1]], 1) == 0.0
    assert precision_at_k(np.array([[-1, 1]]), [[1]], 2) == 1 / 2


def test_lists_without_places_score_zero() -> None:
    assert recall_at_k(np.empty((3, 0), np.int64), [[1], [2], []], 4) == 0.0
    assert recall_at_k(torch.empty((3, 0), dtype=torch.long), [[1], [2], []], 4) == 0.0


def test_ids_may_be_large_where_no_number_of_classes_is_given() -> None:
    big = 2**40
    assert recall_at_k(np.array([[big, 5], [7, big]]), [[big], [big + 1]], 2) == 1 / 2


def test_keys_beyond_64_bits() -> None:
    with pytest.raises(ValueError, match=r"rows times .* classes is too many; wanted less than 2\*\*63"):
        recall_at_k(np.array([[2**62], [1], [1]]), [[1], [1], [1]], 1)
