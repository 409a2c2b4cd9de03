"""Readers of our output that go away, and disks that take no more of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..small_models import text_model, text_store

GONE = 128 + signal.SIGPIPE


def started(*arguments: object, stdout: int, stderr: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "owlmine", *map(str, arguments)]
    return subprocess.Popen(command, stdout=stdout, stderr=stderr, env=os.environ | {"OMP_NUM_THREADS": "1"})


@pytest.fixture
def broken_pipe() -> int:
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


# JSON lines are written by ourselves, tables by rich, which has ideas of its own about pipes.
@pytest.mark.parametrize("format", ["jsonl", "table"])
def test_head_ends_predict_quietly(tmp_path: Path, format: str) -> None:
    """The answers are far more than a pipe holds, in several blocks."""
    (tmp_path / "lines.txt").write_text("the river and the castle\n" * 4000)
    arguments = ("predict", text_model(), tmp_path / "lines.txt", "--format", format, "--device", "cpu")
    with started(*arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == GONE


def test_nobody_reads_at_all(broken_pipe: int) -> None:
    """Little output, which is still buffered when the command is done."""
    with started("data", "describe", text_store(), "--json", stdout=broken_pipe) as process:
        os.close(broken_pipe)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait() == GONE


def test_nobody_reads_errors(broken_pipe: int) -> None:
    with started("data", "verify", "nowhere", stdout=broken_pipe, stderr=broken_pipe) as process:
        os.close(broken_pipe)
        assert process.wait() == GONE


def test_errors_keep_their_status_where_nobody_reads_output(broken_pipe: int) -> None:
    with started("data", "verify", "nowhere", stdout=broken_pipe) as process:
        os.close(broken_pipe)
        assert process.stderr is not None
        assert process.stderr.read().startswith(b"owlmine: error: nowhere: ")
        assert process.wait() == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_into_a_full_disk() -> None:
    with (
        open("/dev/full", "wb") as full,
        started("data", "describe", text_store(), "--json", stdout=full.fileno()) as process,
    ):
        assert process.stderr is not None
        assert process.stderr.read() == b"owlmine: error: output cannot be written: No space left on device\n"
        assert process.wait() == 2
