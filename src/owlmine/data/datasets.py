"""Opens the data of a command: a store, anything that can be converted, or ``sample``."""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path

from owlmine.data.convert import convert
from owlmine.data.ingest import Progress
from owlmine.data.options import ConvertOptions
from owlmine.data.store import FORMAT_VERSION, Store, is_store
from owlmine.errors import DataError, OwlmineError
from owlmine.files import cache_folder
from owlmine.version import __version__

SAMPLE = "sample"


def open_dataset(
    name: str | Path,
    options: ConvertOptions | None = None,
    *,
    keep_texts: bool = False,
    progress: Progress | None = None,
) -> Store:
    """Opens a store as it is. Anything else is converted on first use, and the result is cached.

    Checksums are verified once, and again when files have changed. A damaged store is an error; one in the cache is
    rebuilt.

    ``sample`` is the embedded dataset: Debian package descriptions and the packages that they depend on.
    ``keep_texts``: of what is converted; a store has them or not.
    """
    path = sample_folder() if str(name) == SAMPLE else Path(name)
    if is_store(path):
        if options not in (None, ConvertOptions()):
            raise OwlmineError(f"{path}: is a finished store; conversion options only apply to the original files")
        return Store.open(path, verify=True)
    if not path.exists():
        raise DataError(path, found="no such file or folder", wanted=f"a store, a dataset, or the word {SAMPLE}")
    options = options or ConvertOptions()
    options = replace(options, keep_texts=keep_texts or options.keep_texts)
    cached = cache_folder() / f"{path.resolve().name}-{_fingerprint(path, options)}"
    if cached.exists():
        try:
            return Store.open(cached, verify=True)
        except OwlmineError:
            _discard(cached)
    try:
        return convert(path, cached, options, progress=progress)
    except OwlmineError:
        if not is_store(cached):  # otherwise another process finished the same work first
            raise
    return Store.open(cached, verify=True)


def _discard(cached: Path) -> None:
    """Removes a damaged store from the cache, and frees its name at once; the source files still exist."""
    aside = cached.with_name(f"{cached.name}.damaged-{uuid.uuid4().hex}")
    with suppress(FileNotFoundError):  # another process was faster
        cached.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def sample_folder() -> Path:
    return Path(str(files("owlmine.data"))) / "sample"


def _fingerprint(path: Path, options: ConvertOptions) -> str:
    """Depends on the files, the options and the store format."""
    members = sorted(path.iterdir()) if path.is_dir() else [path]
    state = {
        "path": str(path.resolve()),
        "files": [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in members if file.is_file()],
        "options": asdict(options),
        "version": [FORMAT_VERSION, __version__],
    }
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:16]
