"""What names say of new classes, against loops, and what they add to the scores of a grown model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import owlmine
from owlmine.data.arrays import StringTable
from owlmine.data.rows import SparseRows
from owlmine.model.added_classes import add_classes
from owlmine.model.added_folder import save_added
from owlmine.model.examples import PLACES, Examples
from owlmine.model.left_out import left_out_ranks
from owlmine.model.named_lists import NAMED
from owlmine.model.new_classes import QuerySpace
from owlmine.model.new_names import NameEvidence
from owlmine.model.predictor import Predictor
from owlmine.model.wider_reranker import NAME_LEVEL
from owlmine.rank.names import name_weights

from ..answers import assert_same_answers
from .test_new_classes import PAIRED, TEXTS, composed_model, texts_of

NAMES = ["Violins", "", "Copper saddles", "Quetzal"]


def evidence_of(model: Predictor, texts: list[str], *, level: float = 0.25) -> tuple[NameEvidence, SparseRows]:
    queries = model.prepare(texts)
    assert isinstance(queries, SparseRows)
    dense = np.linspace(-0.2, 1.1, len(texts)).astype(np.float32)
    found = NameEvidence.of(model, NAMES, queries, dense, level)
    assert found is not None
    return found, queries


def matches_by_loops(model: Predictor, queries: SparseRows) -> np.ndarray:
    """[N, C] Σ w x, in double precision."""
    words = model.features.vocabulary
    assert words is not None
    weights = name_weights(list(words), model.features.rarities(model.classes.num_points), NAMES).toarray().tolist()
    rows = queries.to_scipy(len(words)).toarray().tolist()
    return np.array([[sum(w * x for w, x in zip(own, row, strict=True)) for own in weights] for row in rows])


def test_scores_against_loops() -> None:
    model = owlmine.load(composed_model())
    assert model.reranker is not None
    evidence, queries = evidence_of(model, PAIRED)
    matches = matches_by_loops(model, queries)
    assert (matches[:, [0, 2]].max(axis=0) > 0).all()
    assert not matches[:, [1, 3]].any()
    doubts = [min(max(1 - float(s), 0.0), 1.0) for s in np.linspace(-0.2, 1.1, len(PAIRED)).astype(np.float32)]
    levels = [0.25, 0.0, 0.25, 0.0]
    expected = [
        [model.reranker.name_weight * doubts[n] * matches[n, c] - levels[c] for c in range(4)]
        for n in range(len(PAIRED))
    ]
    rows = np.array([3, 0, 5])
    # Differences of numbers below 1, each rounded to float32, which may be near 0.
    np.testing.assert_allclose(evidence.scores(rows), np.array(expected)[rows], rtol=0, atol=1e-7)
    pairs = np.array([0, 0, 1, 4]), np.array([0, 2, 1, 3])
    np.testing.assert_allclose(evidence.pair_scores(*pairs), np.array(expected)[pairs], rtol=0, atol=1e-7)
    np.testing.assert_allclose(evidence.lifts(0.7), 0.7 - np.array(levels), rtol=1e-6)


def test_which_names_are_listed() -> None:
    model = owlmine.load(composed_model())
    assert model.reranker is not None
    assert model.reranker.names is not None
    evidence, queries = evidence_of(model, PAIRED)
    known = model.reranker.names.ranker.scores(queries, np.tile(np.arange(12), (len(PAIRED), 1)))
    matches = matches_by_loops(model, queries)
    for n, c in np.ndindex(*matches.shape):
        better = sorted(known[n].tolist(), reverse=True)[:NAMED]
        floor = better[-1] if len(better) == NAMED else 0.0
        listed = evidence.are_listed(np.array([n]), np.array([c])).tolist()
        assert listed == [bool(matches[n, c] > 0 and matches[n, c] >= floor)]


def test_a_floor_where_many_known_names_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two places instead of twenty: both are taken by topics that the text names whole."""
    monkeypatch.setattr("owlmine.model.new_names.NAMED", 2)
    evidence, _ = evidence_of(owlmine.load(composed_model()), ["the violin and the copper"])
    assert evidence.floor_N[0] > 0
    listed = evidence.are_listed(np.array([0, 0]), np.array([2, 3])).tolist()
    assert listed == [False, False]


def test_left_out_ranks_count_names() -> None:
    """A class whose vector says nothing, and whose name only one of the examples spells."""
    model = owlmine.load(composed_model())
    evidence, _ = evidence_of(model, ["the violin", "a big castle"], level=0.0)
    space = QuerySpace(torch.eye(2), 1.0)
    examples, rows, classes = torch.eye(2), np.array([0, 1]), np.array([0, 0])
    best = torch.full((2, PLACES), 0.05)
    given = (space, examples, rows, classes, torch.ones(4, 2), best)
    scores = evidence.pair_scores(rows, classes)
    assert scores[0] > 0.05 > scores[1]
    far = torch.full((2,), torch.inf)
    assert (left_out_ranks(*given, floor_N=far) > PLACES).all()
    ranks = left_out_ranks(*given, by_names=evidence, floor_N=far)
    assert ranks[0] <= PLACES < ranks[1]


def test_the_score_of_a_named_class_in_a_grown_model() -> None:
    before = owlmine.load(composed_model())
    assert before.reranker is not None
    assert before.reranker.names is not None
    examples = Examples.of(before, *texts_of("new", PAIRED))
    plain, named = (add_classes(before, examples, names).predictor for names in (None, {"new": "Violins"}))
    assert plain.reranker is not None
    assert named.reranker is not None
    assert plain.reranker.names is not None
    assert named.reranker.names is not None
    assert plain.reranker.num_trained == named.reranker.num_trained == 12
    level = NAME_LEVEL * float(examples.queries.name_lift_N.mean())
    assert level > 0
    np.testing.assert_allclose(plain.reranker.offsets_K[-1] - named.reranker.offsets_K[-1], level, rtol=1e-6)
    queries = before.prepare(["violinists", "the violin of a castle", "a quiet meadow"])
    assert isinstance(queries, SparseRows)
    new = np.full((3, 1), 12)
    assert not plain.reranker.names.ranker.scores(queries, new).any()
    assert (named.reranker.names.ranker.scores(queries, new)[:, 0] > 0).tolist() == [False, True, False]
    known = np.tile(np.arange(12), (3, 1))
    np.testing.assert_array_equal(
        named.reranker.names.ranker.scores(queries, known), before.reranker.names.ranker.scores(queries, known)
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
    model.classes = replace(model.classes, names=StringTable.of(model.classes.keys))
    assert model.classes.goes_by_keys
    by_key = add_classes(model, Examples.of(model, *texts)).predictor
    counts = []
    for grown in (unnamed, by_key):
        assert grown.reranker is not None
        assert grown.reranker.names is not None
        counts.append(int(np.diff(grown.reranker.names.ranker.offsets_K1)[-1]))
    assert counts[0] == 0 < counts[1]


def test_a_grown_model_with_names_is_saved_and_loaded(tmp_path: Path) -> None:
    before = owlmine.load(composed_model())
    addition = add_classes(before, Examples.of(before, *texts_of("new", PAIRED)), {"new": "Violins"})
    save_added(tmp_path / "grown", addition.predictor, model=composed_model())
    loaded = owlmine.load(tmp_path / "grown")
    queries = before.prepare(TEXTS + PAIRED)
    assert_same_answers(loaded.top(queries, 13), addition.predictor.top(queries, 13))
