"""A fitted classifier as a model folder: the same files as ``owlmine train`` writes, and what scikit-learn needs."""

from __future__ import annotations

from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import owlmine
from owlmine.data.arrays import StringTable
from owlmine.errors import DataError, OwlmineError
from owlmine.estimator.learner import Learner
from owlmine.estimator.queries import QueryForm
from owlmine.estimator.targets import KINDS
from owlmine.model.folder import load, save_model
from owlmine.model.predictor import ClassWords, FeatureWords, Predictor
from owlmine.recipe.options import TrainOptions

if TYPE_CHECKING:
    from owlmine.estimator.classifier import OwlmineClassifier

Classifier = TypeVar("Classifier", bound="OwlmineClassifier")


def save_classifier(classifier: OwlmineClassifier, path: str | PathLike[str]) -> None:
    """Writes into a folder that must be new or empty."""
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OwlmineError(f"{folder}: already exists; give another folder")
    learner: Learner = classifier._learner
    keys = StringTable.of(_class_keys(classifier.classes_))
    config = {
        "options": asdict(learner.options),
        "data": {"name": "matrices in memory", "checksum": None},
        "history": [{"epoch": n, "loss": loss} for n, loss in enumerate(classifier.loss_curve_, 1)],
        "estimator": _description(classifier, learner),
    }
    words = ClassWords(keys, keys, learner.class_counts, learner.num_points)
    features = FeatureWords({"kind": "none", "why": "matrices in memory"}, None, None, None, None)
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder, Predictor(learner.retriever, words, features, config), _card(classifier, learner))


def load_classifier(cls: type[Classifier], path: str | PathLike[str]) -> Classifier:
    """A classifier that predicts as the saved one did; ``partial_fit`` goes on with fresh optimisers."""
    path = Path(path)
    predictor = load(path)
    told = predictor.config.get("estimator")
    if told is None:
        raise DataError(
            path,
            found="a model without scikit-learn's part",
            wanted="one that save() wrote (open it with owlmine.load)",
        )
    try:
        classifier = cls(**told["params"])
        mean, scale = (None if told[name] is None else np.array(told[name], np.float64) for name in ("mean", "scale"))
        if mean is not None and scale is not None:
            _check_columns(mean, scale, told["n_features_in"])
        form = QueryForm(predictor.retriever.shape.dense, told["n_features_in"], mean, scale)
        if form.num_features != predictor.retriever.shape.num_features or told["target_kind"] not in KINDS:
            raise ValueError("its parts do not fit each other")
        # Folders from before there were recipes do not name one.
        options = TrainOptions(**({"recipe": "single"} | predictor.config["options"]))
        learner = Learner(predictor.retriever, options, form)
        learner.class_counts = np.array(predictor.classes.counts)
        learner.num_points = predictor.classes.num_points
        learner.num_labels = int(learner.class_counts.sum())
        learner.num_steps, learner.num_calls = told["num_steps"], told["num_calls"]
        classifier._learner = learner
        classifier.classes_ = _classes(list(predictor.classes.keys), np.dtype(told["class_dtype"]))
        classifier.target_kind_, classifier._target_dtype = told["target_kind"], np.dtype(told["target_dtype"])
        classifier.loss_curve_ = [record["loss"] for record in predictor.config["history"]]
        classifier.n_iter_ = len(classifier.loss_curve_)
        classifier.n_features_in_ = told["n_features_in"]
        if told["feature_names_in"] is not None:
            classifier.feature_names_in_ = np.array(told["feature_names_in"], object)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        found = f"a classifier that cannot be read ({type(error).__name__}: {error})"
        raise DataError(path / "config.json", found=found, wanted="an unharmed model folder") from error
    return classifier


def _check_columns(mean: NDArray[np.float64], scale: NDArray[np.float64], num_columns: int) -> None:
    for name, values in (("mean", mean), ("scale", scale)):
        if values.shape != (num_columns,) or not np.isfinite(values).all() or (name == "scale" and (values <= 0).any()):
            raise ValueError(f"{name} has the shape {values.shape}; wanted a finite number for each column")


def _description(classifier: OwlmineClassifier, learner: Learner) -> dict[str, Any]:
    params = {name: _plain(value) for name, value in classifier.get_params(deep=False).items()}
    names = getattr(classifier, "feature_names_in_", None)
    form = learner.form
    return {
        "params": params,
        "n_features_in": classifier.n_features_in_,
        "feature_names_in": None if names is None else list(names),
        "class_dtype": classifier.classes_.dtype.str,
        "target_kind": classifier.target_kind_,
        "target_dtype": classifier._target_dtype.str,
        "mean": None if form.mean is None else form.mean.tolist(),
        "scale": None if form.scale is None else form.scale.tolist(),
        "num_steps": learner.num_steps,
        "num_calls": learner.num_calls,
    }


def _plain(value: Any) -> Any:
    """A parameter as JSON has it. A ``RandomState`` has been used up and is left out."""
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _class_keys(classes: NDArray[Any]) -> list[str]:
    labels = classes.tolist()
    if classes.dtype.kind not in "biufU" and not all(isinstance(label, str) for label in labels):
        raise ValueError(f"classes are of type {classes.dtype}; wanted numbers, truth values or strings to save them")
    return [str(label) for label in labels]


def _classes(keys: list[str], dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind == "b":
        return np.array([key == "True" for key in keys])
    return np.array(keys, object if dtype.kind == "O" else None).astype(dtype)


def _card(classifier: OwlmineClassifier, learner: Learner) -> str:
    shape, form = learner.retriever.shape, learner.form
    columns = "dense columns" if form.dense else "sparse features"
    lines = [
        f"# A classifier of {shape.num_classes:,} classes",
        "",
        f"Made by owlmine {owlmine.__version__} with scikit-learn's interface from {learner.num_points:,} points,"
        f" {classifier.n_features_in_:,} {columns}; {shape.num_parameters:,} parameters.",
        "",
    ]
    if form.mean is not None:
        lines += [
            "Columns are standardised first and a constant 1 is added (`mean` and `scale` in `config.json`);"
            " `owlmine.load` expects them so prepared, the line below does it by itself.",
            "",
        ]
    lines += [f"```python\nfrom owlmine import OwlmineClassifier\n\n{_USE}\n```", ""]
    return "\n".join(lines)


_USE = 'classifier = OwlmineClassifier.load("this folder")\nclassifier.predict_top(X, k=5)'
