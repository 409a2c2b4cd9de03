"""Exclusions in the form that kernels read, against lists."""

from __future__ import annotations

import pytest
import torch

from owlmine.mining.kernels.exclusions import Exclusions


def lists_of(exclusions: Exclusions) -> list[list[int]]:
    """What each query excludes."""
    ids, offsets = exclusions.ids.tolist(), exclusions.offsets.tolist()
    return [[i for i in ids[offsets[row] : offsets[row + 1]] if i >= 0] for row in exclusions.rows_N.tolist()]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_of_padded(dtype: torch.dtype, device: str) -> None:
    made = Exclusions.of_padded(torch.tensor([[3, -1], [-1, -1], [-1, 5], [7, 7]], dtype=dtype, device=device))
    assert lists_of(made) == [[3], [], [5], [7, 7]]
    assert made.ids.dtype == torch.int64
    assert made.most == 2


def test_of_nothing(device: str) -> None:
    made = Exclusions.of_padded(torch.empty(3, 0, dtype=torch.int64, device=device))
    assert lists_of(made) == [[], [], []]
    assert made.most == 0
    made = Exclusions.of_rows(torch.tensor([0], device=device), torch.tensor([], dtype=torch.int64, device=device))
    assert lists_of(made) == []
    assert made.most == 0


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_of_rows(dtype: torch.dtype, device: str) -> None:
    offsets = torch.tensor([0, 2, 2, 5], device=device)
    made = Exclusions.of_rows(offsets, torch.tensor([4, 1, 0, 9, 2], dtype=dtype, device=device))
    assert lists_of(made) == [[4, 1], [], [0, 9, 2]]
    assert made.ids.dtype == torch.int64
    assert made.most == 3


def test_parts_and_rows_of_a_whole_dataset(device: str) -> None:
    offsets = torch.tensor([0, 1, 3, 3, 6], device=device)
    ids = torch.tensor([10, 11, 12, 13, 14, 15], device=device)
    made = Exclusions(torch.tensor([3, 0, 0, 2, 1], device=device), offsets, ids, 3)
    whole = [[13, 14, 15], [10], [10], [], [11, 12]]
    assert lists_of(made) == whole
    for start, stop in ((0, 5), (1, 3), (4, 9), (2, 2)):
        part = made.part(start, stop)
        assert lists_of(part) == whole[start:stop]
        assert part.most == 3
