"""Every file in examples/ runs as a user would run it, and does what it says."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def two_tower(lines: list[str]) -> None:
    """The loss falls and the recall on queries not trained on rises."""
    losses = [float(re.search(r"loss ([\d.]+)", line)[1]) for line in lines]
    recalls = [float(re.search(r"recall@10 ([\d.]+)", line)[1]) for line in lines]
    assert len(lines) == 4
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2
    assert recalls[0] < 5
    assert recalls[-1] > 90


def fit(lines: list[str]) -> None:
    """Both topics of the first query are found, the loaded model is the same one, and new texts are understood."""
    assert len(lines) == 6
    assert re.search(r"broke in a storm: (Sailing \d+%, Weather|Weather \d+%, Sailing)", lines[2])
    assert re.search(r"for the dough: Baking \d+%", lines[3])
    assert lines[4] == "the loaded model answers the same: True"
    assert float(re.search(r"new texts: ([\d.]+) %", lines[5])[1]) > 90


CHECKS: dict[str, Callable[[list[str]], None]] = {"fit.py": fit, "two_tower.py": two_tower}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example(path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    CHECKS[path.name](done.stdout.splitlines())
