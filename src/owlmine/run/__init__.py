"""From a dataset to a trained model in a folder: the recipe, with checkpoints, progress and resume around it."""

from __future__ import annotations

import time
from pathlib import Path

from owlmine.data.datasets import open_dataset
from owlmine.data.store import Store
from owlmine.dense.progress import Reporter, SilentReporter
from owlmine.device import choose_device
from owlmine.errors import OwlmineError
from owlmine.files import remove_unfinished, write_text
from owlmine.folder.model_folder import save_model
from owlmine.model import Model
from owlmine.recipe.estimate import Estimate, announcement
from owlmine.recipe.fit import Fit, choose_plan, plans_for
from owlmine.recipe.options import TrainOptions
from owlmine.recipe.plan import Plan
from owlmine.run.curves import require_tensorboard
from owlmine.run.run_folder import (
    check_folder,
    finished_before,
    note_costs,
    plan_of_run,
    remove_working_files,
    require_run_of,
    run_description,
    running_in,
)
from owlmine.run.surroundings import FolderSurroundings, Stopped, StopSignal, write_metrics

__all__ = ["Stopped", "check_run", "train"]


def train(
    data: str | Path | Store,
    out: str | Path,
    options: TrainOptions | None = None,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
    data_name: str | None = None,
) -> Model:
    """Trains a model on ``data`` (a store, anything that can be converted, or ``sample``) into the folder ``out``.

    With ``resume=True`` an interrupted run continues as if it had never stopped; a finished one returns its model.
    Raises ``Stopped`` if SIGINT or SIGTERM stopped the run; it can then be resumed. ``data_name`` is for the record of
    the model.
    """
    out, options = Path(out), options or TrainOptions()
    check_run(out, options, resume=resume)
    store = data if isinstance(data, Store) else open_dataset(data, keep_texts=options.model.keep_texts)
    reporter = reporter or SilentReporter()
    if resume and (out / "config.json").exists():
        return finished_before(store, out, options, reporter.message)
    name = data_name or (store.path.name if isinstance(data, Store) else Path(data).name)
    began = time.monotonic()
    with StopSignal() as stop:
        plans, estimate = plans_for(store, options, name=name), None
        if resume:
            plan = plan_of_run(out, plans)
        else:
            plan, estimate = choose_plan(store, options, plans)
            for line in announcement(plan, estimate, out, minutes=options.run.minutes):
                reporter.message(line)
        model = _run(store, out, options, plan, estimate, reporter, name, resume=resume, stop=stop, began=began)
        if stop.number is not None:
            raise Stopped(stop.number, f"stopped after the model was finished; it is in {out}")
    return model


def _run(
    store: Store,
    out: Path,
    options: TrainOptions,
    plan: Plan,
    estimate: Estimate | None,
    reporter: Reporter,
    name: str,
    *,
    resume: bool,
    stop: StopSignal,
    began: float,
) -> Model:
    with running_in(out, resume=resume):
        _begin(out, store, options, plan, estimate, resume=resume)
        surroundings = FolderSurroundings(
            out,
            reporter,
            stop,
            alone=plan.is_single,
            resume=resume,
            checkpoint_minutes=options.run.checkpoint_minutes,
            tensorboard=options.run.tensorboard,
        )
        with surroundings:
            model = Model.of(Fit(store, plan, options, surroundings, name).run())
        stop.check("before the model was saved")
        write_metrics(out, [dict(line) for line in model.record.history], reporter)
        save_model(out, model)
        # A resumed run does not know how long its earlier parts took.
        note_costs(out, seconds=None if resume else time.monotonic() - began, message=reporter.message)
        # Only now: a run killed before this line resumes from the files that are removed here.
        remove_working_files(out, reporter.message)
        return model


def _begin(
    out: Path, store: Store, options: TrainOptions, plan: Plan, estimate: Estimate | None, *, resume: bool
) -> None:
    if resume:
        require_run_of(out, store, options, plan)
        return
    try:
        remove_unfinished(out)
        write_text(out / "run.json", run_description(store, options, plan, estimate))
    except OSError as error:
        raise OwlmineError(f"{out}: cannot be written: {error.strerror}") from error


def check_run(out: Path, options: TrainOptions, *, resume: bool) -> None:
    """Raises OwlmineError for problems that are known before the data are read: folder, device, missing packages."""
    check_folder(out, resume=resume)
    choose_device(options.run.device)
    if options.run.tensorboard:
        require_tensorboard()
