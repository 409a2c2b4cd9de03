"""Result files of the study: one JSON per run, whole or not there, with all that says whether two may be compared.

benchmarks/results/paper/table1/DATASET.json               sizes and checksums of the matrices
benchmarks/results/paper/table3/DATASET-TOOL-DEVICE.json   one run of one tool
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from machine import RESULTS, machine

from owlmine.data.describe import describe
from owlmine.data.store import Store
from owlmine.files import write_text

# Elsewhere for those who repeat the study.
PAPER = Path(os.environ.get("OWLMINE_STUDY_RESULTS") or RESULTS / "paper")
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
Result = dict[str, Any]

# What makes a run the same run: with these equal it is not made again.
IDENTITY = ("dataset", "tool", "device", "matrices", "versions", "options")
TABLE1_NAMES = ("train_points", "test_points", "features", "classes", "points_per_class", "classes_per_point")


def result_file(identity: Result, folder: Path = PAPER) -> Path:
    return folder / "table3" / f"{identity['dataset']}-{identity['tool']}-{identity['device']}.json"


def found_before(identity: Result, folder: Path = PAPER) -> Result | None:
    """The stored result of the same run; None where there is none, or one of another run."""
    assert set(identity) == set(IDENTITY)
    stored = read(result_file(identity, folder))
    if stored is None or any(stored.get(name) != identity[name] for name in IDENTITY):
        return None
    return stored


def save_run(identity: Result, measured: Result, folder: Path = PAPER) -> Path:
    """``measured``: figures, times, memory, contention, whatever the tool has to tell."""
    assert set(identity) == set(IDENTITY)
    where = {"machine": machine(), "source_changed": source_changed()}
    return _save(result_file(identity, folder), identity | measured | where)


def source_changed() -> bool | None:
    """Whether ``src`` differs from the commit that ``machine`` names; None where git cannot tell."""
    command = ["git", "status", "--porcelain", "--", "src"]
    done = subprocess.run(command, cwd=RESULTS.parents[1], capture_output=True, text=True, check=False)
    return bool(done.stdout.strip()) if done.returncode == 0 else None


def save_table1(dataset: str, store: Store, sums: dict[str, str], folder: Path = PAPER) -> Path:
    facts = describe(store)
    sizes = {name: facts[name] for name in TABLE1_NAMES}
    return _save(folder / "table1" / f"{dataset}.json", {"dataset": dataset, "sizes": sizes, "matrices": sums})


def read(path: Path) -> Result | None:
    """None where there is no such file."""
    try:
        result: Result = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    return result


def read_all(table: str, folder: Path = PAPER) -> list[Result]:
    """Every result of ``table1`` or ``table3``, by file name."""
    return [json.loads(path.read_text("utf-8")) for path in sorted((folder / table).glob("*.json"))]


def _save(path: Path, result: Result) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(result, indent=1) + "\n")
    return path
