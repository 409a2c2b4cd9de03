"""Estimates of ``owlmine train`` compared with what it takes.

    python benchmarks/estimates.py DATASET... [--effort fast default most] [--minutes M...] [--data-root FOLDER]
                                   [--option name=value]

Trains each dataset of the study with each effort, and with each number of minutes, in a process of its own. Prints
time, peak memory and the largest size of the folder: estimated, measured, and the ratio of the two. The same figures,
and P@k on validation points, go to benchmarks/results/estimates.json, with the machine and the commit; runs with
--option are printed and not stored. Other work on the machine makes ratios of time meaningless.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import RESULTS, machine, save_result

sys.path.append(str(Path(__file__).parent / "paper"))
from contention import Contention
from dataset import DATASETS, Dataset
from tables import markdown

UNITS = {
    "seconds": (1.0, "s"),
    "memory_bytes": (2**30, "GiB"),
    "gpu_bytes": (2**30, "GiB on the GPU"),
    "disk_bytes": (1e9, "GB"),
}


def measured(store: Path, options: dict[str, str]) -> dict[str, Any]:
    """A run: its estimate, what it took, their ratios, its plan and its figures."""
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    with tempfile.TemporaryDirectory() as folder, Contention() as contention:
        out = Path(folder) / "model"
        command = [sys.executable, "-m", "owlmine", "train", str(store), "--out", str(out), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        run, config = (json.loads((out / name).read_text("utf-8")) for name in ("run.json", "config.json"))
    estimate, costs = run["estimate"], run["costs"]
    return {
        "estimate": estimate,
        "costs": costs,
        "ratios": {name: round(estimate[name] / costs[name], 3) for name in UNITS if costs[name] and estimate[name]},
        "heads": run["plan"]["heads"],
        "dim": run["plan"]["model"]["dim"],
        "epochs": run["plan"]["model"]["epochs"],
        "validation": config["record"]["figures"],
        **contention.record,
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """A row for each quantity of each run."""
    rows = []
    for name, result in results.items():
        plan = f"{result['heads']} × {result['dim']}, {result['epochs']:g} epochs"
        for unit, ratio in result["ratios"].items():
            size, word = UNITS[unit]
            estimate, cost = (f"{result[part][unit] / size:.3g} {word}" for part in ("estimate", "costs"))
            rows.append((name, plan, estimate, cost, f"{ratio:.2f}"))
    return markdown(("run", "models", "estimated", "measured", "ratio"), rows, left=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", choices=DATASETS, metavar="DATASET")
    parser.add_argument("--effort", nargs="*", default=[], choices=("fast", "default", "most"))
    parser.add_argument("--minutes", nargs="*", default=[], type=float)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--option", action="append", default=[], metavar="name=value")
    arguments = parser.parse_args()
    efforts = [{"effort": effort} for effort in arguments.effort or ([] if arguments.minutes else ["default"])]
    more = dict(option.split("=", 1) for option in arguments.option)
    stored, results = RESULTS / "estimates.json", {}
    for name in arguments.datasets:
        store = Dataset.named(name).open(arguments.data_root).path
        for options in (*efforts, *({"minutes": f"{minutes:g}"} for minutes in arguments.minutes)):
            title = f"{name} {' '.join(f'{option} {value}' for option, value in options.items())}"
            results[title] = measured(store, options | more)
            print(f"{title}: {results[title]['ratios']}", flush=True)
            if not more:
                found = json.loads(stored.read_text()) if stored.exists() else {}
                save_result("estimates", found | {title: results[title] | {"machine": machine()}})
    print(table(results))


if __name__ == "__main__":
    main()
