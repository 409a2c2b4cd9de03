"""A real file system that is soon full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def tiny_disk_at(place: Path, size: str) -> Iterator[Path]:
    """A file system of this size (as ``mount`` takes it), mounted at a new folder; skips who may not mount one."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs a privileged user")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
