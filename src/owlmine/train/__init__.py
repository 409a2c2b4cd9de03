"""From a dataset to a trained model in a folder."""

from __future__ import annotations

from pathlib import Path

from owlmine.data.datasets import open_dataset
from owlmine.data.store import Store
from owlmine.errors import OwlmineError
from owlmine.model.predictor import Predictor
from owlmine.train.options import TrainOptions
from owlmine.train.reporters import SilentReporter
from owlmine.train.trainer import Progress, Reporter, Stopped, Trainer

__all__ = ["Progress", "Reporter", "Stopped", "TrainOptions", "Trainer", "train"]


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

    A folder that was interrupted goes on with ``resume=True`` as if it had never stopped. Raises ``Stopped`` where
    SIGINT or SIGTERM asked the run to end; a checkpoint has been written then. ``data_name`` is for the model card.
    """
    out = Path(out)
    if (out / "config.json").exists():
        raise OwlmineError(f"{out}: holds a finished model; give another folder")
    if not resume and out.exists() and (not out.is_dir() or any(out.iterdir())):
        unfinished = (out / "run.json").exists()
        raise OwlmineError(
            f"{out}: {'holds an unfinished run; go on with --resume' if unfinished else 'already exists'}"
        )
    if resume and not (out / "run.json").exists():
        raise OwlmineError(f"{out}: holds no run to resume")
    store = data if isinstance(data, Store) else open_dataset(data)
    name = data_name or (store.path.name if isinstance(data, Store) else Path(data).name)
    try:
        trainer = Trainer(store, out, options or TrainOptions(), reporter or SilentReporter(), data_name=name)
    except ValueError as error:
        raise OwlmineError(str(error)) from error
    return trainer.run(resume=resume)
