"""Names that a query spells: weights by their definition, scores and best classes against dense products; and what
comes from a file is either sound or refused.

Shapes: N queries, S places of a shortlist, F features, K classes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from scipy.sparse import csr_matrix

from owlmine.data.arrays import StringTable
from owlmine.data.rows import SparseRows
from owlmine.folder.tensor_files import write_tensors
from owlmine.rank import names as module
from owlmine.rank import spelling
from owlmine.rank.candidates import Encoded
from owlmine.rank.names import NameJudge, name_weights
from owlmine.rank.sparse_weights import SparseWeights
from owlmine.rank.spelling import nearest_names
from owlmine.rank.words import rarities

from .small_tasks import WAYS, assert_same_tensors, dense, dense_weights, sparse_rows, without_extensions
from .small_world import world

WORDS = ["castles", "harbour", "numpy", "numpy array", "of", "river", "rivers", "riverside", "violinist"]
RARITIES = np.array([1.0, 0.9, 0.7, 1.0, 0.05, 0.6, 0.8, 1.0, 0.0])
NAMES = ["River", "Castle", "River bank", "Violin", "python3-numpy", "", "Upriver", "42"]


def weights_by_loop(words: list[str], rarities_F: np.ndarray, names: list[str], *, nearest: int) -> np.ndarray:
    cosines_Fn, names_Fn = nearest_names(words, names, len(names))
    weights_KF = np.zeros((len(names), len(words)))
    for f in range(len(words)):
        for cosine, name in list(zip(cosines_Fn[f].tolist(), names_Fn[f].tolist(), strict=True))[:nearest]:
            if cosine >= 0.3:
                weights_KF[name, f] = min(cosine, 1.0) * rarities_F[f]
    return weights_KF


# A number from 0 to 1 as a byte.
BYTES = 0.005


def random_matches(seed: int, *, num_classes: int, num_features: int, share: float = 0.4) -> NameJudge:
    """Weights from 0 to 1; some classes have none."""
    rows = sparse_rows(seed, num_rows=num_classes, num_features=num_features, share=share)
    weights = np.random.default_rng(seed).random(len(rows.indices)).astype(np.float32)
    none_K = np.zeros(num_classes, np.float32)
    return NameJudge.over(SparseWeights.of(replace(rows, values=weights), none_K, num_features))


def unencoded(queries: SparseRows) -> Encoded:
    """Names do not look at vectors."""
    return Encoded(queries, torch.zeros(len(queries), 0))


def positive_rows(seed: int, *, num_rows: int, num_features: int) -> SparseRows:
    rows = sparse_rows(seed, num_rows=num_rows, num_features=num_features)
    assert rows.values is not None
    return SparseRows(rows.offsets, rows.indices, np.abs(rows.values))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("nearest", [1, 2, 64])
def test_weights_by_their_definition(monkeypatch: pytest.MonkeyPatch, nearest: int) -> None:
    assert module._NEAREST == 64
    monkeypatch.setattr(module, "_NEAREST", nearest)
    wanted_KF = weights_by_loop(WORDS, RARITIES, NAMES, nearest=nearest)
    found = name_weights(WORDS, RARITIES, NAMES)
    assert (found.dtype, found.shape) == (np.float32, (len(NAMES), len(WORDS)))
    np.testing.assert_allclose(found.toarray(), wanted_KF, atol=BYTES)
    own = NameJudge.of(WORDS, RARITIES, NAMES)
    assert (own.weights.num_classes, own.weights.shape) == (len(NAMES), (len(NAMES), len(WORDS)))
    np.testing.assert_allclose(dense_weights(own.weights)[:, :-1], wanted_KF, atol=2 * BYTES)
    assert not own.weights.biases_K.any()
    assert (wanted_KF > 0).any(axis=0).tolist() == [True, False, True, True, False, True, True, True, False]


def test_only_the_nearest_names_of_a_word_count() -> None:
    """As many names are spelled alike, by the order of their numbers."""
    weights_KF = name_weights(["river", "castle"], np.ones(2), ["river"] * 70).toarray()
    np.testing.assert_allclose(weights_KF[:, 0], [1.0] * 64 + [0.0] * 6, atol=BYTES)
    assert not weights_KF[:, 1].any()


def test_cosines_that_are_too_low_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    cosines = np.array([[0.9, 0.3, np.nextafter(np.float32(0.3), np.float32(0))], [1.0000001, 0.0, 0.0]], np.float32)
    numbers = np.array([[2, 0, 1], [1, 0, 0]], np.int64)
    monkeypatch.setattr(module, "nearest_names", lambda words, names, count, between: (cosines, numbers))
    weights_KF = name_weights(["river", "castle"], np.array([0.5, 1.0]), ["a", "b", "c"]).toarray()
    np.testing.assert_allclose(weights_KF, [[0.15, 0], [0, 1], [0.45, 0]], rtol=1e-6)
    assert weights_KF.max() == 1


def scores_by_loop(
    matches: NameJudge, queries: SparseRows, ids: list[list[int]], dense_scores: list[float]
) -> list[list[float]]:
    """How far the query spells each name, less where the dense model is sure."""
    weights, rows = dense_weights(matches.weights).tolist(), dense(queries, matches.weights.num_features).tolist()
    found = []
    for row, own, s in zip(rows, ids, dense_scores, strict=True):
        doubt = 0.0 if s >= 1 else 1.0 if s <= 0 else 1 - s
        found.append([doubt * sum(w * x for w, x in zip(weights[c], row, strict=False)) if c >= 0 else 0 for c in own])
    return found


@pytest.mark.usefixtures("way")
def test_scores_against_a_loop() -> None:
    """Also where the best dense score is above 1 or below 0, or where no class was listed."""
    matches, queries = NameJudge.of(WORDS, RARITIES, NAMES), sparse_rows(1, num_rows=8, num_features=len(WORDS))
    ids_NS = np.tile(np.array([7, 0, -1, 3, 6, 1, 2, 4, 5, -1]), (8, 1))
    dense_N = np.array([0.3, 0.0, 1.0, 1.5, -0.4, -np.inf, 0.999, 0.6], np.float32)
    found_NS = matches.scores_of(queries, ids_NS, dense_N)
    assert found_NS.dtype == np.float32
    wanted_NS = np.array(scores_by_loop(matches, queries, ids_NS.tolist(), dense_N.tolist()))
    np.testing.assert_allclose(found_NS, wanted_NS, rtol=5e-7)
    assert (np.abs(wanted_NS).max(axis=1) > 0.03)[[0, 4, 5, 7]].all()
    assert not wanted_NS[[2, 3]].any()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    dense_scores=st.lists(st.floats(-2, 2, width=32) | st.sampled_from([-math.inf, 0.0, 1.0]), max_size=5),
    num_places=st.integers(0, 6),
    double=st.booleans(),
)
def test_any_scores(seed: int, dense_scores: list[float], num_places: int, double: bool) -> None:
    """Never below 0 where a query has nothing below 0, never above the match, and the same for any other list."""
    matches = random_matches(seed, num_classes=9, num_features=7)
    queries = positive_rows(seed + 1, num_rows=len(dense_scores), num_features=7)
    ids_NS = np.random.default_rng(seed).integers(-1, 9, (len(dense_scores), num_places))
    dense_N = np.array(dense_scores, np.float64 if double else np.float32)
    found_NS = matches.scores_of(queries, ids_NS, dense_N)
    assert (found_NS.dtype, found_NS.shape) == (np.float32, ids_NS.shape)
    wanted = np.reshape(scores_by_loop(matches, queries, ids_NS.tolist(), dense_scores), ids_NS.shape)
    np.testing.assert_allclose(found_NS, wanted, rtol=1e-6)
    assert (found_NS >= 0).all()
    whole_NS = matches.scores_of(queries, ids_NS, np.zeros(len(dense_scores), np.float32))
    np.testing.assert_array_equal(whole_NS, matches.weights.scores(queries, ids_NS))
    assert (found_NS <= whole_NS).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_queries=st.integers(0, 5),
    num_features=st.integers(1, 30),
    num_classes=st.integers(1, 40),
    share=st.sampled_from([0.0, 0.05, 0.5]),
    count=st.integers(0, 45),
    is_compiled=st.sampled_from(WAYS),
)
def test_best_classes_against_a_sort(
    seed: int, num_queries: int, num_features: int, num_classes: int, share: float, count: int, is_compiled: bool
) -> None:
    matches = random_matches(seed, num_classes=num_classes, num_features=num_features, share=share)
    queries = positive_rows(seed + 1, num_rows=num_queries, num_features=num_features)
    with pytest.MonkeyPatch.context() as patch:
        if not is_compiled:
            without_extensions(patch)
        found_Nn = matches.suggest(unencoded(queries), count)
    assert (found_Nn.dtype, found_Nn.shape) == (np.int64, (num_queries, min(count, num_classes)))
    scores_NK = dense(queries, num_features) @ dense_weights(matches.weights)[:, :-1].T
    # Half a step of bytes, whose largest is that of the feature's list.
    lost_N = dense(queries, num_features) @ dense_weights(matches.weights)[:, :-1].max(axis=0) / 254
    for scores_K, found_n, lost in zip(scores_NK, found_Nn, lost_N, strict=True):
        order = np.argsort(-scores_K, kind="stable")[: len(found_n)]
        own = found_n[: int((scores_K[order] > 0).sum())]
        assert (found_n[len(own) :] == -1).all()
        assert len(set(own.tolist())) == len(own)
        # Scores that differ by no more than rounding to bytes may change places.
        np.testing.assert_allclose(scores_K[own], scores_K[order[: len(own)]], rtol=1e-5, atol=2 * lost)


@pytest.mark.usefixtures("way")
def test_of_equals_the_smaller_class_is_first() -> None:
    values = np.array([0.5, 0.5, 0.5, 0.75], np.float32)
    rows = SparseRows(np.array([0, 1, 1, 2, 3, 4]), np.array([0, 1, 0, 0]), values)
    weights = SparseWeights.of(rows, np.zeros(5), 2)
    queries = SparseRows(np.array([0, 1, 1, 2]), np.array([0, 1]), np.array([3.0, 0.25], np.float32))
    assert NameJudge.over(weights).suggest(unencoded(queries), 9).tolist() == [
        [4, 0, 3, -1, -1],
        [-1] * 5,
        [2, -1, -1, -1, -1],
    ]
    assert NameJudge.over(weights).suggest(unencoded(queries), 2).tolist() == [[4, 0], [-1, -1], [2, -1]]


@pytest.mark.usefixtures("way")
def test_a_weight_of_zero_suggests_nothing() -> None:
    """As a word has that no training document holds."""
    matches = NameJudge.of(["river", "castle"], np.array([0.0, 1.0]), ["castle", "river"])
    queries = SparseRows(np.array([0, 1, 3]), np.array([0, 0, 1]), None)
    assert matches.suggest(unencoded(queries), 2).tolist() == [[-1, -1], [0, -1]]
    found_NS = matches.scores_of(queries, np.array([[0, 1], [0, 1]]), np.zeros(2, np.float32))
    np.testing.assert_allclose(found_NS, [[0, 0], [1, 0]], atol=1e-6)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("words", "names"), [([], ["river", "castle"]), (["river"], []), ([], [])])
def test_no_words_or_no_names(words: list[str], names: list[str]) -> None:
    matches = NameJudge.of(words, np.ones(len(words)), names)
    assert matches.weights.shape == (len(names), len(words))
    queries = SparseRows(np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    assert matches.suggest(unencoded(queries), 4).tolist() == [[-1] * len(names)] * 2
    assert matches.scores_of(queries, np.full((2, 3), -1), np.zeros(2, np.float32)).tolist() == [[0.0] * 3] * 2
    assert not matches
    assert NameJudge.over(SparseWeights.from_tensors(matches.tensors())).weights.shape == (len(names), len(words))


@pytest.mark.parametrize(
    ("names", "is_there"), [(NAMES, True), (["castle"], True), (["xyzzy", "1914"], False), (["", "42"], False)]
)
def test_whether_any_name_is_spelled_like_a_word(names: list[str], is_there: bool) -> None:
    """A number is none, even where a text has it."""
    assert bool(NameJudge.of([*WORDS, "1914", "42"], np.append(RARITIES, [1.0, 1.0]), names)) == is_there


@pytest.mark.parametrize("size", [1, 4])
def test_there_are_calls_on_the_way(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(spelling, "_BLOCK_WORDS", size)
    calls: list[int] = []
    found = NameJudge.of(WORDS, RARITIES, NAMES, between=lambda: calls.append(1))
    assert len(calls) >= len(WORDS) / size
    assert np.array_equal(found.weights.entries.codes, NameJudge.of(WORDS, RARITIES, NAMES).weights.entries.codes)

    def stop() -> None:
        raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        NameJudge.of(WORDS, RARITIES, NAMES, between=stop)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("num_new", [0, 1, 5])
def test_classes_behind_those_that_there_are(num_new: int) -> None:
    own, new = (random_matches(seed, num_classes=c, num_features=7) for seed, c in ((1, 6), (2, num_new)))
    before = dense_weights(own.weights)
    weights_CF = dense_weights(new.weights)[:, :-1]
    more = own.with_more(csr_matrix(weights_CF.astype(np.float32)))
    assert more.weights.shape == (6 + num_new, 7)
    np.testing.assert_array_equal(dense_weights(more.weights)[:, :-1], np.concatenate([before[:, :-1], weights_CF]))
    np.testing.assert_array_equal(dense_weights(own.weights), before)
    queries = positive_rows(3, num_rows=4, num_features=7)
    matches_NK = dense(queries, 7) @ np.concatenate([before[:, :-1], weights_CF]).T
    for scores_K, best_n in zip(matches_NK, more.suggest(unencoded(queries), 20), strict=True):
        assert best_n[best_n >= 0].tolist() == [c for c in np.argsort(-scores_K, kind="stable") if scores_K[c] > 0]


def test_tensors_and_back() -> None:
    matches = NameJudge.of(WORDS, RARITIES, NAMES)
    again = NameJudge.over(SparseWeights.from_tensors(matches.tensors()))
    assert again.weights.shape == matches.weights.shape
    assert_same_tensors(again, matches)
    assert_same_tensors(again.lists, matches.lists)
    assert len(again.lists) == len(NAMES)
    queries = sparse_rows(3, num_rows=7, num_features=len(WORDS))
    assert np.array_equal(again.suggest(unencoded(queries), 5), matches.suggest(unencoded(queries), 5))


@pytest.mark.parametrize("names", [NAMES, ["castle"], ["xyzzy", "42"], []])
def test_a_file_and_back(tmp_path: Path, names: list[str]) -> None:
    """Also where no name is spelled like any word, and nothing is left to write."""
    matches = NameJudge.of(WORDS, RARITIES, names)
    write_tensors(tmp_path / "names.safetensors", matches.tensors())
    again = NameJudge.over(SparseWeights.from_tensors(load_file(tmp_path / "names.safetensors")))
    assert again.weights.shape == (len(names), len(WORDS))
    assert np.array_equal(again.weights.entries.codes, matches.weights.entries.codes)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("codes", [127, -127, 0], "wanted weights from 0 to 1"),
        ("codes", [127, -128, 0], "a code is -128"),
        ("scales", [2.0**-7, 2.0**-6], "a value has size 1.98"),
        ("scales", [2.0**-7, float("nan")], "a scale of sparse rows is not a finite number"),
        ("biases", [0.0, 0.25], "wanted weights from 0 to 1 and no biases"),
        ("biases", [0.0], r"biases have the shape \(1,\)"),
        ("counts", [1, 1], "rows of 2 entries in total; wanted 3"),
        ("steps", [0, 3, 1], "an id is 4; wanted one below 4"),
        ("num_features", 3, "an id is 3; wanted one below 3"),
        ("num_features", -1, "num_features is -1"),
    ],
)
def test_a_file_that_cannot_be_is_refused(name: str, changed: object, message: str) -> None:
    good = {
        "counts": torch.tensor([2, 1], dtype=torch.uint8),
        "steps": torch.tensor([0, 2, 1], dtype=torch.uint8),
        "long_steps": torch.tensor([], dtype=torch.uint8),
        "codes": torch.tensor([127, 64, 127], dtype=torch.int8),
        "scales": torch.full((2,), 2.0**-7),
        "biases": torch.zeros(2),
        "num_features": torch.tensor(4),
    }
    assert NameJudge.over(SparseWeights.from_tensors(good)).weights.shape == (2, 4)
    with pytest.raises(ValueError, match=message):
        NameJudge.over(SparseWeights.from_tensors(good | {name: torch.tensor(changed, dtype=good[name].dtype)}))


def test_a_file_of_other_things_is_refused() -> None:
    good = NameJudge.of(WORDS, RARITIES, NAMES).tensors()
    with pytest.raises(ValueError, match="tensors are"):
        NameJudge.over(SparseWeights.from_tensors({name: tensor for name, tensor in good.items() if name != "codes"}))
    with pytest.raises(ValueError, match="codes is torch"):
        NameJudge.over(SparseWeights.from_tensors(good | {"codes": good["codes"].double()}))


@pytest.mark.parametrize("num_documents", [1, 2, 1000])
def test_rarities_by_their_definition(num_documents: int) -> None:
    frequencies = np.unique(np.array([0, 1, 2, num_documents // 2, num_documents]).clip(max=num_documents))
    found = rarities(frequencies, num_documents)
    for frequency, rarity in zip(frequencies.tolist(), found.tolist(), strict=True):
        wanted = (math.log(num_documents / frequency) + 1) / (math.log(num_documents) + 1) if frequency else 0.0
        assert rarity == pytest.approx(wanted)
    assert ((found >= 0) & (found <= 1)).all()
    assert found[frequencies == 1] == 1
    assert (np.diff(found[1:]) < 0).all(), "more documents, less rare"


def test_names_are_fitted_to_the_words_of_queries() -> None:
    training, said = world().training, []
    judge = NameJudge.fit(replace(training, message=said.append), None)[None]
    words, classes = training.features, training.classes
    own = NameJudge.of(list(words.vocabulary or ()), words.rarities(classes.num_points), list(classes.names))
    np.testing.assert_array_equal(dense_weights(judge.weights), dense_weights(own.weights))
    assert said == ["24 class names, compared with 20 words of queries"]


def test_where_there_are_no_names_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    """None are wanted, queries have no words, no name is spelled like one, or there are too many of either."""
    training, said = world().training, []
    strange = StringTable.of(["xyzzy"] * 24)
    for other in (
        replace(training, sizes=replace(training.sizes, names=False)),
        replace(training, features=replace(training.features, vocabulary=None)),
        replace(training, features=replace(training.features, frequencies=None)),
        replace(training, classes=replace(training.classes, names=strange)),
    ):
        assert NameJudge.fit(other, None) == {}
    training = replace(training, message=said.append)
    for most, is_there in ((24, True), (23, False)):
        monkeypatch.setattr(module, "_MOST_NAMES", most)
        assert bool(NameJudge.fit(training, None)) == is_there
    assert "names are off: more than 23 names or words" in said


def test_fitting_can_be_stopped() -> None:
    def stop(where: str) -> None:
        raise InterruptedError(where)

    with pytest.raises(InterruptedError, match="names"):
        NameJudge.fit(replace(world().training, check=stop), None)
