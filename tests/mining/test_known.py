"""Masks for known positives, against membership in Python sets."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.losses import mined_loss_from_matrix, negative_sampling
from owlmine.mining import draw_batch_pool, draw_pools, known_in_batch_pool, known_in_pools


def padded(known: list[list[int]]) -> torch.Tensor:
    most = max(len(row) for row in known)
    return torch.tensor([row + [-1] * (most - len(row)) for row in known]).reshape(len(known), most)


def compressed(known: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    counts = torch.tensor([0] + [len(row) for row in known])
    return counts.cumsum(0), torch.tensor([c for row in known for c in row], dtype=torch.int64)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), form=st.sampled_from([padded, compressed]))
def test_masks_against_sets(data, form):
    num_classes = data.draw(st.integers(2, 20))
    labels = st.lists(st.integers(0, num_classes - 1), max_size=5)
    known = data.draw(st.lists(labels, min_size=3, max_size=3))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6)))
    positives = torch.randint(num_classes, (3,), generator=generator)
    pool_size = data.draw(st.integers(1, num_classes - 1))
    options = {"num_classes": num_classes, "pool_size": pool_size, "generator": generator}

    ids = draw_pools(positives, **options)
    mask = known_in_pools(ids, form(known), num_classes=num_classes)
    assert mask.tolist() == [[c in known[n] for c in row] for n, row in enumerate(ids.tolist())]

    pool = draw_batch_pool(positives, **options)
    mask = known_in_batch_pool(pool, form(known))
    dropped = pool.dropped.tolist()
    assert mask.tolist() == [
        [c in known[n] or place == dropped[n] for place, c in enumerate(pool.shared_ids.tolist())] for n in range(3)
    ]


def test_negative_sampling_stays_unbiased_without_the_known_positives():
    num_classes, pool_size, y, known = 6, 2, 0, [3]
    weights = negative_sampling(pool_size=pool_size, convention="paper", num_classes=num_classes, k=1)
    scores = torch.tensor([[0.5, 0.1, 0.9, 2.0, -0.4, 0.3]], dtype=torch.float64)
    pools = torch.combinations(torch.tensor([c for c in range(num_classes) if c != y]), pool_size)
    count = len(pools)
    mask = known_in_pools(pools, torch.tensor([known] * count), num_classes=num_classes)
    mean = mined_loss_from_matrix(
        scores.expand(count, -1), torch.full((count,), y), pools, mask, weights=weights, kind="powl"
    )
    others = scores[0, [1, 2, 4, 5]]
    torch.testing.assert_close(mean, torch.relu(1 - scores[0, y] + others).sum())


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (torch.tensor([[0]]), r"given shape \(1, 1\); wanted \[2, most per point\]"),
        (torch.tensor([[0], [9]]), "class ids from 0 to 9; wanted -1 to 4"),
        (torch.tensor([[0], [-2]]), "class ids from -2"),
        ((torch.tensor([0, 1]), torch.tensor([0])), r"wanted \[3\] and a vector"),
        ((torch.tensor([0, 1, 3]), torch.tensor([0])), "offsets from 0 to 3; wanted a rise from 0 to 1"),
        ((torch.tensor([0, 2, 1]), torch.tensor([0])), "wanted a rise"),
    ],
)
def test_refused(known, message):
    with pytest.raises(ValueError, match=message):
        known_in_pools(torch.tensor([[1, 2], [3, 4]]), known, num_classes=5)


def test_pools_must_be_rows():
    with pytest.raises(ValueError, match=r"wanted \[points, pool\]"):
        known_in_pools(torch.tensor([1, 2]), torch.tensor([[0]]), num_classes=5)
