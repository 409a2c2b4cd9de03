"""Repeats the part of the study that two CPU cores can do, and prints it next to the stored figures.

    python benchmarks/paper/reproduce.py [--data-root FOLDER] [--out FOLDER] [--search]

Table 2 on debian-depends, which is embedded, and Table 3 on it beside the peers; with a data root that has a folder
``bibtex``, Bibtex too. Table 2 takes the stored settings; with --search they are searched again, which doubles the
time. Peers are installed by pip into environments of their own. Interrupted, the command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STORED = HERE.parent / "results" / "paper"
FIGURES = ("P@1", "P@3", "P@5")


def study(verb: str, dataset: str, out: Path, *options: str) -> None:
    """One verb of ``study.py``, its results under ``out``."""
    command = [sys.executable, str(HERE / "study.py"), verb, dataset, *options]
    print("$", " ".join(["study.py", *command[2:]]), flush=True)
    environment = os.environ | {"OWLMINE_STUDY_RESULTS": str(out / "results")}
    if (status := subprocess.run(command, env=environment, check=False).returncode) != 0:
        sys.exit(status)


def figures(folder: Path) -> dict[str, dict[str, float]]:
    """Test figures by what was run."""
    found = {}
    for file in sorted(folder.glob("table2/*.json")):
        results: dict[str, Any] = json.loads(file.read_text("utf-8"))
        found |= {f"Table 2, {file.stem}, {method['title']}": method["mean"] for method in results["methods"]}
    for file in sorted(folder.glob("table3/*.json")):
        result: dict[str, Any] = json.loads(file.read_text("utf-8"))
        found[f"Table 3, {result['dataset']}, {result['tool']}, {result['device']}"] = result["figures"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, help="the folder that contains the folder bibtex")
    parser.add_argument("--out", type=Path, default=Path("out/reproduce"))
    parser.add_argument("--search", action="store_true", help="search the settings of Table 2 again")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    work = ("--work", str(out / "work"))
    datasets = ["debian-depends"]
    root: tuple[str, ...] = ()
    if arguments.data_root is None:
        print("No --data-root: Bibtex is left out.")
    else:
        datasets, root = ["bibtex", *datasets], ("--data-root", str(arguments.data_root))
    for dataset in datasets:
        study("table1", dataset, out, *root)
        study("table3", dataset, out, *root, *work)
    settings = () if arguments.search else ("--settings", str(STORED / "table2" / "debian-depends.json"))
    study("table2", "debian-depends", out, *work, "--device", "cpu", *settings)
    made, stored = figures(out / "results"), figures(STORED)
    print(f"\n{'':58}{'reproduced':>22}{'stored':>22}")
    for name, now in made.items():
        before = stored.get(name)
        then = "–" if before is None else " / ".join(f"{before[figure]:.2f}" for figure in FIGURES)
        print(f"{name:58}{' / '.join(f'{now[figure]:.2f}' for figure in FIGURES):>22}{then:>22}")


if __name__ == "__main__":
    main()
