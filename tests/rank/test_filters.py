"""Answers with allowed or forbidden classes, by key: against a plain reference, and what is refused.

Shapes: N queries, K classes, k answers.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.errors import DataError, OwlmineError
from owlmine.index import Filter, filters
from owlmine.rank import predictor as module
from owlmine.rank.filters import classes_in_file
from owlmine.rank.predictor import Predictor
from owlmine.rank.ranker import Ranker

from .test_candidates import NUM_CLASSES, NUM_QUERIES, dense_scores, some_queries
from .test_predictor import CALIBRATION, some_predictor

CLASSES = set(range(NUM_CLASSES))


def keys(ids: Any) -> list[str]:
    return [f"c{number}" for number in sorted(ids)]


def dense_alone() -> Predictor:
    return replace(some_predictor(), ranker=Ranker())


@st.composite
def some_keys(draw: st.DrawFn, *, empty: bool) -> tuple[Any, list[set[int] | None]]:
    """An argument, and the ids that it names for each query; None if it names none."""
    some = st.sets(st.integers(0, NUM_CLASSES - 1), min_size=0 if empty else 1)
    if draw(st.booleans()):
        one = draw(some)
        form = draw(st.sampled_from([list, set, tuple, np.array, iter, pd.Series]))
        return form(keys(one)) if one else [], [one] * NUM_QUERIES
    each = draw(st.lists(st.one_of(st.none(), st.sets(st.integers(0, 44))), min_size=NUM_QUERIES, max_size=NUM_QUERIES))
    each[0] = each[0] or {3}
    return [None if own is None else keys(own) for own in each], each


@settings(max_examples=80, deadline=None)
@given(
    st.one_of(st.none(), some_keys(empty=False)),
    st.one_of(st.none(), some_keys(empty=True)),
    st.integers(1, NUM_CLASSES),
    st.booleans(),
)
def test_answers_against_all_scores(allowed: Any, forbidden: Any, k: int, few: bool) -> None:
    """Score all classes of the dense model, filter, rank."""
    model, queries = dense_alone(), some_queries()
    given_ = {name: own[0] for name, own in (("allowed", allowed), ("forbidden", forbidden)) if own is not None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filters, "_FEW_OF", 1 if few else NUM_CLASSES)
        patch.setattr(filters, "_LONGEST_LIST", 10)
        patch.setattr(module, "_BLOCK_ROWS", 4)
        found = model.predict_batch(queries, k, **given_)
    exact_NK = dense_scores(model.dense, queries)
    most = 0
    for row in range(NUM_QUERIES):
        own = CLASSES if allowed is None or allowed[1][row] is None else allowed[1][row]
        own = own - (set() if forbidden is None else forbidden[1][row] or set())
        most = max(most, len(own))
        if row == NUM_QUERIES - 1:  # nothing is known about it
            assert (found.ids_Nk[row] == -1).all()
            continue
        wanted = sorted(own, key=lambda c: -exact_NK[row, c])[:k]
        assert found.ids_Nk[row, : len(wanted)].tolist() == wanted
        np.testing.assert_allclose(found.scores_Nk[row, : len(wanted)], exact_NK[row, wanted], rtol=0, atol=5e-7)
        assert (found.ids_Nk[row, len(wanted) :] == -1).all()
        assert (found.scores_Nk[row, len(wanted) :] == -np.inf).all()
    assert min(k, most) <= found.ids_Nk.shape[1] <= k


@pytest.mark.parametrize("shortlist", [6, NUM_CLASSES])
@pytest.mark.parametrize("tail", [0.0, 0.5])
def test_scores_and_probabilities_are_those_without_a_filter(shortlist: int, tail: float) -> None:
    """With judges that suggest classes: none of them brings in a forbidden one."""
    model, queries = some_predictor(calibration=CALIBRATION, shortlist=shortlist), some_queries()
    whole = model.answer(queries, NUM_CLASSES)
    assert whole.probabilities_Nk is not None
    scores_NK, chances_NK = np.empty_like(whole.scores_Nk), np.empty_like(whole.scores_Nk)
    np.put_along_axis(scores_NK, whole.ids_Nk, whole.scores_Nk, axis=1)
    np.put_along_axis(chances_NK, whole.ids_Nk, whole.probabilities_Nk, axis=1)
    best_Nk = model.answer(queries, 3).ids_Nk
    generator = np.random.default_rng(0)
    sets: list[Any] = [set(own.tolist()) for own in best_Nk]
    sets[1], sets[2] = None, set(np.flatnonzero(generator.random(NUM_CLASSES) < 0.7).tolist())
    for name in ("allowed", "forbidden"):
        found = model.predict_batch(
            queries, 5, tail=tail, **{name: [None if own is None else keys(own) for own in sets]}
        )
        assert found.probabilities_Nk is not None
        for row, own in enumerate(sets[:-1]):
            allowed = CLASSES if own is None else own if name == "allowed" else CLASSES - own
            ids = found.ids_Nk[row][found.ids_Nk[row] >= 0]
            assert len(ids) == min(5, len(allowed))
            assert set(ids.tolist()) <= allowed
            np.testing.assert_allclose(found.scores_Nk[row, : len(ids)], scores_NK[row, ids], rtol=0, atol=5e-7)
            if shortlist == NUM_CLASSES:  # the best of all classes are then the same
                np.testing.assert_allclose(
                    found.probabilities_Nk[row, : len(ids)], chances_NK[row, ids], rtol=0, atol=5e-7
                )
            assert (found.probabilities_Nk[row, len(ids) :] == 0).all() or len(ids) == 5


def test_one_query_has_the_answer_that_it_has_in_a_batch() -> None:
    model, queries = some_predictor(calibration=CALIBRATION), some_queries()
    each = [keys(range(row, NUM_CLASSES, 2 + row)) for row in range(NUM_QUERIES)]
    together = model.predict(queries, 4, forbidden=each)
    alone = [model.predict(queries[row : row + 1], 4, forbidden=each[row])[0] for row in range(NUM_QUERIES)]
    assert [[c.key for c in row] for row in together] == [[c.key for c in row] for row in alone]


def test_names_and_numbers_may_stand_for_keys() -> None:
    model, queries = some_predictor(), some_queries()
    by_name = model.predict_batch(queries, 2, allowed=["Class c3", "c5"])
    assert set(by_name.ids_Nk[0].tolist()) == {3, 5}


def test_nothing_forbidden_is_nothing_left_out() -> None:
    model, queries = some_predictor(), some_queries()
    whole = model.predict_batch(queries, 5)
    for nothing in ([], [[]] * NUM_QUERIES, [None] * NUM_QUERIES):
        np.testing.assert_array_equal(model.predict_batch(queries, 5, forbidden=nothing).ids_Nk, whole.ids_Nk)


def test_a_query_without_any_class_has_an_empty_answer() -> None:
    model, queries = some_predictor(calibration=CALIBRATION), some_queries()
    each: list[Any] = [[], *[["c1", "c2", "c3"]] * (NUM_QUERIES - 1)]
    answers = model.predict(queries, 2, allowed=each)
    assert [len(answer) for answer in answers] == [0, *[2] * (NUM_QUERIES - 2), 0]
    assert model.predict(queries[:2], 2, allowed=[[], []]) == [[], []]
    assert model.predict(queries[:2], 2, forbidden=keys(CLASSES), tail=1.0) == [[], []]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"allowed": "c1"}, "allowed: found 'c1'; wanted keys of classes, or a list with"),
        ({"allowed": 3}, "allowed: found 3; wanted keys"),
        ({"allowed": []}, "allowed: found no class"),
        ({"allowed": ["c1", "d1"]}, "allowed: the model has no class 'd1'"),
        ({"forbidden": [["c1"], ["c2", "zzzz"]]}, "forbidden of query 1: the model has no class 'zzzz'"),
        ({"forbidden": [["c1"]]}, "forbidden: found collections for 1 queries; wanted 2, one for each"),
        ({"forbidden": [["c1"], "c2"]}, "forbidden of query 1: found 'c2'; wanted a collection of keys, or None"),
        ({"forbidden": [1.5]}, "forbidden: found 1.5; wanted keys of classes: text or whole numbers"),
        ({"allowed": [["c1"], [True]]}, "allowed of query 1: found True; wanted keys"),
    ],
)
def test_bad_filters(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OwlmineError) as refused:
        some_predictor().predict(some_queries()[:2], **given)
    assert str(refused.value).startswith(message)


def test_a_filter_of_another_model_or_of_other_queries_is_refused() -> None:
    model, queries = some_predictor(), some_queries()
    with pytest.raises(DataError, match="filter: found one for 44 classes; wanted 45"):
        model.answer(queries, 1, only=Filter.allowing(np.array([1]), 44))
    with pytest.raises(DataError, match="filter: found one for 2 queries; wanted 9"):
        model.answer(queries, 1, only=Filter.per_query([None, None], NUM_CLASSES, allowed=True))


def test_files_of_keys(tmp_path: Path) -> None:
    file, finder = tmp_path / "keys.txt", some_predictor().finder
    file.write_text("c4\r\n\n  Class c7\nc4\n")
    assert classes_in_file(finder, file).tolist() == [4, 7, 4]
    file.write_text("c4\n\nc77\n")
    with pytest.raises(OwlmineError, match=r"keys\.txt, line 3: the model has no class 'c77'"):
        classes_in_file(finder, file)
    with pytest.raises(DataError, match=r"none\.txt: found no such file"):
        classes_in_file(finder, tmp_path / "none.txt")


def test_a_pickled_model_has_no_dictionary_of_its_keys() -> None:
    model = some_predictor()
    model.predict(some_queries())
    before = len(pickle.dumps(model))
    model.predict(some_queries(), allowed=["c1", "Class c2"])
    assert len(pickle.dumps(model)) < before + 200
