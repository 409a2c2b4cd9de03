"""The folder of a run: what it says of itself, and what goes when the model is finished."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from owlmine.data.store import Store
from owlmine.errors import OwlmineError
from owlmine.model.whole_files import is_unfinished, remove_unfinished
from owlmine.train.best import BestWeights
from owlmine.train.checkpoint import Checkpoints
from owlmine.train.options import TrainOptions


def run_description(store: Store, options: TrainOptions) -> str:
    """What ``run.json`` says: a run can be resumed with the same and nothing else."""
    return json.dumps({"options": asdict(options), "data": store.meta["checksum"]}, indent=1)


def remove_working_files(out: Path) -> None:
    """What only an unfinished run needs."""
    Checkpoints(out / "checkpoints").remove_all()
    BestWeights(out / "best.safetensors").remove()
    remove_unfinished(out)


def is_free(out: Path) -> bool:
    """Nothing there, an empty folder, or one in which a process was killed before it had written anything."""
    return not out.exists() or (out.is_dir() and all(is_unfinished(file) for file in out.iterdir()))


@contextmanager
def working_in(out: Path) -> Iterator[None]:
    """Makes the folder and holds it for this process alone; the lock of a killed process is gone with it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise OwlmineError(f"{out}: cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise OwlmineError(f"{out}: another process is training in this folder") from error
    except OSError:
        pass  # a file system without locks
    try:
        yield
    finally:
        os.close(handle)
