"""What the recipe makes of data: an ensemble, judges, a mix chosen on validation points, and a rehearsal before it all.

Shapes: N queries, S places of a list of candidates.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from owlmine.data import ConvertOptions, Store, convert
from owlmine.data.store import Dataset
from owlmine.dense.retriever import join_models
from owlmine.dense.validation import ValidationPart
from owlmine.index import Filter
from owlmine.metrics import inverse_propensities
from owlmine.model import Model, load
from owlmine.rank import Evidence, Mix, default_mix
from owlmine.rank import mix as mixing
from owlmine.rank.candidates import SUGGESTED, Candidates, Encoded
from owlmine.rank.mix import Gather
from owlmine.rank.names import NameJudge
from owlmine.rank.neighbours import NeighbourJudge
from owlmine.rank.points import DensePoints, SparsePoints
from owlmine.rank.predictor import Predictor
from owlmine.rank.words import rarities
from owlmine.recipe import fit as recipe
from owlmine.recipe.fit import Surroundings, fit
from owlmine.recipe.options import TrainOptions

from ..answers import assert_same_answers
from ..run.runs import Listener, best_options, ensemble_options, small_options
from .named_texts import KEYS, train_points, write_texts


def text_options(**changes: Any) -> TrainOptions:
    """One dense model and judges, chosen on the dev split of texts."""
    return ensemble_options(**({"heads": None, "shortlist": 5, "epochs": 3.0} | changes))


def fitted(data: Dataset, options: TrainOptions) -> tuple[Predictor, list[str]]:
    """The model, and what was said on the way."""
    listener = Listener()
    return fit(data, options, surroundings=Surroundings(listener)), listener.messages


def loaded(predictor: Predictor, folder: Path) -> Model:
    """The same from a folder."""
    Model.of(predictor).save(folder)
    return load(folder)


def listen_to_choice(patch: pytest.MonkeyPatch) -> list[tuple[Evidence, Mix, float]]:
    """The mix is chosen as ever; back come what it was chosen by in the end, the mix and its precision."""
    choices: list[tuple[Evidence, Mix, float]] = []
    choose = recipe.choose_mix

    def listening(gather: Gather, judges: Collection[str]) -> tuple[Mix, float]:
        gathered: list[Evidence] = []
        chosen = choose(lambda some: gathered.append(gather(some)) or gathered[-1], judges)
        choices.append((gathered[-1], *chosen))
        return chosen

    patch.setattr(recipe, "choose_mix", listening)
    return choices


def choose_always(mix: Mix, patch: pytest.MonkeyPatch) -> list[Evidence]:
    """This mix is chosen whatever validation says; back comes what it would have been chosen by."""
    asked: list[Evidence] = []
    patch.setattr(recipe, "choose_mix", lambda gather, judges: asked.append(gather(judges)) or (mix, 0.0))
    return asked


def mix_of(**weights: float) -> Mix:
    """Of linear classifiers and these judges in their usual form."""
    weights = {"linear": 0.2} | weights
    return Mix(weights, {name: 1.0 if name == "linear" else None for name in weights})


def mean_precision(predictor: Predictor, data: Dataset, share: float) -> float:
    """Of P@1, P@3 and P@5 in percent, by a loop over validation points."""
    precisions = []
    for batch in ValidationPart(data, share=share).batches():
        for row, ids in enumerate(predictor.answer(batch.queries, 5).ids_Nk.tolist()):
            own = batch.labels[row : row + 1].indices.tolist()
            precisions.append(np.mean([sum(c in own for c in ids[:k]) / k for k in (1, 3, 5)]))
    return 100 * float(np.mean(precisions))


# The mix.


def test_the_mix_is_chosen_on_validation_points(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the scores that the model then gives."""
    choices = listen_to_choice(monkeypatch)
    predictor, messages = fitted(store, ensemble_options(heads=None, shortlist=12))
    ((evidence, mix, precision),) = choices
    (batch,) = ValidationPart(store, share=0.2).batches()
    ranker, encoded = predictor.ranker, Encoded.of(predictor.dense, batch.queries)
    candidates = ranker.candidates(predictor.dense, encoded, 1, index=predictor.index)
    ids_NS = candidates.ids_NS
    assert ids_NS.shape == (80, 12)
    np.testing.assert_array_equal(ids_NS, predictor.shortlist(batch.queries, 12)[1])
    np.testing.assert_allclose(evidence.dense_NS, candidates.dense_NS, rtol=1e-6, atol=1e-6)
    own = [batch.labels[row : row + 1].indices for row in range(80)]
    np.testing.assert_array_equal(evidence.hits_NS, [np.isin(ids, of) for ids, of in zip(ids_NS, own, strict=True)])
    rarity = np.log(inverse_propensities(store.class_counts, len(store["train"]))).astype(np.float32)
    np.testing.assert_array_equal(evidence.scores["rarity"][None], rarity[ids_NS])
    assert list(evidence.scores["linear"]) == [1.0]
    linear_NS = ranker.judges["linear"].scores(candidates)
    np.testing.assert_array_equal(evidence.scores["linear"][1.0], linear_NS)
    assert set(evidence.scores) == {"linear", "rarity"}, "no words, so no names; no neighbours were asked for"
    assert ranker.mix == mix
    assert messages[-1] == f"{mix}: mean of P@1, P@3 and P@5 {precision:.2f} on validation points"
    final_NS = candidates.dense_NS + np.float32(mix.weights["linear"]) * linear_NS
    final_NS += np.float32(mix.weights["rarity"]) * rarity[ids_NS]
    answers = predictor.answer(batch.queries, 3)
    best_N3 = np.argsort(-final_NS, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(answers.ids_Nk, np.take_along_axis(ids_NS, best_N3, axis=1))


@pytest.mark.parametrize(("heads", "shortlist"), [(1, 12), (1, 8), (2, 5)])
def test_the_figure_of_the_mix_is_that_of_the_model(
    store: Store, monkeypatch: pytest.MonkeyPatch, heads: int, shortlist: int
) -> None:
    """Also where the shortlist is shorter than the lists that probabilities need."""
    choices = listen_to_choice(monkeypatch)
    predictor = fitted(store, ensemble_options(heads=heads, shortlist=shortlist, neighbours=5))[0]
    assert choices[0][2] == pytest.approx(mean_precision(predictor, store, 0.2))
    assert np.mean([*predictor.record.figures.values()]) == pytest.approx(choices[0][2])


@pytest.mark.parametrize(
    "forms",
    [
        {"neighbours": "power 4"},
        {"vector_neighbours": "power 16"},
        {"neighbours": "power 16", "vector_neighbours": "power 2"},
    ],
    ids=str,
)
def test_what_was_chosen_is_what_the_model_has(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forms: dict[str, str]
) -> None:
    """And what a file has: forms and judges that were not chosen are gone."""
    mix = Mix({"linear": 0.2} | dict.fromkeys(forms, 0.4), {"linear": 1.0} | forms)
    asked = choose_always(mix, monkeypatch)
    predictor = fitted(store, ensemble_options(epochs=0.2, neighbours=5))[0]
    assert {"linear", "neighbours", "vector_neighbours", "rarity"} == set(asked[0].scores)
    for name in ("neighbours", "vector_neighbours"):
        assert list(asked[0].scores[name]) == ["power 2", "power 4", "power 16"]
    queries = store["test"].batch(np.arange(20)).queries
    again = loaded(predictor, tmp_path / "model")
    for one in (predictor, again):
        assert (one.ranker.mix, one.ranker.shortlist) == (mix, 8)
        assert list(one.ranker.judges) == ["linear", *forms]
        for name, form in forms.items():
            settings = one.ranker.judges[name].settings()
            assert f"power {settings['power']:g}" == form
            assert settings["count"] == 5
    few = np.array([3, 5, 8], np.int64)
    for k, among in ((1, None), (8, None), (20, None), (60, None), (3, few)):
        only = None if among is None else Filter.allowing(among, len(predictor.classes))
        found, wanted = (one.answer(queries, k, only=only) for one in (again, predictor))
        assert_same_answers((found.scores_Nk, found.ids_Nk), (wanted.scores_Nk, wanted.ids_Nk))


def test_without_validation_points_the_usual_mix_counts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the model says nothing of its figures."""
    monkeypatch.setattr(recipe, "choose_mix", None)
    predictor, messages = fitted(store, best_options(validation=0.0))
    assert dict(predictor.ranker.mix.weights) == {"linear": 0.2}, "no names without words"
    assert predictor.ranker.mix.variants["linear"] == 1.0
    assert predictor.record.figures == {}
    assert predictor.record.rehearsal is None
    assert [message for message in messages if "validation" in message] == [
        f"{default_mix()}: default weights, because there are no validation points"
    ]


# Neighbours.


def test_neighbours_find_classes_that_the_dense_model_has_not_learned(
    text_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five steps teach it little: classes are not on its lists, whose training points are near to the query."""
    choices = listen_to_choice(monkeypatch)
    predictor = fitted(text_store, text_options(epochs=0.2, neighbours=5, names=False))[0]
    evidence, mix, precision = choices[0]
    assert evidence.suggested
    assert set(evidence.suggested) <= {"neighbours", "vector_neighbours"}
    assert set(mix.weights) == {"linear", "rarity", *evidence.suggested}
    assert evidence.hits_NS[:, evidence.num_listed :].sum() >= 3
    assert precision == pytest.approx(mean_precision(predictor, text_store, 0.2))
    assert np.mean([*predictor.record.figures.values()]) == pytest.approx(precision)
    without = fitted(text_store, text_options(epochs=0.2, neighbours=0, names=False))[0]
    assert predictor.record.figures["P@1"] > without.record.figures["P@1"] + 15


def test_a_class_that_dropped_neighbours_suggest_too_stays_on_the_list(
    text_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its name suggests it: the lists are made anew without them."""
    gathered: list[Evidence] = []
    choose = recipe.choose_mix

    def listening(gather: Gather, judges: Collection[str]) -> tuple[Mix, float]:
        return choose(lambda some: gathered.append(gather(some)) or gathered[-1], judges)

    def know_nothing(judge: NeighbourJudge, candidates: Candidates) -> Any:
        return np.zeros_like(candidates.dense_NS)

    monkeypatch.setattr(recipe, "choose_mix", listening)
    monkeypatch.setattr(NeighbourJudge, "scores", know_nothing)
    predictor = fitted(text_store, text_options(epochs=0.2, neighbours=5))[0]
    assert set(predictor.ranker.judges) == {"linear", "rarity", "names"}
    names = ("neighbours", "vector_neighbours", "names")
    assert [evidence.suggested for evidence in gathered] == [names, names[1:], names[2:]]
    first, last = gathered[0].hits_NS, gathered[-1].hits_NS
    theirs_N = first[:, 10 : 10 + 2 * SUGGESTED].any(axis=1)
    assert theirs_N.sum() >= 3
    assert last.shape[1] == 10 + SUGGESTED
    np.testing.assert_array_equal(last[:, :10], first[:, :10])
    assert last[theirs_N, 10:].any(axis=1).all()
    assert (last.sum(axis=1) == 1).all()
    # And so it is on the lists that the model has.
    (batch,) = ValidationPart(text_store, share=0.2).batches()
    encoded = Encoded.of(predictor.dense, batch.queries)
    ids_NS = predictor.ranker.candidates(predictor.dense, encoded, 10, index=predictor.index).ids_NS
    np.testing.assert_array_equal(ids_NS == batch.labels.indices[:, None], last)


def test_neighbours_of_validation_points_are_looked_up_once(text_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all forms, and however often judges are dropped; once more for the figures of the model."""
    calls: list[str] = []
    choices = listen_to_choice(monkeypatch)
    nearest = {points: points.nearest for points in (SparsePoints, DensePoints)}

    def counted(points: Any, queries: Any, vectors_ND: Any, count: int) -> Any:
        # Names have lists of the same make, of which more are asked for.
        if count == 5:
            calls.append(type(points).__name__)
        return nearest[type(points)](points, queries, vectors_ND, count)

    for points in nearest:
        monkeypatch.setattr(points, "nearest", counted)
    predictor = fitted(text_store, text_options(epochs=0.2, neighbours=5))[0]
    assert choices[0][0].suggested != ("neighbours", "vector_neighbours", "names"), "some were dropped"
    again = [type(judge.points).__name__ for judge in predictor.ranker.judges.values() if hasattr(judge, "points")]
    assert calls == ["SparsePoints", "DensePoints", *again]


# Members and the rehearsal.


def test_a_rehearsal_chooses_and_all_points_are_learned_from(store: Store) -> None:
    predictor, messages = fitted(store, best_options())
    assert messages[0] == "a rehearsal, with 20% of the training points held out"
    assert "now training on all points" in messages
    single = best_options(recipe="single", heads=None, shortlist=None, validation=0.0)
    alone = [fitted(store, single.with_(seed=seed))[0].dense for seed in (6, 7)]
    for name, tensor in join_models(alone, coded=True).tensors().items():
        assert torch.equal(predictor.dense.tensors()[name], tensor), name
    record = predictor.record
    assert record.rehearsal == 0.2
    assert record.figures["P@1"] > 0
    assert record.calibration is not None
    assert record.calibration.num_points == len(store["train"]) // 5
    assert record.options["validation"] == 0.02, "as it was given"
    assert [(line["model"], line["step"]) for line in record.history] == [(1, 8), (1, 16), (2, 8), (2, 16)]
    assert all("P@1" in line for line in record.history), "they are of the rehearsal"


def test_judges_learn_from_all_points_after_a_rehearsal(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the mix that the rehearsal chose: nobody chooses again."""
    mix = Mix({"linear": 0.3, "neighbours": 0.4}, {"linear": 0.3, "neighbours": "power 2"})
    asked = choose_always(mix, monkeypatch)
    ranker = fitted(store, best_options(epochs=0.5))[0].ranker
    assert len(asked) == 1
    assert len(asked[0]) == len(store["train"]) // 5
    assert list(asked[0].scores["linear"]) == [0.3, 1.0, 3.0]
    assert ranker.mix == mix
    assert len(ranker.judges["neighbours"].labels) == len(store["train"])  # type: ignore[attr-defined]


def test_dense_queries_have_no_judges(dense_store: Store) -> None:
    """They have a rehearsal all the same, as their points are few: for probabilities."""
    predictor, messages = fitted(dense_store, best_options(shortlist=None, epochs=1.0, map_rate=0.01))
    assert predictor.ranker.judges == {}
    assert predictor.record.calibration is not None
    assert predictor.record.rehearsal == 0.2
    assert not [message for message in messages if "weights" in message]


def test_a_linear_model_has_judges_too(store: Store) -> None:
    predictor = fitted(store, best_options(kind="linear", heads=None, loss="bowl", epochs=1.0))[0]
    assert predictor.dense.shape.kind == "linear"
    assert "linear" in predictor.ranker.judges


@pytest.mark.parametrize("num_points", [2, 3, 4, 5, 12])
def test_a_handful_of_points(tmp_path: Path, num_points: int) -> None:
    words = ("apple", "berry", "castle", "desert")
    texts = [f"{words[n % 4]} {words[n % 3]} {n % 5}" for n in range(num_points)]
    points = texts, [[n % 2] for n in range(num_points)]
    store = convert({"train": points}, tmp_path / "store", ConvertOptions(min_df=1, max_df=1.0))
    predictor = fitted(store, TrainOptions.of(dim=8, epochs=1.0, batch_size=40, heads=2, device="cpu"))[0]
    assert predictor.ranker.judges
    answers = loaded(predictor, tmp_path / "model").predict(["apple", "desert"], k=2)
    known = ["apple", "desert"][: 1 if num_points < 4 else 2]
    assert [sorted(answer.key for answer in row) for row in answers] == [
        ["0", "1"] if word in known else [] for word in ("apple", "desert")
    ]


# Names.


@pytest.mark.parametrize("which", ["text_store", "labelled_store"])
def test_a_class_that_was_seen_once_is_found_by_its_name(which: str, request: pytest.FixtureRequest) -> None:
    """Its only training text does not mention it, and the plural of its name stands in texts of others alone."""
    store: Store = request.getfixturevalue(which)
    batch = store["test"].batch(np.arange(8))
    wanted_N1 = batch.labels.indices[:, None]
    assert (store.class_counts[wanted_N1] == 1).all()
    with_names = fitted(store, text_options())[0]
    assert with_names.ranker.mix.weights["names"] > 0
    found_N5 = with_names.answer(batch.queries, 5).ids_Nk == wanted_N1
    assert found_N5.any(axis=1).all()
    assert found_N5[:, 0].mean() > 0.5
    answers = with_names.predict(["mostly kettledrums"], k=5)[0]
    assert "kettledrum" in " ".join(one.name.lower() for one in answers)
    without = fitted(store, text_options(names=False))[0]
    assert "names" not in without.ranker.judges
    found_N5 = without.answer(batch.queries, 5).ids_Nk == wanted_N1
    # By chance one of five answers among 26 classes is right for a fifth of the queries.
    assert found_N5[:, 0].mean() <= 0.25
    assert found_N5.any(axis=1).mean() <= 0.5
    assert with_names.record.figures["P@1"] > without.record.figures["P@1"] + 20


@pytest.mark.parametrize(
    ("changes", "judge"),
    [
        ({}, None),
        ({"heads": 2, "neighbours": 5}, "vector_neighbours"),
        ({"neighbours": 5}, "neighbours"),
    ],
    ids=str,
)
def test_names_that_count_stay(
    text_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], judge: str | None
) -> None:
    """In the model and in a file, with neighbours or without."""
    mix = mix_of(names=0.7)
    if judge is not None:
        mix = Mix({**mix.weights, judge: 0.4}, {**mix.variants, judge: "power 4"})
    choose_always(mix, monkeypatch)
    predictor = fitted(text_store, text_options(**changes))[0]
    again = loaded(predictor, tmp_path / "model")
    assert set(again.ranker.judges) == set(mix.weights)
    assert dict(again.ranker.mix.weights) == dict(mix.weights)
    queries, few = text_store["test"].batch(np.arange(8)).queries, np.array([1, 12, 20], np.int64)
    for k, among in ((1, None), (5, None), (len(KEYS), None), (3, few)):
        only = None if among is None else Filter.allowing(among, len(predictor.classes))
        found, wanted = (one.answer(queries, k, only=only) for one in (again, predictor))
        assert_same_answers((found.scores_Nk, found.ids_Nk), (wanted.scores_Nk, wanted.ids_Nk))
        assert (found.ids_Nk >= 0).all()
    # The dense model is not sure of a query that mixes topics, so names have room to count.
    mixed = predictor.prepare(["a piccolo and a kettledrum by the castle near a glacier"])
    choose_always(Mix({**mix.weights, "names": 0.0}, mix.variants), monkeypatch)
    unmoved = fitted(text_store, text_options(**changes))[0]
    difference_1k = predictor.answer(mixed, 5).scores_Nk - unmoved.answer(mixed, 5).scores_Nk
    assert np.abs(difference_1k).max() > 0.01


@pytest.mark.parametrize("num_strange", [0, 90])
def test_names_are_weighed_by_the_words_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_strange: int
) -> None:
    """By names and not by keys, and by the share of documents that hold a word: texts of which no word is known are
    documents, and no points."""
    folder = write_texts(tmp_path / "data", names_beside=True)
    with (folder / "train.jsonl").open("a") as file:
        for number in range(num_strange):
            file.write(json.dumps({"text": f"strange{number}", "labels": [KEYS["river"]]}) + "\n")
    store = convert(folder, tmp_path / "store")
    choose_always(mix_of(names=0.7), monkeypatch)
    predictor, messages = fitted(store, text_options(epochs=0.2))
    words, frequencies = store.vocabulary, store.array("weighting.frequencies")
    assert words is not None
    assert frequencies is not None
    assert f"26 class names, compared with {len(words)} words of queries" in messages
    assert len(store["train"]) == 216
    wanted = NameJudge.of(list(words), rarities(frequencies, 216 + num_strange), list(store.class_names))
    for name, tensor in wanted.tensors().items():
        assert torch.equal(predictor.ranker.judges["names"].tensors()[name], tensor), name
    assert len(wanted.weights.entries.codes) >= len(KEYS)


def test_what_names_are_chosen_by(text_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of the dense model and what judges suggest after them, each place with the score of its name: less where
    the dense model is sure."""
    asked = choose_always(mix_of(names=0.7), monkeypatch)
    predictor = fitted(text_store, text_options(neighbours=5))[0]
    (evidence,) = asked
    batch = text_store["dev"].batch(np.arange(8))
    assert evidence.num_listed == 10
    assert evidence.suggested == ("neighbours", "vector_neighbours", "names")
    for scores_NS in (
        evidence.dense_NS,
        evidence.hits_NS,
        *(s for forms in evidence.scores.values() for s in forms.values()),
    ):
        assert scores_NS.shape == (16, 10 + 3 * SUGGESTED)
    assert set(evidence.scores) == {"linear", "neighbours", "vector_neighbours", "names", "rarity"}
    names_NS, hits_NS = evidence.scores["names"][None], evidence.hits_NS
    judge = predictor.ranker.judges["names"]
    assert isinstance(judge, NameJudge)
    best_NS, ids_NS = predictor.shortlist(batch.queries, 10)
    np.testing.assert_allclose(evidence.dense_NS[:8, :10], best_NS, rtol=1e-6)
    own_N1 = judge.scores_of(batch.queries, batch.labels.indices[:, None], best_NS[:, 0])  # type: ignore[arg-type]
    np.testing.assert_allclose((names_NS[:8] * hits_NS[:8]).sum(axis=1), own_N1[:, 0], rtol=1e-5)
    assert (own_N1 > 0).all()
    matches_NS = judge.weights.scores(batch.queries, ids_NS)  # type: ignore[arg-type]
    np.testing.assert_allclose(names_NS[:8, :10], matches_NS * (1 - best_NS[:, :1]), rtol=1e-5, atol=1e-7)
    listed_N, suggested_N = hits_NS[:8, :10].any(axis=1), hits_NS[:8, 10:].any(axis=1)
    assert hits_NS[:8, 10 + 2 * SUGGESTED :].any(), "some are found by their names alone"
    assert (listed_N ^ suggested_N).all()
    assert (hits_NS[:8].sum(axis=1) == 1).all(), "each label is there once"
    assert not hits_NS[np.isneginf(evidence.dense_NS)].any()


def test_the_figure_of_names_is_that_of_the_model(text_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    choices = listen_to_choice(monkeypatch)
    predictor = fitted(text_store, text_options(neighbours=5))[0]
    ((_, mix, precision),) = choices
    assert mix.weights["names"] > 0
    assert precision == pytest.approx(mean_precision(predictor, text_store, 0.2))


def test_names_that_are_not_taken_leave_no_trace(text_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is chosen on the lists that the model will have, without what names suggest."""
    monkeypatch.setattr(mixing, "_LEAST_GAIN", 1000.0)
    found = []
    for names in (True, False):
        predictor, messages = fitted(text_store, text_options(names=names))
        assert "names" not in predictor.ranker.judges
        assert any("class names" in message for message in messages) == names
        found.append((messages[-1], predictor.ranker.mix))
    assert found[0] == found[1]


def names_among_evidence(store: Store, patch: pytest.MonkeyPatch, **changes: Any) -> tuple[bool, list[str]]:
    """Whether names were there to choose, and what was said of them."""
    choices = listen_to_choice(patch)
    predictor, messages = fitted(store, text_options(epochs=0.2, **changes))
    are_asked = "names" in choices[0][0].scores
    assert are_asked or "names" not in predictor.ranker.judges
    return are_asked, [message for message in messages if "names" in message]


def test_names_are_asked_about_where_there_are_words(text_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names_among_evidence(text_store, monkeypatch)[0]


def test_names_may_be_left_out(text_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names_among_evidence(text_store, monkeypatch, names=False) == (False, [])


def test_a_linear_model_has_no_names(text_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of its queries and classes are as long as there are features."""
    changes = {"kind": "linear", "loss": "bowl"}
    assert names_among_evidence(text_store, monkeypatch, **changes) == (False, [])


def test_without_words_no_names(
    text_folder: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of features that are numbers, or of hashed words, nobody knows how they are spelled."""
    hashed = convert(text_folder, tmp_path / "hashed", ConvertOptions(hash_bits=10))
    for one in (store, hashed):
        with monkeypatch.context() as patch:
            assert names_among_evidence(one, patch) == (False, [])


def test_names_beside_sequences_of_words(text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = convert(text_folder, tmp_path / "store", ConvertOptions(ngrams=2))
    assert store.vocabulary is not None
    assert any(" " in word for word in store.vocabulary)
    # The dense model is rather sure of what it does not know, and leaves a third of that weight or less.
    choose_always(mix_of(names=20.0), monkeypatch)
    predictor = fitted(store, text_options())[0]
    batch = store["test"].batch(np.arange(8))
    assert (predictor.answer(batch.queries, 1).ids_Nk == batch.labels.indices[:, None]).all()


@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_names_that_no_word_is_spelled_like(text_folder: Path, tmp_path: Path, validation: float) -> None:
    """Nothing comes of them, and nothing of them stays."""
    texts, labels = train_points(text_folder)
    keys = {name: f"{number:02}" for number, name in enumerate(KEYS)}
    store = convert({"train": (texts, [[keys[name] for name in own] for own in labels])}, tmp_path / "store")
    answers = []
    for names in (True, False):
        predictor, messages = fitted(store, text_options(validation=validation, epochs=0.2, names=names))
        assert any("26 class names" in message for message in messages) == names
        assert "names" not in predictor.ranker.judges
        assert "names" not in predictor.ranker.mix.weights
        answers.append(predictor.predict(texts[::40], k=5))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("names", [True, False])
def test_names_without_validation_points(
    text_store_without_dev: Store, monkeypatch: pytest.MonkeyPatch, names: bool
) -> None:
    monkeypatch.setattr(recipe, "choose_mix", None)
    ranker = fitted(text_store_without_dev, text_options(validation=0.0, epochs=0.2, names=names))[0].ranker
    assert ("names" in ranker.judges) == names
    usual = {name: weight for name, weight in default_mix().weights.items() if names or name != "names"}
    assert dict(ranker.mix.weights) == usual
    assert usual == ({"linear": 0.2, "names": 1.5} if names else {"linear": 0.2})


def test_a_rehearsal_passes_the_weight_of_names_on(
    text_store_without_dev: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = choose_always(mix_of(names=0.7), monkeypatch)
    predictor = fitted(text_store_without_dev, best_options(heads=1, shortlist=5, epochs=1.0))[0]
    assert len(asked) == 1, "the rehearsal chooses, and nobody after it"
    assert predictor.record.rehearsal == 0.2
    for one in (predictor, loaded(predictor, tmp_path / "model")):
        assert "names" in one.ranker.judges
        assert one.ranker.mix.weights["names"] == 0.7


# Where a fit may be stopped, and what it says.


class Stopping(Surroundings):
    """Notes where the fit could be stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def check(self, where: str) -> None:
        self.places.append(where)


def test_a_fit_may_be_stopped_in_each_part(text_store: Store) -> None:
    around = Stopping()
    fit(text_store, text_options(heads=2, neighbours=5, epochs=0.2), surroundings=around)
    parts = list(dict.fromkeys(around.places))
    assert parts[:2] == ["before model 1 of 2", "before model 2 of 2"]
    judges = {part for part in parts if part.startswith("while fitting the judges (")}
    assert {
        "while fitting the judges (shortlists)",
        "while fitting the judges (names)",
        "while fitting the judges (validation)",
    } <= judges
    assert parts[-1] == "while fitting the probabilities"


def test_stages_are_recalled_and_remembered(store: Store) -> None:
    """What is remembered of a rehearsal takes its place, through JSON."""

    class Remembering(Surroundings):
        def __init__(self, outcomes: dict[str, str]) -> None:
            self.listener = Listener()
            super().__init__(self.listener)
            self.outcomes = outcomes

        def recall(self, stage: str) -> dict[str, Any] | None:
            return json.loads(self.outcomes[stage]) if stage in self.outcomes else None

        def remember(self, stage: str, outcome: dict[str, Any]) -> None:
            self.outcomes[stage] = json.dumps(outcome)

    outcomes: dict[str, str] = {}
    first = fit(store, best_options(epochs=1.0), surroundings=Remembering(outcomes))
    assert list(outcomes) == ["rehearsal"]
    around = Remembering(outcomes)
    second = fit(store, best_options(epochs=1.0), surroundings=around)
    assert not [message for message in around.listener.messages if "rehearsal" in message]
    assert second.record == first.record
    for one, other in ((first.dense, second.dense), (first.ranker, second.ranker)):
        tensors = other.tensors()
        assert all(torch.equal(tensor, tensors[name]) for name, tensor in one.tensors().items())


def test_a_single_model_says_nothing_of_models(store: Store) -> None:
    assert fitted(store, small_options())[1] == []
