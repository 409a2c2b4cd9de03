"""Killed at any moment and resumed, a prediction writes the file of one that nobody disturbed, bit for bit.

``OWLMINE_TORTURE_KILLS`` sets how many processes are killed at random moments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

KILLS = int(os.environ.get("OWLMINE_TORTURE_KILLS", "20"))


def killed(tmp_path: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture.killed_predictions", *options, "--folder", str(tmp_path / "files")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300 + 10 * KILLS,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    print(summary)
    return summary


def test_killed_at_random_moments(tmp_path: Path) -> None:
    assert killed(tmp_path, "--kills", str(KILLS), "--seed", "1")["kills"] >= KILLS


def test_killed_before_every_step(tmp_path: Path) -> None:
    left = killed(tmp_path, "--every-step")["left"]
    assert set(left) == {"nothing", "some", "all", "the file"}
