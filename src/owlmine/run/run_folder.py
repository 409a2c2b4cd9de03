"""The folder of a run: what it says of itself, and what goes when the model is finished."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import owlmine
from owlmine.data.store import Store
from owlmine.device import choose_device
from owlmine.errors import OwlmineError
from owlmine.files import is_unfinished, remove_unfinished, write_text
from owlmine.model.folder import load
from owlmine.model.predictor import Predictor
from owlmine.recipe.options import TrainOptions
from owlmine.train.best import BestWeights
from owlmine.train.checkpoint import Checkpoints

MEMBERS = "members"
"""The folder of the models that a composed one is made of, while it is unfinished."""


def recipe(options: TrainOptions) -> dict[str, Any]:
    """Every option that a run is bound to. Whether somebody watches it may change when it is resumed."""
    return {name: value for name, value in asdict(options).items() if name != "tensorboard"}


def run_description(store: Store, options: TrainOptions) -> str:
    """What ``run.json`` says: a run can be resumed with the same and nothing else."""
    return json.dumps({"options": recipe(options), "data": store.meta["checksum"]}, indent=1)


def is_run_of(out: Path, store: Store, options: TrainOptions) -> bool:
    """Whether the folder's run, finished or not, is one of these options and data."""
    return not differences(out, store, options)


def differences(out: Path, store: Store, options: TrainOptions) -> list[str]:
    """How these options and data differ from those of the folder's run, in words."""
    try:
        told = json.loads((out / "run.json").read_text("utf-8"))
        # Options that came later had no effect then, which is what their defaults stand for in a single model.
        then, data = recipe(TrainOptions(recipe="single")) | told["options"], told["data"]
    except (OSError, ValueError, TypeError, KeyError):
        return ["run.json cannot be read"]
    now = recipe(options)
    changed = [name for name in then | now if name not in then or name not in now or then[name] != now[name]]
    found = [f"{name} is {now.get(name)!r}, was {then.get(name)!r}" for name in changed]
    return found if data == store.meta["checksum"] else [*found, "the data are others"]


def require_run_of(out: Path, store: Store, options: TrainOptions) -> None:
    """Raises OwlmineError unless the folder's run may go on with these options and data."""
    if changed := differences(out, store, options):
        raise OwlmineError(
            f"{out / 'run.json'}: tells of other options or data; resume with the same, or train anew"
            f" ({'; '.join(changed)})"
        )


def check_folder(out: Path, *, resume: bool) -> None:
    """Raises OwlmineError unless a run may begin in the folder, or go on where it is to be resumed."""
    has_run = (out / "run.json").exists()
    if resume:
        if not has_run:
            raise OwlmineError(f"{out}: holds no run to resume")
    elif (out / "config.json").exists():
        raise OwlmineError(f"{out}: holds a finished model; give another folder")
    elif not is_free(out):
        raise OwlmineError(f"{out}: {'holds an unfinished run; go on with --resume' if has_run else 'already exists'}")


def finished_before(store: Store, out: Path, options: TrainOptions, tell: Callable[[str], None]) -> Predictor:
    """The model of a run that has nothing left to do but, perhaps, to tidy up."""
    if changed := differences(out, store, options):
        raise OwlmineError(
            f"{out}: holds a finished model of other options or data; give another folder ({'; '.join(changed)})"
        )
    with working_in(out):
        remove_working_files(out, tell)
    return load(out, device=choose_device(options.device))


def remove_working_files(out: Path, tell: Callable[[str], None]) -> None:
    """What only an unfinished run needs. What cannot be removed is told and stays: the model is finished."""
    checkpoints, best = Checkpoints(out / "checkpoints"), BestWeights(out / "best.safetensors")
    for remove in (checkpoints.remove_all, best.remove, lambda: remove_unfinished(out)):
        try:
            remove()
        except OSError as error:
            tell(f"{out}: files that only the run needed cannot be removed: {error.strerror}")
    if (out / MEMBERS).is_dir():
        shutil.rmtree(out / MEMBERS, ignore_errors=True)


def is_free(out: Path) -> bool:
    """Nothing there, an empty folder, or one in which a process was killed before it had written anything."""
    return not out.exists() or (out.is_dir() and all(is_unfinished(file) for file in out.iterdir()))


@contextmanager
def running_in(out: Path, *, resume: bool) -> Iterator[None]:
    """Holds the folder for a run that is to begin or go on there.

    Looks at the folder under the lock: since it was looked at last, another process may have trained in it.
    """
    with working_in(out):
        check_folder(out, resume=resume)
        if (out / "config.json").exists():
            raise OwlmineError(f"{out}: another process has finished the run meanwhile")
        yield


def check_own_folder(out: Path, command: str) -> None:
    """Raises OwlmineError unless the folder is new, or one that the same command made."""
    if not (is_free(out) or mark_of(out, command).is_file()):
        raise OwlmineError(f"{out}: holds something else; wanted a new folder or one that owlmine {command} made")


@contextmanager
def own_folder(out: Path, command: str) -> Iterator[None]:
    """Holds the folder of a command that trains several models, and marks it as one of that command."""
    with working_in(out):
        check_own_folder(out, command)
        try:
            remove_unfinished(out)
            write_text(mark_of(out, command), f"made by: owlmine {owlmine.__version__} {command}\n")
        except OSError as error:
            raise OwlmineError(f"{out}: cannot be written: {error.strerror}") from error
        yield


def mark_of(out: Path, command: str) -> Path:
    """The file by which a command knows its folder."""
    return out / f".owlmine-{command}"


@contextmanager
def working_in(out: Path) -> Iterator[None]:
    """Makes the folder and holds it for this process alone; the lock of a killed process is gone with it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
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
