"""Peak memory of training against the bytes of the parameters.

    python benchmarks/train_memory.py [--classes 1000000] [--features 100000] [--dim 512] [--points 10000]

Data are drawn into a store, then processes of their own train on it: one makes a warm start and half an epoch, and
stops with a checkpoint; the next resumes that, validates and writes the model. The figure is VmHWM (the most that was
ever resident, mapped files included) less that of a process which has only imported torch and owlmine. Needs disk for
two copies of the parameters in ``--folder`` (default: where temporary files go); all is removed in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import machine, save_result

LIMIT = 1.25


def peak_bytes() -> int:
    """The most memory that this process has ever had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM: this needs Linux")


def child(task: str, folder: Path, arguments: argparse.Namespace) -> None:
    """One measured process: imports alone, a run that stops by itself half way, or that run resumed."""
    import signal

    from owlmine.data import Store
    from owlmine.dense.step import TrainingStep
    from owlmine.recipe.options import TrainOptions
    from owlmine.run import Stopped, train

    began, imported = time.perf_counter(), peak_bytes()
    if task != "imports":
        options = TrainOptions.of(
            recipe="single", loss="bowl", dim=arguments.dim, epochs=1.0, batch_size=256, pool=4096, device="cpu"
        )
        store = Store.open(folder / "store")
        if task == "train":
            step = TrainingStep.__call__

            def stops_half_way(self: Any, batch: Any, *, number: int, progress: float) -> Any:
                if progress >= 0.5:
                    signal.raise_signal(signal.SIGTERM)
                return step(self, batch, number=number, progress=progress)

            TrainingStep.__call__ = stops_half_way  # type: ignore[method-assign]
        try:
            train(store, folder / "model", options, resume=task == "resume")
        except Stopped:
            assert task == "train"
    measures = {"peak": peak_bytes(), "imported": imported, "seconds": time.perf_counter() - began}
    print(json.dumps(measures))


def measured(task: str, folder: Path, given: list[str]) -> dict[str, Any]:
    command = [sys.executable, __file__, *given, "--task", task, "--folder", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    measures: dict[str, Any] = json.loads(done.stdout)
    return measures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="for temporary files")
    parser.add_argument("--task", choices=["imports", "train", "resume"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        child(arguments.task, arguments.folder, arguments)
        return
    from owlmine.data import SyntheticOptions, synthesize
    from owlmine.dense.retriever import ModelShape

    given = [f"--{name}={getattr(arguments, name)}" for name in ("classes", "features", "dim", "points")]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as made:
        folder = Path(made)
        noise = 1000
        synthesize(
            folder / "store",
            SyntheticOptions(
                num_classes=arguments.classes,
                train_points=arguments.points,
                test_points=1,
                num_topics=(arguments.features - noise) // 3,
                noise_vocabulary=noise + (arguments.features - noise) % 3,
                labels_per_point=5,
            ),
        )
        shape = ModelShape(arguments.features, arguments.classes, dim=arguments.dim)
        parameters = 4 * shape.num_parameters
        processes = {task: measured(task, folder, given) for task in ("imports", "train", "resume")}
    ratios = {
        task: (processes[task]["peak"] - processes["imports"]["peak"]) / parameters for task in ("train", "resume")
    }
    result = {
        "peak_over_parameters": ratios,
        "limit": LIMIT,
        "parameter_mib": parameters / 2**20,
        "peak_mib": {task: measures["peak"] / 2**20 for task, measures in processes.items()},
        "seconds": {task: measures["seconds"] for task, measures in processes.items()},
        "options": {name: getattr(arguments, name) for name in ("classes", "features", "dim", "points")},
        "machine": machine(),
    }
    print(json.dumps(result, indent=1))
    save_result("train_memory", result)
    if max(ratios.values()) > LIMIT:
        sys.exit(f"more than {LIMIT} times the parameters")


if __name__ == "__main__":
    main()
