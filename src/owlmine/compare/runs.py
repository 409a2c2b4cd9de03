"""One run of a comparison: trained, evaluated, and written to a small file, so that it is never repeated."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch

from owlmine.compare.figures import KS, NAMES
from owlmine.compare.folder import CompareFolder
from owlmine.compare.methods import Setting
from owlmine.data.batches import Batches
from owlmine.data.store import Store
from owlmine.dense.finite import NotFinite
from owlmine.dense.progress import Progress, Reporter
from owlmine.dense.validation import ValidationPart
from owlmine.device import choose_device
from owlmine.errors import OwlmineError
from owlmine.evaluate.of_model import evaluate_model
from owlmine.files import write_text
from owlmine.model import Model
from owlmine.recipe.options import TrainOptions
from owlmine.run import Stopped, train
from owlmine.version import __version__

RunRecord = dict[str, Any]
# For a run without a model, or for an ensemble.
_NO_COURSE: RunRecord = {"steps": None, "points_seen": None, "seconds": None, "seconds_per_step": None, "curve": []}


@dataclass(frozen=True)
class Job:
    """A run to make. A search run is never evaluated on the test split."""

    purpose: Literal["search", "final"]
    name: str
    title: str
    options: TrainOptions
    setting: Setting | None = None
    """None if the recipe chooses."""


class Show(Protocol):
    """Shows a comparison while it runs."""

    def running(self, title: str) -> AbstractContextManager[Reporter]:
        """A reporter for one run."""

    def done(self, text: str) -> None:
        """A run has ended."""

    def message(self, text: str) -> None: ...


class Runs:
    """The runs of a comparison on one store: ``made`` by this process, or ``found`` from an earlier one."""

    def __init__(
        self, store: Store, folder: CompareFolder, show: Show, *, data_name: str, keep_models: bool = False
    ) -> None:
        self._store, self._folder, self._show = store, folder, show
        self._data_name, self._keep_models = data_name, keep_models
        self.made = self.found = 0

    def get(self, job: Job) -> RunRecord:
        """The record of a run: found, resumed, or made from the beginning."""
        key = self._key(job)
        file = self._folder.record_of(job.purpose, job.name, key)
        keep = self._keep_models and job.purpose == "final"
        record = _read(file, key)
        if record is not None:
            self.found += 1
            self._show.done(f"{job.title}: {outcome(record)} (found)")
            if keep and record["finite"] and record["model"] is None:
                self._show.message(f"{job.title}: its model was not saved; remove {file} to train it again")
            return record
        place = self._folder.working / key
        if keep:
            place = self._folder.model_of(job.name, seed=job.options.run.seed, key=key)
        record = {"key": key, **self._make(job, place)}
        record["model"] = place.name if keep and record["finite"] else None
        try:
            write_text(file, json.dumps(record, indent=1) + "\n")
        except OSError as error:
            raise OwlmineError(f"{file}: cannot be written: {error.strerror}") from error
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
        self.made += 1
        self._show.done(f"{job.title}: {outcome(record)}")
        return record

    def _key(self, job: Job) -> str:
        """Depends on the options, the data, the version, and whether the test split is evaluated."""
        facts = {
            "purpose": job.purpose,
            "options": job.options.binding(),
            "data": self._store.meta["checksum"],
            "version": __version__,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    def _make(self, job: Job, place: Path) -> RunRecord:
        began, options = time.monotonic(), job.options
        with self._show.running(job.title) as reporter:
            # Steps of an ensemble with judges are not comparable, and the plan chooses their size.
            timer = StepTimer(reporter, batch_size=options.steps.batch_size) if options.steps.batch_size else None
            model = self._trained(options, place, timer or reporter)
        record = {
            "purpose": job.purpose,
            "method": job.name,
            "seed": options.run.seed,
            "setting": None if job.setting is None else asdict(job.setting),
            "finite": model is not None,
            "machine": machine(choose_device(options.run.device)),
            "options": options.binding(),
        }
        if model is None:
            return record | _nothing(job, time.monotonic() - began)
        # A resumed run knows the time of its earlier parts; the clock here does not.
        last = {line["model"]: line["seconds"] for line in model.record.history}
        record["wall_seconds"] = max(sum(last.values()), time.monotonic() - began)
        record["validation"] = dict(model.record.figures)
        record |= _NO_COURSE if timer is None else self._course(model, options, timer.seconds_per_step)
        if job.purpose == "final":
            figures = evaluate_model(model, self._store["test"], ks=KS).figures
            record["test"] = {name: figures[name] for name in NAMES}
        return record

    def _trained(self, options: TrainOptions, place: Path, reporter: Reporter) -> Model | None:
        """None where the loss or the weights are no longer finite."""
        try:
            return train(
                self._store,
                place,
                options,
                resume=(place / "run.json").exists(),
                reporter=reporter,
                data_name=self._data_name,
            )
        except Stopped as stopped:
            stopped.args = (str(stopped).replace("continue with --resume", "run the same command again to resume"),)
            raise
        except NotFinite:
            shutil.rmtree(place, ignore_errors=True)
            return None

    def _course(self, model: Model, options: TrainOptions, seconds_per_step: float | None) -> RunRecord:
        """How far the run of a single model went, and validation P@1 on the way."""
        history = model.record.history
        # There are no times if a process was killed between the end of training and the writing of its record.
        per_step = seconds_per_step or history[-1]["seconds"] / history[-1]["step"]
        batch_size, run = model.record.plan["model"]["batch_size"], options.run
        rows = ValidationPart(self._store, share=run.validation, block=run.validation_block).train_rows
        batches = Batches(self._store["train"], batch_size=batch_size, seed=run.seed, rows=rows)
        per_epoch, num_points = len(batches), len(batches.rows)
        curve = [
            {
                "step": line["step"],
                "points": line["step"] // per_epoch * num_points + line["step"] % per_epoch * batch_size,
                "seconds": line["step"] * per_step,
                "P@1": line["P@1"],
            }
            for line in history
        ]
        last = curve[-1]
        return {
            "steps": last["step"],
            "points_seen": last["points"],
            "seconds": last["seconds"],
            "seconds_per_step": per_step,
            "curve": curve,
        }


def outcome(record: RunRecord) -> str:
    """A run in few words."""
    if not record["finite"]:
        return "diverged; counts as 0"
    test = f", test {record['test']['P@1']:.2f}" if "test" in record else ""
    return f"validation P@1 {record['validation']['P@1']:.2f}{test}, {record['wall_seconds']:.1f} s"


def _nothing(job: Job, wall_seconds: float) -> RunRecord:
    """Of a run without a model."""
    test = {"test": dict.fromkeys(NAMES, 0.0)} if job.purpose == "final" else {}
    return {"wall_seconds": wall_seconds, "validation": {"P@1": 0.0}, **_NO_COURSE, **test}


def _read(file: Path, key: str) -> RunRecord | None:
    """None if the file is missing or damaged."""
    try:
        record: Any = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get("key") == key else None


class StepTimer:
    """A reporter that passes everything on to another and measures how long a step takes.

    A run reports before and after each validation, at the same step: the time in between is not training. The time
    before the first report (loading, compiling) counts only if there is no other measurement.
    """

    def __init__(self, reporter: Reporter, *, batch_size: int) -> None:
        self._reporter, self._batch_size = reporter, batch_size
        self._last: tuple[int, float] | None = None
        self._first_guess: float | None = None
        self._steps, self._seconds = 0, 0.0

    def progress(self, progress: Progress) -> None:
        now = time.monotonic()
        if self._last is None:
            self._first_guess = self._batch_size / progress.points_per_second
        elif progress.step > self._last[0]:
            self._steps += progress.step - self._last[0]
            self._seconds += now - self._last[1]
        self._reporter.progress(progress)
        self._last = progress.step, time.monotonic()

    def message(self, text: str) -> None:
        self._reporter.message(text)

    @property
    def seconds_per_step(self) -> float | None:
        """None for a run that never reported."""
        return self._seconds / self._steps if self._steps else self._first_guess


def machine(device: torch.device) -> dict[str, Any]:
    """The machine of a run: without it, seconds mean nothing."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "owlmine": __version__,
    }


def machine_text(facts: dict[str, Any]) -> str:
    """On one line, for people."""
    place = f"{facts['cpu']}, {facts['threads']} threads"
    if facts["device"] != "cpu":
        place = f"{facts['device']} ({place})"
    return f"{place}; Python {facts['python']}, torch {facts['torch']}, NumPy {facts['numpy']}"


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
