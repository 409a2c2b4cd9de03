"""Whatever is damaged in a store, it is refused or answers as ever: no crash, no traceback, no figure that is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

NUM_CASES = 120


def test_damage_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture.damaged_stores", str(tmp_path), str(NUM_CASES)],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(cases) == NUM_CASES
    # Content with checksums of its own is another store, if it is one at all.
    wrong = [case for case in cases if case["outcome"] not in ("refused", "same", "other" if case["renewed"] else "")]
    assert not wrong, wrong
    assert sum(case["outcome"] == "refused" for case in cases) > NUM_CASES / 2
