"""Scores of chosen blocks against loops over float64 scores.

Shapes: N queries, K classes, D dimension, T chosen blocks of G classes.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from owlmine.mining.kernels.exclusions import Exclusions
from owlmine.mining.kernels.rescore import rescore
from tests.kernels.conftest import Fenced

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def scores_by_loop(
    blocks: list[int], scores: list[float], names: list[int], excluded: list[int], block: int
) -> list[float]:
    """What one query gets: its blocks one after the other."""
    slots = []
    for number in blocks:
        for place in range(number * block, (number + 1) * block):
            allowed = number >= 0 and place < len(scores) and names[place] not in excluded
            slots.append(scores[place] if allowed else -torch.inf)
    return slots


def some_blocks(num_queries: int, num_classes: int, block: int, chosen: int) -> Tensor:
    """Ascending distinct blocks, with the last one among them, filled up with -1; the first query has none."""
    num_blocks = -(-num_classes // block)
    generator = torch.Generator().manual_seed(chosen)
    blocks = torch.full((num_queries, chosen), -1, dtype=torch.int32)
    for query in range(1, num_queries):
        others = torch.randperm(num_blocks - 1, generator=generator)[: chosen - 1]
        blocks[query, : len(others)] = others.sort().values
        blocks[query, len(others)] = num_blocks - 1
    return blocks


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("num_classes", "dim", "block", "chosen"),
    [(1, 1, 8, 1), (37, 5, 8, 3), (150, 72, 128, 2), (21, 200, 4, 20)],
)
@pytest.mark.parametrize("of_pool", [False, True])
def test_against_a_loop(
    num_classes: int, dim: int, block: int, chosen: int, dtype: torch.dtype, of_pool: bool, fenced: Fenced
) -> None:
    generator = torch.Generator().manual_seed(num_classes)
    queries = torch.randn(3, dim, generator=generator).to(dtype)
    classes = torch.randn(num_classes, dim, generator=generator).to(dtype)
    blocks = some_blocks(3, num_classes, block, chosen)
    ids = torch.randperm(2 * num_classes, generator=generator)[:num_classes] if of_pool else None
    names = list(range(num_classes)) if ids is None else ids.tolist()
    lists = [[], [names[-1], names[num_classes // 2], -1, 2 * num_classes], names]
    offsets = torch.tensor([0, 0, 4, 4 + num_classes])
    excluded_ids = torch.tensor([i for excluded in lists for i in excluded])
    truth_NK = queries.double() @ classes.double().T
    # D additions of products in float32, in any order.
    slack = float((queries.double().abs() @ classes.double().abs().T).max()) * (dim + 2) * 2.0**-24
    for rows in (None, [1, 2, 1]):
        exclude = None
        if rows is not None:
            exclude = Exclusions(fenced(torch.tensor(rows)), fenced(offsets), fenced(excluded_ids), num_classes)
        got = rescore(
            fenced(blocks),
            fenced(queries),
            fenced(classes),
            block=block,
            ids=None if ids is None else fenced(ids),
            exclude=exclude,
        )
        assert got.dtype == torch.float32
        assert got.shape == (3, chosen * block)
        expected = [
            scores_by_loop(
                blocks[n].tolist(), truth_NK[n].tolist(), names, [] if rows is None else lists[rows[n]], block
            )
            for n in range(3)
        ]
        assert torch.allclose(got.cpu().double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=slack)


@pytest.mark.parametrize(("num_classes", "block", "chosen"), [(1, 8, 1), (130, 8, 9), (300, 128, 3)])
def test_kept_scores_are_handed_on(num_classes: int, block: int, chosen: int, fenced: Fenced) -> None:
    generator = torch.Generator().manual_seed(num_classes)
    known = torch.randn(4, num_classes, generator=generator)
    blocks = some_blocks(4, num_classes, block, chosen)
    excluded = torch.randint(-1, num_classes, (4, 5), generator=generator)
    made = Exclusions.of_padded(excluded)
    got = rescore(
        fenced(blocks),
        fenced(torch.full((4, 8), torch.nan)),
        fenced(torch.full((num_classes, 8), torch.nan)),
        block=block,
        ids=None,
        exclude=Exclusions(fenced(made.rows_N), fenced(made.offsets), fenced(made.ids), made.most),
        known_NK=fenced(known),
    )
    for query in range(4):
        names = list(range(num_classes))
        forbidden = excluded[query].tolist()
        expected = scores_by_loop(blocks[query].tolist(), known[query].tolist(), names, forbidden, block)
        assert got[query].tolist() == expected


def test_classes_past_32_bits(long_table: Tensor) -> None:
    queries = torch.ones(1, 2048, dtype=torch.bfloat16, device=long_table.device)
    blocks = torch.tensor([[0, (len(long_table) - 1) // 16]], dtype=torch.int32, device=long_table.device)
    scores = rescore(blocks, queries, long_table, block=16, ids=None, exclude=None)[0].tolist()
    place = 16 + (len(long_table) - 1) % 16
    assert scores[place] == 256.0
    assert set(scores[:place]) == {0.0}
