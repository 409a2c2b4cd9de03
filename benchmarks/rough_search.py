"""Claim: on a CPU with int8 products, the 100 best classes of training points are found in less than four fifths of the
time of float32.

    python benchmarks/rough_search.py

Sizes are those of debian-depends (21,077 classes, three models of 128 dimensions) and of tibkat-gnd (35,116, one). Both
ways are timed in turn in one run. The raw times go to benchmarks/results/rough_search.json with the machine and the
commit. Exit status 1 if the claim fails, or there are no products of bytes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch
from machine import machine, save_result
from torch import Tensor

from owlmine.index import ExactIndex
from owlmine.mining import hardest
from owlmine.mining.int8 import cpu_multiplies_int8

NUM_POINTS, KEPT, REPEATS, LIMIT = 4096, 100, 7, 1.25
SHAPES = {"debian-depends": (21_077, 384), "tibkat-gnd": (35_116, 128)}


def drawn(num_rows: int, dim: int) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(num_rows, dim), dim=1)


def times_s(num_classes: int, dim: int) -> dict[str, list[float]]:
    """Wall times of both ways, in turn so that a busy moment of the machine falls on both."""
    queries_ND, table_KD = drawn(NUM_POINTS, dim), drawn(num_classes, dim)
    index = ExactIndex(table_KD)
    ways = {"float32": lambda: hardest(queries_ND, table_KD, KEPT), "bytes": lambda: index.rough(queries_ND, KEPT)}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(REPEATS + 1):
        for way, search in ways.items():
            start = time.perf_counter()
            search()
            # The first round warms up.
            if repeat:
                times[way].append(round(time.perf_counter() - start, 4))
    return times


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if not cpu_multiplies_int8():
        print("this CPU has no products of bytes in 32 bits: lists are found in float32")
        return 1
    torch.manual_seed(0)
    results, holds = {}, True
    for name, (num_classes, dim) in SHAPES.items():
        times = times_s(num_classes, dim)
        plain, rough = (statistics.median(times[way]) for way in ("float32", "bytes"))
        holds &= plain / rough > LIMIT
        results[name] = {"median_s": [plain, rough], "ratio": plain / rough, "times_s": times}
        print(f"{name}: {plain:.3f} s in float32, {rough:.3f} s in bytes: x {plain / rough:.2f}")
    record = {
        "claim": f"the {KEPT} best classes of {NUM_POINTS} points, float32 over bytes: above {LIMIT}",
        "holds": holds,
        "results": results,
        "threads": torch.get_num_threads(),
        "machine": machine(),
    }
    save_result("rough_search", record)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
