"""Medians on a GPU, and the table they end in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from triton.testing import do_bench


class Table:
    """Rows of measurements, printed as they come and once more at the end."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def milliseconds(self, work: Callable[[], object]) -> float:
        """Median, between events on the device, with the cache cleared before each run."""
        return float(do_bench(work, warmup=25, rep=100, return_mode="median"))

    def add(
        self,
        name: str,
        ours: float,
        *,
        plain: float | None = None,
        limit: float | None = None,
        tflop: float | None = None,
        gigabytes: float | None = None,
    ) -> None:
        """``tflop`` and ``gigabytes``: what the work cannot do without."""
        row: dict[str, Any] = {"name": name, "ms": ours}
        if plain is not None:
            row |= {"plain_ms": plain, "times_faster": plain / ours}
        if limit is not None:
            row |= {"limit_ms": limit, "met": ours <= limit}
        if tflop is not None:
            row["tflops"] = tflop / ours * 1000
        if gigabytes is not None:
            row["gb_per_s"] = gigabytes / ours * 1000
        self.rows.append(row)
        print(_line(row), flush=True)

    def text(self) -> str:
        head = f"{'':44s} {'ms':>9s} {'plain':>9s} {'times':>6s} {'limit':>8s} {'':5s} {'TFLOP/s':>8s} {'GB/s':>7s}"
        return "\n".join(["", head, *map(_line, self.rows), *self.notes])


def _line(row: dict[str, Any]) -> str:
    def number(key: str, width: int, digits: int) -> str:
        return f"{row[key]:{width}.{digits}f}" if key in row else " " * width

    verdict = "" if "met" not in row else "met" if row["met"] else "MISS"
    return (
        f"{row['name']:44s} {row['ms']:9.3f} {number('plain_ms', 9, 3)} {number('times_faster', 6, 1)}"
        f" {number('limit_ms', 8, 2)} {verdict:5s} {number('tflops', 8, 0)} {number('gb_per_s', 7, 0)}"
    )


def recorded(work: Callable[[], object]) -> Callable[[], None]:
    """``work`` as a CUDA graph, as steps of training are: launched one by one, small kernels are charged with the
    host's time to start them."""
    work()  # Compiles, which must not happen while a graph is recorded.
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay
