"""The scikit-learn classifier: scikit-learn's own checks, and what they leave out."""

from __future__ import annotations

import json
import math
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_iris, load_wine, make_multilabel_classification
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils.estimator_checks import parametrize_with_checks

import owlmine
from owlmine import OwlmineClassifier
from owlmine.errors import DataError, OwlmineError
from owlmine.estimator.classifier import _OPTION_NAMES
from owlmine.estimator.form import read_targets
from owlmine.recipe.options import TrainOptions

from ..answers import ROUNDING
from ..sealed import seal
from ..small_models import sparse_model


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Steps on so little data spend more time waking threads than computing."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# No check is expected to fail. Those of several labels run too; scikit-learn skips what needs predict_proba where there
# is none.
@parametrize_with_checks(
    [OwlmineClassifier(heads=2, epochs=20), OwlmineClassifier(recipe="single", epochs=20)],
    expected_failed_checks=lambda estimator: {},
)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)


SMALL = {"dim": 8, "epochs": 6, "batch_size": 16, "random_state": 0}


def quick(**params: Any) -> OwlmineClassifier:
    """One dense model."""
    return OwlmineClassifier(**{"recipe": "single"} | SMALL | params)


def best(**params: Any) -> OwlmineClassifier:
    """An ensemble of two, with judges for sparse columns."""
    return OwlmineClassifier(**{"heads": 2} | SMALL | params)


def sparse_points(num_points: int = 60, num_features: int = 30, num_classes: int = 6, seed: int = 0) -> Any:
    """Each class has five features of its own, of which its points have some."""
    rng = np.random.default_rng(seed)
    y = np.arange(num_points) % num_classes
    X = np.zeros((num_points, num_features))
    for row, label in enumerate(y):
        X[row, label * 5 + rng.choice(5, 3, replace=False)] = rng.uniform(0.5, 1.5, 3)
    return sparse.csr_matrix(X), y


def several_labels() -> tuple[Any, NDArray[np.int64]]:
    X, Y = make_multilabel_classification(
        n_samples=80, n_features=20, n_classes=7, n_labels=2, allow_unlabeled=False, random_state=0
    )
    return X, Y


@pytest.mark.parametrize("recipe", ["best", "single"])
@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_defaults_learn_small_unscaled_tables(load: Any, recipe: str) -> None:
    X, y = load(return_X_y=True)
    assert cross_val_score(OwlmineClassifier(recipe=recipe, random_state=0), X, y, cv=3).mean() > 0.92


def test_sparse_points_are_learned_and_named() -> None:
    X, y = sparse_points()
    names = np.array([f"class {label}" for label in y])
    fitted = quick(epochs=20).fit(X, names)
    assert fitted.score(X, names) > 0.95
    assert set(fitted.predict(X)) <= set(names)
    assert not fitted.model_.dense.shape.dense
    assert fitted.class_count_.tolist() == [10] * 6


def reference_scores(fitted: OwlmineClassifier, row: NDArray[np.float64]) -> list[float]:
    """<encoder(x), c_y> over Python floats."""
    tensors = {name: tensor.tolist() for name, tensor in fitted.model_.dense.tensors().items()}
    form = fitted._form
    if form.mean is not None and form.scale is not None:
        row = np.float32(np.append((row - form.mean) / form.scale, 1.0)).astype(np.float64)
    vector = [float(np.float32(x)) for x in row]
    if "table" in tensors:
        for number, matrix in enumerate(
            [tensors["table"], *(tensors[f"map.{i}"] for i in range(fitted.model_.dense.shape.depth))]
        ):
            kept = vector if number == 0 else [max(x, 0.0) for x in vector]
            vector = [math.fsum(x * row[d] for x, row in zip(kept, matrix, strict=True)) for d in range(len(matrix[0]))]
        length = math.sqrt(math.fsum(x * x for x in vector))
        vector = [x / max(length, 1e-12) for x in vector]
    return [math.fsum(x * c for x, c in zip(vector, row, strict=True)) for row in tensors["classes"]]


@pytest.mark.parametrize(
    "params", [{}, {"depth": 0}, {"depth": 2}, {"kind": "linear", "loss": "bowl", "class_rate": 0.01}]
)
@pytest.mark.parametrize("dense", [False, True])
def test_scores_are_those_of_the_formula(params: dict[str, Any], dense: bool) -> None:
    X, y = sparse_points()
    X = X.toarray() if dense else X
    fitted = quick(**params).fit(X, y)
    assert fitted.model_.dense.shape.dense == dense
    rows = X[:5] if dense else X[:5].toarray()
    expected = [reference_scores(fitted, row) for row in rows]
    scores = fitted.decision_function(X[:5])
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
    # Matrix products of two shapes: equal up to the rounding of float64.
    np.testing.assert_allclose(
        fitted.decision_function(X[:5], classes=[4, 1]), scores[:, [4, 1]], rtol=1e-12, atol=1e-12
    )
    labels, best = fitted.predict_top_with_scores(X[:5], k=3)
    np.testing.assert_array_equal(labels, np.argsort(-scores, axis=1)[:, :3])
    np.testing.assert_allclose(best, np.sort(scores, axis=1)[:, :-4:-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(fitted.predict_top(X[:5], 3), labels)


@pytest.mark.parametrize("make", [quick, best], ids=["single", "best"])
def test_the_model_is_that_of_fit(make: Any) -> None:
    """Sparse columns go in as they are. A label is known by its spelling."""
    X, y = sparse_points()
    fitted = make(random_state=np.random.RandomState(5)).fit(X, y)
    options = dict(fitted.model_.record.options)
    assert options["seed"] == np.random.RandomState(5).randint(np.iinfo(np.int32).max)
    model = owlmine.fit(X, [str(label) for label in y], options=options)
    assert set(fitted.model_.ranker.judges) == set(model.ranker.judges)
    for one, other in ((fitted.model_.dense, model.dense), (fitted.model_.ranker, model.ranker)):
        tensors = other.tensors()
        assert one.tensors().keys() == tensors.keys()
        assert all(torch.equal(tensor, tensors[name]) for name, tensor in one.tensors().items())
    batch = model.predict_batch(X, 3)
    labels, scores = fitted.predict_top_with_scores(X, k=3)
    np.testing.assert_array_equal(labels, np.array(list(model.classes.keys), int)[batch.ids_Nk])
    np.testing.assert_array_equal(scores, batch.scores_Nk)


def test_counts_are_taken_as_they_are() -> None:
    """As everywhere in scikit-learn; ``owlmine.fit`` weighs them by TF-IDF."""
    X, y = sparse_points()
    fitted = quick(kind="linear", loss="bowl").fit(X.ceil(), y)
    assert fitted.model_.features.weighting["kind"] == "none"
    assert not np.array_equal(fitted.decision_function(X.ceil() * 2), fitted.decision_function(X.ceil()))


def test_sparse_columns_have_judges_and_dense_ones_have_none() -> None:
    X, y = sparse_points()
    assert set(best().fit(X, y).model_.ranker.judges) == {"linear", "rarity", "neighbours"}
    assert not best().fit(X.toarray(), y).model_.ranker.judges
    assert not quick().fit(X, y).model_.ranker.judges


def test_judged_scores_are_those_of_the_ranking() -> None:
    X, y = sparse_points()
    fitted = best(options={"shortlist": 3}).fit(X, y)
    scores = fitted.decision_function(X)
    # A class is judged whether it is on the list of three or not.
    some = fitted.decision_function(X, classes=[4, 1, 4])
    np.testing.assert_allclose(some, scores[:, [4, 1, 4]], rtol=ROUNDING, atol=ROUNDING)
    labels, of_best = fitted.predict_top_with_scores(X, k=6)
    np.testing.assert_allclose(of_best, np.take_along_axis(scores, labels, axis=1), rtol=ROUNDING, atol=ROUNDING)


def test_all_classes_are_listed_where_there_are_fewer_than_asked_for() -> None:
    X, y = sparse_points()
    fitted = quick().fit(X, y)
    for found, wanted in zip(fitted.predict_top_with_scores(X, 9), fitted.predict_top_with_scores(X, 6), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_two_classes_have_one_score_per_point() -> None:
    X, y = sparse_points(num_classes=2)
    fitted = quick().fit(X, y)
    one = fitted.decision_function(X)
    both = fitted.decision_function(X, classes=[0, 1])
    assert one.shape == (60,)
    np.testing.assert_allclose(one, both[:, 1] - both[:, 0], rtol=1e-12, atol=1e-12)


def test_queries_may_come_in_the_other_form() -> None:
    X, y = sparse_points()
    for fitted in (quick().fit(X, y), quick().fit(X.toarray(), y)):
        np.testing.assert_array_equal(fitted.predict_top(X, 3), fitted.predict_top(X.toarray(), 3))


def test_nearly_full_sparse_matrices_are_dense() -> None:
    X, y = load_iris(return_X_y=True)
    dense, full = quick().fit(X, y), quick().fit(sparse.csr_matrix(X), y)
    np.testing.assert_array_equal(dense.decision_function(X), full.decision_function(X))


def test_entries_stored_twice_are_added() -> None:
    X, y = sparse_points()
    twice = sparse.csr_matrix((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), X.indptr * 2), shape=X.shape)
    one, other = quick(kind="linear").fit(X, y), quick(kind="linear").fit(twice, y)
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(twice))


def test_queries_without_features_get_an_answer() -> None:
    X, y = sparse_points()
    fitted = quick().fit(X, y)
    nothing = sparse.csr_matrix((3, X.shape[1]))
    assert (fitted.decision_function(nothing) == 0).all()
    assert fitted.predict(nothing).tolist() == [0, 0, 0]


def test_every_form_of_several_labels_means_the_same() -> None:
    X, Y = several_labels()
    lists = [np.flatnonzero(row).tolist() for row in Y]
    dense, matrix, by_list = (quick().fit(X, y) for y in (Y, sparse.csr_matrix(Y), [set(row) for row in lists]))
    assert dense.k_ == round(Y.sum() / len(Y)) == 2
    marked = dense.predict(X)
    assert (marked.sum(axis=1) == dense.k_).all()
    assert marked.dtype == Y.dtype
    found = matrix.predict(X)
    assert sparse.issparse(found)
    np.testing.assert_array_equal(found.toarray(), marked)
    tuples = by_list.predict(X)
    assert [sorted(row) for row in tuples] == [np.flatnonzero(row).tolist() for row in marked]
    assert [row[0] for row in tuples] == by_list.predict_top(X, 1)[:, 0].tolist()
    scores = {dense.score(X, Y), matrix.score(X, sparse.csr_matrix(Y)), by_list.score(X, lists), dense.score(X, lists)}
    assert len(scores) == 1


def test_k_says_how_many_labels_are_predicted() -> None:
    X, Y = several_labels()
    fitted = quick(k=4).fit(X, Y)
    assert (fitted.predict(X).sum(axis=1) == 4).all()
    assert (fitted.set_params(k=1).predict(X).sum(axis=1) == 1).all()


def test_columns_without_a_training_point_come_last(tmp_path: Path) -> None:
    X, Y = several_labels()
    Y = np.insert(Y, [0, 3], 0, axis=1)
    fitted = best(epochs=2).fit(X, Y)
    assert fitted.classes_.tolist() == list(range(9))
    assert len(fitted.model_.classes) == 7
    assert fitted.class_count_.tolist() == Y.sum(axis=0).tolist()
    fitted.save(tmp_path / "model")
    for one in (fitted, OwlmineClassifier.load(tmp_path / "model")):
        labels, scores = one.predict_top_with_scores(X, k=9)
        assert (labels[:, 7:] == [0, 4]).all()
        assert np.isfinite(scores).all()
        np.testing.assert_array_equal(np.sort(labels, axis=1), np.tile(np.arange(9), (len(X), 1)))
        found = one.decision_function(X)
        assert (found[:, [0, 4]] == np.finfo(np.float32).min).all()
        np.testing.assert_array_equal(np.argsort(-found, axis=1, kind="stable")[:, :7], labels[:, :7])
        assert not one.predict_proba(X)[:, [0, 4]].any()
        assert one.predict(X).shape == Y.shape


@pytest.mark.parametrize(
    ("params", "given"),
    [
        ({}, True),
        ({"recipe": "single"}, False),
        ({"recipe": "single", "options": {"validation": 0.2}}, True),
        ({"options": {"validation": 0.0}}, False),
    ],
    ids=str,
)
def test_probabilities_are_there_where_points_were_held_out(params: dict[str, Any], given: bool) -> None:
    X, y = sparse_points()
    classifier = OwlmineClassifier(**SMALL | {"heads": 1} | params)
    assert hasattr(classifier, "predict_proba") == given
    assert hasattr(classifier.fit(X, y), "predict_proba") == given


@pytest.mark.parametrize("num_classes", [2, 6])
def test_probabilities_of_one_label_add_up_to_one_and_follow_the_scores(num_classes: int) -> None:
    X, y = sparse_points(num_points=120, num_classes=num_classes)
    fitted = best(epochs=20).fit(X, y)
    probabilities = fitted.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), fitted.predict(X))
    assert (probabilities > 0).all()
    assert probabilities[np.arange(120), y].mean() > 0.7


def test_probabilities_of_several_labels_are_those_of_the_model() -> None:
    X, Y = several_labels()
    fitted = best().fit(X, Y)
    batch = fitted.model_.answer(fitted._form.apply(X), 7)
    columns = np.array(list(fitted.model_.classes.keys), int)[batch.ids_Nk]
    found = np.take_along_axis(fitted.predict_proba(X), columns, axis=1)
    np.testing.assert_allclose(found, batch.probabilities_Nk, rtol=1e-4, atol=1e-6)


def test_losses_of_an_ensemble_are_means() -> None:
    X, y = sparse_points()
    fitted = best(epochs=3).fit(X, y)
    losses = [[line["loss"] for line in fitted.model_.record.history if line["model"] == n] for n in (1, 2)]
    assert fitted.loss_curve_ == pytest.approx(np.mean(losses, axis=0).tolist())
    assert fitted.n_iter_ == 3


def test_score_is_the_share_of_points_whose_best_class_is_a_label() -> None:
    X, Y = several_labels()
    fitted = quick().fit(X, Y)
    best = fitted.predict_top(X, 1)[:, 0]
    hits = np.array([Y[point, label] for point, label in enumerate(best)])
    assert fitted.score(X, Y) == pytest.approx(hits.mean())
    weights = np.arange(1.0, len(X) + 1)
    assert fitted.score(X, Y, sample_weight=weights) == pytest.approx((hits * weights).sum() / weights.sum())


def test_labels_that_training_never_saw_are_missed() -> None:
    X, y = sparse_points()
    fitted = quick().fit(X, y)
    assert fitted.score(X, np.full(60, 99)) == 0.0
    assert fitted.score(X, np.full(60, "a")) == 0.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["a", "b", "cc", "é"]), max_size=4), min_size=1, max_size=8))
def test_label_lists_are_numbered_as_by_hand(rows: list[list[str]]) -> None:
    targets = read_targets(rows)
    if not any(rows):
        return
    classes = targets.known_classes()
    assert classes.tolist() == sorted({label for row in rows for label in row})
    numbered = targets.label_rows(classes)
    found = [numbered.indices[a:b].tolist() for a, b in zip(numbered.offsets, numbered.offsets[1:], strict=False)]
    assert found == [sorted({classes.tolist().index(label) for label in row}) for row in rows]


@pytest.mark.parametrize("make", [quick, best], ids=["single", "best"])
@pytest.mark.parametrize("dense", [False, True])
def test_a_pickle_answers_the_same(make: Any, dense: bool) -> None:
    X, y = sparse_points()
    X = X.toarray() if dense else X
    fitted = make().fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_fit_forgets_and_random_state_repeats() -> None:
    X, y = sparse_points()
    first = quick().fit(X, y)
    scores = first.decision_function(X)
    np.testing.assert_array_equal(first.fit(X[:, :20], y).fit(X, y).decision_function(X), scores)
    assert not np.array_equal(quick(random_state=1).fit(X, y).decision_function(X), scores)


def test_text_to_names_in_a_pipeline_and_a_grid() -> None:
    words = {"animal": "cat dog owl horse", "food": "bread soup rice cake", "tool": "saw drill hammer file"}
    rng = np.random.default_rng(0)
    labels = list(words) * 12
    texts = [" ".join(rng.choice(words[name].split(), 3)) for name in labels]
    pipeline = make_pipeline(TfidfVectorizer(), quick())
    grid = {"owlmineclassifier__dim": np.array([4, 16]), "owlmineclassifier__options": [None, {"scale": 3.0}]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(texts, labels)
    assert search.best_score_ > 0.9
    assert search.predict(["owl dog", "rice bread"]).tolist() == ["animal", "food"]
    lists = MultiLabelBinarizer(sparse_output=True).fit_transform([[name, "thing"] for name in labels])
    assert GridSearchCV(pipeline, {"owlmineclassifier__k": [2]}, cv=3).fit(texts, lists).best_score_ > 0.9


CLASSES: list[Any] = [
    np.array([3, 5, 900]),
    np.array(["b", "a", "ü\n"]),
    np.array(["b", "a", "c"], object),
    np.array([0.0, 1.0, 7.0]),
    np.array([False, True]),
]


@pytest.mark.parametrize("names", CLASSES, ids=lambda names: names.dtype.str)
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("make", [quick, best], ids=["single", "best"])
def test_a_saved_classifier_answers_the_same(make: Any, names: Any, dense: bool, tmp_path: Path) -> None:
    X, y = sparse_points()
    X, y = X.toarray() if dense else X, names[y % len(names)]
    fitted = make(dim=np.int64(8), options={"scale": np.float64(2.0)}).fit(X, y)
    fitted.save(tmp_path / "model")
    loaded = OwlmineClassifier.load(tmp_path / "model")
    assert loaded.classes_.dtype == fitted.classes_.dtype
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(loaded.decision_function(X), fitted.decision_function(X))
    assert loaded.get_params() == fitted.get_params()
    assert (loaded.n_iter_, loaded.loss_curve_) == (fitted.n_iter_, fitted.loss_curve_)
    assert not list((tmp_path / "model").glob("*.pkl"))


@pytest.mark.parametrize("form", ["indicator", "sparse", "lists"])
def test_several_labels_survive_saving(form: str, tmp_path: Path) -> None:
    X, Y = several_labels()
    y = {"indicator": Y, "sparse": sparse.csr_matrix(Y), "lists": [np.flatnonzero(row).tolist() for row in Y]}[form]
    fitted = quick().fit(X, y)
    fitted.save(tmp_path / "model")
    loaded = OwlmineClassifier.load(tmp_path / "model")
    answers = fitted.predict(X), loaded.predict(X)
    assert loaded.k_ == fitted.k_
    if form == "lists":
        assert answers[0] == answers[1]
    else:
        one, other = (a.toarray() if sparse.issparse(a) else a for a in answers)
        np.testing.assert_array_equal(one, other)


def test_a_saved_sparse_model_is_an_ordinary_model(tmp_path: Path) -> None:
    X, y = sparse_points()
    names = np.array([f"class {label}" for label in y])
    fitted = quick().fit(X, names)
    fitted.save(tmp_path / "model")
    model = owlmine.load(tmp_path / "model")
    assert [row[0].key for row in model.predict(X, k=2)] == fitted.predict(X).tolist()
    card = (tmp_path / "model" / "README.md").read_text()
    assert "This model was made by `OwlmineClassifier`" in card
    quick().fit(X.toarray(), names).save(tmp_path / "dense")
    assert "This model expects standardised columns" in (tmp_path / "dense" / "README.md").read_text()


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    X, y = sparse_points()
    fitted = quick().fit(X, y)
    fitted.save(tmp_path / "model")
    with pytest.raises(OwlmineError, match="already exists"):
        fitted.save(tmp_path / "model")
    with pytest.raises(DataError, match=r"found a model of owlmine.fit or owlmine train; .* use owlmine\.load"):
        OwlmineClassifier.load(sparse_model())
    with pytest.raises(DataError):
        OwlmineClassifier.load(tmp_path / "nowhere")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an indicator with a column that has no training point."""
    X, Y = several_labels()
    folder = tmp_path_factory.mktemp("saved") / "model"
    quick(k=2).fit(X, np.insert(Y, 3, 0, axis=1)).save(folder)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature_names_in": "a name"}, "feature_names_in is not a name for each of 20 columns"),
        ({"feature_names_in": ["a"] * 19}, "feature_names_in is not a name for each of 20 columns"),
        ({"feature_names_in": [1] * 20}, "feature_names_in is not a name for each of 20 columns"),
        ({"n_features_in": 20.0}, "n_features_in is 20.0; wanted a whole number"),
        ({"n_features_in": 21}, "mean is not a finite number for each of 21 columns"),
        ({"mean": [float("nan")] * 20}, "mean is not a finite number for each of 20 columns"),
        ({"scale": [0.0] * 20}, "above 0 for scale"),
        ({"scale": None}, "mean is not a finite number"),
        ({"mean": None, "scale": None}, "its parts do not match"),
        ({"target_kind": "single"}, "its parts do not match"),
        ({"target_kind": "sums"}, "its parts do not match"),
        ({"unseen_columns": []}, "its parts do not match"),
        ({"unseen_columns": [4]}, "its parts do not match"),
        ({"unseen_columns": [3, 3]}, "its parts do not match"),
        ({"unseen_columns": 2**40}, "TypeError"),
        ({"unseen_columns": None}, "its parts do not match"),
        ({"target_dtype": "wings"}, "TypeError"),
        ({"params": {"wings": 2}}, "TypeError"),
        ({"params": {"k": 9}}, "k is 9; wanted 1 to the 8 classes"),
    ],
    ids=str,
)
def test_damaged_classifiers_are_refused(saved: Path, change: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = shutil.copytree(saved, tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    config["record"]["estimator"] |= change
    (folder / "config.json").write_text(json.dumps(config))
    seal(folder)
    with pytest.raises(DataError, match=f"config.json: found a classifier that cannot be read .*{message}"):
        OwlmineClassifier.load(folder)


def test_named_parameters_are_training_options() -> None:
    assert set(_OPTION_NAMES) <= set(TrainOptions().to_dict())
    assert set(_OPTION_NAMES) <= set(OwlmineClassifier().get_params())


BAD: list[tuple[dict[str, Any], Any, str]] = [
    ({"loss": "nonsense"}, None, "loss is 'nonsense'"),
    ({"dim": 0}, None, "dim is 0"),
    ({"dim": 8.5}, None, "dim is 8.5; wanted a whole number"),
    ({"epochs": "many"}, None, "epochs is 'many'; wanted a number"),
    ({"epochs": True}, None, "epochs is True; wanted a number"),
    ({"pool": 6}, None, "pool is 6; wanted at most 5"),
    ({"options": {"seed": 3}}, None, "options contains seed"),
    ({"k": 7}, None, "k is 7; wanted 1 to the 6 classes"),
    ({"k": 0}, None, "k is 0"),
    ({"class_rate": 1e38, "kind": "linear"}, None, "is not a finite number; lower the rates"),
    ({}, np.zeros(60), "1 class"),
    ({}, np.zeros((60, 1, 1)), "shape|dim"),
    ({}, np.arange(180).reshape(60, 3), "multiclass-multioutput"),
    ({}, sparse.csr_matrix(np.eye(60)[:, :6] * 0.5), "0 and 1|multilabel|continuous|unknown"),
    ({}, np.zeros((60, 3), int), "found no labels; wanted at least one labelled point"),
    ({}, [["a"]] * 59 + ["b"], "row 59 of y is 'b'"),
    ({}, [["a", 1]] * 60, "all strings or all whole numbers"),
    ({}, np.arange(59), "inconsistent"),
]


@pytest.mark.parametrize(("params", "y", "message"), BAD, ids=[f"{b[0]}-{b[2]}" for b in BAD])
def test_bad_inputs_are_told(params: dict[str, Any], y: Any, message: str) -> None:
    X, good = sparse_points()
    with pytest.raises(ValueError, match=message):
        quick(**params).fit(X, good if y is None else y)


def test_bad_calls_are_told() -> None:
    X, y = sparse_points()
    fitted = quick().fit(X, y)
    with pytest.raises(ValueError, match=r"classes has .*9"):
        fitted.decision_function(X, classes=[0, 9])
    for k in (0, 1.5):
        with pytest.raises(ValueError, match=f"k: found {k}; wanted a whole number of 1 or more"):
            fitted.predict_top(X, k)
    with pytest.raises(ValueError, match="7 columns; wanted 6"):
        fitted.score(X, np.eye(7, dtype=int)[y])
    with pytest.raises(TypeError, match="there is no option epoch; did you mean epochs"):
        quick(options={"epoch": 3}).fit(X, y)
    with pytest.raises(ValueError, match="X has 29 features, but OwlmineClassifier is expecting 30"):
        fitted.predict(X[:, :29])
    dates = np.array(["2020-01-01", "2021-01-01"], "datetime64[D]")
    dated = quick().fit(X, dates[y % 2])
    with pytest.raises(ValueError, match="to save them"):
        dated.save("never written")
