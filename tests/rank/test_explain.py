"""Reasons: against loops over floats, and against the answers that they explain.

Shapes: K classes, F features.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.data.arrays import StringTable
from owlmine.data.rows import SparseRows
from owlmine.data.store import PointWords
from owlmine.dense.encoder import query_batch
from owlmine.dense.retriever import Retriever, join_models
from owlmine.errors import DataError, OwlmineError
from owlmine.index import ExactIndex, Filter
from owlmine.rank import JUDGES, Judge, LinearJudge, Mix, NameJudge, NeighbourJudge, Ranker, RarityJudge
from owlmine.rank import explain as module
from owlmine.rank.candidates import Encoded
from owlmine.rank.explain import Reasons, explain, explain_query, left_out_effects
from owlmine.rank.predictor import Predictor
from owlmine.rank.probabilities import Calibration
from owlmine.rank.record import Record

from .small_tasks import dense, dense_weights
from .small_world import SHORTLIST, World, world
from .test_predictor import dense_predictor

CALIBRATION = Calibration(2.0, 0.5, -0.5, 0.1, -1.0, depth=10, num_points=50)
NUM_CLASSES, NUM_FEATURES, NUM_QUERIES = 24, 20, 11
EPS = float(np.finfo(np.float32).eps)
FORMS = ("one encoder", "an ensemble", "an ensemble in bytes", "linear")


@cache
def world_of(form: str, seed: int) -> World:
    if form == "linear":
        return world(seed, kind="linear", dim=1)
    own = world(seed, heads=1 if form == "one encoder" else 2)
    if form != "an ensemble in bytes":
        return own
    parts = [Retriever.new(replace(own.model.shape, dim=4, heads=1), seed=seed + part) for part in range(2)]
    model = join_models(parts, coded=True)
    return replace(own, training=replace(own.training, model=model, index=ExactIndex(model.rows)))


@cache
def fitted(form: str, seed: int) -> dict[str, Judge]:
    own = world_of(form, seed)
    found = {name: judge.fit(own.training, None) for name, judge in JUDGES.items()}
    return {name: next(iter(variants.values())) for name, variants in found.items() if variants}


def predictor_of(
    form: str = "one encoder",
    seed: int = 0,
    *,
    judges: Collection[str] = tuple(JUDGES),
    num_added: int = 0,
    calibration: Calibration | None = None,
) -> Predictor:
    """With weights drawn from the seed; added classes have vectors that are too long, and an offset."""
    own, generator = world_of(form, seed), np.random.default_rng(seed)
    chosen = {name: judge for name, judge in fitted(form, seed).items() if name in judges}
    weights = {name: float(weight) for name, weight in zip(JUDGES, generator.uniform(0.1, 2, len(JUDGES)), strict=True)}
    mix = Mix({name: weights[name] for name in chosen}, dict.fromkeys(chosen))
    ranker = Ranker(chosen, mix, SHORTLIST if chosen else 0)
    model, classes = own.model, own.training.classes
    if num_added:
        vectors = torch.from_numpy(generator.standard_normal((num_added, model.rows.shape[1])).astype("f4"))
        model = model.with_classes(1.5 * torch.nn.functional.normalize(vectors))
        is_new_K = np.arange(NUM_CLASSES + num_added) >= NUM_CLASSES
        added = [f"new{number}" for number in range(num_added)]
        classes = replace(
            classes,
            keys=StringTable.of([*classes.keys, *added]),
            names=StringTable.of([*classes.names, *added]),
            counts=np.append(classes.counts, [2] * num_added),
        )
        if chosen:
            ranker = replace(
                ranker,
                judges={name: judge.with_classes(num_added) for name, judge in chosen.items()},
                num_trained=NUM_CLASSES,
                dense_weights_K=np.where(is_new_K, 0.75, 1).astype("f4"),
                offsets_K=np.where(is_new_K, 0.25, 0).astype("f4"),
            )
    record = Record("words", None, calibration=calibration)
    return Predictor(model, ranker, classes, own.training.features, record, ExactIndex(model.rows))


def row(form: str, seed: int, number: int) -> SparseRows:
    return world_of(form, seed).queries[number : number + 1]


def parts_of(reasons: Reasons) -> dict[str, float]:
    return {part.name: part.score for part in reasons.parts}


@settings(max_examples=60, deadline=None)
@given(
    form=st.sampled_from(FORMS),
    seed=st.integers(0, 2),
    number=st.integers(0, NUM_QUERIES - 1),
    judges=st.sets(st.sampled_from(list(JUDGES))),
    num_added=st.sampled_from([0, 3]),
    calibration=st.sampled_from([None, CALIBRATION]),
    k=st.sampled_from([1, 5, NUM_CLASSES]),
    forbidden=st.sampled_from([None, [0, 1, 2], list(range(12))]),
    tail=st.sampled_from([0.0, 0.7]),
)
def test_parts_sum_to_the_score_that_is_served(
    form: str,
    seed: int,
    number: int,
    judges: set[str],
    num_added: int,
    calibration: Calibration | None,
    k: int,
    forbidden: list[int] | None,
    tail: float,
) -> None:
    """The same numbers as those of ``predict``, to the bit, in the same order."""
    model = predictor_of(form, seed, judges=judges, num_added=num_added, calibration=calibration)
    query, tail = row(form, seed, number), tail if calibration else 0.0
    only = None if forbidden is None else Filter.forbidding(np.array(forbidden), len(model.classes))
    found = explain(model, query, k, only=only, tail=tail)
    answer = model.answer(query, k, only=only, tail=tail)
    assert [one.prediction for one in found] == model.name(answer)[0]
    for one in found:
        parts = list(parts_of(one).values())
        assert next(iter(parts_of(one))) == "dense"
        assert abs(sum(parts) - one.score) <= len(parts) * EPS * sum(map(abs, parts))
        assert set(parts_of(one)) - {"dense", "offset"} == set(model.ranker.judges)
        assert ("offset" in parts_of(one)) == (one.key.startswith("new") and bool(model.ranker.judges))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_added", [0, 3])
def test_the_parts_are_those_of_a_loop(form: str, num_added: int) -> None:
    """Each by its formula: with names, the best dense score of all trained classes tells how much they count."""
    model = predictor_of(form, num_added=num_added)
    ranker, table_KD = model.ranker, model.dense.rows[:].double()
    weights = ranker.mix.weights
    for number in range(NUM_QUERIES):
        query = row(form, 0, number)
        vector_D = model.dense.encode(query_batch(query, model.dense.device))[0].double()
        scores_K = (table_KD @ vector_D).numpy()
        query_F = dense(query, NUM_FEATURES)[0]
        doubt = min(max(1 - scores_K[:NUM_CLASSES].max(), 0), 1)
        for one in explain(model, query, len(model.classes)):
            c = list(model.classes.keys).index(one.key)
            wanted = {"dense": scores_K[c] * (0.75 if c >= NUM_CLASSES else 1)}
            wanted |= {"offset": 0.25} if c >= NUM_CLASSES else {}
            for name, judge in ranker.judges.items():
                if isinstance(judge, LinearJudge):
                    own_F1 = dense_weights(judge.weights)[c]
                    wanted[name] = weights[name] * (own_F1[:-1] @ query_F + own_F1[-1])
                elif isinstance(judge, NameJudge):
                    wanted[name] = weights[name] * doubt * (dense_weights(judge.weights)[c, :-1] @ query_F)
                elif isinstance(judge, NeighbourJudge):
                    wanted[name] = weights[name] * sum(share for _, _, share in votes(judge, model, query, c))
                else:
                    assert isinstance(judge, RarityJudge)
                    wanted[name] = weights[name] * judge.offsets_K[c]
            found = parts_of(one)
            assert set(found) == set(wanted)
            for name, value in wanted.items():
                # Sums of some dozen products of numbers up to 3.
                assert found[name] == pytest.approx(value, abs=2e-5), name


def votes(judge: NeighbourJudge, model: Predictor, query: SparseRows, c: int) -> list[tuple[int, float, float]]:
    """Of the neighbours with that label: number, cosine and share of all votes, by a loop."""
    cosines_1n, points_1n = judge.nearest(Encoded.of(model.dense, query))
    cosines, points = cosines_1n[0].tolist(), points_1n[0].tolist()
    total = sum(max(cosine, 0.0) ** judge.power for cosine in cosines)
    found = []
    for point, cosine in zip(points, cosines, strict=True):
        labels = judge.labels.indices[judge.labels.offsets[point] : judge.labels.offsets[point + 1]]
        if c in labels.tolist() and cosine > 0:
            found.append((point, cosine, cosine**judge.power / total))
    return found


@pytest.mark.parametrize("form", ["one encoder", "an ensemble in bytes"])
def test_voters_against_a_loop(form: str) -> None:
    model, num_voters = predictor_of(form), 0
    left_out, num_points = np.array([0, 4, 5]), model.ranker.num_voters
    words = PointWords(
        StringTable.of([f"id{point}" if point % 3 else "" for point in range(num_points)]),
        StringTable.of([f"text {point}" for point in range(num_points)]),
        left_out,
    )
    rows = [number for number in range(num_points + 3) if number not in left_out]
    for known in (model, replace(model, points=words)):
        for number in range(NUM_QUERIES):
            for one in explain(known, row(form, 0, number), 8):
                c = list(model.classes.keys).index(one.key)
                for name in ("neighbours", "vector_neighbours"):
                    judge = model.ranker.judges[name]
                    assert isinstance(judge, NeighbourJudge)
                    wanted = votes(judge, model, row(form, 0, number), c)
                    found = [voter for voter in one.voters if voter.judge == name]
                    num_voters += len(found)
                    assert [voter.cosine for voter in found] == [cosine for _, cosine, _ in wanted]
                    # Shares are rounded to parts of 2^-40.
                    np.testing.assert_allclose([v.share for v in found], [v for *_, v in wanted], rtol=0, atol=2**-40)
                    has_words = known is not model
                    assert [voter.row for voter in found] == [rows[p] if has_words else p for p, *_ in wanted]
                    ids = [f"id{p}" if p % 3 and has_words else None for p, *_ in wanted]
                    assert [voter.id for voter in found] == ids
                    assert [voter.text for voter in found] == [f"text {p}" if has_words else None for p, *_ in wanted]
    assert num_voters > 100


@pytest.mark.parametrize("form", FORMS)
def test_the_effects_of_words_against_loops(form: str) -> None:
    """Exact where a judge is linear in the query; by the query without the word in the dense model."""
    model, seen = predictor_of(form, num_added=3), set()
    ranker, words = model.ranker, list(model.features.vocabulary or ())
    linear = ranker.judges["linear"]
    assert isinstance(linear, LinearJudge)
    linear_KF = dense_weights(linear.weights)
    names = ranker.judges.get("names")
    names_KF = dense_weights(names.weights) if isinstance(names, NameJudge) else np.zeros_like(linear_KF)
    for number in range(NUM_QUERIES):
        query = row(form, 0, number)
        assert query.values is not None
        values = dict(zip(query.indices.tolist(), query.values.tolist(), strict=True))
        whole_K = dense_scores(model, query)
        doubt = min(max(1 - float(whole_K[:NUM_CLASSES].max()), 0), 1)
        for one in explain(model, query, len(model.classes)):
            c = list(model.classes.keys).index(one.key)
            factor = 0.75 if c >= NUM_CLASSES else 1.0
            found = {effect.feature: effect for effect in one.words}
            for feature, value in values.items():
                wanted = {
                    "dense": factor * (whole_K[c] - dense_scores(model, without(query, feature))[c]),
                    "linear": ranker.mix.weights["linear"] * linear_KF[c, feature] * value,
                }
                if names is not None:
                    wanted["name"] = ranker.mix.weights["names"] * doubt * names_KF[c, feature] * value
                if feature not in found:
                    # Whatever moves nothing is not shown.
                    assert sum(wanted.values()) == pytest.approx(0, abs=2e-6)
                    continue
                effect = found.pop(feature)
                assert effect.word == words[feature]
                assert set(effect.effects) == set(wanted)
                for name, value_of in wanted.items():
                    seen |= {name} if value_of else set()
                    # Vectors of length 1.5 at most, encoded in batches of other sizes.
                    assert effect.effects[name] == pytest.approx(value_of, abs=3e-6), name
                assert effect.total == pytest.approx(sum(wanted.values()), abs=5e-6)
            assert not found
            linear = next(part for part in one.parts if part.name == "linear")
            of_words = sum(effect.effects["linear"] or 0 for effect in one.words)
            assert linear.score == pytest.approx(of_words + linear.bias, abs=2e-6)
            spelled = sorted(
                (feature for feature in values if names_KF[c, feature] > 0),
                key=lambda feature: -names_KF[c, feature] * values[feature],
            )
            assert one.spelled_by == tuple(words[feature] for feature in spelled)
            assert one.spelled == bool(spelled)
    # A linear model scores its best classes above 1, so that names do not count; they are spelled all the same.
    assert seen == {"dense", "linear"} | (set() if form == "linear" else {"name"})


def dense_scores(model: Predictor, query: SparseRows) -> np.ndarray[Any, Any]:
    vector_D = model.dense.encode(query_batch(query, model.dense.device))[0].double()
    scores_K: np.ndarray[Any, Any] = (model.dense.rows[:].double() @ vector_D).numpy()
    return scores_K


def without(query: SparseRows, feature: int) -> SparseRows:
    assert query.values is not None
    keep = query.indices != feature
    return SparseRows(np.array([0, keep.sum()]), query.indices[keep], query.values[keep])


def test_words_are_ordered_and_cut_by_their_total_effect() -> None:
    model, query = predictor_of(), row("one encoder", 0, 1)
    for whole, some in zip(explain(model, query, 3), explain(model, query, 3, most_words=2), strict=True):
        sizes = [abs(effect.total) for effect in whole.words]
        assert len(sizes) > 2
        assert sizes == sorted(sizes, reverse=True)
        assert some.words == whole.words[:2]
        assert some.parts == whole.parts


def test_a_long_query_leaves_out_only_its_largest_words(monkeypatch: pytest.MonkeyPatch) -> None:
    model, query = predictor_of(), row("one encoder", 0, 1)
    assert query.values is not None
    ids, num_words = np.arange(4), len(query.indices)
    whole = left_out_effects(model.dense, query, ids)
    assert not np.isnan(whole).any()
    monkeypatch.setattr(module, "MOST_LEFT_OUT", 3 * num_words)
    some = left_out_effects(model.dense, query, ids)
    largest = np.argsort(-query.values)[:3]
    np.testing.assert_allclose(some[:, largest], whole[:, largest], rtol=0, atol=1e-6)
    assert np.isnan(np.delete(some, largest, axis=1)).all()
    unknown = [effect for effect in explain(model, query, 1)[0].words if effect.effects["dense"] is None]
    assert unknown
    for effect in unknown:
        by_linear, by_name = effect.effects["linear"], effect.effects["name"]
        assert by_linear is not None
        assert by_name is not None
        assert effect.total == by_linear + by_name
        assert effect.to_dict()["dense"] is None


def test_a_query_of_one_word_loses_everything_without_it() -> None:
    model = predictor_of("an ensemble in bytes")
    query = SparseRows(np.array([0, 1]), np.array([3], np.int32), np.ones(1, np.float32))
    for one in explain(model, query, 3):
        assert one.words[0].effects["dense"] == pytest.approx(parts_of(one)["dense"], abs=1e-6)


def test_repeated_features_count_once() -> None:
    """As SciPy sums them; a row of no values has ones."""
    model = predictor_of()
    twice = SparseRows(np.array([0, 3]), np.array([5, 2, 5], np.int32), np.array([0.5, 0.25, 0.25], np.float32))
    once = SparseRows(np.array([0, 2]), np.array([2, 5], np.int32), np.array([0.25, 0.75], np.float32))
    for one, other in zip(explain(model, twice, 3), explain(model, once, 3), strict=True):
        assert one.key == other.key
        assert {effect.feature for effect in one.words} == {effect.feature for effect in other.words}
        for effect, wanted in zip(one.words, other.words, strict=True):
            assert effect.total == pytest.approx(wanted.total, abs=1e-6)
    ones = explain_query(model, SparseRows(np.array([0, 1]), np.array([5]), None), 1)
    assert ones[0].words[0].feature == 5


@pytest.mark.parametrize("calibration", [None, CALIBRATION])
def test_classes_that_are_asked_for_need_not_be_listed(calibration: Calibration | None) -> None:
    """They have the scores and probabilities that they have among these classes alone."""
    model, query = predictor_of(calibration=calibration), row("one encoder", 0, 2)
    listed = set(lists_of(model, query, 2))
    asked = [key for key in model.classes.keys if key not in listed][:2] + sorted(listed)[:2]
    found = explain_query(model, query, 2, classes=asked)
    answer = model.predict(query, 4, allowed=asked)[0]
    assert [one.prediction for one in found] == answer
    assert {one.key: one.listed for one in found} == {key: key in listed for key in asked}
    assert all(not one.suggested_by for one in found if not one.listed)
    # Twice the same, and a set, are the same.
    assert (
        explain_query(model, query, 2, classes={*asked}) == explain_query(model, query, 2, classes=asked * 2) == found
    )


def test_rare_classes_are_listed_as_they_are_found() -> None:
    """More classes are candidates where rare ones are favoured."""
    model, query = predictor_of(calibration=CALIBRATION), row("one encoder", 0, 2)
    keys = list(model.classes.keys)
    assert not all(one.listed for one in explain_query(model, query, 2, classes=keys))
    assert all(one.listed for one in explain_query(model, query, 2, classes=keys, tail=0.5))


def lists_of(model: Predictor, query: SparseRows, k: int) -> dict[str, tuple[str, ...]]:
    """The classes on the list of a query, and who suggested those that the dense model did not list, by a loop."""
    encoded = Encoded.of(model.dense, query)
    depth = 0 if model.record.calibration is None else model.record.calibration.depth
    candidates = model.ranker.candidates(model.dense, encoded, max(k, depth), index=model.index)
    first = candidates.ids_NS[0, : candidates.num_listed].tolist()
    found = {model.classes.keys[number]: () for number in first}
    for judge in model.ranker.suggesters:
        for number in judge.suggest(encoded, module.SUGGESTED)[0].tolist():
            if number >= 0 and number not in first:
                key = model.classes.keys[number]
                found[key] = (*found.get(key, ()), judge.name)
    return found


def test_who_brought_a_class_into_the_list() -> None:
    model, counts = predictor_of(), dict.fromkeys(range(4), 0)
    for number in range(NUM_QUERIES):
        query = row("one encoder", 0, number)
        wanted = lists_of(model, query, 1)
        for one in explain_query(model, query, 1, classes=list(model.classes.keys)):
            assert one.listed == (one.key in wanted)
            assert one.suggested_by == wanted.get(one.key, ())
            counts[len(one.suggested_by)] += 1
    assert all(counts[several] for several in (0, 1, 2))


def test_filters_say_what_is_listed_but_not_what_is_explained() -> None:
    model, query = predictor_of(), row("one encoder", 0, 2)
    best = explain_query(model, query, 1)[0]
    (other,) = explain_query(model, query, 1, forbidden=[best.key])
    assert other.key != best.key
    (again,) = explain_query(model, query, 1, classes=[best.key], forbidden=[best.key])
    assert (again.key, again.listed) == (best.key, False)
    assert explain_query(model, query, 3, allowed=[best.key]) == explain_query(model, query, 1, allowed=[best.key])


def test_no_class_left_to_choose_from() -> None:
    model, every = predictor_of(), [f"c{number}" for number in range(NUM_CLASSES)]
    assert explain_query(model, row("one encoder", 0, 2), 2, forbidden=every) == []
    (only,) = explain_query(model, row("one encoder", 0, 2), 2, forbidden=every, classes=["c1"])
    assert not only.listed


def test_a_query_without_known_features_has_no_reasons() -> None:
    model, empty = predictor_of(), row("one encoder", 0, NUM_QUERIES)
    assert not len(empty.indices)
    assert explain(model, empty, 3) == explain_query(model, empty, 3, classes=["c1"]) == []


def test_reasons_are_json() -> None:
    model = predictor_of(num_added=3, calibration=CALIBRATION)
    for one in explain(model, row("one encoder", 0, 1), 27):
        shown = json.loads(json.dumps(one.to_dict()))
        assert shown["key"] == one.key
        assert shown["score"] == pytest.approx(one.score, rel=1e-6)
        assert sum(part["score"] for part in shown["parts"]) == pytest.approx(one.score, abs=1e-5)
        assert (len(shown["words"]), shown["features"]) == (len(one.words), [])
        assert len(shown["voters"]) == len(one.voters)
        assert shown["spelled"] is one.spelled
        assert shown["examples"] == model.classes.counts[list(model.classes.keys).index(one.key)]


def test_features_without_words_go_by_their_numbers() -> None:
    own = predictor_of(judges=["linear"])
    model = replace(own, features=replace(own.features, vocabulary=None))
    query = row("one encoder", 0, 1)
    for one, other in zip(explain(model, query, 3), explain(own, query, 3), strict=True):
        assert one.to_dict()["words"] == []
        assert [effect["feature"] for effect in one.to_dict()["features"]] == [effect.feature for effect in other.words]
        assert not one.spelled_by


def test_dense_vectors() -> None:
    """Each coordinate is a feature; one of 0 cannot move anything."""
    model, vector = dense_predictor(), [0.5, 0, -1, 2, 0, 0, 0.25, 1, 0]
    answer = model.predict([vector], 3)[0]
    for one, prediction in zip(explain_query(model, vector, 3), answer, strict=True):
        assert one.prediction == prediction
        assert parts_of(one) == {"dense": one.score}
        assert {effect.feature for effect in one.words} <= {0, 2, 3, 6, 7}
        assert (one.voters, one.spelled, one.listed) == ((), False, True)
        for effect in one.words:
            shortened = [0 if place == effect.feature else value for place, value in enumerate(vector)]
            scores = {p.key: p.score for p in model.predict([shortened], 3)[0]}
            assert effect.effects["dense"] == pytest.approx(one.score - scores[one.key], abs=1e-6)


@pytest.mark.parametrize("kind", ["list", "tuple", "array", "rows", "tensor", "Series"])
def test_vectors_in_any_form(kind: str) -> None:
    pandas = pytest.importorskip("pandas") if kind == "Series" else None
    model, vector = dense_predictor(), np.arange(9, dtype=np.float32)
    forms: dict[str, Any] = {"list": vector.tolist(), "tuple": tuple(vector), "array": vector, "rows": vector[None]}
    forms |= {"tensor": torch.from_numpy(vector), "Series": pandas and pandas.Series(vector)}
    assert explain_query(model, forms[kind], 2) == explain_query(model, vector, 2)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"query": [[1.0] * 9] * 2}, "query: found 2 queries; wanted one"),
        ({"query": [1.0] * 8}, "wanted dense vectors of width 9"),
        ({"query": "a text"}, "wanted dense vectors of width 9"),
        ({"k": 0}, "k: found 0; wanted a whole number of 1 or more"),
        ({"k": 1001}, None),
        ({"most_words": 0}, "wanted a whole number of 1 or more"),
        ({"classes": ["a", "z"]}, "classes: the model has no class 'z'"),
        ({"classes": "a"}, "classes: found 'a'; wanted a collection of keys"),
        ({"classes": []}, "classes: found no class"),
        ({"classes": [1.5]}, "wanted keys of classes: text or whole numbers"),
        ({"forbidden": ["z"]}, "forbidden: the model has no class 'z'"),
        ({"tail": 0.5}, "the model has no probabilities"),
        ({"tail": 2}, "wanted a number from 0 to 1"),
    ],
    ids=str,
)
def test_bad_input(given: dict[str, Any], told: str | None) -> None:
    arguments = {"query": [1.0] * 9, "k": 2} | given
    model = dense_predictor()
    if told is None:
        assert len(explain_query(model, arguments.pop("query"), **arguments)) == 3
        return
    with pytest.raises(OwlmineError, match=told):
        explain_query(model, arguments.pop("query"), **arguments)


def test_not_too_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CLASSES", 4)
    model, query = predictor_of(), row("one encoder", 0, 2)
    assert len(explain_query(model, query, 4)) == 4
    for k, classes in ((5, None), (1, list(model.classes.keys)[:5])):
        with pytest.raises(DataError, match="found 5 classes; wanted at most 4 to explain"):
            explain_query(model, query, k, classes=classes)
