"""Conversions that are killed, terminated, or run out of room leave nothing that looks finished."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from owlmine.data import Store
from tests.tiny_disk import tiny_disk_at

from ..conftest import Command, write_points


@pytest.fixture(scope="module")
def big_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough points for a conversion of about a second."""
    folder = tmp_path_factory.mktemp("big")
    small = write_points(folder / "small.txt", 2000).read_text().splitlines()[1:]
    repeats = 150
    (folder / "small.txt").unlink()
    with (folder / "train.txt").open("w") as file:
        file.write(f"{len(small) * repeats} 50 20\n")
        for _ in range(repeats):
            file.write("\n".join(small) + "\n")
    return folder


def start(folder: Path, out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "owlmine", "data", "convert", str(folder), str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell in the background makes its children ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_partial(out: Path, process: subprocess.Popen[str]) -> None:
    while process.poll() is None and not list(out.parent.glob(f".{out.name}.partial-*/scratch/*")):
        time.sleep(0.005)


def test_killed_conversions_leave_nothing_finished(big_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    moments = random.Random(4)
    for _ in range(5):
        process = start(big_folder, out)
        wait_for_partial(out, process)
        time.sleep(moments.uniform(0, 0.6))
        process.kill()
        process.communicate()
        if out.exists():
            assert Store.open(out).verify() == []
            shutil.rmtree(out)
    process = start(big_folder, out)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert [file.name for file in tmp_path.iterdir()] == ["out"], "what killed processes left behind is removed"
    assert Store.open(out).verify() == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_asked_to_stop_it_tidies_up(big_folder: Path, tmp_path: Path, number: int, status: int) -> None:
    process = start(big_folder, tmp_path / "out")
    wait_for_partial(tmp_path / "out", process)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == status
    assert list(tmp_path.iterdir()) == []


def test_files_may_not_grow_further(big_folder: Path, tmp_path: Path, owlmine_command: Command) -> None:
    """The kernel refuses to write past a size limit, as it does on a full disk."""
    limit = 200_000
    done = owlmine_command(
        "data",
        "convert",
        big_folder,
        tmp_path / "out",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 2
    assert done.stderr.strip().endswith("cannot be written: File too large; nothing was left behind")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    with tiny_disk_at(tmp_path / "disk", "1m") as place:
        yield place


def test_full_disk(big_folder: Path, tiny_disk: Path, owlmine_command: Command) -> None:
    done = owlmine_command("data", "convert", big_folder, tiny_disk / "out")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("No space left on device; nothing was left behind")
    assert os.listdir(tiny_disk) == []
