"""A fitted classifier as a model folder: the files of ``owlmine train``, plus the attributes of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from owlmine.errors import DataError, OwlmineError
from owlmine.estimator.form import TARGET_KINDS, ColumnForm, class_keys
from owlmine.files import NewFolder
from owlmine.folder.card import model_card
from owlmine.folder.model_folder import save_model
from owlmine.model import Model, load

if TYPE_CHECKING:
    from owlmine.estimator.classifier import OwlmineClassifier

Classifier = TypeVar("Classifier", bound="OwlmineClassifier")


def save_classifier(classifier: OwlmineClassifier, path: str | PathLike[str]) -> None:
    """Writes a new folder."""
    _check_classes(classifier.classes_)
    record = replace(classifier.model_.record, estimator=_description(classifier))
    model = replace(classifier.model_, record=record)
    try:
        with NewFolder(Path(path)) as folder:
            save_model(folder.path, model, model_card(model) + _use(classifier._form))
            folder.publish()
    except OSError as error:
        raise OwlmineError(f"{path}: cannot be written: {error.strerror or error}") from error


def load_classifier(cls: type[Classifier], path: str | PathLike[str]) -> Classifier:
    """A classifier that predicts like the saved one."""
    path = Path(path)
    model = load(path)
    if model.record.estimator is None:
        found, wanted = "a model of owlmine.fit or owlmine train", "one that OwlmineClassifier saved; use owlmine.load"
        raise DataError(path, found=found, wanted=wanted)
    try:
        return _classifier(cls, model, model.record.estimator)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        found = f"a classifier that cannot be read ({type(error).__name__}: {error})"
        raise DataError(path / "config.json", found=found, wanted="an intact model folder") from error


def _classifier(cls: type[Classifier], model: Model, saved: Mapping[str, Any]) -> Classifier:
    classifier = cls(**saved["params"])
    num_columns, shape = saved["n_features_in"], model.dense.shape
    if type(num_columns) is not int:
        raise ValueError(f"n_features_in is {num_columns!r}; wanted a whole number")
    mean, scale = (None if saved[name] is None else np.array(saved[name], np.float64) for name in ("mean", "scale"))
    for name, values in (("mean", mean), ("scale", scale)):
        bad = values is not None and (values.shape != (num_columns,) or not np.isfinite(values).all())
        if bad or (mean is None) != (scale is None) or (scale is not None and (scale <= 0).any()):
            raise ValueError(f"{name} is not a finite number for each of {num_columns} columns, above 0 for scale")
    form, unseen = ColumnForm(shape.dense, num_columns, mean, scale), saved["unseen_columns"]
    if unseen is None:
        classes = np.unique(_classes(list(model.classes.keys), np.dtype(saved["class_dtype"])))
    else:
        classes = np.arange(len(model.classes) + len(unseen))
    fits = form.num_features == shape.num_features and saved["target_kind"] in TARGET_KINDS
    fits &= ("indicator" in saved["target_kind"]) == isinstance(unseen, list)
    if not fits or {*model.classes.keys, *map(str, unseen or ())} != set(class_keys(classes)):
        raise ValueError("its parts do not match")
    classifier._check_k(len(classes))
    classifier._settle(model, form, classes, saved["target_kind"], np.dtype(saved["target_dtype"]))
    classifier.n_features_in_ = num_columns
    if (names := saved["feature_names_in"]) is not None:
        if not isinstance(names, list) or len(names) != num_columns or not all(isinstance(one, str) for one in names):
            raise ValueError(f"feature_names_in is not a name for each of {num_columns} columns")
        classifier.feature_names_in_ = np.array(names, object)
    return classifier


def _description(classifier: OwlmineClassifier) -> dict[str, Any]:
    names, form = getattr(classifier, "feature_names_in_", None), classifier._form
    unseen = classifier.classes_[classifier.class_count_ == 0]
    return {
        "params": {name: _plain(value) for name, value in classifier.get_params(deep=False).items()},
        "n_features_in": classifier.n_features_in_,
        "feature_names_in": None if names is None else list(names),
        # Only an indicator can have columns without a training point.
        "unseen_columns": unseen.tolist() if "indicator" in classifier.target_kind_ else None,
        "class_dtype": classifier.classes_.dtype.str,
        "target_kind": classifier.target_kind_,
        "target_dtype": classifier._target_dtype.str,
        "mean": None if form.mean is None else form.mean.tolist(),
        "scale": None if form.scale is None else form.scale.tolist(),
    }


def _plain(value: Any) -> Any:
    """A parameter for JSON. A ``RandomState`` has been consumed, and is left out."""
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _check_classes(classes: NDArray[Any]) -> None:
    if classes.dtype.kind not in "biufU" and not all(isinstance(label, str) for label in classes.tolist()):
        raise ValueError(f"classes are of type {classes.dtype}; wanted numbers, truth values or strings to save them")


def _classes(keys: list[str], dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind == "b":
        return np.array([key == "True" for key in keys])
    return np.array(keys, object if dtype.kind == "O" else None).astype(dtype)


def _use(form: ColumnForm) -> str:
    """The additional text of the model card."""
    lines = ["", "This model was made by `OwlmineClassifier`, which loads it as a scikit-learn estimator:", ""]
    if form.mean is not None:
        lines[1] = (
            "This model expects standardised columns (`mean` and `scale` in `config.json`) and a constant column of 1."
            " `owlmine.load` needs them in this form; `OwlmineClassifier`, which made the model, prepares them itself:"
        )
    code = 'from owlmine import OwlmineClassifier\n\nclassifier = OwlmineClassifier.load("this folder")'
    return "\n".join([*lines, f"```python\n{code}\nclassifier.predict_top(X, k=5)\n```", ""])
