"""Files of ours on disk: how they are written, where the cache is, and checksums that are computed once per file.

All output files are written by ``whole_file`` or in a ``NewFolder``. Both write under an unpredictable hidden name,
never through a link, and rename the result when it is on disk. Both hold a lock while they write. The lock ends with
the process, however that ends, which distinguishes work in progress from the leftovers of a killed process.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from owlmine.errors import OwlmineError

_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{16}\.writing", re.DOTALL)
_MARK, _MARK_TEXT = ".owlmine-unfinished", b"An unfinished folder of owlmine; it may be removed.\n"
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_READ_BYTES = 4 << 20
# A file changed within the clock's resolution after it was read keeps its times, so recent files are not remembered.
_SETTLED_NS = 2_000_000_000


@contextmanager
def whole_file(path: Path, *, replace: bool = True) -> Iterator[IO[bytes]]:
    """A file that gets its name once its bytes are on disk.

    If ``replace`` is false and the name is taken by then, raises FileExistsError and leaves the existing file.
    """
    remove_unfinished(path.parent, path.name)
    temporary, handle = _locked_file(path)
    try:
        with open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if replace:
                temporary.replace(path)
            else:
                take_free_name(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with whole_file(path) as file:
        file.write(text.encode("utf-8"))


def check_new_file(path: Path) -> None:
    """Raises OwlmineError if a new file cannot be written; for use before the work that produces it."""
    check_free(path)
    if not path.parent.is_dir():
        raise OwlmineError(f"{path}: cannot be written: {path.parent} is not a folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OwlmineError(f"{path}: cannot be written: no permission to write in {path.parent}")


def check_free(path: Path) -> None:
    """Raises OwlmineError if a file, a folder or a link has the name."""
    if path.exists() or path.is_symlink():
        raise OwlmineError(f"{path}: already exists; choose a new name or remove it first")


def is_unfinished(path: Path) -> bool:
    """Whether it is an unfinished file of ``whole_file``."""
    return _UNFINISHED.fullmatch(path.name) is not None and path.is_file() and not path.is_symlink()


def remove_unfinished(folder: Path, name: str | None = None) -> None:
    """Removes unfinished files of killed processes in the folder, or those of the file with this name."""
    with suppress(OSError):
        for path in list(folder.iterdir()):
            match = _UNFINISHED.fullmatch(path.name)
            if match is not None and name in (None, match[1]) and is_unfinished(path):
                _remove_abandoned_file(path)


def _remove_abandoned_file(path: Path) -> None:
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(handle)


def _locked_file(path: Path) -> tuple[Path, int]:
    """A new hidden file next to ``path``, open and locked."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    while True:
        temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.writing")
        handle = os.open(temporary, flags, 0o666)
        # Before we had the lock, another process may have considered the file abandoned.
        if lock(handle) and os.fstat(handle).st_nlink:
            return temporary, handle
        os.close(handle)


def take_free_name(temporary: Path, path: Path) -> None:
    """Renames a file. Raises FileExistsError if the name is taken."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # An empty file claims the name, and ours replaces it: that works on every file system.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        temporary.replace(path)
    else:
        temporary.unlink()


class NewFolder:
    """A folder that gets its name when ``publish`` is called, and is removed otherwise. A context manager.

    ``path`` is its location until then. After an error, the parent folders created for ``out`` are removed too.
    """

    def __init__(self, out: Path) -> None:
        self.out = out

    def __enter__(self) -> NewFolder:
        check_free(self.out)
        self._new_parents = [folder for folder in self.out.parents if not folder.exists()]
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned_folders(self.out)
            self.path, self._handle = _locked_folder(self.out)
        except OSError:
            self._remove_new_parents()
            raise
        return self

    def publish(self) -> None:
        """Raises OSError if the name is taken by now."""
        (self.path / _MARK).unlink()
        sync_folder(self.path)
        # rename silently replaces an empty folder.
        if self.out.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.out))
        self.path.rename(self.out)
        sync_folder(self.out.parent)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)
        if error is not None:
            self._remove_new_parents()

    def _remove_new_parents(self) -> None:
        """Removes the created folders if they are empty."""
        with suppress(OSError):
            for folder in self._new_parents:
                folder.rmdir()


def _locked_folder(out: Path) -> tuple[Path, int]:
    """A new hidden folder next to ``out``, with our marker file, and locked."""
    folder = Path(tempfile.mkdtemp(prefix=_partial_prefix(out), dir=out.parent))
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        folder.chmod(0o777 & ~_umask())
        lock(handle)
        # Last: without the marker file, no process considers the folder abandoned.
        (folder / _MARK).write_bytes(_MARK_TEXT)
    except OSError:
        os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder, handle


def _remove_abandoned_folders(out: Path) -> None:
    """Folders of running processes are locked, and those without the marker file are not ours."""
    for folder in out.parent.glob(glob.escape(_partial_prefix(out)) + "*"):
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if (folder / _MARK).read_bytes() == _MARK_TEXT:
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def _partial_prefix(out: Path) -> str:
    return f".{out.name}.partial-"


def lock(handle: int) -> bool:
    """False if another process has the lock."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks, where nothing is ever considered abandoned
    return True


def sync_folder(folder: Path) -> None:
    """Flushes the folder's entries to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def cache_folder() -> Path:
    """``$OWLMINE_CACHE``, or ``owlmine`` in the user's cache folder."""
    if chosen := os.environ.get("OWLMINE_CACHE"):
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "owlmine"
    except RuntimeError:
        raise OwlmineError("no home folder is known; set OWLMINE_CACHE to a folder for converted datasets") from None


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
        self._memory, self._known = memory, dict[str, str]()
        # OwlmineError: there is no cache folder.
        with suppress(OSError, UnicodeDecodeError, OwlmineError):
            self._memory = self._memory or cache_folder() / "checksums"
            for line in self._memory.read_text("ascii").splitlines():
                state, _, checksum = line.rpartition(" ")
                if len(checksum) == hashlib.sha256().digest_size * 2:  # otherwise a partial line of a killed process
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
        if self._memory is None:
            return
        with suppress(OSError):
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            # One write of one line in append mode: lines of two processes do not mix.
            handle = os.open(self._memory, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
            with open(handle, "ab", buffering=0) as file:
                file.write(f"{state} {checksum}\n".encode("ascii"))


def _state(path: Path) -> str:
    """Changes when anyone writes to the file, replaces it or sets its times."""
    stat = path.stat()
    return f"{stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
