"""A scikit-learn classifier for very many classes, one or several per point."""

from __future__ import annotations

from collections import defaultdict
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from owlmine.data.formats.memory import Labels
from owlmine.data.options import ConvertOptions
from owlmine.data.python_data import dataset_from
from owlmine.data.rows import Int64
from owlmine.errors import OwlmineError
from owlmine.estimator.form import ColumnForm, Targets, class_keys, places_in, read_targets
from owlmine.estimator.scores import exclusive_probabilities, marginal_probabilities, scores_of
from owlmine.model import Model
from owlmine.rank.queries import check_scores, checked_k
from owlmine.recipe.fit import fit
from owlmine.recipe.options import TrainOptions

# Constructor parameters that are training options of the same name.
_OPTION_NAMES = (
    "recipe",
    "loss",
    "top",
    "pool",
    "kind",
    "dim",
    "depth",
    "heads",
    "epochs",
    "batch_size",
    "class_rate",
    "feature_rate",
    "map_rate",
    "optimiser",
    "schedule",
    "device",
)
# The score of an indicator column without a training point: lower than any other, and finite.
_UNSEEN = float(np.finfo(np.float32).min)


def _has_probabilities(classifier: OwlmineClassifier) -> bool:
    """Whether training has points to calibrate on."""
    if hasattr(classifier, "model_"):
        return classifier.model_.record.calibration is not None
    validation = (classifier.options or {}).get("validation")
    return bool(classifier.recipe != "single" if validation is None else validation)


class OwlmineClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """``owlmine.fit`` as a scikit-learn classifier. Parameters left at None are chosen by the data and the machine.

    recipe: ``best`` (an ensemble, with judges for sparse columns) or ``single`` (one dense model alone, in a fraction
        of the time; without probabilities).
    loss, top, pool, kind, dim, depth, heads, epochs, batch_size, class_rate, feature_rate, map_rate, optimiser,
        schedule, device: options of ``owlmine.TrainOptions``.
    options: mapping of further ones, such as ``{"scale": 3.0, "neighbours": 0}``. k: classes that ``predict`` gives to
    a point with several labels; None for the mean number of labels in training. standardise: whether dense columns are
    scaled to mean 0 and deviation 1. Sparse matrices are used as they are. random_state: seed, ``RandomState`` or None.

    Learned: ``classes_``, ``n_features_in_``, ``model_`` (the ``owlmine.Model``), ``loss_curve_`` (mean loss per
    epoch), ``n_iter_``, ``class_count_`` (training points per class), ``k_``, ``target_kind_``.
    """

    def __init__(
        self,
        *,
        recipe: str = "best",
        loss: str | None = None,
        top: int | None = None,
        pool: int | None = None,
        kind: str | None = None,
        dim: int | None = None,
        depth: int | None = None,
        heads: int | None = None,
        epochs: float | None = None,
        batch_size: int | None = None,
        class_rate: float | None = None,
        feature_rate: float | None = None,
        map_rate: float | None = None,
        optimiser: str | None = None,
        schedule: str | None = None,
        options: dict[str, Any] | None = None,
        k: int | None = None,
        standardise: bool = True,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
    ) -> None:
        self.recipe = recipe
        self.loss = loss
        self.top = top
        self.pool = pool
        self.kind = kind
        self.dim = dim
        self.depth = depth
        self.heads = heads
        self.epochs = epochs
        self.batch_size = batch_size
        self.class_rate = class_rate
        self.feature_rate = feature_rate
        self.map_rate = map_rate
        self.optimiser = optimiser
        self.schedule = schedule
        self.options = options
        self.k = k
        self.standardise = standardise
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any) -> Self:
        """Learns from the points ``X`` [N, F], dense or sparse, and their labels.

        ``y`` holds one label per point, or is an indicator matrix [N, K] (dense or sparse) of 0 and 1, or a sequence of
        lists of labels.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        matrix = self._matrix(X, reset=True)
        targets = read_targets(y)
        check_consistent_length(matrix, targets)
        classes = targets.known_classes()
        if len(classes) < 2:
            raise ValueError(f"y has {len(classes)} class; wanted 2 or more")
        self._check_k(len(classes))
        options, form = self._train_options(), ColumnForm.of(matrix, standardise=self.standardise)
        features = form.apply(matrix)
        queries = features if isinstance(features, np.ndarray) else features.to_scipy(form.num_features)
        try:
            # As in scikit-learn, the values of sparse columns are used as they are, whether counts or not.
            data = dataset_from(queries, _with_keys(targets, classes), options=ConvertOptions(weighting="none"))
            model = Model.of(fit(data, options, name="matrices in memory"))
        except OwlmineError as error:
            raise error if isinstance(error, ValueError) else ValueError(str(error)) from error
        self._settle(model, form, classes, targets.kind, targets.dtype)
        return self

    def predict(self, X: Any) -> Any:
        """The best class of each point [N]. After training with several labels per point, the best ``k_`` of each:
        an indicator matrix [N, K] in the form of the ``y`` given in training, or a list of tuples, best first.
        """
        check_is_fitted(self)
        if self.target_kind_ == "single":
            return self.classes_[self._top(X, 1)[1][:, 0]]
        _, ids = self._top(X, self.k_)
        if self.target_kind_ == "lists":
            return [tuple(row) for row in self.classes_[ids].tolist()]
        if self.target_kind_ == "indicator":
            marked = np.zeros((len(ids), len(self.classes_)), self._target_dtype)
            np.put_along_axis(marked, ids, 1, axis=1)
            return marked
        offsets = np.arange(0, ids.size + 1, ids.shape[1])
        ones = np.ones(ids.size, self._target_dtype)
        return sparse.csr_matrix((ones, np.sort(ids, axis=1).ravel(), offsets), shape=(len(ids), len(self.classes_)))

    def predict_top(self, X: Any, k: int = 5) -> NDArray[Any]:
        """The ``k`` best classes of each point [N, k], best first; all classes if there are fewer."""
        return self.predict_top_with_scores(X, k)[0]

    def predict_top_with_scores(self, X: Any, k: int = 5) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The ``k`` best classes of each point and their scores, both [N, k], best first."""
        check_is_fitted(self)
        scores, ids = self._top(X, k)
        return self.classes_[ids], scores

    def decision_function(self, X: Any, classes: ArrayLike | None = None) -> NDArray[np.float64]:
        """Scores [N, K] of all classes, or of ``classes`` in the order given: higher is better.

        With two classes and one label per point it is one number per point [N], that of ``classes_[1]`` less that of
        ``classes_[0]``, as everywhere in scikit-learn. It needs no more memory than its result: with very many classes,
        name those you need, or use ``predict_top``.
        """
        check_is_fitted(self)
        matrix = self._matrix(X)
        ids = np.arange(len(self.classes_)) if classes is None else self._ids_of(classes)
        scores = self._scores(matrix, ids)
        if classes is None and self.target_kind_ == "single" and len(ids) == 2:
            scores = scores[:, 1] - scores[:, 0]
        return scores

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities [N, K]: after training with one label per point, that a class is the label, so that rows sum to
        1; with several, that a class is one of the labels.

        Only available if training had points to calibrate on.
        """
        check_is_fitted(self)
        calibration, seen = self.model_.record.calibration, np.flatnonzero(self._model_ids >= 0)
        assert calibration is not None
        probabilities = exclusive_probabilities if self.target_kind_ == "single" else marginal_probabilities
        scores = self._scores(self._matrix(X), seen)
        result = np.zeros((len(scores), len(self.classes_)))
        result[:, seen] = probabilities(calibration, scores)
        return result

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """The share of points whose best class is one of their labels: accuracy for one label per point, else P@1."""
        check_is_fitted(self)
        targets = read_targets(y)
        check_consistent_length(X, targets, sample_weight)
        rows = targets.label_rows(self.classes_)
        best = self._top(X, 1)[1][:, 0]
        hits = np.zeros(len(rows))
        hits[rows.row_ids[rows.indices == best[rows.row_ids]]] = 1.0
        return float(np.average(hits, weights=None if sample_weight is None else np.asarray(sample_weight)))

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the fitted model into a new folder that ``load`` and ``owlmine.load`` read; no pickle in it."""
        from owlmine.estimator.saved import save_classifier

        check_is_fitted(self)
        save_classifier(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """A fitted classifier from the folder that ``save`` wrote. Loading never runs code from it."""
        from owlmine.estimator.saved import load_classifier

        return load_classifier(cls, path)

    @property
    def class_count_(self) -> Int64:
        counts = np.zeros(len(self.classes_), np.int64)
        seen = self._model_ids >= 0
        counts[seen] = self.model_.classes.counts[self._model_ids[seen]]
        return counts

    @property
    def k_(self) -> int:
        if self.k is not None:
            return self.k
        return max(round(int(self.class_count_.sum()) / self.model_.classes.num_points), 1)

    @property
    def loss_curve_(self) -> list[float]:
        """For an ensemble, the mean over its models. After a rehearsal, the losses of the rehearsal."""
        losses = defaultdict(list)
        for line in self.model_.record.history:
            losses[line["epoch"]].append(line["loss"])
        return [float(np.mean(losses[epoch])) for epoch in sorted(losses)]

    @property
    def n_iter_(self) -> int:
        return len(self.loss_curve_)

    def _settle(
        self, model: Model, form: ColumnForm, classes: NDArray[Any], target_kind: str, target_dtype: np.dtype[Any]
    ) -> None:
        """Sets all learned attributes. An indicator column without a training point is not a class of the model."""
        self.model_, self.classes_, self.target_kind_ = model, classes, target_kind
        self._form, self._target_dtype = form, target_dtype
        numbers = {key: number for number, key in enumerate(model.classes.keys)}
        self._model_ids = np.array([numbers.get(key, -1) for key in class_keys(classes)], np.int64)

    def _check_k(self, num_classes: int) -> None:
        if self.k is not None and not (isinstance(self.k, int | np.integer) and 1 <= self.k <= num_classes):
            raise ValueError(f"k is {self.k!r}; wanted 1 to the {num_classes} classes")

    def _train_options(self) -> TrainOptions:
        given = {name: value for name in _OPTION_NAMES if (value := getattr(self, name)) is not None}
        further = dict(self.options or {})
        if "seed" in further:
            raise ValueError("options contains seed; set random_state instead")
        if given["recipe"] == "single":  # which is calibrated only on request
            further = {"validation": 0.0} | further
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return TrainOptions.of(**given | further, seed=seed)

    def _matrix(self, X: Any, *, reset: bool = False) -> Any:
        # Both precisions are kept: standardising a column far from 0 needs the wider one.
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)

    def _top(self, X: Any, k: int) -> tuple[NDArray[np.float32], Int64]:
        """Scores and places in ``classes_`` [N, k], best first."""
        k = checked_k(k, len(self.classes_))
        features = self._form.apply(self._matrix(X))
        answers = self.model_.answer(features, k)
        # Classes without a training point come last, in their order.
        unseen = np.flatnonzero(self._model_ids < 0)[: k - answers.ids_Nk.shape[1]]
        columns = np.empty(len(self.model_.classes), np.int64)
        columns[self._model_ids[self._model_ids >= 0]] = np.flatnonzero(self._model_ids >= 0)
        scores = np.pad(answers.scores_Nk, ((0, 0), (0, len(unseen))), constant_values=_UNSEEN)
        return scores, np.hstack([columns[answers.ids_Nk], np.tile(unseen, (len(features), 1))])

    def _scores(self, matrix: Any, ids: Int64) -> NDArray[np.float64]:
        """[N, K] of these places in ``classes_``."""
        model_ids = self._model_ids[ids]
        scores = np.full((matrix.shape[0], len(ids)), _UNSEEN)
        if (seen := model_ids >= 0).any():
            scores[:, seen] = scores_of(self.model_, self._form.apply(matrix), model_ids[seen])
        check_scores(scores, 0)
        return scores

    def _ids_of(self, classes: ArrayLike) -> Int64:
        asked = np.atleast_1d(np.asarray(classes))
        ids = places_in(self.classes_, asked)
        if (ids < 0).any():
            raise ValueError(f"classes has {asked[ids < 0][0]!r}; wanted labels among classes_")
        return ids

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the model on the CPU: other machines may have no GPU."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"model_": state["model_"].on(torch.device("cpu"))} if "model_" in state else state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags


def _with_keys(targets: Targets, classes: NDArray[Any]) -> Labels:
    """The same labels under the keys of the model."""
    keys = np.array(class_keys(classes), object)
    return Labels(targets.labels.offsets, keys[places_in(classes, targets.flat)], is_single=targets.labels.is_single)
