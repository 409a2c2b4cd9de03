"""Answers that are not finished yet: the folder ``FILE.part`` beside the file that they will become.

    answers         the answers so far; bytes beyond those that the journal counts are left by a killed process
    converted       all answers in another form, where a form of file cannot be appended to
    journal.json    whose answers these are, how many of them count, and which file has all of them once it does

Answers are appended and flushed to disk, then the journal is replaced, whole or not at all. So a process may end at any
moment: what the journal counts is on disk, and the rest is cut off when the work is resumed. When all answers are
there, the file gets its name at once and the folder is removed. The folder is locked while a process works in it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from owlmine.data.store import meta_checksum
from owlmine.errors import DataError, OwlmineError
from owlmine.files import (
    check_free,
    check_new_file,
    is_unfinished,
    lock,
    remove_unfinished,
    sync_folder,
    take_free_name,
    whole_file,
    write_text,
)

FORMAT_NAME, FORMAT_VERSION = "owlmine-answers", 1
_JOURNAL, _ANSWERS, _CONVERTED = "journal.json", "answers", "converted"
_READ_BYTES = 4 << 20
# Checksums are shown by their beginnings.
_LONGEST_SHOWN, _SHOWN = 40, 12


@dataclass(frozen=True)
class Tally:
    """How much has been answered."""

    queries: int = 0
    unknown: int = 0
    """Queries without a feature that the model knows."""
    without_class: int = 0
    """Other queries without a class that is probable enough."""
    predictions: int = 0
    id_kinds: tuple[str, ...] = ()
    """The kinds of the queries' ids, such as ``int``."""
    num_bytes: int = 0
    """Bytes of answers that count."""
    crc32: int = 0
    """Of these bytes."""
    finished: str | None = None
    """The file of the folder with all answers, once there is one."""


def part_folder_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.part")


def check_output(out: Path, *, resume: bool) -> None:
    """Raises OwlmineError if answers cannot be written to this file; for use before the work that produces them."""
    folder = part_folder_of(out)
    if _is_blank(folder):
        check_new_file(out)
    elif not resume:
        raise OwlmineError(_unfinished(folder))


def num_unfinished(out: Path) -> int:
    """The number of queries whose answers wait for ``resume``."""
    try:
        return _read_journal(part_folder_of(out))[1].queries
    except (OSError, OwlmineError):
        return 0


class PartFolder:
    """The answers of one task to one file. A context manager.

    ``task`` describes everything that answers depend on, in names and plain values: it is resumed by the same task
    only. If no query has been answered when the context ends, the folder is removed; so it is if the task has no
    ``input``, which cannot be read again.
    """

    tally: Tally
    """What counts."""

    def __init__(self, out: Path, task: Mapping[str, Any], *, resume: bool) -> None:
        self.out, self._folder = out, part_folder_of(out)
        self._task: dict[str, Any] = json.loads(json.dumps(task))
        self._resume, self._removed = resume, False
        self._log: IO[bytes] | None = None

    def __enter__(self) -> PartFolder:
        self.tally = Tally()
        try:
            self._handle = _locked_folder(self._folder)
        except OSError as error:
            raise OwlmineError(f"{self._folder}: cannot be written: {error.strerror}") from error
        try:
            self._open()
        except OSError as error:
            self._close()
            raise self._failed(error) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _open(self) -> None:
        """Another process may have finished the work since the last check: now we have the lock."""
        if not _is_blank(self._folder):
            if not self._resume:
                raise OwlmineError(_unfinished(self._folder))
            task, self.tally = _read_journal(self._folder)
            _check_same(self._folder, self._task, task)
        remove_unfinished(self._folder)
        if self.tally.finished is None:
            check_free(self.out)
            self._log = self._opened_log()
            self._write_journal(self.tally)

    def _opened_log(self) -> IO[bytes]:
        path, counted = self._folder / _ANSWERS, self.tally
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        log = open(handle, "r+b", buffering=0)  # noqa: SIM115
        if _crc32(log, counted.num_bytes) != counted.crc32:
            log.close()
            raise DataError(path, found="other answers than journal.json counts", wanted=_again(self._folder))
        log.truncate(counted.num_bytes)
        log.seek(counted.num_bytes)
        return log

    def append(self, data: bytes, tally: Tally) -> None:
        """Adds answers. When this returns they count, and the folder's tally is this one."""
        assert self._log is not None
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._log.write(rest) :]
            os.fsync(self._log.fileno())
            size, crc32 = self.tally.num_bytes + len(data), zlib.crc32(data, self.tally.crc32)
            self._write_journal(replace(tally, num_bytes=size, crc32=crc32))
        except OSError as error:
            raise self._failed(error) from error

    def publish(self, convert: Callable[[IO[bytes], IO[bytes]], None] | None = None) -> None:
        """Gives the file its name, and removes the folder. ``convert`` reads all answers, and writes them in the form
        of the file; None if they have it already."""
        try:
            if self.tally.finished is None:
                self._finish(convert)
            self._take_name()
            self._remove()
        except FileExistsError as error:
            raise OwlmineError(f"{self.out}: appeared while the answers were being written; move it away") from error
        except OSError as error:
            raise self._failed(error) from error

    def _finish(self, convert: Callable[[IO[bytes], IO[bytes]], None] | None) -> None:
        assert self._log is not None
        if convert is None:
            self._write_journal(replace(self.tally, finished=_ANSWERS))
            return
        path = self._folder / _CONVERTED
        self._log.seek(0)
        with whole_file(path) as file:
            convert(self._log, file)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            crc32 = _crc32(file, size)
        assert crc32 is not None
        self._write_journal(replace(self.tally, num_bytes=size, crc32=crc32, finished=_CONVERTED))

    def _take_name(self) -> None:
        """A process that was killed in here may have been anywhere between these steps."""
        assert self.tally.finished is not None
        source = self._folder / self.tally.finished
        if not source.exists():
            with suppress(OSError), self.out.open("rb") as file:
                if _crc32(file, self.tally.num_bytes) == self.tally.crc32 and not file.read(1):
                    return
            raise DataError(source, found="no such file", wanted=_again(self._folder))
        if self.out.exists() and self.out.samefile(source):
            source.unlink()
        else:
            take_free_name(source, self.out)
        sync_folder(self.out.parent)

    def _failed(self, error: OSError) -> OwlmineError:
        return OwlmineError(f"{self.out}: cannot be written: {error.strerror or error}")

    def _write_journal(self, tally: Tally) -> None:
        record = {"format": FORMAT_NAME, "version": FORMAT_VERSION, "task": self._task, "tally": asdict(tally)}
        record["checksum"] = meta_checksum(record)
        write_text(self._folder / _JOURNAL, json.dumps(record, indent=1) + "\n")
        self.tally = tally

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
        # After the folder has been removed, another process may have one of that name.
        with suppress(OwlmineError):
            if not self._removed and _is_blank(self._folder):
                self._remove()
        os.close(self._handle)

    def _remove(self) -> None:
        """The journal last: until it is gone, the rest can be removed by ``resume``. A file of somebody else stays."""
        with suppress(OSError):
            remove_unfinished(self._folder)
            for name in (_ANSWERS, _CONVERTED, _JOURNAL):
                (self._folder / name).unlink(missing_ok=True)
            self._folder.rmdir()
        self._removed = True


def _locked_folder(folder: Path) -> int:
    while True:
        folder.mkdir(exist_ok=True)
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # another process has finished and removed it
        if not lock(handle):
            os.close(handle)
            raise OwlmineError(f"{folder}: another process is writing these answers")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), folder.stat()):
                return handle
        os.close(handle)


def _is_blank(folder: Path) -> bool:
    """Whether the folder is missing, or has no answers that can be resumed. Raises OwlmineError if it is not ours."""
    try:
        names = [path for path in folder.iterdir() if not is_unfinished(path)]
    except FileNotFoundError:
        return True
    except OSError as error:
        raise OwlmineError(f"{folder}: cannot be read: {error.strerror}") from error
    if folder.is_symlink() or not {path.name for path in names} <= {_JOURNAL, _ANSWERS, _CONVERTED}:
        raise OwlmineError(f"{folder}: has other contents; the folder is needed for unfinished answers")
    try:
        task, tally = _read_journal(folder)
    except FileNotFoundError:
        return True  # or removed by now: another process has finished
    return task.get("input") is None or (tally.queries == 0 and tally.finished is None)


def _read_journal(folder: Path) -> tuple[dict[str, Any], Tally]:
    path = folder / _JOURNAL
    try:
        record = json.loads(path.read_text("utf-8"))
        if record["format"] != FORMAT_NAME or record["checksum"] != meta_checksum(record):
            raise ValueError("its content has changed")
        if record["version"] != FORMAT_VERSION:
            raise DataError(path, found=f"version {record['version']}", wanted=f"version {FORMAT_VERSION}")
        tally = record["tally"] | {"id_kinds": tuple(record["tally"]["id_kinds"])}
        return record["task"], Tally(**{field.name: tally[field.name] for field in fields(Tally)})
    except DataError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(path, found=f"content that cannot be read ({error})", wanted=_again(folder)) from error


def _check_same(folder: Path, task: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    names = [name for name in dict(before) | dict(task) if before.get(name) != task.get(name)]
    if names:
        changes = "; ".join(f"{name} is {_shown(task.get(name))}, was {_shown(before.get(name))}" for name in names)
        raise OwlmineError(
            f"{folder}: belongs to another task ({changes}); resume it with the same model, input and options, or"
            " remove the folder"
        )


def _shown(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_SHOWN]}…"


def _unfinished(folder: Path) -> str:
    return f"{folder}: has unfinished answers; continue with --resume, or remove the folder"


def _again(folder: Path) -> str:
    return f"the folder as it was left; remove {folder} and start again"


def _crc32(file: IO[bytes], num_bytes: int) -> int | None:
    """Of the first bytes; None if there are fewer."""
    crc32, rest = 0, num_bytes
    while rest:
        data = file.read(min(rest, _READ_BYTES))
        if not data:
            return None
        crc32, rest = zlib.crc32(data, crc32), rest - len(data)
    return crc32
