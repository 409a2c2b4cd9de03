"""Killed at any moment and resumed, a run ends like one that nobody disturbed, bit for bit.

``OWLMINE_TORTURE_RUNS`` sets how many runs are killed, each up to three times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import owlmine
from owlmine.data import SyntheticOptions, synthesize
from owlmine.model.folder import verify_model

from ..train.runs import contents

RUNS = int(os.environ.get("OWLMINE_TORTURE_RUNS", "4"))


@pytest.mark.parametrize("kind", ["single", "composed"])
def test_killed_runs_end_like_undisturbed_ones(tmp_path: Path, kind: str) -> None:
    options = SyntheticOptions(num_classes=300, train_points=800, test_points=10, num_topics=100, relevant=5)
    store = synthesize(tmp_path / "store", options)
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("killed_runs.py")),
            *map(str, (store.path, tmp_path, RUNS, 1, kind)),
        ],
        capture_output=True,
        text=True,
        timeout=120 + 60 * RUNS,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    print(told)
    # A moment that is drawn from the clock may come after the end.
    assert sum(told["kills"]) >= (RUNS if kind == "single" else 1), "too few runs were caught alive"
    expected = contents(tmp_path / "whole")
    assert len(expected["metrics"]) >= 2
    for number in range(RUNS):
        out = tmp_path / str(number)
        assert contents(out) == expected, f"run {number}, killed {told['kills'][number]} times"
        assert verify_model(out) == []
        owlmine.load(out)
