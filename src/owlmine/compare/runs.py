"""One run of a comparison: trained, judged, and written down in a small file that nobody has to make again."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import owlmine
from owlmine.compare.folder import CompareFolder
from owlmine.compare.machine import machine
from owlmine.compare.methods import Method, Setting
from owlmine.compare.timing import StepTimer
from owlmine.data.batches import Batches
from owlmine.data.store import Store
from owlmine.demo.figures import KS, NAMES
from owlmine.device import choose_device
from owlmine.errors import OwlmineError
from owlmine.evaluate.of_model import evaluate_model
from owlmine.files import write_text
from owlmine.model.predictor import Predictor
from owlmine.train import NotFinite, Reporter, Stopped, TrainOptions, train
from owlmine.train.run_folder import recipe
from owlmine.train.validate import validation_part

Record = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """A run to be made. A run of the search is never judged on the test split."""

    purpose: Literal["search", "final"]
    method: Method
    setting: Setting
    options: TrainOptions
    title: str


class Show(Protocol):
    """Shows a comparison while it runs."""

    def running(self, title: str) -> AbstractContextManager[Reporter]:
        """A reporter for one run."""

    def done(self, text: str) -> None:
        """A run has ended."""

    def message(self, text: str) -> None: ...


class Runs:
    """The runs of a comparison on one store. ``made`` and ``found`` count those of this process and earlier ones."""

    def __init__(
        self, store: Store, folder: CompareFolder, show: Show, *, data_name: str, keep_models: bool = False
    ) -> None:
        self._store, self._folder, self._show = store, folder, show
        self._data_name, self._keep_models = data_name, keep_models
        self.made = self.found = 0

    def get(self, plan: Plan) -> Record:
        """The record of a run: found, gone on with, or made from the beginning."""
        key = self._key(plan)
        file = self._folder.runs / f"{plan.purpose}-{plan.method.name}-{key}.json"
        keeps = self._keep_models and plan.purpose == "final"
        record = _read(file, key)
        if record is not None:
            self.found += 1
            self._show.done(f"{plan.title}: {outcome(record)} (found)")
            if keeps and record["finite"] and record["model"] is None:
                self._show.message(f"{plan.title}: its model was not kept then; remove {file} to have it made again")
            return record
        kept = self._folder.models / f"{plan.method.name}-seed-{plan.options.seed}-{key}"
        place = kept if keeps else self._folder.working / key
        record = {"key": key, **self._make(plan, place)}
        record["model"] = kept.name if keeps and record["finite"] else None
        try:
            write_text(file, json.dumps(record, indent=1) + "\n")
        except OSError as error:
            raise OwlmineError(f"{file}: cannot be written: {error.strerror}") from error
        if not keeps:
            shutil.rmtree(place, ignore_errors=True)
        self.made += 1
        self._show.done(f"{plan.title}: {outcome(record)}")
        return record

    def _key(self, plan: Plan) -> str:
        """Changes with the options, the data, the version, and whether the test split is looked at."""
        told = {
            "purpose": plan.purpose,
            "options": recipe(plan.options),
            "data": self._store.meta["checksum"],
            "version": owlmine.__version__,
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    def _make(self, plan: Plan, place: Path) -> Record:
        began = time.monotonic()
        with self._show.running(plan.title) as reporter:
            timer = StepTimer(reporter, batch_size=plan.options.batch_size)
            predictor = self._trained(plan.options, place, timer)
        record = {
            "purpose": plan.purpose,
            "method": plan.method.name,
            "seed": plan.options.seed,
            "setting": asdict(plan.setting),
            "finite": predictor is not None,
            "machine": machine(choose_device(plan.options.device)),
            "options": recipe(plan.options),
        }
        if predictor is None:
            return record | _nothing(plan, time.monotonic() - began)
        history = predictor.config["history"]
        # Nothing was timed where a process was killed between the end of its training and the writing of its record.
        per_step = timer.seconds_per_step or history[-1]["seconds"] / history[-1]["step"]
        record |= {
            # A run that was interrupted knows of its earlier parts; the clock here does not.
            "wall_seconds": max(history[-1]["seconds"], time.monotonic() - began),
            "seconds_per_step": per_step,
            "validation": {name: value for name, value in history[-1].items() if name.startswith("P@")},
            **self._course(history, plan.options, per_step),
        }
        if plan.purpose == "final":
            figures = evaluate_model(predictor, self._store["test"], ks=KS).figures
            record["test"] = {name: figures[name] for name in NAMES}
        return record

    def _trained(self, options: TrainOptions, place: Path, reporter: Reporter) -> Predictor | None:
        """None where the loss or the weights left the numbers."""
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
            stopped.args = (str(stopped).replace("go on with --resume", "the same command goes on from there"),)
            raise
        except NotFinite:
            shutil.rmtree(place, ignore_errors=True)
            return None

    def _course(self, history: list[Record], options: TrainOptions, seconds_per_step: float) -> Record:
        """How far the run went, and validation P@1 on the way."""
        part = validation_part(self._store, options)
        batches = Batches(self._store["train"], batch_size=options.batch_size, seed=options.seed, rows=part.train_rows)
        per_epoch, num_points = len(batches), len(batches.rows)
        curve = [
            {
                "step": record["step"],
                "points": record["step"] // per_epoch * num_points + record["step"] % per_epoch * options.batch_size,
                "seconds": record["step"] * seconds_per_step,
                "P@1": record["P@1"],
            }
            for record in history
        ]
        last = curve[-1]
        return {"steps": last["step"], "points_seen": last["points"], "seconds": last["seconds"], "curve": curve}


def outcome(record: Record) -> str:
    """A run in few words."""
    if not record["finite"]:
        return "the loss left the numbers; counts as 0"
    test = f", test {record['test']['P@1']:.2f}" if "test" in record else ""
    return f"validation P@1 {record['validation']['P@1']:.2f}{test}, {record['wall_seconds']:.1f} s"


def _nothing(plan: Plan, wall_seconds: float) -> Record:
    """A run without a model."""
    judged = {"test": dict.fromkeys(NAMES, 0.0)} if plan.purpose == "final" else {}
    course: Record = {"steps": None, "points_seen": None, "seconds": None, "seconds_per_step": None, "curve": []}
    return {"wall_seconds": wall_seconds, "validation": {"P@1": 0.0}, **course, **judged}


def _read(file: Path, key: str) -> Record | None:
    """None where there is no such file, or one that was damaged."""
    try:
        record: Any = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get("key") == key else None
