"""Killed at any moment and resumed, a run ends like one that nobody disturbed, bit for bit.

``OWLMINE_TORTURE_KILLS`` sets how many processes of each recipe are killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = int(os.environ.get("OWLMINE_TORTURE_KILLS", "5"))


@pytest.mark.parametrize("recipe", ["single", "best"])
def test_killed_runs_end_like_undisturbed_ones(tmp_path: Path, recipe: str) -> None:
    options = ("--kills", str(KILLS), "--recipe", recipe, "--seed", "1", "--folder", str(tmp_path / "runs"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture.killed_runs", *options],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120 + 60 * KILLS,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    print(summary)
    assert summary["kills"] == sum(summary["moments"].values()) == KILLS
