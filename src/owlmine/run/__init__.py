"""From a dataset to a trained model in a folder."""

from __future__ import annotations

from pathlib import Path

from owlmine.data.datasets import open_dataset
from owlmine.data.store import Store
from owlmine.device import choose_device
from owlmine.errors import OwlmineError
from owlmine.model.predictor import Predictor
from owlmine.recipe.options import TrainOptions
from owlmine.train.composed import ComposedRun
from owlmine.train.composition import composition, without_open_sizes
from owlmine.train.event_file import require_tensorboard
from owlmine.train.finite import NotFinite, require_workable_values
from owlmine.train.progress import Progress, Reporter
from owlmine.train.reporters import SilentReporter
from owlmine.train.run_folder import check_folder, finished_before
from owlmine.train.stopping import Stopped, StopSignal
from owlmine.train.trainer import Trainer

__all__ = ["NotFinite", "Progress", "Reporter", "Stopped", "TrainOptions", "Trainer", "check_run", "train"]


def train(
    data: str | Path | Store,
    out: str | Path,
    options: TrainOptions | None = None,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
    data_name: str | None = None,
) -> Predictor:
    """Trains a model on ``data`` (a store, anything that can be converted, or ``sample``) into the folder ``out``.

    A folder that was interrupted goes on with ``resume=True`` as if it had never stopped; one that had finished gives
    its model. Raises ``Stopped`` where SIGINT or SIGTERM asked the run to end; what it has learned is kept then, for
    ``resume=True``.
    ``data_name`` is for the model card.
    """
    out, options = Path(out), options or TrainOptions()
    check_run(out, options, resume=resume)
    store = data if isinstance(data, Store) else open_dataset(data)
    options = without_open_sizes(
        options,
        device=choose_device(options.device),
        dense=store.meta["queries"] == "dense",
        num_points=len(store["train"]),
    )
    reporter = reporter or SilentReporter()
    if resume and (out / "config.json").exists():
        return finished_before(store, out, options, reporter.message)
    name = data_name or (store.path.name if isinstance(data, Store) else Path(data).name)
    with StopSignal() as stop:
        predictor = _run(store, out, options, reporter, name, resume=resume, stop=stop)
        if stop.number is not None:
            raise Stopped(stop.number, f"stopped when the model was finished; it is in {out}")
    return predictor


def _run(
    store: Store, out: Path, options: TrainOptions, reporter: Reporter, name: str, *, resume: bool, stop: StopSignal
) -> Predictor:
    require_workable_values(store, name=name)
    try:
        parts = composition(
            options,
            device=choose_device(options.device),
            dense=store.meta["queries"] == "dense",
            num_classes=store.num_classes,
            num_points=len(store["train"]),
            has_dev="dev" in store.splits,
        )
        if not parts.is_single:
            return ComposedRun(store, out, options, parts, reporter, data_name=name).run(resume=resume, stop=stop)
        trainer = Trainer(store, out, options, reporter, data_name=name)
    except ValueError as error:
        raise OwlmineError(str(error)) from error
    return trainer.run(resume=resume, stop=stop)


def check_run(out: Path, options: TrainOptions, *, resume: bool) -> None:
    """Raises OwlmineError for what can be known to fail before the data are there: folder, device, missing packages."""
    check_folder(out, resume=resume)
    choose_device(options.device)
    if options.tensorboard:
        require_tensorboard()
