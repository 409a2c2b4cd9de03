"""Other tools, each in a virtual environment of its own, on the matrices that ours learns from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contention import Contention
from dataset import CONFIGS
from judge import judge
from results import PAPER, Result, found_before, save_run

from owlmine.data.store import Store
from owlmine.errors import OwlmineError

HERE = Path(__file__).parent
_LAST_LINES = 15


@dataclass(frozen=True)
class Peer:
    """An entry of ``configs/peers.toml``."""

    name: str
    title: str
    package: str
    version: str
    install: list[list[str]]
    options: dict[str, Any]

    @property
    def worker(self) -> Path:
        return HERE / f"peer_{self.name}.py"


def all_peers() -> dict[str, Peer]:
    record = tomllib.loads((CONFIGS / "peers.toml").read_text("utf-8"))
    return {name: Peer(name=name, **entry) for name, entry in record.items()}


def environment(peer: Peer, work: Path) -> Path:
    """The peer's Python, installed on first use; one that was installed otherwise, or by halves, is made again."""
    folder = work / "peers" / f"{peer.name}-{peer.version}"
    python, stamp = folder / "bin" / "python", folder / "installed.json"
    wanted = {"install": peer.install, "python": sys.version}
    if stamp.is_file() and json.loads(stamp.read_text()) == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    log = work / "logs" / f"install-{peer.name}.log"
    log.unlink(missing_ok=True)
    run_logged([sys.executable, "-m", "venv", str(folder)], log)
    for arguments in peer.install:
        run_logged([str(python), "-m", "pip", "install", *arguments], log)
    stamp.write_text(json.dumps(wanted))
    return python


def run_peer(
    peer: Peer,
    dataset: str,
    store: Store,
    matrices: tuple[Path, dict[str, str]],
    work: Path,
    *,
    again: bool = False,
    results: Path = PAPER,
) -> Result | None:
    """Trains and predicts in a process of its own, judges here, and keeps the result. None where it was there before.

    matrices: what ``export`` wrote, and their checksums.
    """
    folder, sums = matrices
    identity = {
        "dataset": dataset,
        "tool": peer.name,
        "device": "cpu",
        "matrices": sums,
        "versions": {peer.package: peer.version},
        "options": peer.options,
    }
    if not again and found_before(identity, results) is not None:
        return None
    work.mkdir(parents=True, exist_ok=True)
    python = environment(peer, work)
    with tempfile.TemporaryDirectory(dir=work) as out:
        command = [str(python), str(peer.worker), str(folder), out, json.dumps(peer.options)]
        log = work / "logs" / f"{dataset}-{peer.name}.log"
        log.unlink(missing_ok=True)
        with Contention() as contention:
            run_logged(command, log)
        record = json.loads((Path(out) / "times.json").read_text())
        ranked_ids = np.load(Path(out) / "predictions.npy")
    measured = {
        "figures": judge(ranked_ids, store, dataset),
        "predict_ms_per_point": 1000 * record["predict_seconds"] / len(ranked_ids),
        **record,
        **contention.record,
    }
    save_run(identity, measured, results)
    return identity | measured


def run_logged(command: list[str], log: Path) -> None:
    """Runs a command and adds it and its output to ``log``. Raises OwlmineError with the command and the log's end."""
    log.parent.mkdir(parents=True, exist_ok=True)
    # Not our own modules: they may need another NumPy than the peer's.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("a") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=clean, check=False)
    if done.returncode:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise OwlmineError(f"{' '.join(command)}\nended with {how}; the end of its log {log}:\n{last}")
