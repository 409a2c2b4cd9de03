"""What names say of new classes, against loops, and what they add to the scores of a larger model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import owlmine
from owlmine.add_classes.add import NAME_LEVEL, add_classes
from owlmine.add_classes.examples import PLACES, Examples
from owlmine.add_classes.names import NameJudgement
from owlmine.add_classes.vectors import QuerySpace, left_out_ranks
from owlmine.data.arrays import StringTable
from owlmine.data.rows import SparseRows
from owlmine.model import Model
from owlmine.rank.candidates import SUGGESTED
from owlmine.rank.names import NameJudge
from owlmine.rank.predictor import Predictor
from owlmine.rank.sparse_weights import SparseWeights

from ..answers import assert_same_answers
from .models import PAIRED, TEXTS, composed_model, texts_of

NAMES = ["Violins", "", "Copper saddles", "Quetzal"]


def evidence_of(model: Predictor, texts: list[str], *, level: float = 0.25) -> tuple[NameJudgement, SparseRows]:
    queries = model.prepare(texts)
    assert isinstance(queries, SparseRows)
    dense = np.linspace(-0.2, 1.1, len(texts)).astype(np.float32)
    found = NameJudgement.of(model, NAMES, queries, dense, level)
    assert found is not None
    return found, queries


def name_weights_of(model: Predictor) -> SparseWeights:
    judge = model.ranker.judges["names"]
    assert isinstance(judge, NameJudge)
    return judge.weights


def matches_by_loops(model: Predictor, queries: SparseRows) -> np.ndarray:
    """[N, C] Σ w x, in double precision, with weights as bytes hold them."""
    words = model.features.vocabulary
    assert words is not None
    judge = NameJudge.of(list(words), model.features.rarities(model.classes.num_points), NAMES)
    weights = judge.weights.rows.to_scipy(len(words)).toarray().tolist()
    rows = queries.to_scipy(len(words)).toarray().tolist()
    return np.array([[sum(w * x for w, x in zip(own, row, strict=True)) for own in weights] for row in rows])


def test_scores_against_loops() -> None:
    model = owlmine.load(composed_model())
    evidence, queries = evidence_of(model, PAIRED)
    matches = matches_by_loops(model, queries)
    assert (matches[:, [0, 2]].max(axis=0) > 0).all()
    assert not matches[:, [1, 3]].any()
    doubts = [min(max(1 - float(s), 0.0), 1.0) for s in np.linspace(-0.2, 1.1, len(PAIRED)).astype(np.float32)]
    levels = [0.25, 0.0, 0.25, 0.0]
    expected = [
        [model.ranker.mix.weights["names"] * doubts[n] * matches[n, c] - levels[c] for c in range(4)]
        for n in range(len(PAIRED))
    ]
    rows = np.array([3, 0, 5])
    # Differences of numbers below 1, each rounded to float32, which may be near 0.
    np.testing.assert_allclose(evidence.scores(rows), np.array(expected)[rows], rtol=0, atol=1e-7)
    pairs = np.array([0, 0, 1, 4]), np.array([0, 2, 1, 3])
    np.testing.assert_allclose(evidence.left_out_scores(*pairs), np.array(expected)[pairs], rtol=0, atol=1e-7)
    np.testing.assert_allclose(evidence.offsets, -np.array(levels), rtol=1e-6)


def test_which_names_are_listed() -> None:
    model = owlmine.load(composed_model())
    evidence, queries = evidence_of(model, PAIRED)
    known = name_weights_of(model).scores(queries, np.tile(np.arange(12), (len(PAIRED), 1)))
    matches = matches_by_loops(model, queries)
    for n, c in np.ndindex(*matches.shape):
        better = sorted(known[n].tolist(), reverse=True)[:SUGGESTED]
        floor = better[-1] if len(better) == SUGGESTED else 0.0
        listed = evidence.are_suggested(np.array([n]), np.array([c])).tolist()
        assert listed == [bool(matches[n, c] > 0 and matches[n, c] >= floor)]


def test_a_floor_where_many_known_names_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two places instead of twenty: both are taken by topics that the text names whole."""
    monkeypatch.setattr("owlmine.add_classes.names.SUGGESTED", 2)
    evidence, _ = evidence_of(owlmine.load(composed_model()), ["the violin and the copper"])
    assert evidence.floor_N[0] > 0
    listed = evidence.are_suggested(np.array([0, 0]), np.array([2, 3])).tolist()
    assert listed == [False, False]


def test_left_out_ranks_count_names() -> None:
    """A class whose vector says nothing, and whose name only one of the examples spells."""
    model = owlmine.load(composed_model())
    evidence, _ = evidence_of(model, ["the violin", "a big castle"], level=0.0)
    space = QuerySpace(torch.eye(2), 1.0)
    examples, rows, classes = torch.eye(2), np.array([0, 1]), np.array([0, 0])
    best = torch.full((2, PLACES), 0.05)
    given = (space, examples, rows, classes, torch.ones(4, 2), best)
    scores = evidence.left_out_scores(rows, classes)
    assert scores[0] > 0.05 > scores[1]
    far = torch.full((2,), torch.inf)
    assert (left_out_ranks(*given, floor_N=far) > PLACES).all()
    ranks = left_out_ranks(*given, judgements=[evidence], floor_N=far)
    assert ranks[0] <= PLACES < ranks[1]


def test_the_score_of_a_named_class_in_a_larger_model() -> None:
    before = owlmine.load(composed_model())
    examples = Examples.of(before, *texts_of("new", PAIRED))
    plain, named = (add_classes(before, examples, names).predictor for names in (None, {"new": "Violins"}))
    assert plain.ranker.num_trained == named.ranker.num_trained == 12
    assert plain.ranker.offsets_K is not None
    assert named.ranker.offsets_K is not None
    level = NAME_LEVEL * float(examples.queries.name_lift_N.mean())
    assert level > 0
    np.testing.assert_allclose(plain.ranker.offsets_K[-1] - named.ranker.offsets_K[-1], level, rtol=1e-6)
    queries = before.prepare(["violinists", "the violin of a castle", "a quiet meadow"])
    assert isinstance(queries, SparseRows)
    new, known = np.full((3, 1), 12), np.tile(np.arange(12), (3, 1))
    assert not name_weights_of(plain).scores(queries, new).any()
    assert (name_weights_of(named).scores(queries, new)[:, 0] > 0).tolist() == [False, True, False]
    np.testing.assert_array_equal(
        name_weights_of(named).scores(queries, known), name_weights_of(before).scores(queries, known)
    )


def test_known_classes_keep_their_scores_beside_a_name() -> None:
    before = owlmine.load(composed_model())
    after = add_classes(before, Examples.of(before, *texts_of("new", PAIRED)), {"new": "Violins"}).predictor
    for old, new in zip(before.predict(TEXTS, k=12), after.predict(TEXTS, k=13), strict=True):
        left = [found for found in new if found.key != "new"]
        assert [found.key for found in left] == [found.key for found in old]
        # Products with one class more may be rounded elsewhere.
        np.testing.assert_allclose([f.score for f in left], [f.score for f in old], rtol=0, atol=3e-7)


def test_keys_are_names_where_no_class_has_one() -> None:
    model = owlmine.load(composed_model())
    assert not model.classes.goes_by_keys
    texts = texts_of("violins", PAIRED)
    unnamed = add_classes(model, Examples.of(model, *texts)).predictor
    model = replace(model, classes=replace(model.classes, names=StringTable.of(model.classes.keys)))
    assert model.classes.goes_by_keys
    by_key = add_classes(model, Examples.of(model, *texts)).predictor
    counts = [int(np.diff(name_weights_of(larger).entries.offsets_R1)[-1]) for larger in (unnamed, by_key)]
    assert counts[0] == 0 < counts[1]


def test_a_larger_model_with_names_is_saved_and_loaded(tmp_path: Path) -> None:
    before = owlmine.load(composed_model())
    larger = add_classes(before, Examples.of(before, *texts_of("new", PAIRED)), {"new": "Violins"}).predictor
    Model.of(larger).save(tmp_path / "larger")
    queries = before.prepare(TEXTS + PAIRED)
    found, wanted = (model.answer(queries, 13) for model in (owlmine.load(tmp_path / "larger"), larger))
    assert_same_answers((found.scores_Nk, found.ids_Nk), (wanted.scores_Nk, wanted.ids_Nk))
