"""What every draw of pools promises: given its positive, a point's pool is uniform over the B-subsets of the others."""

from __future__ import annotations

from itertools import combinations

from scipy.stats import chisquare


def assert_uniform_without(pools: list[list[int]], positive: int, num_classes: int) -> None:
    """Enumerates the subsets: for few classes."""
    others = [c for c in range(num_classes) if c != positive]
    subsets = dict.fromkeys(combinations(others, len(pools[0])), 0)
    for pool in pools:
        # A pool with the positive or a repeat is no key.
        subsets[tuple(sorted(pool))] += 1
    assert chisquare(list(subsets.values())).pvalue > 1e-4
