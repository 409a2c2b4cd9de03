"""A scikit-learn classifier for very many classes, one or several per point."""

from __future__ import annotations

from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from owlmine.data.rows import Int64
from owlmine.dense.encoder import query_batch
from owlmine.estimator.learner import Learner
from owlmine.estimator.queries import QueryForm, exact_scores
from owlmine.estimator.suited_options import DataSize, suited_options
from owlmine.estimator.targets import Targets, places_in, read_targets
from owlmine.model.queries import check_scores, checked_k

# Parameters of the constructor that are options of the training run under the same name.
_OPTION_NAMES = (
    "loss",
    "top",
    "pool",
    "kind",
    "dim",
    "depth",
    "epochs",
    "batch_size",
    "class_rate",
    "feature_rate",
    "map_rate",
    "optimiser",
    "schedule",
)


class OwlmineClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Scores every class by <encoder(x), c_y>, learned with stochastic negative mining.

    One model, without a re-ranker. Parameters left at None are what ``owlmine train --recipe single`` would take,
    adapted to small data (``options_`` has the outcome).

    loss, top, pool, kind, dim, depth, epochs, batch_size, class_rate, feature_rate, map_rate, optimiser, schedule:
        fields of ``owlmine.train.TrainOptions``.
    options: mapping of further fields of ``TrainOptions``, such as ``{"scale": 3.0, "exclude_known": True}``.
    k: classes that ``predict`` gives to a point with several labels; None for the mean number of labels in training.
    standardise: whether dense columns are brought to mean 0 and deviation 1. Sparse matrices are taken as they are.
    random_state: seed, ``RandomState`` or None.
    device: ``auto``, ``cpu`` or ``cuda``.

    Learned: ``classes_``, ``n_features_in_``, ``options_``, ``retriever_`` (the model), ``loss_curve_`` (mean loss per
    epoch), ``n_iter_``, ``class_count_`` (training points per class), ``k_``, ``target_kind_``.
    """

    def __init__(
        self,
        *,
        loss: str | None = None,
        top: int | None = None,
        pool: int | None = None,
        kind: str | None = None,
        dim: int | None = None,
        depth: int | None = None,
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
        self.loss = loss
        self.top = top
        self.pool = pool
        self.kind = kind
        self.dim = dim
        self.depth = depth
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
        lists of labels. What was learned before is forgotten.
        """
        queries, targets = self._points(X, y, reset=True)
        self._begin(queries, targets, targets.known_classes())
        return self._learn(queries, targets, epochs=self.options_.epochs, falling=True)

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None) -> Self:
        """Goes once through these points, with step sizes that do not fall.

        The first call needs ``classes``, all labels that will ever come, unless ``y`` is an indicator matrix; later
        calls may repeat them but not change them. Also goes on after ``fit``.
        """
        first = not hasattr(self, "_learner")
        queries, targets = self._points(X, y, reset=first)
        if first:
            if classes is None and targets.num_columns is None:
                raise ValueError("classes is None; wanted all labels on the first call to partial_fit")
            self._begin(queries, targets, targets.known_classes() if classes is None else np.unique(classes))
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(f"classes is {classes!r}; wanted the same as on the first call, {self.classes_!r}")
        return self._learn(queries, targets, epochs=1.0, falling=False)

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
        """The ``k`` best classes of each point [N, k], best first."""
        return self.predict_top_with_scores(X, k)[0]

    def predict_top_with_scores(self, X: Any, k: int = 5) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The ``k`` best classes of each point and their scores, both [N, k], best first."""
        check_is_fitted(self)
        scores, ids = self._top(X, k)
        return self.classes_[ids], scores

    def decision_function(self, X: Any, classes: ArrayLike | None = None) -> NDArray[np.float64]:
        """Scores [N, K] of all classes, or of ``classes`` in the order given: higher is better.

        With two classes and one label per point it is one number per point [N], that of ``classes_[1]`` less that of
        ``classes_[0]``, as everywhere in scikit-learn. Memory is that of the answer: with very many classes name those
        that matter, or use ``predict_top``.
        """
        check_is_fitted(self)
        queries = self._queries(X)
        ids = np.arange(len(self.classes_)) if classes is None else self._ids_of(classes)
        blocks = self._learner.form.blocks(queries, wide=self.retriever_.shape.kind == "linear")
        parts = [exact_scores(self.retriever_, block, ids) for block in blocks]
        scores: NDArray[np.float64] = np.concatenate([np.zeros((0, len(ids))), *parts])
        check_scores(scores, 0)
        if classes is None and self.target_kind_ == "single" and len(ids) == 2:
            scores = scores[:, 1] - scores[:, 0]
        return scores

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

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learner")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    @property
    def retriever_(self) -> Any:
        return self._learner.retriever

    @property
    def options_(self) -> Any:
        return self._learner.options

    @property
    def class_count_(self) -> Int64:
        return self._learner.class_counts

    @property
    def k_(self) -> int:
        return round(self._learner.num_labels / self._learner.num_points) if self.k is None else self.k

    def _points(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Targets]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        matrix = self._queries(X, reset=reset)
        targets = read_targets(y)
        check_consistent_length(matrix, targets)
        return matrix, targets

    def _begin(self, queries: Any, targets: Targets, classes: NDArray[Any]) -> None:
        if len(classes) < 2:
            raise ValueError(f"y has {len(classes)} class; wanted 2 or more")
        if self.k is not None and not (isinstance(self.k, int | np.integer) and 1 <= self.k <= len(classes)):
            raise ValueError(f"k is {self.k!r}; wanted 1 to the {len(classes)} classes")
        form = QueryForm.of(queries, standardise=self.standardise)
        nonzero = queries.nnz if sparse.issparse(queries) else queries.size
        size = DataSize(len(targets), len(classes), nonzero / (queries.shape[0] * queries.shape[1]))
        given = {name: getattr(self, name) for name in _OPTION_NAMES} | {"device": self.device} | (self.options or {})
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        learner = Learner.new(suited_options(given, size, seed=seed), form, num_classes=len(classes))
        self._learner, self.classes_, self.n_iter_ = learner, classes, 0
        self.target_kind_, self._target_dtype = targets.kind, targets.dtype
        self.loss_curve_: list[float] = []

    def _learn(self, queries: Any, targets: Targets, *, epochs: float, falling: bool) -> Self:
        if (targets.num_columns is None) != (self.target_kind_ in ("single", "lists")):
            raise ValueError(f"y is of the form {targets.kind!r}; wanted {self.target_kind_!r}, as before")
        labels = targets.label_rows(self.classes_)
        if (labels.indices < 0).any():
            unknown = targets.flat[places_in(self.classes_, targets.flat) < 0]
            raise ValueError(f"y has the label {unknown[0]!r}; wanted those that classes had on the first call")
        losses = self._learner.learn(self._learner.form.table(queries), labels, epochs=epochs, falling=falling)
        self.loss_curve_ = [*self.loss_curve_, *losses]
        self.n_iter_ = len(self.loss_curve_)
        return self

    def _queries(self, X: Any, *, reset: bool = False) -> Any:
        # Both precisions are kept: standardising a column far from 0 needs the wider one.
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)

    def _top(self, X: Any, k: int) -> tuple[NDArray[np.float32], Int64]:
        """Scores and class ids [N, k], best first."""
        checked_k(k, len(self.classes_))
        model, scores, ids = self.retriever_, [np.zeros((0, k), np.float32)], [np.zeros((0, k), np.int64)]
        for block in self._learner.form.blocks(self._queries(X), wide=model.shape.kind == "linear"):
            best, places = model.top(query_batch(block, model.device), k)
            scores.append(best.cpu().numpy())
            check_scores(scores[-1], sum(map(len, ids)))
            ids.append(places.cpu().numpy())
        return np.concatenate(scores), np.concatenate(ids)

    def _ids_of(self, classes: ArrayLike) -> Int64:
        asked = np.atleast_1d(np.asarray(classes))
        ids = places_in(self.classes_, asked)
        if (ids < 0).any():
            raise ValueError(f"classes has {asked[ids < 0][0]!r}; wanted labels among classes_")
        return ids
