"""Models with added classes: what they answer, what they keep, what cannot be added."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import owlmine
from owlmine.add_classes.add import Addition, add_classes
from owlmine.add_classes.examples import Examples
from owlmine.add_classes.vectors import CAUTION, NAME_WEIGHT
from owlmine.data.rows import Float32, SparseRows
from owlmine.errors import OwlmineError
from owlmine.folder.model_folder import verify_model
from owlmine.model import Model
from owlmine.rank import JUDGES
from owlmine.rank.candidates import Candidates, Encoded
from owlmine.rank.mix import Mix
from owlmine.rank.neighbours import NeighbourJudge, VectorNeighbourJudge
from owlmine.rank.points import DensePoints, SparsePoints
from owlmine.rank.predictor import Predictor
from owlmine.run import train

from ..small_models import (
    OPTIONS,
    TOPICS,
    calibrated_model,
    dense_data,
    dense_model,
    sparse_model,
    sparse_store,
    text_model,
    text_point,
    workplace,
)
from .models import PAIRED, TEXTS, composed_model, texts_of, weighed_model


@pytest.mark.parametrize("model", [text_model, composed_model, calibrated_model, weighed_model])
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
    assert before.dense.shape.num_classes == places == len(TOPICS)


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
    model = train(folder, workplace() / "eight-model", OPTIONS.with_(dim=64, epochs=10))
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
    old, new = before.dense.classes.weight, addition.predictor.dense.classes.weight
    assert torch.equal(new[:known], old)
    answers = addition.predictor.answer(before.prepare(queries), known + 1)
    assert np.isfinite(answers.scores_Nk).all()
    assert (np.sort(answers.ids_Nk, axis=1) == np.arange(known + 1)).all()


def named(addition: Addition, key: str) -> torch.Tensor:
    predictor = addition.predictor
    return predictor.dense.classes.weight[list(predictor.classes.keys).index(key)]


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
    assert addition.predictor.record.added[0]["names"] == 1
    assert "R@5" not in addition.predictor.record.added[0]


def test_caution_lowers_scores() -> None:
    model = owlmine.load(text_model())
    examples = Examples.of(model, *texts_of("new", PAIRED))
    lengths = [float(named(add_classes(model, examples, caution=c), "new").norm()) for c in (2, 4, CAUTION, 20)]
    assert lengths == sorted(lengths, reverse=True)
    recalls = [add_classes(model, examples, caution=c).recall(1) for c in (1, 3, 9)]
    assert recalls == sorted(recalls, reverse=True)


def test_a_grown_model_is_saved_loaded_and_grown_again(tmp_path: Path) -> None:
    model = owlmine.load(composed_model())
    first = add_classes(model, Examples.of(model, *texts_of("new", PAIRED)), source="pairs.jsonl")
    Model.of(first.predictor).save(tmp_path / "first")
    assert verify_model(tmp_path / "first") == []
    loaded = owlmine.load(tmp_path / "first")
    assert answers_of(loaded) == answers_of(first.predictor)
    assert loaded.ranker.judges
    assert loaded.record.options == model.record.options
    second = add_classes(loaded, Examples.of(loaded, *texts_of("newer", TEXTS[:4])), {"newest": "the saddle"})
    Model.of(second.predictor).save(tmp_path / "second")
    again = owlmine.load(tmp_path / "second")
    assert [again.classes.keys[number] for number in range(len(TOPICS), len(TOPICS) + 3)] == ["new", "newer", "newest"]
    records = again.record.added
    assert [(record["first_class"], record["classes"], record["source"]) for record in records] == [
        (12, 1, "pairs.jsonl"),
        (13, 2, ""),
    ]
    assert records[0]["R@5"] == round(100 * first.recall(5), 2)
    card = (tmp_path / "second" / "README.md").read_text()
    assert card.startswith("# A model that retrieves among 15 classes")
    assert card.index("1 classes were added without training") < card.index("2 classes were added")
    assert again.dense.shape.heads == 2
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second"}


def answers_of(predictor: Predictor) -> list[list[str]]:
    return [[found.key for found in row] for row in predictor.predict(TEXTS, k=5)]


def linear_predictor() -> Predictor:
    return train(sparse_store(), workplace() / "linear-model", OPTIONS.with_(kind="linear", epochs=1))


def test_what_cannot_be_added() -> None:
    text, sparse = owlmine.load(text_model()), owlmine.load(sparse_model())
    row = SparseRows(np.array([0, 1]), np.array([3]), np.ones(1, "f4"))
    with pytest.raises(OwlmineError, match="the model is linear"):
        Examples.of(linear_predictor(), row, [["new"]])
    with pytest.raises(OwlmineError, match="2 labels, all of classes that the model already has"):
        Examples.of(text, ["the river"], [["c-river", "c-castle"]])
    with pytest.raises(OwlmineError, match="Y: found 1 rows of labels; wanted 2, one per query"):
        Examples.of(text, ["a", "b"], [["new"]])
    with pytest.raises(OwlmineError, match="all 1 names belong to classes that the model already has"):
        add_classes(text, None, {"c-river": "River"})
    with pytest.raises(OwlmineError, match="the model knows none of the features of the examples"):
        add_classes(text, Examples.of(text, ["???"], [["new"]]))
    with pytest.raises(OwlmineError, match="class 'new' has a name but no examples; wanted examples"):
        add_classes(sparse, None, {"new": "River"})
    with pytest.raises(OwlmineError, match=r"found a list that holds .*; wanted sparse vectors"):
        Examples.of(sparse, ["the river"], [["new"]])
    addition = add_classes(sparse, Examples.of(sparse, row, [["new"]]), {"new": "River"})
    assert (addition.named_C.tolist(), addition.ranks_P.tolist()) == ([False], [0])
    assert addition.predictor.classes.names[len(sparse.classes.keys)] == "River"


def test_an_untrained_model_is_refused() -> None:
    model = owlmine.load(text_model())
    examples = Examples.of(model, *texts_of("new", PAIRED))
    examples.queries.level_N.fill_(-0.1)
    with pytest.raises(OwlmineError, match=r"scores its best classes -0\.1"):
        add_classes(model, examples)


def test_a_folder_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = owlmine.load(text_model())
    larger = Model.of(add_classes(model, Examples.of(model, *texts_of("new", PAIRED))).predictor)
    (tmp_path / "there").mkdir()
    with pytest.raises(OwlmineError, match="already exists"):
        larger.save(tmp_path / "there")
    (tmp_path / "file").write_text("")
    with pytest.raises(OwlmineError, match="cannot be written"):
        larger.save(tmp_path / "file" / "new")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("owlmine.folder.model_folder.write_text", full)
    with pytest.raises(OwlmineError, match="No space left"):
        larger.save(tmp_path / "new" / "deep")
    assert {path.name for path in tmp_path.iterdir()} == {"there", "file"}


def test_a_model_does_not_change_when_classes_are_added() -> None:
    model = owlmine.load(weighed_model())
    tensors = {name: tensor.clone() for name, tensor in {**model.dense.tensors(), **model.ranker.tensors()}.items()}
    before = answers_of(model)
    larger = add_classes(model, Examples.of(model, *texts_of("new", PAIRED))).predictor
    assert isinstance(larger, Model)
    assert answers_of(model) == before
    for name, tensor in {**model.dense.tensors(), **model.ranker.tensors()}.items():
        assert torch.equal(tensor, tensors[name])
    assert model.record.added == ()
    assert model.ranker.offsets_K is None


@dataclass(frozen=True)
class LengthJudge:
    """A judge that nobody has heard of: it likes long keys, of the classes that it knows."""

    lengths_K: Float32

    def scores(self, candidates: Candidates) -> Float32:
        return self.lengths_K[candidates.lookup_ids]

    def with_classes(self, num_new: int) -> LengthJudge:
        return LengthJudge(np.concatenate([self.lengths_K, np.zeros(num_new, np.float32)]))


def test_new_classes_get_what_an_unknown_judge_adds_on_average() -> None:
    model = owlmine.load(composed_model())
    judge: Any = LengthJudge(np.array([len(key) for key in model.classes.keys], np.float32) / 10)
    mix = model.ranker.mix
    mix = Mix({**mix.weights, "length": 0.7}, {**mix.variants, "length": None})
    ranker = replace(model.ranker, judges={**model.ranker.judges, "length": judge}, mix=mix)
    judged = replace(model, ranker=ranker)
    examples, plain = (Examples.of(one, *texts_of("new", PAIRED)) for one in (judged, model))
    larger, queries = add_classes(judged, examples).predictor, judged.prepare(TEXTS + PAIRED)
    offsets_K = larger.ranker.offsets_K
    assert offsets_K is not None
    assert not offsets_K[:-1].any()
    assert offsets_K[-1] == pytest.approx(float(examples.queries.lift_N.mean()), rel=1e-6)
    assert float((examples.queries.lift_N - plain.queries.lift_N).min()) > 0.3
    found = larger.answer(queries, len(larger.classes))
    old, new = judged.answer(queries, len(model.classes)), len(model.classes)
    kept = found.ids_Nk != new
    np.testing.assert_array_equal(found.ids_Nk[kept].reshape(old.ids_Nk.shape), old.ids_Nk)
    np.testing.assert_allclose(found.scores_Nk[kept].reshape(old.ids_Nk.shape), old.scores_Nk, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_of_more_classes_knows_nothing_of_them(name: str) -> None:
    model = owlmine.load(weighed_model())
    queries = model.prepare(TEXTS)
    assert isinstance(queries, SparseRows)
    judge: Any = model.ranker.judges.get(name)
    encoded = Encoded.of(model.dense, queries)
    labels = SparseRows(np.arange(len(queries) + 1), np.arange(len(queries)) % 12, None)
    if name == "neighbours":
        points = SparsePoints.of(queries, num_features=model.dense.shape.num_features)
        judge = NeighbourJudge(points, labels, 5, 2.0, 12)
    if name == "vector_neighbours":
        judge = VectorNeighbourJudge(DensePoints.of(encoded.vectors_ND), labels, 5, 2.0, 12)
    assert judge is not None
    ids_NS = np.tile(np.array([0, 5, -1, 11, 12, 14], np.int64), (len(queries), 1))
    known, more = (
        Candidates(encoded, ids, np.zeros(ids.shape, np.float32), np.full(len(queries), 0.3, np.float32), ids.shape[1])
        for ids in (ids_NS[:, :4], ids_NS)
    )
    larger = judge.with_classes(3)
    if isinstance(judge, NeighbourJudge):
        np.testing.assert_array_equal(larger.suggest(encoded, 15), judge.suggest(encoded, 15))
    scores_NS = larger.scores(more)
    np.testing.assert_array_equal(scores_NS[:, :4], judge.scores(known))
    assert scores_NS[:, :4].any()
    assert not scores_NS[:, 4:].any()
