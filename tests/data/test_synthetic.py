"""The stated distribution is the one the points follow, and its best answer is the best."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from itertools import combinations
from math import log, prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from owlmine.data import synthetic
from owlmine.data.convert import convert
from owlmine.data.store import SparseTable, Store
from owlmine.data.synthetic import SyntheticOptions, Truth, distinct_popular, draw_places, label_law, synthesize
from owlmine.errors import OwlmineError

TINY: dict[str, Any] = {
    "num_classes": 7, "relevant": 4, "num_topics": 3, "train_points": 6_000, "test_points": 500, "noise_vocabulary": 11,
    "seed": 5,
}  # fmt: skip


def all_sets(relevant: int, exponent: float, num_labels: int) -> dict[tuple[int, ...], float]:
    """P(set of places) by enumeration: L independent draws, given that they are distinct."""
    weights = [(place + 1) ** -exponent for place in range(relevant)]
    products = {places: prod(weights[p] for p in places) for places in combinations(range(relevant), num_labels)}
    total = sum(products.values())
    return {places: product / total for places, product in products.items()}


def label_rows(store: Store, split: str) -> np.ndarray:
    labels = store[split].labels
    return np.asarray(labels.indices).reshape(len(labels), -1)


def checksums(store: Store) -> dict[str, str]:
    return {name: entry["sha256"] for name, entry in store.meta["arrays"].items()}


@pytest.fixture(scope="module", params=[1, 2], ids=["one label", "two labels"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    options = SyntheticOptions(**TINY, labels_per_point=request.param)
    return synthesize(tmp_path_factory.mktemp("tiny") / "store", options)


# The law of the labels


def test_zipf_law_of_one_label() -> None:
    _, probabilities = label_law(5, 1.5, 1)
    weights = [(place + 1) ** -1.5 for place in range(5)]
    assert probabilities == pytest.approx([weight / sum(weights) for weight in weights], rel=1e-14)


@given(
    relevant=st.integers(1, 7),
    exponent=st.floats(0.01, 10),
    num_labels=st.integers(1, 6),
)
@settings(max_examples=60, deadline=None)
def test_law_of_distinct_labels_against_enumeration(relevant: int, exponent: float, num_labels: int) -> None:
    num_labels = min(num_labels, relevant)
    chances, probabilities = label_law(relevant, exponent, num_labels)
    sets = all_sets(relevant, exponent, num_labels)
    inclusion = [sum(p for places, p in sets.items() if place in places) for place in range(relevant)]
    assert probabilities * num_labels == pytest.approx(inclusion, rel=1e-11)
    for places, wanted in sets.items():
        missing, found = num_labels, 1.0
        for place in range(relevant):
            taken = place in places
            found *= chances[place, missing] if taken else 1 - chances[place, missing]
            missing -= taken
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("num_labels", [1, 2, 3])
def test_likelier_places_stay_likelier_with_several_labels(num_labels: int) -> None:
    _, probabilities = label_law(200, 0.5, num_labels)
    assert (np.diff(probabilities) < 0).all()
    assert probabilities.sum() == pytest.approx(1, rel=1e-13)


def test_many_labels_of_steep_law_do_not_underflow() -> None:
    chances, probabilities = label_law(400, 10, 150)
    assert np.isfinite(chances).all()
    assert probabilities.sum() == pytest.approx(1, rel=1e-12)
    places = draw_places(np.random.default_rng(0), 3, chances)
    assert all(len(set(row)) == 150 for row in places.tolist())


@pytest.mark.parametrize("num_labels", [1, 2, 3])
def test_drawn_sets_follow_the_law(num_labels: int) -> None:
    chances, _ = label_law(5, 0.8, num_labels)
    places = draw_places(np.random.default_rng(3), 20_000, chances)
    found = Counter(tuple(sorted(row)) for row in places.tolist())
    wanted = all_sets(5, 0.8, num_labels)
    assert set(found) <= set(wanted)
    result = stats.chisquare([found[key] for key in wanted], [20_000 * p for p in wanted.values()])
    assert result.pvalue > 1e-3


# The popularity of classes


@given(
    num_classes=st.integers(1, 40) | st.sampled_from([10**4, 10**7]),
    num_wanted=st.integers(1, 40),
    exponent=st.sampled_from([0.0, 0.5, 1 - 1e-12, 1.0, 1.7, 10.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_popular_ranks_are_distinct_and_in_range(num_classes: int, num_wanted: int, exponent: float, seed: int) -> None:
    uniform = np.random.default_rng(seed).random((6, min(num_wanted, num_classes)))
    uniform[0], uniform[1] = 0, np.nextafter(1, 0)
    ranks = distinct_popular(uniform, num_classes, exponent)
    assert ranks.shape == uniform.shape
    assert ranks.min() >= 0
    assert ranks.max() < num_classes
    assert (np.diff(ranks, axis=1) > 0).all()


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0, 1.4])
def test_popular_ranks_follow_the_law(exponent: float) -> None:
    def below(x: float) -> float:
        return log(x) if exponent == 1 else (x ** (1 - exponent) - 1) / (1 - exponent)

    num_classes = 30
    ranks = distinct_popular(np.random.default_rng(1).random((20_000, 1)), num_classes, exponent)
    wanted = [20_000 * (below(r + 2) - below(r + 1)) / below(num_classes + 1) for r in range(num_classes)]
    assert stats.chisquare(np.bincount(ranks[:, 0], minlength=num_classes), wanted).pvalue > 1e-3


def test_repeated_ranks_move_to_the_next_free_one() -> None:
    uniform = np.array([[0.0, 0.0, 0.0, 0.999], [0.999, 0.999, 0.0, 0.999]])
    assert distinct_popular(uniform, 6, 0.0).tolist() == [[0, 1, 2, 5], [0, 3, 4, 5]]


def test_classes_have_a_long_tail(tmp_path: Path) -> None:
    options = SyntheticOptions(num_classes=20_000, num_topics=20_000, train_points=60_000, test_points=1)
    store = synthesize(tmp_path / "store", options)
    counts = np.sort(store.class_counts)[::-1]
    assert counts.sum() == 60_000
    assert counts[:200].sum() > 0.35 * counts.sum()  # 1 % of the classes: the head
    assert (counts > 0).sum() > 6_000
    assert ((counts > 0) & (counts <= 3)).sum() > 3_000
    # A straight line of slope -1 in the doubly logarithmic picture.
    ranks = np.array([20, 60, 200, 600, 2_000])
    slope = np.polyfit(np.log(ranks), np.log(counts[ranks]), 1)[0]
    assert -1.25 < slope < -0.75
    # Class numbers do not tell which classes are popular.
    assert abs(stats.spearmanr(np.arange(20_000), store.class_counts).statistic) < 0.03


# The points


def test_labels_follow_the_stated_conditional(tiny: Store) -> None:
    truth, labels = Truth.of(tiny), label_rows(tiny, "train")
    for topic in range(3):
        of_topic = labels[truth.topics["train"] == topic]
        assert len(of_topic) > 1_500
        ids, probabilities = truth.conditional(topic)
        place_of = {class_id: place for place, class_id in enumerate(ids.tolist())}
        sets = all_sets(4, 1.0, labels.shape[1])
        found = Counter(tuple(sorted(place_of[c] for c in row)) for row in of_topic.tolist())
        wanted = [len(of_topic) * p for p in sets.values()]
        assert stats.chisquare([found[places] for places in sets], wanted).pvalue > 1e-3
        for place in range(4):
            inclusion = sum(p for places, p in sets.items() if place in places) / labels.shape[1]
            assert probabilities[place] == pytest.approx(inclusion, rel=1e-12)


def test_topics_are_uniform(tiny: Store) -> None:
    assert stats.chisquare(np.bincount(Truth.of(tiny).topics["train"])).pvalue > 1e-3


def test_rows_are_legal_and_give_the_topic_away(tiny: Store) -> None:
    for name in tiny.splits:
        queries = tiny[name].queries
        assert isinstance(queries, SparseTable)
        rows = queries.slice(0, len(queries))
        assert rows.values is not None
        for row, topic in enumerate(Truth.of(tiny).topics[name]):
            low, high = rows.offsets[row], rows.offsets[row + 1]
            ids, values = rows.indices[low:high].tolist(), rows.values[low:high]
            assert sorted(set(ids)) == ids
            assert ids[-1] < tiny.num_features == 3 * 3 + 11
            assert {feature // 3 for feature in ids if feature < 9} == {topic}
            assert sum(feature >= 9 for feature in ids) == 5
            assert (values > 0).all()
            assert float(values.astype(np.float64) @ values) == pytest.approx(1, rel=1e-6)


def test_noise_says_nothing_and_covers_its_vocabulary(tiny: Store) -> None:
    queries = tiny["train"].queries
    assert isinstance(queries, SparseTable)
    features = queries.slice(0, len(queries)).to_scipy(tiny.num_features).toarray() > 0
    topics, first_label = Truth.of(tiny).topics["train"], label_rows(tiny, "train")[:, 0]
    for feature in range(9, tiny.num_features):
        for other in (topics, first_label):
            table = stats.contingency.crosstab(features[:, feature], other).count
            assert table.shape[0] == 2
            # 22 tests of two stores: a chance of 1 % that the smallest p-value of independent noise fails this.
            assert stats.chi2_contingency(table).pvalue > 2e-4


def test_store_is_whole_and_described_like_a_converted_one(tiny: Store, tmp_path: Path) -> None:
    assert tiny.verify() == []
    assert (tiny.num_classes, tiny.num_features) == (7, 20)
    assert list(tiny.class_keys) == [str(number) for number in range(7)]
    labels = label_rows(tiny, "train")
    assert tiny.class_counts.tolist() == np.bincount(labels.ravel(), minlength=7).tolist()
    assert (np.diff(labels, axis=1) > 0).all()
    assert tiny.meta["splits"]["train"]["labels"] == labels.size
    pair = (sparse.csr_matrix(np.eye(3) / 2), sparse.csr_matrix(np.eye(3)))
    converted = convert({"train": pair, "test": pair}, tmp_path / "converted")
    assert set(tiny.meta) == set(converted.meta)
    assert set(tiny.meta["splits"]["test"]) == set(converted.meta["splits"]["test"])
    with pytest.raises(OwlmineError, match="has no known truth"):
        Truth.of(converted)


# The best answer


def test_bayes_predictor_beats_every_other_set(tiny: Store) -> None:
    """Lemma 1 by enumeration: of all sets of k classes, b(x) has the smallest expected loss, and alone has it."""
    truth = Truth.of(tiny)
    rows = np.array([np.flatnonzero(truth.topics["test"] == topic)[0] for topic in (2, 0, 1)])
    for k in (1, 2, 3):
        best = truth.bayes_top("test", rows, k)
        assert best.shape == (3, k)
        for row, chosen in zip(rows, best.tolist(), strict=True):
            ids, probabilities = truth.conditional(int(truth.topics["test"][row]))
            conditional = dict(zip(ids.tolist(), probabilities.tolist(), strict=True))
            losses = {
                retrieved: sum(p for c, p in conditional.items() if c not in retrieved)
                for retrieved in combinations(range(7), k)
            }
            order = sorted(losses, key=losses.__getitem__)
            assert set(order[0]) == set(chosen)
            assert losses[order[1]] > losses[order[0]] + 1e-3
            assert truth.bayes_risk("test", k) == pytest.approx(losses[order[0]], abs=1e-14)
            for retrieved in order:
                found = truth.risk("test", np.array([row]), np.array([retrieved]))
                assert found == pytest.approx(losses[retrieved], abs=1e-14)
        assert truth.risk("test", rows, best) == pytest.approx(truth.bayes_risk("test", k), abs=1e-14)


def test_bayes_top_is_best_for_several_labels_too() -> None:
    """Expected hits and the chance of at least one hit, over all sets of k places."""
    sets = all_sets(6, 0.7, 3)
    _, probabilities = label_law(6, 0.7, 3)
    for k in (1, 2, 3, 4):
        hits = {
            chosen: sum(p * len(set(places) & set(chosen)) for places, p in sets.items())
            for chosen in combinations(range(6), k)
        }
        any_hit = {
            chosen: sum(p for places, p in sets.items() if set(places) & set(chosen))
            for chosen in combinations(range(6), k)
        }
        top = tuple(range(k))
        assert max(hits, key=hits.__getitem__) == top
        assert any_hit[top] == pytest.approx(max(any_hit.values()))
        assert 3 * float(probabilities[:k].sum()) == pytest.approx(hits[top], rel=1e-12)


def test_loss_on_drawn_labels_is_near_the_bayes_risk(tmp_path: Path) -> None:
    options = SyntheticOptions(num_classes=5_000, train_points=1, test_points=20_000, relevant=20, exponent=0.7)
    store = synthesize(tmp_path / "store", options)
    truth, labels = Truth.of(store), label_rows(store, "test")
    for k in (1, 5, 19):
        missed = ~(truth.bayes_top("test", np.arange(20_000), k) == labels).any(axis=1)
        risk = truth.bayes_risk("test", k)
        assert missed.mean() == pytest.approx(risk, abs=4 * (risk * (1 - risk) / 20_000) ** 0.5)


def test_top_past_the_relevant_classes_is_filled(tiny: Store) -> None:
    truth, rows = Truth.of(tiny), np.arange(50)
    for k in (4, 5, 6, 7):
        top = truth.bayes_top("train", rows, k)
        assert top.shape == (50, k)
        assert top.dtype == np.int32
        for row, chosen in zip(rows, top.tolist(), strict=True):
            ids = truth.conditional(int(truth.topics["train"][row]))[0].tolist()
            assert chosen[:4] == ids
            assert chosen[4:] == [c for c in range(7) if c not in ids][: k - 4]
        assert truth.bayes_risk("train", k) == 0
        assert truth.risk("train", rows, top) == 0


def test_rows_in_any_order_and_none_at_all(tiny: Store) -> None:
    truth = Truth.of(tiny)
    rows = np.array([7, 3, 3, 499])
    whole = truth.bayes_top("test", np.arange(500), 3)
    assert truth.bayes_top("test", rows, 3).tolist() == whole[rows].tolist()
    assert truth.bayes_top("test", np.zeros(0, np.int64), 6).shape == (0, 6)


def test_repeated_answers_count_once(tiny: Store) -> None:
    truth = Truth.of(tiny)
    best = truth.bayes_top("test", np.arange(5), 1)
    assert truth.risk("test", np.arange(5), np.hstack([best, best])) == pytest.approx(truth.bayes_risk("test", 1))


def test_truth_refuses_what_it_cannot_answer(tiny: Store) -> None:
    truth, rows = Truth.of(tiny), np.arange(2)
    for k in (0, 8):
        with pytest.raises(ValueError, match=f"k is {k}; wanted 1 to the 7"):
            truth.bayes_top("test", rows, k)
        with pytest.raises(ValueError, match=f"k is {k}; wanted 1 to the 7"):
            truth.bayes_risk("test", k)
    with pytest.raises(ValueError, match="split is 'dev'; wanted one of train, test"):
        truth.bayes_risk("dev", 1)
    for bad in (-1, 500):
        with pytest.raises(ValueError, match="wanted 0 to 499"):
            truth.bayes_top("test", np.array([bad]), 1)
    for topic in (-1, 3):
        with pytest.raises(ValueError, match=f"topic is {topic}; wanted 0 to 2"):
            truth.conditional(topic)
    for shape in ((3, 1), (2,)):
        with pytest.raises(ValueError, match="wanted k ids for each of 2 rows"):
            truth.risk("test", rows, np.zeros(shape, np.int64))
    with pytest.raises(ValueError, match="0 rows, 1 or more"):
        truth.risk("test", rows[:0], np.zeros((0, 3), np.int64))


# Size and seed


def test_smallest_worlds(tmp_path: Path) -> None:
    ten = synthesize(tmp_path / "ten", SyntheticOptions(num_classes=10, train_points=300, test_points=30))
    assert ten.num_classes == len(ten.class_keys) == 10
    assert [sorted(row) for row in Truth.of(ten).topic_classes.tolist()] == [list(range(10))] * 500
    one = SyntheticOptions(
        num_classes=1, relevant=1, num_topics=1, train_points=2, test_points=1, noise_features=0, noise_vocabulary=0,
        signature_features=1,
    )  # fmt: skip
    store = synthesize(tmp_path / "one", one)
    assert store.verify() == []
    assert label_rows(store, "train").tolist() == [[0], [0]]
    assert store.num_features == 1
    assert Truth.of(store).bayes_risk("test", 1) == 0


def test_ten_million_classes(tmp_path: Path) -> None:
    options = SyntheticOptions(num_classes=10_000_000, train_points=2_000, test_points=100, num_topics=5_000)
    store = synthesize(tmp_path / "store", options)
    assert store.num_classes == len(store.class_keys) == len(store.class_counts) == 10_000_000
    for number in (0, 9, 10, 262_153, 1_000_000, 9_999_999):
        assert store.class_keys[number] == str(number)
    assert int(store.class_counts.sum()) == 2_000
    classes = Truth.of(store).topic_classes
    assert all(len(set(row)) == 10 for row in classes.tolist())
    assert 0 <= classes.min() <= classes.max() < 10_000_000
    assert len(np.unique(classes)) > 20_000  # of 50,000: the tail goes far


@pytest.mark.parametrize("num_classes", [1, 9, 10, 11, 100, 1_234])
def test_keys_are_those_of_the_plain_writer(num_classes: int, tmp_path: Path) -> None:
    counts = np.zeros(num_classes, np.int64)
    meta = {"queries": "sparse", "features": 0, "classes": num_classes, "keep_empty": False, "splits": {}}
    meta |= {"weighting": {"kind": "none", "why": "no points"}}
    with synthetic.StoreWriter(tmp_path / "a") as writer:
        writer.whole_array("classes.counts", counts)
        synthetic._write_number_keys(writer, num_classes, piece=7)
        written = writer.finish(meta)
    with synthetic.StoreWriter(tmp_path / "b") as writer:
        writer.whole_array("classes.counts", counts)
        writer.strings("classes.keys", map(str, range(num_classes)))
        assert checksums(written) == checksums(writer.finish(meta))


def test_same_seed_same_store_and_another_seed_another(tmp_path: Path) -> None:
    options = {**TINY, "labels_per_point": 2}
    first = synthesize(tmp_path / "first", SyntheticOptions(**options))
    again = synthesize(tmp_path / "again", SyntheticOptions(**options))
    other = synthesize(tmp_path / "other", SyntheticOptions(**{**options, "seed": 6}))
    assert first.meta == again.meta
    differing = {name for name, checksum in checksums(other).items() if checksum != checksums(first)[name]}
    fixed = {"truth.probabilities", "classes.keys.bytes", "classes.keys.offsets"}
    fixed |= {"train.labels.offsets", "test.labels.offsets"}  # always two labels
    assert differing == set(checksums(first)) - fixed
    train, test = first["train"].batch(np.arange(9)), first["test"].batch(np.arange(9))
    assert train.labels.indices.tolist() != test.labels.indices.tolist()


def test_points_do_not_depend_on_how_many_there_are(tmp_path: Path) -> None:
    """A chunk's length is neither a bound nor a seam: fewer points are the beginning of more points."""
    more = synthesize(tmp_path / "more", SyntheticOptions(train_points=9_001, test_points=5))
    fewer = synthesize(tmp_path / "fewer", SyntheticOptions(train_points=4_099, test_points=5))
    for name in ("test.topics", "test.labels.indices", "test.features.values", "truth.topic_classes"):
        assert checksums(more)[name] == checksums(fewer)[name]
    for table in ("labels", "queries"):
        long, short = getattr(more["train"], table), getattr(fewer["train"], table)
        begun, whole = long.slice(0, 4_099), short.slice(0, 4_099)
        assert len(short) == 4_099
        np.testing.assert_array_equal(begun.offsets, whole.offsets)
        np.testing.assert_array_equal(begun.indices, whole.indices)
        if whole.values is not None:
            np.testing.assert_array_equal(begun.values, whole.values)
    # Chunks are drawn anew, not repeated.
    topics = Truth.of(more).topics["train"]
    assert (topics[: synthetic._CHUNK] != topics[synthetic._CHUNK : 2 * synthetic._CHUNK]).mean() > 0.9


def test_memory_does_not_grow_with_the_points(tmp_path: Path) -> None:
    def peak(num_points: int) -> int:
        tracemalloc.start()
        try:
            synthesize(tmp_path / str(num_points), SyntheticOptions(train_points=num_points))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # From 160,000 points on, the largest file fills the buffer in which checksums are made.
    assert peak(320_000) < 1.1 * peak(160_000)


# Bad options


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"num_classes": 0}, "num_classes is 0; wanted 1 to 2,147,483,647"),
        ({"num_classes": 2**31}, "num_classes is 2147483648"),
        ({"num_classes": 10.5}, "num_classes is 10.5; wanted a Python int"),
        ({"exponent": "1"}, "exponent is '1'; wanted a Python float"),
        ({"train_points": 0}, "train_points is 0; wanted 1 or more"),
        ({"test_points": -1}, "test_points is -1; wanted 1 or more"),
        ({"num_topics": 0}, "num_topics is 0"),
        ({"num_topics": 2**31 // 3}, "num_topics is 715827882; wanted 1 to 715,827,549"),
        ({"relevant": 11, "num_classes": 10}, "relevant is 11; wanted 1 to the 10 classes"),
        ({"relevant": 0}, "relevant is 0"),
        ({"exponent": 0.0}, "exponent is 0.0; wanted 0.01 to 10"),
        ({"exponent": float("nan")}, "exponent is nan"),
        ({"tail_exponent": -0.5}, "tail_exponent is -0.5; wanted 0 to 10"),
        ({"labels_per_point": 10}, "labels_per_point is 10; wanted 1 to 9"),
        ({"labels_per_point": 0}, "labels_per_point is 0"),
        ({"labels_per_point": 2, "relevant": 1}, "labels_per_point is 2; wanted 1 to 1"),
        ({"signature_features": 0}, "signature_features is 0; wanted 1 or more"),
        ({"noise_features": -1}, "noise_features is -1; wanted 0 or more"),
        ({"noise_vocabulary": 4}, "noise_vocabulary is 4; wanted at least 5"),
        ({"seed": -1}, "seed is -1; wanted 0 or more"),
    ],
)
def test_bad_options(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SyntheticOptions(**bad)


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(OwlmineError, match="already exists"):
        synthesize(tmp_path, SyntheticOptions(train_points=1, test_points=1))
    assert list(tmp_path.iterdir()) == []
