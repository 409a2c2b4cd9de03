"""Claim: drawing a pool of 32,768 classes takes the same time from 10 million classes as from 200 thousand.

    python benchmarks/pool_draw.py

Both are timed in turn in one run; the ratio of the medians must stay below 1.5 either way. The raw times go to
benchmarks/results/pool_draw.json with the machine and the commit. Exit status 1 if the claim fails.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from machine import machine, save_result

from owlmine.mining import draw_batch_pool, draw_pools
from owlmine.mining.distinct import num_draws

POOL_SIZE, NUM_POINTS, REPEATS, LIMIT = 32_768, 64, 41, 1.5
CLASSES = (200_000, 10_000_000)


def batch_pool(num_classes: int, generator: torch.Generator) -> None:
    positives = torch.arange(NUM_POINTS)
    draw_batch_pool(positives, num_classes=num_classes, pool_size=POOL_SIZE, generator=generator)


def batch_pool_fixed(num_classes: int, generator: torch.Generator) -> None:
    options = {"num_classes": num_classes, "pool_size": POOL_SIZE}
    draw_batch_pool(torch.arange(NUM_POINTS), fixed_shapes=True, generator=generator, **options)


def own_pools(num_classes: int, generator: torch.Generator) -> None:
    draw_pools(torch.arange(4), num_classes=num_classes, pool_size=POOL_SIZE, generator=generator)


def times_ms(draw: Callable[[int, torch.Generator], None]) -> dict[int, list[float]]:
    """Wall times of each size, measured in turn so that a busy moment of the machine falls on both."""
    generator = torch.Generator().manual_seed(0)
    times: dict[int, list[float]] = {num_classes: [] for num_classes in CLASSES}
    for repeat in range(REPEATS + 3):
        for num_classes in CLASSES:
            start = time.perf_counter()
            draw(num_classes, generator)
            # The first rounds warm up the allocator and the table of needed draws.
            if repeat >= 3:
                times[num_classes].append(round(1e3 * (time.perf_counter() - start), 3))
    return times


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    # One thread: on a machine with other work, waiting for a second one would be what is measured.
    torch.set_num_threads(1)
    forms = {"batch": batch_pool, "batch_fixed_shapes": batch_pool_fixed, "own_4_points": own_pools}
    results, holds = {}, True
    for name, draw in forms.items():
        times = times_ms(draw)
        small, large = (statistics.median(times[num_classes]) for num_classes in CLASSES)
        ratio = large / small
        holds &= 1 / LIMIT < ratio < LIMIT
        results[name] = {"median_ms": [small, large], "ratio": ratio, "times_ms": list(times.values())}
        print(f"{name}: {small:.2f} ms from {CLASSES[0]:,}, {large:.2f} ms from {CLASSES[1]:,}: x {ratio:.2f}")
    record = {
        "claim": f"pool of {POOL_SIZE} from {CLASSES[1]} classes over {CLASSES[0]}: ratio below {LIMIT}",
        "holds": holds,
        "classes": CLASSES,
        "draws": [num_draws(POOL_SIZE + 1, num_classes=num_classes) for num_classes in CLASSES],
        "results": results,
        "threads": torch.get_num_threads(),
        "machine": machine(),
    }
    save_result("pool_draw", record)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
