"""What the workers of all peers have in common: matrices in, predictions and times out.

A worker runs in its peer's own environment, which has NumPy, SciPy and the peer, and no owlmine:

    ENVIRONMENT/bin/python peer_NAME.py MATRICES OUT OPTIONS

MATRICES is a folder of ``matrices.py``; OPTIONS is a JSON object. OUT gets ``predictions.npy``, the class ids of the
best answers to each test point [N, PLACES], -1 for an empty place, and ``times.json``: seconds, memory, the size of the
model on disk, and milliseconds of single queries.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, load_npz

PLACES = 5
# Test points that are answered one by one, after some that are not counted.
_SINGLES, _WARM_UP = 300, 20
Lists = Iterable[Iterable[int]]


class Job:
    """The matrices and options of one run, and a clock over its two parts."""

    def __init__(self, packages: Iterable[str]) -> None:
        folder, out, options = sys.argv[1:]
        self.out = Path(out)
        self.options: dict[str, Any] = json.loads(options)
        self.X_train, self.Y_train = _matrix(folder, "X.train"), _matrix(folder, "Y.train")
        self.X_test = _matrix(folder, "X.test")
        self._packages = ("numpy", "scipy", *packages)

    def run(
        self,
        train: Callable[[], Any],
        predict: Callable[[Any], Lists],
        *,
        save: Callable[[Any, Path], None] | None = None,
        predict_one: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """``predict`` takes what ``train`` gave, and gives the best class ids of each test point, best first; ``save``
        writes it into a folder; ``predict_one`` answers one row of a matrix."""
        began, cpu_began = time.perf_counter(), time.process_time()
        model = train()
        trained, cpu_trained = time.perf_counter(), time.process_time()
        train_rss = peak_rss_mib()
        lists = predict(model)
        predicted, cpu_predicted = time.perf_counter(), time.process_time()
        np.save(self.out / "predictions.npy", ranked_ids(lists, self.X_test.shape[0]))
        record = {
            "train_seconds": trained - began,
            "train_cpu_seconds": cpu_trained - cpu_began,
            "predict_seconds": predicted - trained,
            "predict_cpu_seconds": cpu_predicted - cpu_trained,
            "train_peak_rss_mib": train_rss,
            "peak_rss_mib": peak_rss_mib(),
            "packages": {"python": sys.version.split()[0], **{name: version(name) for name in self._packages}},
        }
        if predict_one is not None:
            record["single_ms"] = self._singles(lambda row: predict_one(model, row))
        if save is not None:
            record["model_mib"] = self._size(lambda folder: save(model, folder))
        (self.out / "times.json").write_text(json.dumps(record, indent=1) + "\n")

    def _singles(self, answer: Callable[[Any], Any]) -> dict[str, float]:
        """The 50th and the 95th percentile of milliseconds."""
        rows = np.sort(np.random.default_rng(0).permutation(self.X_test.shape[0])[: _SINGLES + _WARM_UP])
        queries, times = [self.X_test[row : row + 1] for row in rows], []
        for query in queries:
            began = time.perf_counter()
            answer(query)
            times.append(1000 * (time.perf_counter() - began))
        counted = times[_WARM_UP:] or times
        return {f"p{part}": float(np.percentile(counted, part)) for part in (50, 95)}

    def _size(self, save: Callable[[Path], None]) -> float:
        """MiB of the model on disk."""
        folder = self.out / "saved"
        folder.mkdir()
        save(folder)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        shutil.rmtree(folder)
        return size / 2**20


def ranked_ids(lists: Lists, num_rows: int) -> np.ndarray[Any, Any]:
    """Lists of any length as one array: cut after PLACES, filled up with -1."""
    ids = np.full((num_rows, PLACES), -1, np.int32)
    count = 0
    for row, answers in zip(ids, lists, strict=True):
        best = list(answers)[:PLACES]
        row[: len(best)] = best
        count += 1
    assert count == num_rows
    return ids


def peak_rss_mib() -> float:
    """The most memory that this process has had. Not getrusage: that begins with the parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM: this needs Linux")


def _matrix(folder: str, name: str) -> csr_matrix:
    return csr_matrix(load_npz(Path(folder) / f"{name}.npz"))
