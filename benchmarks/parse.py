"""How fast sparse text is parsed, against scikit-learn's load_svmlight_file on the same bytes in memory.

    python benchmarks/parse.py                    made-up data: counts, and values of six digits
    python benchmarks/parse.py train.txt.xz       the same, and the first --mb of a file (.xz or plain)

One thread each. Repetitions are interleaved, so that a slow spell of the machine meets every reader alike.
"""

from __future__ import annotations

import argparse
import io
import lzma
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, save_result
from sklearn.datasets import load_svmlight_file

from owlmine.data.sparse_text import Grammar, ParsedBlock, compiled_module, parse_block

BLOCK_BYTES = 4 << 20
Reader = Callable[[bytes], tuple[int, int, float]]


def made_up(num_bytes: int, *, with_reals: bool, generator: np.random.Generator) -> bytes:
    """Rows of about 3 labels and 35 features, ids up to 77,744; whole lines, at least ``num_bytes``."""
    lines: list[str] = []
    size = 0
    while size < num_bytes:
        num_features = 1 + generator.poisson(34)
        feature_ids = np.unique(generator.integers(0, 77_744, num_features)).tolist()
        labels = ",".join(map(str, np.unique(generator.integers(0, 559_838, 1 + generator.poisson(2))).tolist()))
        if with_reals:
            values = [f"{value:.6f}" for value in generator.random(len(feature_ids))]
        else:
            values = [str(count) for count in generator.geometric(0.6, len(feature_ids))]
        pairs = " ".join(f"{i}:{value}" for i, value in zip(feature_ids, values, strict=True))
        lines.append(f"{labels} {pairs}\n")
        size += len(lines[-1])
    return "".join(lines).encode()


def from_file(path: Path, num_bytes: int) -> bytes:
    """Whole lines from the start, about ``num_bytes``, without the header of the repository's old format."""
    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
        first = file.readline()
        is_header = len(first.split()) == 3 and b":" not in first and b"," not in first
        data = (b"" if is_header else first) + file.read(num_bytes)
    return data[: data.rfind(b"\n") + 1]


def ours(engine: str) -> Reader:
    def read(data: bytes) -> tuple[int, int, float]:
        blocks: list[ParsedBlock] = []
        start = 0
        while start < len(data):
            end = data.find(b"\n", start + BLOCK_BYTES) + 1 or len(data)
            blocks.append(
                parse_block(
                    data[start:end],
                    grammar=Grammar.LABELLED,
                    num_features=None,
                    num_classes=None,
                    path="benchmark",
                    first_line=1,
                    engine=engine,
                )
            )
            start = end
        features = [block.features for block in blocks]
        total = sum(float(part.values.sum(dtype=np.float64)) for part in features if part.values is not None)
        return sum(map(len, features)), sum(len(part.indices) for part in features), round(total, 3)

    return read


def scikit_learn(data: bytes) -> tuple[int, int, float]:
    features, _ = load_svmlight_file(io.BytesIO(data), dtype=np.float32, multilabel=True, zero_based=True)
    return features.shape[0], features.nnz, round(float(features.data.sum(dtype=np.float64)), 3)


def measure(data: bytes, readers: dict[str, Reader], repeats: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    checks: dict[str, tuple[int, int, float]] = {}
    for _ in range(repeats):
        for name, read in readers.items():
            start = time.perf_counter()
            checks[name] = read(data)
            seconds[name].append(time.perf_counter() - start)
    # Rows, entries and the sum of the values: everybody read the same.
    assert len(set(checks.values())) == 1, checks
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "mb": len(data) / 1e6,
        "rows": checks["scikit-learn"][0],
        "entries": checks["scikit-learn"][1],
        "mb_per_s": {name: len(data) / 1e6 / median for name, median in medians.items()},
        "times_scikit_learn": {name: medians["scikit-learn"] / median for name, median in medians.items()},
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, help="also a file of the labelled format (.xz or plain)")
    parser.add_argument("--mb", type=float, default=16, help="megabytes of text per workload")
    parser.add_argument("--repeats", type=int, default=5, help="timed passes of each reader")
    options = parser.parse_args()

    num_bytes = int(options.mb * 1e6)
    generator = np.random.default_rng(0)
    workloads = {
        "counts": made_up(num_bytes, with_reals=False, generator=generator),
        "reals": made_up(num_bytes, with_reals=True, generator=generator),
    }
    if options.file is not None:
        workloads[f"file {options.file.name}"] = from_file(options.file, num_bytes)
    readers: dict[str, Reader] = {"scikit-learn": scikit_learn, "numpy": ours("numpy")}
    if compiled_module() is not None:
        readers["compiled"] = ours("compiled")
    results = {}
    for name, data in workloads.items():
        results[name] = measure(data, readers, options.repeats)
        for reader in readers:
            speed, ratio = results[name]["mb_per_s"][reader], results[name]["times_scikit_learn"][reader]
            print(f"{speed:8.1f} MB/s  {ratio:6.1f} x scikit-learn  {reader:12}  {name}")
    save_result("parse", {"workloads": results, "repeats": options.repeats, "machine": machine()})


if __name__ == "__main__":
    main()
