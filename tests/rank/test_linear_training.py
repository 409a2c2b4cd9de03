"""Classifiers against scikit-learn's optimum, and the compiled part against the plain one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from owlmine.data.rows import SparseRows, offsets_from_counts
from owlmine.rank import linear_training
from owlmine.rank.linear_training import (
    CompiledTrainer,
    LinearOptions,
    MinedPairs,
    PlainTrainer,
    Task,
    first_state,
    shuffle,
    train_linear,
)
from owlmine.rank.sparse_weights import compiled_module

from .small_tasks import assert_same_tensors, dense, dense_weights, needs_build, random_pairs, sparse_rows


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("loss", ["squared-hinge", "hinge"])
@pytest.mark.parametrize("cost", [0.1, 1.0, 4.0])
def test_the_optimum_of_scikit_learn(loss: str, cost: float) -> None:
    queries = sparse_rows(3, num_rows=40, num_features=9)
    pairs = random_pairs(5, num_classes=4, num_points=40)
    options = LinearOptions(cost=cost, loss=loss, max_passes=1500, tolerance=1e-5, threshold=0.0)
    found = dense_weights(train_linear(queries, pairs, num_features=9, options=options))
    for class_id, weights in enumerate(found):
        own = slice(pairs.offsets_K1[class_id], pairs.offsets_K1[class_id + 1])
        peer = LinearSVC(
            C=cost,
            loss=loss.replace("-", "_"),
            dual=True,
            intercept_scaling=1,
            tol=1e-9,
            max_iter=10**6,
            random_state=0,
        ).fit(dense(queries, 9)[pairs.points[own]], pairs.targets[own])
        expected = np.append(peer.coef_[0], peer.intercept_[0])
        # To half the scale of a class, as bytes are.
        np.testing.assert_allclose(weights, expected, atol=1e-3 + np.abs(expected).max() / 254)


@needs_build
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_points=st.integers(1, 30),
    num_features=st.integers(1, 140),
    loss=st.sampled_from(["squared-hinge", "hinge"]),
    max_passes=st.integers(1, 30),
    tolerance=st.sampled_from([0.0, 0.01, 0.1, 1.0]),
    has_values=st.booleans(),
)
def test_compiled_against_plain(
    seed: int, num_points: int, num_features: int, loss: str, max_passes: int, tolerance: float, has_values: bool
) -> None:
    queries = sparse_rows(seed, num_rows=num_points, num_features=num_features, share=0.2)
    if not has_values:  # Equal numbers make slopes that tie.
        queries = SparseRows(queries.offsets, queries.indices, None)
    given_task = Task.of(queries, random_pairs(seed, num_classes=3, num_points=num_points), num_features=num_features)
    options = LinearOptions(loss=loss, max_passes=max_passes, tolerance=tolerance, threshold=0.0)
    ((classes, room_C1),) = given_task.chunks()
    found = []
    for trainer in (CompiledTrainer, PlainTrainer):
        rows, biases = trainer(given_task, options, seed)(classes, room_C1)
        found.append(np.hstack([dense(rows, num_features), biases[:, None]]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("way")
def test_weights_below_the_threshold_are_dropped_and_no_others() -> None:
    queries, pairs = sparse_rows(0, num_rows=25, num_features=70), random_pairs(0, num_classes=6, num_points=25)
    whole = dense_weights(train_linear(queries, pairs, num_features=70, options=LinearOptions(threshold=0)))
    thinned = dense_weights(train_linear(queries, pairs, num_features=70, options=LinearOptions(threshold=0.1)))
    whole[:, :-1][np.abs(whole[:, :-1]) < np.float32(0.1)] = 0
    assert np.array_equal(whole, thinned)
    assert 0 < (thinned != 0).sum() < 6 * 71


@pytest.mark.usefixtures("way")
def test_a_class_with_one_kind_of_points_learns_nothing() -> None:
    queries = sparse_rows(0, num_rows=4, num_features=5, share=0.9)
    pairs = MinedPairs(
        np.array([0, 2, 2, 4, 6]), np.array([0, 1, 2, 3, 0, 3], np.int32), np.array([1, 1, -1, -1, 1, -1], np.int8)
    )
    ranker = train_linear(queries, pairs, num_features=5)
    assert ranker.entries.offsets_R1[:4].tolist() == [0, 0, 0, 0]
    assert ranker.biases_K[:3].tolist() == [0, 0, 0]
    assert len(ranker.entries.codes) > 0


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("num_points", "num_classes", "num_features"), [(0, 0, 0), (0, 3, 5), (4, 0, 5), (4, 3, 0)])
def test_nothing_to_learn_from(num_points: int, num_classes: int, num_features: int) -> None:
    queries = SparseRows(np.zeros(num_points + 1, np.int64), np.zeros(0, np.int32), None)
    pairs = random_pairs(0, num_classes=num_classes, num_points=num_points)
    ranker = train_linear(queries, pairs, num_features=num_features)
    assert (ranker.num_classes, len(ranker.entries.codes)) == (num_classes, 0)


@needs_build
def test_the_number_of_threads_does_not_show() -> None:
    queries, pairs = sparse_rows(1, num_rows=50, num_features=200), random_pairs(1, num_classes=60, num_points=50)
    ids = np.random.default_rng(0).integers(-1, 60, (50, 7))
    threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3, 8):
            torch.set_num_threads(number)
            ranker = train_linear(queries, pairs, num_features=200, seed=9)
            results.append((ranker, ranker.scores(queries, ids)))
    finally:
        torch.set_num_threads(threads)
    for ranker, scores in results[1:]:
        assert_same_tensors(ranker, results[0][0])
        assert np.array_equal(scores, results[0][1])


@pytest.mark.usefixtures("way")
def test_chunks_do_not_show_and_the_seed_does(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, pairs = sparse_rows(2, num_rows=30, num_features=40), random_pairs(2, num_classes=12, num_points=30)
    whole = train_linear(queries, pairs, num_features=40, seed=4)
    assert not np.array_equal(whole.biases_K, train_linear(queries, pairs, num_features=40, seed=5).biases_K)
    for name, limit in (("_CHUNK_ROOM", 90), ("_CHUNK_ENTRIES", 300), ("_CHUNK_ROOM", 1)):
        monkeypatch.setattr(linear_training, name, limit)
        calls: list[tuple[int, int]] = []
        parts = train_linear(queries, pairs, num_features=40, seed=4, progress=lambda *now: calls.append(now))  # noqa: B023
        assert_same_tensors(whole, parts)
        assert len(calls) > 2
        assert calls == sorted(set(calls))
        assert calls[-1] == (12, 12)


@pytest.mark.usefixtures("way")
def test_progress_may_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(Exception):  # noqa: N818
        pass

    def stop(done: int, total: int) -> None:
        told.append((done, total))
        if done >= 3:
            raise Stopped

    monkeypatch.setattr(linear_training, "_CHUNK_ROOM", 1)
    told: list[tuple[int, int]] = []
    queries, pairs = sparse_rows(2, num_rows=30, num_features=40), random_pairs(2, num_classes=12, num_points=30)
    with pytest.raises(Stopped):
        train_linear(queries, pairs, num_features=40, progress=stop)
    assert told == [(1, 12), (2, 12), (3, 12)]


def test_shuffles_are_permutations_of_every_kind() -> None:
    """All six orders of three, about as often as each other: 600 draws, 100 each, standard deviation 9."""
    counts: dict[tuple[int, ...], int] = {}
    state = first_state(7, 11)
    for _ in range(600):
        order = [0, 1, 2, 3, 4]
        state = shuffle(order, 3, state)
        assert order[3:] == [3, 4]
        counts[tuple(order[:3])] = counts.get(tuple(order[:3]), 0) + 1
    assert len(counts) == 6
    assert min(counts.values()) > 60
    assert first_state(7, 11) != first_state(7, 12) != first_state(8, 12)


def rows(offsets: list[int], indices: list[int], values: list[float] | None = None) -> SparseRows:
    return SparseRows(
        np.array(offsets), np.array(indices, np.int64), None if values is None else np.array(values, np.float32)
    )


GOOD_ROWS, GOOD_PAIRS = rows([0, 2, 3], [0, 2, 1]), ([0, 2], [0, 1], [1, -1])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("queries", "pairs", "message"),
    [
        (rows([0, 2, 3], [0, 3, 1]), GOOD_PAIRS, "indices are 0 to 3; wanted 0 to 2"),
        (rows([0, 2, 3], [-1, 2, 1]), GOOD_PAIRS, "indices are -1 to 2"),
        (rows([0, 2, 3], [0, 2**32, 1]), GOOD_PAIRS, "indices are 0 to 4294967296"),
        (rows([0, 2, 3], [2, 0, 1]), GOOD_PAIRS, "must be distinct and ascending"),
        (rows([0, 2, 3], [2, 2, 1]), GOOD_PAIRS, "must be distinct and ascending"),
        (rows([0, 2, 4], [0, 2, 1]), GOOD_PAIRS, "do not ascend from 0 to the number of entries, 3"),
        (rows([1, 2, 3], [0, 2, 1]), GOOD_PAIRS, "do not ascend from 0"),
        (rows([0, 4, 3], [0, 2, 1]), GOOD_PAIRS, "do not ascend from 0"),
        (rows([], []), GOOD_PAIRS, r"offsets have the shape \(0,\)"),
        (rows([0, 2, 3], [0, 2, 1], [1, 2]), GOOD_PAIRS, r"values have the shape \(2,\); wanted \(3,\)"),
        (rows([0, 2, 3], [0, 2, 1], [1, 2, np.nan]), GOOD_PAIRS, "a value is not a finite number"),
        (SparseRows(np.array([0, 1]), np.array([0]), np.array([1e300])), GOOD_PAIRS, "a value is not a finite number"),
        (rows([0, 2, 3], [0, 2, 1], [np.inf, 2, -np.inf]), GOOD_PAIRS, "a value is not a finite number"),
        (SparseRows(np.array([0, 1]), np.array([0.5]), None), GOOD_PAIRS, "in float64"),
        (GOOD_ROWS, ([0, 2], [0, 2], [1, -1]), "points 0 to 2; there are 2 queries"),
        (GOOD_ROWS, ([0, 2], [-1, 1], [1, -1]), "points -1 to 1"),
        (GOOD_ROWS, ([0, 2], [0, 1], [1, 0]), "neither 1 nor -1"),
        (GOOD_ROWS, ([0, 2], [0, 1], [1]), "1 targets; wanted 2"),
        (GOOD_ROWS, ([0, 1], [0, 1], [1, -1]), "from 0 to the number of pairs, 2"),
        (GOOD_ROWS, ([1, 2], [0, 1], [1, -1]), "from 0 to the number of pairs, 2"),
        (GOOD_ROWS, ([0, 2, 1, 2], [0, 1], [1, -1]), "do not ascend"),
        (GOOD_ROWS, ([], [0, 1], [1, -1]), "lists of whole numbers"),
        (GOOD_ROWS, ([0, 2], [0.0, 1.0], [1, -1]), "lists of whole numbers"),
    ],
)
def test_bad_points_and_pairs(queries: SparseRows, pairs: tuple[list[int], list[int], list[int]], message: str) -> None:
    train_linear(GOOD_ROWS, MinedPairs(*map(np.array, GOOD_PAIRS)), num_features=3)
    with pytest.raises(ValueError, match=message):
        train_linear(queries, MinedPairs(*map(np.array, pairs)), num_features=3)


def test_bad_numbers() -> None:
    pairs = MinedPairs(*map(np.array, GOOD_PAIRS))
    for num_features, seed, message in (
        (-1, 0, "num_features is -1"),
        (2**31, 0, "num_features"),
        (3, -1, "seed is -1"),
    ):
        with pytest.raises(ValueError, match=message):
            train_linear(GOOD_ROWS, pairs, num_features=num_features, seed=seed)


@pytest.mark.parametrize(
    "changed",
    [{"cost": 0}, {"cost": np.nan}, {"loss": "log"}, {"max_passes": 0}, {"tolerance": -1}, {"threshold": np.inf}],
    ids=str,
)
def test_bad_options(changed: dict[str, object]) -> None:
    ((name, _),) = changed.items()
    with pytest.raises(ValueError, match=f"{name} is .*; wanted"):
        LinearOptions(**changed)  # type: ignore[arg-type]


def label_rows(labels: list[list[int]]) -> SparseRows:
    counts = np.array([len(row) for row in labels], np.int64)
    return SparseRows(offsets_from_counts(counts), np.array([one for row in labels for one in row], np.int32), None)


def expected_pairs(ranked: list[list[int]], labels: list[list[int]], num_classes: int) -> list[list[tuple[int, int]]]:
    pairs: list[dict[int, int]] = [{} for _ in range(num_classes)]
    for point, (places, own) in enumerate(zip(ranked, labels, strict=True)):
        for class_id in places:
            if class_id >= 0:
                pairs[class_id][point] = -1
        for class_id in own:
            pairs[class_id][point] = 1
    return [sorted(of_class.items()) for of_class in pairs]


@settings(max_examples=150, deadline=None)
@given(data=st.data(), num_classes=st.integers(1, 9), num_points=st.integers(0, 8), width=st.integers(0, 6))
def test_pairs_against_a_loop(data: st.DataObject, num_classes: int, num_points: int, width: int) -> None:
    shortlist = st.lists(st.integers(-2, num_classes - 1), min_size=width, max_size=width)
    own = st.lists(st.integers(0, num_classes - 1), max_size=4)
    ranked = data.draw(st.lists(shortlist, min_size=num_points, max_size=num_points))
    labels = data.draw(st.lists(own, min_size=num_points, max_size=num_points))
    dtype = data.draw(st.sampled_from([np.int64, np.int32]))
    ranked_NS = np.array(ranked, dtype).reshape(num_points, width)
    pairs = MinedPairs.of(ranked_NS, label_rows(labels), num_classes=num_classes)
    found = [
        list(zip(pairs.points[start:stop].tolist(), pairs.targets[start:stop].tolist(), strict=True))
        for start, stop in zip(pairs.offsets_K1[:-1], pairs.offsets_K1[1:], strict=True)
    ]
    assert found == expected_pairs(ranked, labels, num_classes)
    assert (pairs.num_classes, len(pairs)) == (num_classes, sum(map(len, found)))
    assert (pairs.offsets_K1.dtype, pairs.points.dtype, pairs.targets.dtype) == (np.int64, np.int32, np.int8)


def test_a_label_outside_the_shortlist_counts_and_one_inside_is_no_mistake() -> None:
    pairs = MinedPairs.of(np.array([[2, 1, -1], [1, 2, 2]]), label_rows([[0, 2], [2]]), num_classes=4)
    assert pairs.offsets_K1.tolist() == [0, 1, 3, 5, 5]
    assert pairs.points.tolist() == [0, 0, 1, 0, 1]
    assert pairs.targets.tolist() == [1, -1, -1, 1, 1]


def test_numbers_past_32_bits() -> None:
    """Class times point does not fit 32 bits, even where both came in 32."""
    num_points, num_classes = 70_000, 2_000_000_000
    labels = SparseRows(np.arange(num_points + 1), np.full(num_points, 0, np.int32), None)
    ranked = np.full((num_points, 1), -1, np.int32)
    ranked[-1] = 99_999
    pairs = MinedPairs.of(ranked, labels, num_classes=100_000)
    assert (pairs.points[-1], pairs.targets[-1], pairs.offsets_K1[99_999]) == (num_points - 1, -1, num_points)
    with pytest.raises(ValueError, match="below 2\\^62"):
        MinedPairs.of(ranked, labels, num_classes=num_classes**2)


@pytest.mark.parametrize(
    ("ranked", "labels", "num_classes", "message"),
    [
        (np.array([[0, 3]]), [[0]], 3, "shortlists hold ids from 0 to 3; wanted ids below 3"),
        (np.array([[0, 1]]), [[3]], 3, "labels hold ids from 3 to 3"),
        (np.array([[0, 1]]), [[-1]], 3, "labels hold ids from -1 to -1"),
        (np.array([[0, 1]]), [[0], [1]], 3, "labels for 2 points; wanted 1"),
        (np.array([0, 1]), [[0], [1]], 3, r"the shape \(2,\)"),
        (np.array([[0.0, 1.0]]), [[0]], 3, "in float64"),
        (np.array([[0]]), [[0]], -1, "-1 classes"),
    ],
)
def test_bad_shortlists(ranked: np.ndarray, labels: list[list[int]], num_classes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MinedPairs.of(ranked, label_rows(labels), num_classes=num_classes)


def int32(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def ones(count: int) -> np.ndarray:
    return np.ones(count, np.float32)


@needs_build
@pytest.mark.parametrize(
    "changed",
    [
        {"offsets": np.array([0, 2, 4])},
        {"offsets": np.array([0, 3, 2])},
        {"offsets": np.array([-1, 2, 3])},
        {"offsets": np.array([0, 3])},
        {"offsets": np.zeros(0, np.int64)},
        {"features": int32(0, 3, 1)},
        {"features": int32(0, -1, 1)},
        {"features": int32(0, 2)},
        {"values": ones(2)},
        {"num_features": 2},
        {"num_features": -1},
        {"num_features": 2**31},
        {"squares": np.ones(3)},
        {"pair_starts": np.array([0, 3])},
        {"pair_starts": np.array([2, 0])},
        {"pair_starts": np.array([-1, 2])},
        {"pair_starts": np.array([0])},
        {"pair_starts": np.zeros(0, np.int64)},
        {"points": int32(0, 2)},
        {"points": int32(0, -1)},
        {"points": int32(0)},
        {"targets": np.ones(1, np.int8)},
        {"out_starts": np.array([0, 2])},
        {"out_starts": np.array([1, 4])},
        {"out_starts": np.array([-1, 3])},
        {"out_features": int32(0, 0)},
        {"out_weights": ones(2)},
        {"out_counts": np.zeros(2, np.int64)},
        {"biases": ones(2)},
    ],
    ids=str,
)
def test_training_that_does_not_fit_is_refused(changed: dict[str, object]) -> None:
    extension = compiled_module()
    assert extension is not None
    given: dict[str, object] = {
        "offsets": np.array([0, 2, 3]),
        "features": int32(0, 2, 1),
        "values": ones(3),
        "num_features": 3,
        "squares": np.array([3.0, 2.0]),
        "pair_starts": np.array([0, 2]),
        "points": int32(0, 1),
        "targets": np.array([1, -1], np.int8),
        "first_class": 0,
        "options": (np.inf, 0.5, 0.1, 0.05),
        "max_passes": 20,
        "seed": 0,
        "out_starts": np.array([0, 3]),
        "out_features": int32(0, 0, 0),
        "out_weights": ones(3),
        "out_counts": np.zeros(1, np.int64),
        "biases": ones(1),
        "threads": 2,
    }
    assert extension.train(*given.values()) == 3
    with pytest.raises(ValueError, match="out of range, or a buffer does not fit"):
        extension.train(*(given | changed).values())
