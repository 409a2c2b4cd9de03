"""The order of chosen candidates against a stable sort."""

from __future__ import annotations

import pytest
import torch

from owlmine.mining.kernels.best_first import best_first


@pytest.mark.parametrize(("k", "block", "named"), [(1, 4, False), (2, 1, True), (5, 4, True), (33, 8, False)])
def test_equals_a_stable_sort(k: int, block: int, named: bool, device: str) -> None:
    torch.manual_seed(k)
    num_queries, num_blocks = 6, max(3, -(-k // block) + 1)
    scores = torch.randn(num_queries, num_blocks * block).round(decimals=1)  # ties
    scores[0, 0] = -torch.inf
    scores[1, -1] = -0.0
    slots = torch.stack([torch.randperm(scores.shape[1])[:k].sort().values for _ in range(num_queries)])
    blocks = torch.stack([torch.randperm(50)[:num_blocks].sort().values for _ in range(num_queries)])
    names = torch.randperm(1000)[: 50 * block] if named else None
    found_scores, found_ids = best_first(
        scores.to(device),
        slots.int().to(device),
        blocks.int().to(device),
        block=block,
        ids=None if names is None else names.to(device),
    )
    for query in range(num_queries):
        order = sorted(slots[query].tolist(), key=lambda slot: (-float(scores[query, slot]), slot))
        places = [int(blocks[query, slot // block]) * block + slot % block for slot in order]
        ids = places if names is None else names[places].tolist()
        values = scores[query, order]
        wanted = [-1 if value == -torch.inf else name for value, name in zip(values.tolist(), ids, strict=True)]
        assert found_ids[query].tolist() == wanted
        assert torch.equal(found_scores[query].cpu(), values)


def test_slots_that_stand_for_nothing_come_last(device: str) -> None:
    scores = torch.tensor([[-3.0, 2.0]], device=device)
    slots = torch.tensor([[0, 1, -1]], dtype=torch.int32, device=device)
    blocks = torch.tensor([[7]], dtype=torch.int32, device=device)
    found_scores, ids = best_first(scores, slots, blocks, block=2, ids=None)
    assert ids.tolist() == [[15, 14, -1]]
    assert found_scores.tolist() == [[2.0, -3.0, -torch.inf]]
