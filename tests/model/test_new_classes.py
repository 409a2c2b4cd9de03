"""Vectors of new classes: the formula, left-out ranks, and models that have grown."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import owlmine
from owlmine.data.rows import SparseRows
from owlmine.errors import OwlmineError
from owlmine.model.added_classes import Addition, add_classes
from owlmine.model.added_folder import save_added
from owlmine.model.examples import PLACES, Examples
from owlmine.model.folder import verify_model
from owlmine.model.left_out import left_out_ranks
from owlmine.model.new_classes import CAUTION, NAME_WEIGHT, QuerySpace, query_spread
from owlmine.model.predictor import Predictor
from owlmine.train import train

from ..small_models import (
    OPTIONS,
    TOPICS,
    dense_data,
    dense_model,
    sparse_model,
    sparse_store,
    text_model,
    text_point,
    text_store,
    workplace,
)

TEXTS = [str(text_point(number)["text"]) for number in range(300, 320)]
PAIRED = [f"the {one} with the {other}" for one in ("violin", "ballad") for other in ("copper", "pepper", "saddle")]


def spread_by_loops(classes: list[list[float]], counts: list[float], square_length: float) -> list[list[float]]:
    dim, total = len(classes[0]), sum(counts)
    means = [sum(n * row[i] for n, row in zip(counts, classes, strict=True)) / total for i in range(dim)]
    covariance = [
        [
            sum(n * (row[i] - means[i]) * (row[j] - means[j]) for n, row in zip(counts, classes, strict=True)) / total
            for j in range(dim)
        ]
        for i in range(dim)
    ]
    trace = sum(covariance[i][i] for i in range(dim))
    return [[square_length / 2 * (covariance[i][j] / trace + (i == j) / dim) for j in range(dim)] for i in range(dim)]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), num_classes=st.integers(2, 9), dim=st.integers(1, 6))
def test_spread_and_vectors_against_loops(seed: int, num_classes: int, dim: int) -> None:
    random = np.random.default_rng(seed)
    classes, queries = random.normal(size=(num_classes, dim)), random.normal(size=(4, dim))
    counts = random.integers(0, 9, num_classes).astype(float)
    counts[0] = 3
    square_length = float((queries**2).sum(axis=1).mean())
    if (counts > 0).sum() == 1:
        expected = np.eye(dim) * square_length / dim
    else:
        expected = np.array(spread_by_loops(classes.tolist(), counts.tolist(), square_length))
    spread = query_spread(torch.from_numpy(classes), torch.from_numpy(counts), square_length=square_length)
    np.testing.assert_allclose(spread.numpy(), expected, atol=1e-9)
    sums = random.normal(size=(3, dim))
    sums[1] = 0
    space = QuerySpace.of(
        torch.from_numpy(classes), torch.from_numpy(counts), torch.from_numpy(queries), level=0.4, caution=5
    )
    vectors = space.class_vectors(torch.from_numpy(sums)).numpy()
    z = 5 / math.sqrt(1 + 25 / dim)
    for row, vector in zip(sums, vectors, strict=True):
        solved = np.linalg.solve(expected, row)
        wanted = 0.4 / z * solved / math.sqrt(row @ solved) if row.any() else np.zeros(dim)
        np.testing.assert_allclose(vector, wanted, rtol=1e-7, atol=1e-12)
    # The scores of such a vector have the stated standard deviation over queries that spread like S.
    np.testing.assert_allclose(np.sqrt(vectors[0] @ expected @ vectors[0]), 0.4 / z)


def test_the_length_of_examples_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    classes, queries = torch.randn(30, 8, generator=generator), torch.randn(5, 8, generator=generator)
    space = QuerySpace.of(classes, torch.ones(30), queries, level=0.3)
    torch.testing.assert_close(space.class_vectors(queries), space.class_vectors(7 * queries))
    longer = QuerySpace.of(classes, torch.ones(30), queries, level=0.6)
    torch.testing.assert_close(longer.class_vectors(queries), 2 * space.class_vectors(queries))


def test_class_vectors_that_are_all_the_same() -> None:
    same = torch.nn.functional.normalize(torch.full((500, 12), 0.1), dim=1) + 1e-7 * torch.randn(
        500, 12, generator=torch.Generator().manual_seed(0)
    )
    spread = query_spread(same, torch.ones(500), square_length=3.0)
    torch.testing.assert_close(spread, torch.eye(12, dtype=torch.float64) / 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 0.3, "caution": 0}, "caution is 0"),
        ({"level": 0.3, "caution": math.nan}, "caution is nan"),
        ({"level": 0.0}, "level is 0.0"),
        ({"level": math.nan}, "level is nan"),
    ],
)
def test_bad_options(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QuerySpace.of(torch.eye(3), torch.ones(3), torch.eye(3), **options)


def test_classes_without_training_points() -> None:
    with pytest.raises(ValueError, match="no known class has a training point"):
        QuerySpace.of(torch.eye(3), torch.zeros(3), torch.eye(3), level=0.3)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), num_examples=st.integers(1, 8), num_new=st.integers(1, 4))
def test_left_out_ranks_against_loops(seed: int, num_examples: int, num_new: int) -> None:
    random, dim, num_known = np.random.default_rng(seed), 5, 12
    classes = torch.from_numpy(random.normal(size=(num_known, dim)))
    examples = torch.from_numpy(random.normal(size=(num_examples, dim)))
    labels = random.random((num_examples, num_new)) < 0.6
    labels[0, 0] = True
    rows, own = np.nonzero(labels)
    space = QuerySpace.of(classes, torch.ones(num_known), examples, level=1.0, caution=1.5)
    sums = torch.from_numpy(labels.T.astype(float)) @ examples
    best = (examples @ classes.T).topk(PLACES, dim=1).values
    ranks = left_out_ranks(space, examples, rows, own, sums, best)
    for rank, row, new in zip(ranks.tolist(), rows.tolist(), own.tolist(), strict=True):
        if labels[:, new].sum() == 1:
            assert rank == 0
            continue
        # Every class of the example does without it; one that has no other example is not there at all.
        made = sums - torch.from_numpy(labels[row].astype(float))[:, None] * examples[row]
        there = [c for c in range(num_new) if not (labels[row, c] and labels[:, c].sum() == 1)]
        scores = space.class_vectors(made) @ examples[row]
        # Classes of the same examples tie, but for rounding: either may come first.
        rivals = torch.cat([scores[[c for c in there if c != new]], classes @ examples[row]])
        least, most = (1 + int((rivals > scores[new] + slack).sum()) for slack in (1e-9, -1e-9))
        assert least <= rank <= most or (rank > PLACES and most > PLACES)


def texts_of(label: str, texts: list[str]) -> tuple[list[str], list[list[str]]]:
    return texts, [[label]] * len(texts)


@functools.cache
def composed_model() -> Path:
    """Two models side by side with a re-ranker."""
    options = replace(OPTIONS, heads=2, shortlist=6, epochs=2)
    train(text_store(), workplace() / "composed-model", options)
    return workplace() / "composed-model"


@functools.cache
def calibrated_model() -> Path:
    train(text_store(), workplace() / "calibrated-model-to-add-to", replace(OPTIONS, validation=0.3))
    return workplace() / "calibrated-model-to-add-to"


@pytest.mark.parametrize("model", [text_model, composed_model, calibrated_model])
def test_old_answers_stay_but_where_a_new_class_steps_in(model: functools._lru_cache_wrapper[Path]) -> None:
    before = owlmine.load(model())
    addition = add_classes(before, Examples.of(before, *texts_of("c-pair", PAIRED)))
    after, queries = addition.predictor, TEXTS + PAIRED
    assert addition.keys == ("c-pair",)
    places = len(before.classes.keys)
    stepped_in = 0
    for old, new in zip(before.predict(queries, k=places), after.predict(queries, k=places + 1), strict=True):
        left = [found for found in new if found.key != "c-pair"]
        assert [found.key for found in left] == [found.key for found in old]
        np.testing.assert_allclose([f.score for f in left], [f.score for f in old], rtol=1e-5, atol=1e-6)
        stepped_in += new[0].key == "c-pair" or new[1].key == "c-pair"
    assert stepped_in >= len(PAIRED) // 2
    assert before.retriever.shape.num_classes == places == len(TOPICS)


def test_what_is_new_is_found_by_its_examples() -> None:
    """Held-out topics: a model of eight of the twelve, to which the others come from six texts each."""
    folder = workplace() / "eight"
    folder.mkdir(exist_ok=True)
    known = TOPICS[:8]
    rows = [text_point(number) for number in range(480)]
    lines = []
    for row in rows:
        labels = row["labels"]
        assert isinstance(labels, list)
        kept = [label for label in labels if label[2:] in known]
        if kept:
            lines.append(json.dumps(row | {"labels": kept}))
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    model = train(folder, workplace() / "eight-model", replace(OPTIONS, dim=64, epochs=10))
    new = TOPICS[8:]
    texts = [f"the {topic} near a {size} {topic}" for topic in new for size in ("big", "small", "quiet") * 2]
    labels = [[f"c-{topic}"] for topic in new for _ in range(6)]
    addition = add_classes(model, Examples.of(model, texts, labels))
    assert addition.recall(5) > 0.9
    asked = [f"a {topic} by the river" for topic in new]
    for topic, found in zip(new, addition.predictor.predict(asked, k=3), strict=True):
        assert f"c-{topic}" in [one.key for one in found]


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_vectors_of_other_kinds(kind: str) -> None:
    if kind == "sparse":
        before = owlmine.load(sparse_model())
        rows = SparseRows(np.array([0, 2, 4, 6]), np.array([3, 4, 3, 5, 3, 4]), np.array([3, 1, 2, 1, 4, 4], "f4"))
        queries: SparseRows | np.ndarray[tuple[int, ...], np.dtype[np.float32]] = rows
    else:
        before, queries = owlmine.load(dense_model()), np.load(dense_data() / "test.npy")[:3]
    addition = add_classes(before, Examples.of(before, queries, [["new"], ["new"], ["new", "0"]]))
    assert addition.counts_C.tolist() == [3]
    assert addition.classes_P.tolist() == [0, 0, 0]
    assert (addition.ranks_P > 0).all()
    known = len(before.classes.keys)
    assert addition.predictor.classes.keys[known] == "new"
    assert addition.predictor.classes.counts[known] == 3
    old, new = before.retriever.classes.weight, addition.predictor.retriever.classes.weight
    assert torch.equal(new[:known], old)
    scores, ids = addition.predictor.top(before.prepare(queries), known + 1)
    assert np.isfinite(scores).all()
    assert (np.sort(ids, axis=1) == np.arange(known + 1)).all()


def named(addition: Addition, key: str) -> torch.Tensor:
    predictor = addition.predictor
    return predictor.retriever.classes.weight[list(predictor.classes.keys).index(key)]


def test_names_count_for_some_examples() -> None:
    model = owlmine.load(text_model())
    texts = ["the violin with the copper"] * 2
    alone = add_classes(model, Examples.of(model, *texts_of("new", texts)))
    same = add_classes(model, Examples.of(model, *texts_of("new", texts)), {"new": texts[0]})
    torch.testing.assert_close(named(same, "new"), named(alone, "new"))
    other = add_classes(model, Examples.of(model, *texts_of("new", texts)), {"new": "glacier", "c-river": "River"})
    repeated = [*texts * 2, *["glacier"] * round(2 * NAME_WEIGHT)]
    space = Examples.of(model, *texts_of("new", repeated))
    assert torch.nn.functional.cosine_similarity(
        named(other, "new"), named(add_classes(model, space), "new"), dim=0
    ) == pytest.approx(1, abs=1e-5)
    assert (other.known_names, other.named_C.tolist(), other.counts_C.tolist()) == (1, [True], [2])
    assert other.predictor.classes.names[len(TOPICS)] == "glacier"


def test_names_alone() -> None:
    model = owlmine.load(text_model())
    names = {"n-1": "glacier violin", "n-2": "???", "c-river": "The River"}
    addition = add_classes(model, None, names)
    assert (addition.keys, addition.unknown, addition.known_names) == (("n-1",), ("n-2",), 1)
    assert math.isnan(addition.recall(5))
    assert addition.counts_C.tolist() == [0]
    found = addition.predictor.predict(["a glacier and a violin"], k=1)[0][0]
    assert (found.key, found.name) == ("n-1", "glacier violin")
    assert addition.predictor.config["added"][0]["names"] == 1
    assert "R@5" not in addition.predictor.config["added"][0]


def test_caution_lowers_scores() -> None:
    model = owlmine.load(text_model())
    examples = Examples.of(model, *texts_of("new", PAIRED))
    lengths = [float(named(add_classes(model, examples, caution=c), "new").norm()) for c in (2, 4, CAUTION, 20)]
    assert lengths == sorted(lengths, reverse=True)
    recalls = [add_classes(model, examples, caution=c).recall(1) for c in (1, 3, 9)]
    assert recalls == sorted(recalls, reverse=True)


def test_examples_without_features_and_repeated_labels() -> None:
    model = owlmine.load(text_model())
    texts = ["the violin", "???", "the copper", "the pepper"]
    labels = [["new", "new", "c-violin"], ["new", "lost"], ["new"], ["c-pepper"]]
    examples = Examples.of(model, texts, labels)
    assert (examples.keys, examples.known_labels, examples.without_features) == (("new", "lost"), 2, 1)
    assert (examples.rows_P.tolist(), examples.classes_P.tolist()) == ([0, 1], [0, 0])
    addition = add_classes(model, examples)
    assert (addition.keys, addition.unknown) == (("new",), ("lost",))
    assert (addition.ranks_P > 0).all()


def test_a_grown_model_is_saved_loaded_and_grown_again(tmp_path: Path) -> None:
    model = owlmine.load(composed_model())
    first = add_classes(model, Examples.of(model, *texts_of("new", PAIRED)), source="pairs.jsonl")
    save_added(tmp_path / "first", first.predictor, model=composed_model())
    assert verify_model(tmp_path / "first") == []
    loaded = owlmine.load(tmp_path / "first")
    assert told(loaded) == told(first.predictor)
    assert loaded.reranker is not None
    assert loaded.config["options"] == model.config["options"]
    second = add_classes(loaded, Examples.of(loaded, *texts_of("newer", TEXTS[:4])), {"newest": "the saddle"})
    save_added(tmp_path / "second", second.predictor, model=tmp_path / "first")
    again = owlmine.load(tmp_path / "second")
    assert [again.classes.keys[number] for number in range(len(TOPICS), len(TOPICS) + 3)] == ["new", "newer", "newest"]
    records = again.config["added"]
    assert [(record["first_class"], record["classes"], record["source"]) for record in records] == [
        (12, 1, "pairs.jsonl"),
        (13, 2, ""),
    ]
    assert records[0]["R@5"] == round(100 * first.recall(5), 2)
    card = (tmp_path / "second" / "README.md").read_text()
    assert card.startswith("# A model that retrieves among 15 classes")
    assert card.index("among 13 classes") < card.index("among 12 classes")
    assert again.retriever.shape.heads == 2
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second"}


def told(predictor: Predictor) -> list[list[str]]:
    return [[found.key for found in row] for row in predictor.predict(TEXTS, k=5)]


def test_a_folder_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = owlmine.load(text_model())
    grown = add_classes(model, Examples.of(model, *texts_of("new", PAIRED))).predictor
    (tmp_path / "there").mkdir()
    with pytest.raises(OwlmineError, match="already exists"):
        save_added(tmp_path / "there", grown, model=text_model())
    (tmp_path / "file").write_text("")
    with pytest.raises(OwlmineError, match="cannot be written"):
        save_added(tmp_path / "file" / "new", grown, model=text_model())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("owlmine.model.folder.write_text", full)
    with pytest.raises(OwlmineError, match="No space left"):
        save_added(tmp_path / "new" / "deep", grown, model=text_model())
    assert {path.name for path in tmp_path.iterdir()} == {"there", "file"}


def linear_predictor() -> Predictor:
    return train(sparse_store(), workplace() / "linear-model", replace(OPTIONS, kind="linear", epochs=1))


def test_what_cannot_be_added() -> None:
    text, sparse = owlmine.load(text_model()), owlmine.load(sparse_model())
    row = SparseRows(np.array([0, 1]), np.array([3]), np.ones(1, "f4"))
    with pytest.raises(OwlmineError, match="the model is linear"):
        Examples.of(linear_predictor(), row, [["new"]])
    with pytest.raises(OwlmineError, match="2 labels, all of classes that the model has"):
        Examples.of(text, ["the river"], [["c-river", "c-castle"]])
    with pytest.raises(ValueError, match="2 queries and 1 lists of labels"):
        Examples.of(text, ["a", "b"], [["new"]])
    with pytest.raises(OwlmineError, match="all 1 names are of classes that the model has"):
        add_classes(text, None, {"c-river": "River"})
    with pytest.raises(OwlmineError, match="the model knows no feature of any example"):
        add_classes(text, Examples.of(text, ["???"], [["new"]]))
    with pytest.raises(OwlmineError, match="class 'new' has a name and no example; wanted examples"):
        add_classes(sparse, None, {"new": "River"})
    with pytest.raises(OwlmineError, match=r"found a list that holds .*; wanted sparse vectors"):
        Examples.of(sparse, ["the river"], [["new"]])
    addition = add_classes(sparse, Examples.of(sparse, row, [["new"]]), {"new": "River"})
    assert (addition.named_C.tolist(), addition.ranks_P.tolist()) == ([False], [0])
    assert addition.predictor.classes.names[len(sparse.classes.keys)] == "River"


def test_an_untrained_model_is_told() -> None:
    model = owlmine.load(text_model())
    model.retriever.classes.weight.neg_()
    examples = Examples.of(model, *texts_of("new", PAIRED))
    examples.queries.level_N.fill_(-0.1)
    with pytest.raises(OwlmineError, match=r"scores its best classes -0\.1"):
        add_classes(model, examples)
