"""Gathering a pool's class rows before the product, as we do, compared with reading them by id inside the product.

    PYTHONPATH=src python benchmarks/gather_inside.py

Both ways from a table in float32 and from one in bfloat16; the way inside with the best of a few tilings. Each result
is compared with plain PyTorch first. Times are of CUDA graphs, as in training steps: launched one by one, two kernels
would also be charged the host's time for two launches. Writes results/gather_inside.json.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from machine import machine, save_result
from torch import Tensor
from torch.nn import functional

NUM_CLASSES = (670_091, 2_812_281)
NUM_QUERIES = (1024, 128)
POOL, DIM, BLOCK = 32_768, 512, 32
# Sums of 512 products of unit vectors in float32, in any order.
ERROR = 1e-5


def unit_table(count: int, dtype: torch.dtype) -> Tensor:
    """Random unit rows, made in blocks."""
    rows = torch.empty(count, DIM, dtype=dtype, device="cuda")
    for start in range(0, count, 1 << 18):
        block = torch.randn(min(1 << 18, count - start), DIM, device="cuda")
        rows[start : start + len(block)] = functional.normalize(block, dim=1)
    return rows


def plain_maxima(queries: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    rows = table[ids].bfloat16()
    scores = torch.cat([part.double() @ rows.double().T for part in queries.split(128)])
    return scores.view(len(queries), -1, BLOCK).amax(dim=2)


def compare(table: Tensor, num_queries: int, rows: list[dict[str, Any]]) -> None:
    from gpu_gather import TILINGS, gathered_maxima
    from gpu_table import Table, recorded

    from owlmine.mining.kernels.block_maxima import block_maxima
    from owlmine.mining.kernels.pool_rows import gather_rows

    queries = unit_table(num_queries, torch.bfloat16)
    ids = torch.randperm(len(table), device="cuda")[:POOL]
    truth, timer = plain_maxima(queries, table, ids), Table()

    def before() -> Tensor:
        return block_maxima(queries, gather_rows(table, ids, dtype=torch.bfloat16), block=BLOCK).maxima_NM

    ways = {"gathered before": before} | {
        f"inside, {t.tile_n} x {t.tile_w}, {t.num_warps} warps": lambda t=t: gathered_maxima(
            queries, table, ids, block=BLOCK, tiling=t
        )
        for t in TILINGS
    }
    for name, work in ways.items():
        error = float((work().double() - truth).abs().max())
        assert error <= ERROR, f"{name}: off by {error}"
        row = {
            "way": name,
            "classes": len(table),
            "table": str(table.dtype).removeprefix("torch."),
            "queries": num_queries,
            "ms": timer.milliseconds(recorded(work)),
        }
        rows.append(row)
        print(_line(row), flush=True)


def _line(row: dict[str, Any]) -> str:
    return f"{row['classes']:>9,} {row['table']:9s} {row['queries']:>6,}  {row['way']:30s} {row['ms']:8.4f} ms"


def _verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """For every table and batch: the way before, and the best way inside."""
    lines = []
    for settings in dict.fromkeys((row["classes"], row["table"], row["queries"]) for row in rows):
        own = [row for row in rows if (row["classes"], row["table"], row["queries"]) == settings]
        best = min(own[1:], key=lambda row: row["ms"])
        lines += [_line(own[0]), f"{_line(best)}  {own[0]['ms'] / best['ms']:.2f} times as fast"]
    return lines


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if not torch.cuda.is_available():
        print("gather_inside: no CUDA device here; this benchmark compares kernels on a GPU", file=sys.stderr)
        return 1
    rows: list[dict[str, Any]] = []
    for num_classes in NUM_CLASSES:
        for dtype in (torch.float32, torch.bfloat16):
            table = unit_table(num_classes, dtype)
            for num_queries in NUM_QUERIES:
                compare(table, num_queries, rows)
            del table
    print(f"\n{'classes':>9s} {'table':9s} {'N':>6s}  way", *_verdicts(rows), sep="\n")
    result = {"device": torch.cuda.get_device_name(), "rows": rows, "machine": machine()}
    print("raw results in", save_result("gather_inside", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
