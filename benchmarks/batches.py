"""Random batches out of a store: points per second, and whether memory stays flat.

    python benchmarks/batches.py STORE_OR_DATA [--batches 1000] [--size 1024]

Memory has two parts: what the process itself holds (anonymous), and pages of the mapped files that the kernel caches
and can take back at any time (file).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from machine import machine, save_result

from owlmine.data import open_dataset
from owlmine.data.store import Split


def resident_mib() -> dict[str, float]:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {part: int(lines[key].split()[0]) / 1024 for part, key in (("anonymous", "RssAnon"), ("file", "RssFile"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--batches", type=int, default=1000, help="batches to read")
    parser.add_argument("--size", type=int, default=1024, help="points of a batch")
    arguments = parser.parse_args()

    began = time.perf_counter()
    train = open_dataset(arguments.data)["train"]
    opened = time.perf_counter() - began
    random = np.random.default_rng(0)
    chosen = [random.integers(0, len(train), arguments.size) for _ in range(arguments.batches)]
    cold_mib, (cold, entries) = resident_mib(), read(train, chosen)
    first_mib, (warm, _) = resident_mib(), read(train, chosen)
    last_mib = resident_mib()

    result = {
        "points_per_second_first_pass": arguments.batches * arguments.size / cold,
        "points_per_second_second_pass": arguments.batches * arguments.size / warm,
        "entries_per_point": entries / (arguments.batches * arguments.size),
        "open_seconds": opened,
        "resident_mib": {"opened": cold_mib, "after first pass": first_mib, "after second pass": last_mib},
        "data": {"points": len(train), "batches": arguments.batches, "size": arguments.size},
        "machine": machine(),
    }
    print(json.dumps(result, indent=1))
    save_result("batches", result)


def read(split: Split, chosen: list[np.ndarray]) -> tuple[float, int]:
    """Seconds for all batches, and how many feature entries they held."""
    entries, began = 0, time.perf_counter()
    for rows in chosen:
        entries += len(split.batch(rows).queries.indices)
    return time.perf_counter() - began, entries


if __name__ == "__main__":
    main()
