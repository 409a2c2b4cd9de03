"""Checksums that are computed once per file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from owlmine import files
from owlmine.errors import OwlmineError
from owlmine.files import KnownChecksums


@pytest.fixture
def old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that counts as settled at once."""
    monkeypatch.setattr(files, "_SETTLED_NS", -1)
    path = tmp_path / "table"
    path.write_bytes(b"one")
    return path


def test_a_checksum_is_remembered_between_processes(
    old_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "cache" / "checksums"
    assert KnownChecksums(memory).of(old_file) == hashlib.sha256(b"one").hexdigest()
    monkeypatch.setattr(files, "sha256_of", lambda path: pytest.fail("read again"))
    assert KnownChecksums(memory).of(old_file) == hashlib.sha256(b"one").hexdigest()


def test_a_change_is_seen_though_size_and_time_are_restored(old_file: Path, tmp_path: Path) -> None:
    memory = tmp_path / "checksums"
    KnownChecksums(memory).of(old_file)
    times = old_file.stat()
    old_file.write_bytes(b"two")
    os.utime(old_file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert KnownChecksums(memory).of(old_file) == hashlib.sha256(b"two").hexdigest()


def test_another_file_moved_into_place_is_read(old_file: Path, tmp_path: Path) -> None:
    memory = tmp_path / "checksums"
    KnownChecksums(memory).of(old_file)
    (tmp_path / "other").write_bytes(b"two")
    (tmp_path / "other").replace(old_file)
    assert KnownChecksums(memory).of(old_file) == hashlib.sha256(b"two").hexdigest()


def test_a_file_written_just_now_is_not_remembered(tmp_path: Path) -> None:
    path, memory = tmp_path / "table", tmp_path / "checksums"
    path.write_bytes(b"one")
    KnownChecksums(memory).of(path)
    assert not memory.exists()


def test_a_damaged_or_unwritable_memory_costs_time_only(old_file: Path, tmp_path: Path) -> None:
    memory = tmp_path / "checksums"
    wanted = hashlib.sha256(b"one").hexdigest()
    KnownChecksums(memory).of(old_file)
    memory.write_bytes(memory.read_bytes()[:-30] + b"\n\xff\n")
    assert KnownChecksums(memory).of(old_file) == wanted
    (tmp_path / "a file").write_bytes(b"")
    assert KnownChecksums(tmp_path / "a file" / "checksums").of(old_file) == wanted


def test_without_a_home_folder_nothing_is_remembered(old_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("OWLMINE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert KnownChecksums().of(old_file) == hashlib.sha256(b"one").hexdigest()
    with pytest.raises(OwlmineError, match="set OWLMINE_CACHE"):
        files.cache_folder()
