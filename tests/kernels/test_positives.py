"""Labels drawn on the device: always a label of the point, each as often as its weight says."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare

from owlmine.mining.kernels.bags import DeviceRows
from owlmine.mining.kernels.positives import draw_positives


@pytest.mark.parametrize("weighted", [False, True])
def test_frequencies(weighted: bool, device: str) -> None:
    offsets, ids = torch.tensor([0, 1, 4, 9]), torch.tensor([7, 1, 2, 3, 10, 11, 12, 13, 14], dtype=torch.int32)
    weights = torch.tensor([1.0, 1, 2, 3, 0, 1, 1, 1, 5])
    labels = DeviceRows(offsets.to(device), ids.to(device), weights.to(device) if weighted else None)
    points = torch.tensor([0, 1, 2] * 300)
    drawn = [draw_positives(labels, points.to(device), torch.tensor([key], device=device)).cpu() for key in range(4)]
    for point in range(3):
        first, end = int(offsets[point]), int(offsets[point + 1])
        found = torch.cat([row[points == point] for row in drawn])
        counts = torch.tensor([int((found == label).sum()) for label in ids[first:end]])
        assert int(counts.sum()) == len(found), "every draw is a label of its point"
        share = weights[first:end] if weighted else torch.ones(end - first)
        expected = share / share.sum() * len(found)
        assert bool((counts[share == 0] == 0).all())
        if end - first > 1:
            assert chisquare(counts[share > 0].numpy(), expected[share > 0].numpy()).pvalue > 1e-4
    assert not torch.equal(drawn[0], drawn[1]), "another key draws others"
