"""The folder of a run: its description, and the files that are removed when the model is finished."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from owlmine.data.store import Dataset
from owlmine.device import choose_device
from owlmine.errors import OwlmineError
from owlmine.files import is_unfinished, remove_unfinished, write_text
from owlmine.model import Model, load
from owlmine.recipe.estimate import Estimate, peak_memory
from owlmine.recipe.options import TrainOptions
from owlmine.recipe.plan import Plan
from owlmine.run.checkpoints import BestWeights, Checkpoints
from owlmine.version import __version__

MEMBERS = "members"
"""The folder of the models of an ensemble, while the run is unfinished."""
METRICS = "metrics.jsonl"
_RUN = "run.json"
_REHEARSAL = "rehearsal"


def run_description(data: Dataset, options: TrainOptions, plan: Plan, estimate: Estimate | None) -> str:
    """The content of ``run.json``. A run can only be resumed with the same options, plan and data; the estimate of what
    it takes is for people."""
    record = {
        "options": options.binding(),
        "plan": plan.to_dict(),
        "data": data.meta["checksum"],
        "estimate": None if estimate is None else estimate.to_dict(),
    }
    return json.dumps(record, indent=1) + "\n"


def note_costs(out: Path, *, seconds: float | None, message: Callable[[str], None]) -> None:
    """Adds to ``run.json`` what the run took, in the units of its estimate. Called when the folder is largest."""
    costs = {
        "seconds": None if seconds is None else round(seconds, 1),
        "memory_bytes": peak_memory(),
        "gpu_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
        "disk_bytes": sum(file.stat().st_size for file in out.rglob("*") if file.is_file()),
    }
    try:
        record = json.loads((out / _RUN).read_text("utf-8"))
        write_text(out / _RUN, json.dumps(record | {"costs": costs}, indent=1) + "\n")
    except (OSError, ValueError, TypeError) as error:
        message(f"{out / _RUN}: what the run took cannot be noted: {error}; the model is finished")


def plan_of_run(out: Path, plans: Sequence[Plan]) -> Plan:
    """The plan that the folder's run began with, never a new choice; the first if it is none of these."""
    try:
        stored = json.loads((out / _RUN).read_text("utf-8"))["plan"]
    except (OSError, ValueError, TypeError, KeyError):
        return plans[0]
    return next((plan for plan in plans if _as_stored(plan) == stored), plans[0])


def _as_stored(plan: Plan) -> Any:
    return json.loads(json.dumps(plan.to_dict()))


def is_run_of(out: Path, data: Dataset, options: TrainOptions) -> bool:
    """Whether the folder's run, finished or not, has these options and data."""
    return not differences(out, data, options)


def differences(out: Path, data: Dataset, options: TrainOptions, plan: Plan | None = None) -> list[str]:
    """Describes how these options, data and plan differ from those of the folder's run."""
    try:
        record = json.loads((out / "run.json").read_text("utf-8"))
        before, plan_before, checksum = dict(record["options"]), dict(record["plan"]), record["data"]
    except (OSError, ValueError, TypeError, KeyError):
        return ["run.json cannot be read"]
    found = _changes(options.binding(), before)
    if checksum != data.meta["checksum"]:
        found.append("the data have changed")
    if not found and plan is not None:  # the same options may give a different plan on another machine
        changes = _changes(_as_stored(plan), plan_before)
        found = [f"the plan for this machine: {change}" for change in changes]
    return found


def _changes(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    changed = [
        name for name in dict(before) | dict(now) if name not in before or name not in now or before[name] != now[name]
    ]
    return [f"{name} is {now.get(name)!r}, was {before.get(name)!r}" for name in changed]


def require_run_of(out: Path, data: Dataset, options: TrainOptions, plan: Plan) -> None:
    """Raises OwlmineError unless the folder's run can resume with these options and data on this machine."""
    if changed := differences(out, data, options, plan):
        raise OwlmineError(
            f"{out / 'run.json'}: belongs to a run with other options or data; resume it with the same, or train into a"
            f" new folder ({'; '.join(changed)})"
        )


def check_folder(out: Path, *, resume: bool) -> None:
    """Raises OwlmineError unless a run can start in the folder, or resume if that is requested."""
    has_run = (out / "run.json").exists()
    if resume:
        if not has_run:
            raise OwlmineError(f"{out}: has no run to resume")
    elif (out / "config.json").exists():
        raise OwlmineError(f"{out}: contains a finished model; choose another folder")
    elif not is_free(out):
        raise OwlmineError(f"{out}: {'has an unfinished run; continue with --resume' if has_run else 'already exists'}")


def finished_before(data: Dataset, out: Path, options: TrainOptions, message: Callable[[str], None]) -> Model:
    """The model of a finished run, which may still have files to clean up."""
    if changed := differences(out, data, options):
        raise OwlmineError(
            f"{out}: contains a finished model with other options or data; choose another folder ({'; '.join(changed)})"
        )
    with working_in(out):
        remove_working_files(out, message)
    return load(out, device=choose_device(options.run.device))


def remove_working_files(out: Path, message: Callable[[str], None]) -> None:
    """Removes the files that only an unfinished run needs, and no others. A file that cannot be removed stays: the
    model is finished."""
    errors = []
    for remove in _removals(out):
        try:
            remove()
        except OSError as error:
            errors.append(error)
    if errors:
        message(f"{out}: working files of the run cannot be removed: {errors[0].strerror}")


def _removals(out: Path) -> Iterator[Callable[[], None]]:
    stages = [out / MEMBERS / _REHEARSAL, out / MEMBERS]
    members = [place for stage in stages for place in stage.glob("[0-9]*") if place.name.isdigit()]
    for place in (*members, out):
        yield Checkpoints(place / "checkpoints").remove_all
        yield BestWeights(place / "best.safetensors").remove
        yield partial(remove_unfinished, place)
    for place in members:
        yield partial((place / METRICS).unlink, missing_ok=True)
    yield partial((out / MEMBERS / f"{_REHEARSAL}.json").unlink, missing_ok=True)
    yield partial(remove_unfinished, out / MEMBERS)
    for place in (*members, *stages):
        yield partial(_remove_if_empty, place)


def _remove_if_empty(folder: Path) -> None:
    # A link stays, and so does a folder with other files.
    with suppress(OSError):
        folder.rmdir()


def is_free(out: Path) -> bool:
    """Whether the folder is missing, empty, or left by a process that was killed before it wrote anything."""
    return not out.exists() or (out.is_dir() and all(is_unfinished(file) for file in out.iterdir()))


@contextmanager
def running_in(out: Path, *, resume: bool) -> Iterator[None]:
    """Locks the folder for a run that starts or resumes there.

    Checks the folder again under the lock: another process may have trained in it since the last check.
    """
    with working_in(out):
        check_folder(out, resume=resume)
        if (out / "config.json").exists():
            raise OwlmineError(f"{out}: another process has finished the run in the meantime")
        yield


def check_own_folder(out: Path, command: str) -> None:
    """Raises OwlmineError unless the folder is new, or was made by the same command."""
    if not (is_free(out) or mark_of(out, command).is_file()):
        raise OwlmineError(f"{out}: has other contents; wanted a new folder or one that owlmine {command} made")


@contextmanager
def own_folder(out: Path, command: str) -> Iterator[None]:
    """Locks the folder of a command that trains several models, and puts the command's marker file there."""
    with working_in(out):
        check_own_folder(out, command)
        try:
            remove_unfinished(out)
            write_text(mark_of(out, command), f"made by: owlmine {__version__} {command}\n")
        except OSError as error:
            raise OwlmineError(f"{out}: cannot be written: {error.strerror}") from error
        yield


def mark_of(out: Path, command: str) -> Path:
    """The file by which a command recognises its folder."""
    return out / f".owlmine-{command}"


@contextmanager
def working_in(out: Path) -> Iterator[None]:
    """Creates the folder and locks it for this process; the lock of a killed process ends with it."""
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
