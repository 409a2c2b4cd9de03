"""Fixtures for all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Converted datasets of this test run, shared by its worker processes, away from the user's own cache."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "owlmine-cache"
    os.environ["OWLMINE_CACHE"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def owlmine_command() -> Command:
    """Runs ``owlmine ARGUMENTS`` as a process of its own."""

    def run(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "owlmine", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1"},
            **options,  # type: ignore[call-overload]
        )

    return run


def write_points(path: Path, num_points: int, *, num_features: int = 50, num_classes: int = 20) -> Path:
    """A small file of the repository's old format with every class in use."""
    lines = [f"{num_points} {num_features} {num_classes}"]
    for point in range(num_points):
        labels = sorted({point % num_classes, (point * 7 + 1) % num_classes})
        features = sorted({point % num_features, (point * 3 + 1) % num_features, (point * 5 + 2) % num_features})
        lines.append(",".join(map(str, labels)) + " " + " ".join(f"{f}:{(point + f) % 4 + 0.5}" for f in features))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def small_folder(tmp_path: Path) -> Path:
    """A folder with a train and a test split in the repository's old format."""
    folder = tmp_path / "small"
    folder.mkdir()
    write_points(folder / "train.txt", 200)
    write_points(folder / "test.txt", 60)
    return folder
