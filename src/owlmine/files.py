"""Files of ours on disk: where the cache is, and checksums that are computed once per file."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

_READ_BYTES = 4 << 20
# A file changed within the clock's resolution after it was read keeps its times: young files are not remembered.
_SETTLED_NS = 2_000_000_000


def cache_folder() -> Path:
    """``$OWLMINE_CACHE``, or ``owlmine`` in the user's cache folder."""
    if chosen := os.environ.get("OWLMINE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "owlmine"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, read now."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            digest.update(data)
    return digest.hexdigest()


class KnownChecksums:
    """SHA-256 of files, remembered between processes for as long as inode, size and times stay the same.

    The memory is a text file in the cache folder, one line per checksum, appended to. Losing it, or not being able
    to write it, costs time only.
    """

    def __init__(self, memory: Path | None = None) -> None:
        self._memory = cache_folder() / "checksums" if memory is None else memory
        self._known: dict[str, str] = {}
        with suppress(OSError, UnicodeDecodeError):
            for line in self._memory.read_text("ascii").splitlines():
                state, _, checksum = line.rpartition(" ")
                if len(checksum) == hashlib.sha256().digest_size * 2:  # else a line that a killed process left
                    self._known[state] = checksum

    def of(self, path: Path) -> str:
        """The checksum of a file, read only if the file is new or has changed."""
        before = _state(path)
        if (known := self._known.get(before)) is not None:
            return known
        checksum = sha256_of(path)
        stat = path.stat()
        if _state(path) == before and time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > _SETTLED_NS:
            self._remember(before, checksum)
        return checksum

    def _remember(self, state: str, checksum: str) -> None:
        self._known[state] = checksum
        with suppress(OSError):
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            # One write of one line in append mode: lines of two processes do not mix.
            with self._memory.open("ab", buffering=0) as file:
                file.write(f"{state} {checksum}\n".encode("ascii"))


def _state(path: Path) -> str:
    """What changes when anyone writes to the file, moves another into its place or sets its times."""
    stat = path.stat()
    return f"{stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
