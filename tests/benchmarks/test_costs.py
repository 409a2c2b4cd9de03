"""Tables of costs from stored results, and the clock over the stages of training."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worker
from scipy.sparse import csr_matrix, save_npz

from owlmine.data import Store

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import accuracy
import costs
import stages

from owlmine.recipe.options import TrainOptions


def run_of(tool: str, **changed: Any) -> dict[str, Any]:
    result = {"dataset": "bibtex", "tool": tool, "device": "cpu", "matrices": {"X.train": "a"}, "busy": False}
    result |= {"figures": {"P@1": 60.0, "P@3": 40.0, "P@5": 30.0}, "train_seconds": 12.0}
    return result | {"predict_ms_per_point": 0.25, "train_peak_rss_mib": 2048.0, "model_mib": 1234.5} | changed


def test_costs_of_the_same_matrices_in_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = [
        run_of("pecos", busy=True),
        run_of("omikuji", matrices={"X.train": "b"}),
        {name: value for name, value in run_of("napkinxc").items() if name != "model_mib"},
    ]
    monkeypatch.setattr(costs, "stored", lambda name, device: [run_of("best")] if name == "bibtex" else [])
    monkeypatch.setattr(costs, "read_all", lambda table: peers)
    own, peer = costs.costs_table().splitlines()[2:]
    assert own == "| Bibtex | **owlmine** | 60.00 | 40.00 | 30.00 | 12 | 2.0 | 1,234 | 0.25 |"
    assert peer.startswith("|  | PECOS XR-Linear")
    assert peer.endswith(" | 60.00 | 40.00 | 30.00 | 12 \\* | 2.0 | 1,234 | 0.25 \\* |")
    monkeypatch.setattr(costs, "stored", lambda name, device: [])
    assert costs.costs_table() == "Not measured yet."


def test_tools_stand_below_the_model_that_was_timed_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"p50_ms": 1.0, "p95_ms": 2.0, "batch_ms_per_query": 0.5}
    stored = {"some": times | {"tools": {"omikuji": times | {"p50_ms": 0.25, "busy": True}}}}
    monkeypatch.setattr(costs, "read", lambda path: stored)
    own, peer = costs.latency_table().splitlines()[2:]
    assert own == "| some | **owlmine** | 1.00 | 2.00 | 0.50 |"
    assert peer.endswith(" | 0.25 \\* | 2.00 \\* | 0.50 \\* |")


def test_an_inner_stage_stops_the_clock_of_the_outer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 3.0, 7.0, 15.0, 31.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    watch = stages.Stopwatch()
    with watch.stage("mix"), watch.stage("lists"):
        pass
    assert watch.finish() == {"lists": 4.0, "mix": 2.0 + 8.0, stages.REST: 1.0 + 16.0}


def test_stages_of_a_training_are_timed_and_left_as_they_were(
    small_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small:
        @staticmethod
        def named(name: str) -> Any:
            return Small()

        def open(self, root: Path | None) -> Store:
            return small_store

    monkeypatch.setattr(stages, "Dataset", Small)
    before = [vars(owner)[attribute] for _, owner, attribute in stages.STAGES]
    seconds = stages.profile("small", None, TrainOptions.of(device="cpu", epochs=1.0, dim=8))["seconds"]
    assert {"members", "lists", "classifiers", "neighbours", "mix", "probabilities", "saving"} < set(seconds)
    assert seconds["total"] == pytest.approx(sum(seconds.values()) - seconds["total"])
    assert [vars(owner)[attribute] for _, owner, attribute in stages.STAGES] == before


def test_a_training_tells_its_memory_and_size(small_store: Store, tmp_path: Path) -> None:
    options = TrainOptions.of(device="cpu", epochs=1.0, dim=8)
    found = accuracy.trained_in(small_store.path, tmp_path / "model", options, "small")
    size = sum(file.stat().st_size for file in (tmp_path / "model").iterdir())
    assert found["model_mib"] == size / 2**20 > 0
    assert found["train_peak_rss_mib"] > 1
    assert found["train_seconds"] > 0


def test_a_worker_times_single_queries_and_weighs_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, rows in (("X.train", 4), ("Y.train", 4), ("X.test", 50)):
        save_npz(tmp_path / f"{name}.npz", csr_matrix(np.eye(rows, 6, dtype=np.float32)))
    monkeypatch.setattr(sys, "argv", ["worker", str(tmp_path), str(tmp_path), "{}"])
    asked: list[tuple[int, int]] = []

    def save(model: list[int], folder: Path) -> None:
        (folder / "part").mkdir()
        (folder / "part" / "weights").write_bytes(bytes(3 * 2**20))

    worker.Job([]).run(
        lambda: [1],
        lambda model: [model] * 50,
        save=save,
        predict_one=lambda model, row: asked.append(row.shape),
    )
    record = json.loads((tmp_path / "times.json").read_text())
    assert asked == [(1, 6)] * 50
    assert record["model_mib"] == 3
    assert 0 <= record["single_ms"]["p50"] <= record["single_ms"]["p95"]
    assert 0 < record["train_peak_rss_mib"] <= record["peak_rss_mib"]
    assert not (tmp_path / "saved").exists()
