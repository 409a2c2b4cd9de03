"""The public door: ``fit``, ``load``, and the ``Model`` that they return."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import torch

from owlmine.add_classes.add import add_classes
from owlmine.add_classes.examples import Examples
from owlmine.add_classes.vectors import CAUTION
from owlmine.data.datasets import open_dataset
from owlmine.data.describe import conversion_notes
from owlmine.data.memory import MemoryDataset
from owlmine.data.options import ConvertOptions
from owlmine.data.python_data import dataset_from
from owlmine.data.store import Dataset, Store
from owlmine.dense.progress import Progress, SilentReporter
from owlmine.errors import OwlmineError
from owlmine.evaluate.model_data import ReadOptions, open_for_model, split_from
from owlmine.evaluate.of_model import Evaluation, evaluate_model
from owlmine.files import NewFolder
from owlmine.folder.model_folder import load_model, save_model
from owlmine.metrics.propensity import PropensityConstants
from owlmine.rank.explain import MOST_WORDS, Reasons, explain_query
from owlmine.rank.predictor import Prediction, Predictions, Predictor
from owlmine.rank.similar import SimilarClass, similar_classes
from owlmine.recipe import fit as recipe
from owlmine.recipe.options import TrainOptions

__all__ = ["Model", "Prediction", "Predictions", "Reasons", "SimilarClass", "fit", "load"]

_IN_MEMORY = "data in memory"


class Model(Predictor):
    """A trained model. It does not change and may be used from many threads at once.

    ``predict`` and ``predict_batch`` answer queries; ``record`` has its origin, options and figures.
    """

    @classmethod
    def of(cls, predictor: Predictor) -> Self:
        """A ``Model`` from a ``Predictor``."""
        return cls(**{field.name: getattr(predictor, field.name) for field in fields(Predictor) if field.init})

    def explain(
        self,
        query: Any,
        k: int = 5,
        *,
        classes: Collection[str] | None = None,
        allowed: Collection[str] | None = None,
        forbidden: Collection[str] | None = None,
        tail: float = 0.0,
        most_words: int = MOST_WORDS,
    ) -> list[Reasons]:
        """Why the ``k`` best classes of one raw query, a text or a vector, are its answer; best first.

        ``classes``: keys of the classes to explain instead, whether they are among the best or not. ``allowed``,
        ``forbidden``, ``tail``: as for ``predict``. ``most_words``: words or features for each class, those that move
        its score most. Empty if the model knows no feature of the query, as its answer is.
        """
        return explain_query(
            self,
            query,
            k,
            classes=classes,
            allowed=allowed,
            forbidden=forbidden,
            tail=tail,
            most_words=most_words,
        )

    def similar_classes(self, key: str | int, k: int = 10) -> list[SimilarClass]:
        """The ``k`` classes whose vectors in the dense model are most similar to that of a class, by key or name."""
        return similar_classes(self, key, k)

    def evaluate(
        self,
        X: Any,
        Y: Any = None,
        *,
        split: str | None = None,
        ks: Sequence[int] | None = None,
        constants: PropensityConstants | None = None,
        tail: float = 0.0,
        options: ReadOptions | None = None,
    ) -> Evaluation:
        """Precision, recall, nDCG, propensity-scored figures and the calibration error on labelled points.

        ``X``: queries as ``predict`` takes them, with labels ``Y`` as ``fit`` takes them; or, without ``Y``, a dataset
        that can be read (a store, a file, a folder, ``sample``), of which ``split`` is evaluated (``test`` by default).
        """
        if Y is not None:
            points = split_from(self, X, Y)
            return evaluate_model(self, points, ks=ks, constants=constants, tail=tail)
        if isinstance(X, Store):
            self.check_fits(X)
            return evaluate_model(self, X[split or "test"], ks=ks, constants=constants, tail=tail)
        with TemporaryDirectory(prefix="owlmine-") as scratch:
            store, name = open_for_model(self, X, Path(scratch), split=split, options=options)
            return evaluate_model(self, store[name], ks=ks, constants=constants, tail=tail)

    def add_classes(
        self,
        X: Any = None,
        Y: Any = None,
        *,
        names: Mapping[str, str] | None = None,
        caution: float = CAUTION,
    ) -> Self:
        """A new model with more classes, from examples ``X`` with labels ``Y``, from names by key, or both.

        Nothing is trained, and this model does not change. The record of the new one says how well they are found.
        """
        examples = None if X is None else Examples.of(self, X, Y)
        return self.of(add_classes(self, examples, names, caution=caution, source=_IN_MEMORY).predictor)

    def save(self, path: str | Path) -> None:
        """Writes the model into a new folder, whole or not at all."""
        path = Path(path)
        try:
            with NewFolder(path) as folder:
                save_model(folder.path, self)
                folder.publish()
        except OSError as error:
            raise OwlmineError(f"{path}: cannot be written: {error.strerror or error}") from error

    def on(self, device: torch.device | str) -> Self:
        """A copy of the model on that device."""
        return self.of(super().on(torch.device(device)))


def fit(
    X: Any,
    Y: Any = None,
    *,
    class_names: Mapping[Any, str] | Sequence[str] | None = None,
    validation: tuple[Any, Any] | None = None,
    device: str | None = None,
    seed: int | None = None,
    effort: str | None = None,
    minutes: float | None = None,
    options: TrainOptions | Mapping[str, Any] | None = None,
    reading: ConvertOptions | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Model:
    """Trains a model by the recipe of ``owlmine train``, in memory.

    X: texts, a SciPy matrix, a NumPy array or a pandas object, with labels ``Y`` as a list of labels or of lists of
        labels, or a sparse or dense indicator matrix. Without ``Y``: a dataset on disk (a folder, a store, ``sample``).
    class_names: names of classes, by key, or in the order of the columns of an indicator matrix. validation: (X, Y) for
    choices and calibration; by default, training points are held out. device, seed, effort, minutes: options of
    ``owlmine train``. options: ``TrainOptions``, or some of its options
    by name, such as ``{"epochs": 3, "dim": 64}``. reading: how texts and files are read, as for ``owlmine data
    convert``. progress: called with a ``Progress`` while models train.
    """
    chosen = options if isinstance(options, TrainOptions) else TrainOptions.of(**dict(options or {}))
    given = {"device": device, "seed": seed, "effort": effort, "minutes": minutes}
    chosen = chosen.with_(**{name: value for name, value in given.items() if value is not None})
    data, name = _dataset(X, Y, class_names, validation, reading, keep_texts=chosen.model.keep_texts)
    reporter = SilentReporter() if progress is None else _Callback(progress)
    return Model.of(recipe.fit(data, chosen, name=name, surroundings=recipe.Surroundings(reporter)))


def load(path: str | Path, *, device: str | torch.device = "cpu", exact: bool = False) -> Model:
    """Opens a model folder. Loading never runs code from it, and a damaged folder is refused.

    exact: search all classes, even if the model has an index.
    """
    return Model.of(load_model(path, device=device, exact=exact))


def _dataset(
    X: Any, Y: Any, class_names: Any, validation: Any, reading: ConvertOptions | None, *, keep_texts: bool
) -> tuple[Dataset, str]:
    if Y is not None:
        reading = reading or ConvertOptions()
        reading = replace(reading, keep_texts=keep_texts or reading.keep_texts)
        return dataset_from(X, Y, class_names=class_names, validation=validation, options=reading), _IN_MEMORY
    if class_names is not None or validation is not None:
        raise OwlmineError("class names and validation points were given without Y; a dataset on disk brings its own")
    if isinstance(X, Store | MemoryDataset):
        return X, X.path.name if isinstance(X, Store) else _IN_MEMORY
    if isinstance(X, str | Path):
        data = open_dataset(X, reading, keep_texts=keep_texts)
        for note in conversion_notes(data, ("train", "dev")):
            warnings.warn(f"{X}: {note}", UserWarning, stacklevel=3)
        return data, Path(X).name
    raise OwlmineError(f"X is a {type(X).__name__} and there is no Y; wanted labels, or the path of a dataset")


class _Callback(SilentReporter):
    """A reporter that calls a function."""

    def __init__(self, callback: Callable[[Progress], None]) -> None:
        self._callback = callback

    def progress(self, progress: Progress) -> None:
        self._callback(progress)
