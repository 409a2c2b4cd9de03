"""The public door: ``owlmine.fit``, ``owlmine.load`` and the model between them."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import owlmine
from owlmine.data import ConvertOptions, Store
from owlmine.dense.progress import Progress
from owlmine.errors import DataError, OwlmineError
from owlmine.run import train

from .small_models import TOPICS, dense_data, text_data, text_point, text_store, write_jsonl

OPTIONS = {"dim": 16, "epochs": 4, "batch_size": 16, "device": "cpu"}


def points(first: int, count: int) -> tuple[list[str], list[list[str]]]:
    chosen = [text_point(number) for number in range(first, first + count)]
    return [str(point["text"]) for point in chosen], [list(point["labels"]) for point in chosen]  # type: ignore[call-overload]


TEXTS, LABELS = points(0, 240)
QUERIES = [f"the {topic} by the sea" for topic in TOPICS]


@pytest.fixture(scope="module")
def model() -> owlmine.Model:
    return owlmine.fit(TEXTS, LABELS, class_names={f"c-{topic}": topic.title() for topic in TOPICS}, options=OPTIONS)


def same_tensors(one: owlmine.Model, other: owlmine.Model) -> bool:
    """Whether two models hold the same bits."""
    for left, right in ((one.dense.tensors(), other.dense.tensors()), (one.ranker.tensors(), other.ranker.tensors())):
        if left.keys() != right.keys() or any(not left[name].equal(right[name]) for name in left):
            return False
    return True


def test_fit_predict_save_load(model: owlmine.Model, tmp_path: Path) -> None:
    best = [row[0].name for row in model.predict(QUERIES, k=3)]
    assert np.mean([name == topic.title() for name, topic in zip(best, TOPICS, strict=True)]) >= 0.9
    model.save(tmp_path / "model")
    loaded = owlmine.load(tmp_path / "model")
    assert isinstance(loaded, owlmine.Model)
    assert same_tensors(model, loaded)
    assert loaded.predict(QUERIES, k=3) == model.predict(QUERIES, k=3)
    assert loaded.record == model.record


def test_fit_from_lists_has_the_bits_of_a_run_on_the_same_points_in_files(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", [{"text": t, "labels": y} for t, y in zip(TEXTS, LABELS, strict=True)])
    from_lists = owlmine.fit(TEXTS, LABELS, options=OPTIONS, seed=3)
    from_files = owlmine.fit(folder, options=OPTIONS, seed=3)
    in_a_folder = train(folder, tmp_path / "model", owlmine.TrainOptions.of(**OPTIONS, seed=3))
    assert same_tensors(from_lists, from_files)
    assert same_tensors(from_lists, in_a_folder)
    assert from_lists.record.figures == in_a_folder.record.figures
    assert from_lists.record.calibration == in_a_folder.record.calibration


def test_fit_takes_every_kind_of_query_and_label() -> None:
    centres = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    numbers = np.arange(120) % 3
    vectors = centres[numbers] + 0.1 * np.random.default_rng(1).normal(size=(120, 6)).astype(np.float32)
    options = OPTIONS | {"epochs": 8}
    dense = owlmine.fit(vectors, numbers.tolist(), options=options)
    assert [row[0].key for row in dense.predict(centres, k=1)] == ["0", "1", "2"]
    indicator = csr_matrix(np.eye(3)[numbers])
    sparse = owlmine.fit(csr_matrix(np.abs(vectors)), indicator, class_names=["red", "green", "blue"], options=options)
    assert {row[0].name for row in sparse.predict(csr_matrix(np.abs(centres)), k=1)} <= {"red", "green", "blue"}


def test_answers_as_arrays_are_those_with_names(model: owlmine.Model) -> None:
    batch = model.predict_batch(QUERIES, k=4, tail=0.5)
    named = model.predict(QUERIES, k=4, tail=0.5)
    assert batch.ids_Nk.shape == batch.scores_Nk.shape == (len(QUERIES), 4)
    assert [[model.classes.keys[number] for number in row] for row in batch.ids_Nk.tolist()] == [
        [answer.key for answer in row] for row in named
    ]
    assert [[answer.score for answer in row] for row in named] == batch.scores_Nk.tolist()


def test_validation_points_settle_the_mix_and_the_probabilities() -> None:
    unvalidated = owlmine.fit(TEXTS, LABELS, options=OPTIONS | {"validation": 0.0})
    assert unvalidated.record.calibration is None
    assert unvalidated.predict(QUERIES[:1])[0][0].probability is None
    held_out = points(500, 60)
    validated = owlmine.fit(TEXTS, LABELS, validation=held_out, options=OPTIONS)
    assert validated.record.rehearsal is None
    assert validated.record.calibration is not None
    found = validated.evaluate(*held_out, ks=(1,)).figures["P@1"]
    assert found == pytest.approx(validated.record.figures["P@1"], abs=1e-9)


def test_evaluation_of_lists_is_that_of_the_same_points_in_a_store(model: owlmine.Model) -> None:
    store = Store.open(text_store())
    assert len(store["test"])
    by_store = owlmine.fit(text_store(), options=OPTIONS)
    lines = [json.loads(line) for line in (text_data() / "test.jsonl").read_text().splitlines()]
    by_lists = by_store.evaluate([line["text"] for line in lines], [line["labels"] for line in lines])
    assert by_lists.figures == by_store.evaluate(text_store()).figures
    assert by_lists.num_points == len(store["test"])
    del model


def test_added_classes_are_found_and_leave_the_model_as_it_was(model: owlmine.Model) -> None:
    before = model.predict(QUERIES, k=3)
    # Words that the model knows, in a company that no class has.
    examples = ["big big big near near", "near big big big", "big near near big big"]
    larger = model.add_classes(examples, [["c-size"]] * 3, names={"c-size": "Big"})
    assert larger.classes.keys[12] == "c-size"
    assert len(larger.classes) == len(model.classes) + 1
    assert "c-size" in [answer.key for answer in larger.predict(["near big big"], k=5)[0]]
    assert larger.record.added[-1]["classes"] == 1
    assert model.predict(QUERIES, k=3) == before
    assert not model.record.added


def test_model_cannot_be_changed(model: owlmine.Model) -> None:
    for name in ("dense", "ranker", "classes", "features", "record"):
        with pytest.raises(FrozenInstanceError):
            setattr(model, name, None)
    with pytest.raises(FrozenInstanceError):
        model.record.data = "other"  # type: ignore[misc]


def test_copies_and_pickles_answer_the_same(model: owlmine.Model) -> None:
    """Also after the first query, which prepares what reads texts and searches classes."""
    queries = [text_point(0)["text"]]
    wanted = model.predict(queries, k=3)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert again.predict(queries, k=3) == wanted


def test_many_threads_get_the_answers_of_one(model: owlmine.Model) -> None:
    wanted = model.predict(QUERIES, k=5, tail=0.3)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: model.predict(QUERIES, k=5, tail=0.3), range(64)))
    assert all(answer == wanted for answer in answers)


def test_model_says_what_it_is(model: owlmine.Model) -> None:
    assert repr(model).startswith("<Model of 12 classes for text, trained on 'data in memory'")


def test_progress_is_called_while_models_train() -> None:
    seen: list[Progress] = []
    owlmine.fit(TEXTS, LABELS, options=OPTIONS | {"recipe": "single"}, progress=seen.append)
    assert seen[-1].step == seen[-1].num_steps


def test_effort_and_minutes_are_options_too() -> None:
    options = {"dim": 8, "device": "cpu"}
    fast = owlmine.fit(TEXTS, LABELS, options=options, effort="fast")
    in_no_time = owlmine.fit(TEXTS, LABELS, options=options, minutes=1e-6)
    assert fast.record.plan["heads"] == 1
    assert in_no_time.record.plan == fast.record.plan
    assert same_tensors(in_no_time, fast)
    assert (fast.record.options["effort"], in_no_time.record.options["minutes"]) == ("fast", 1e-6)


def test_options_may_be_an_object_or_names() -> None:
    by_object = owlmine.fit(TEXTS, LABELS, options=owlmine.TrainOptions.of(recipe="single", **OPTIONS), seed=5)
    by_names = owlmine.fit(TEXTS, LABELS, options={"recipe": "single", "seed": 5, **OPTIONS})
    assert same_tensors(by_object, by_names)
    assert by_names.record.options["seed"] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TEXTS, LABELS[:-1]), "239"),
        ((TEXTS[0], LABELS), "string"),
        ((TEXTS,), "no Y; wanted labels"),
        (([1, 2], [["a"], ["b"]]), "found"),
    ],
    ids=["lengths", "one string", "no labels", "numbers"],
)
def test_bad_data_are_named(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises((DataError, OwlmineError), match=message):
        owlmine.fit(*arguments)


def test_an_unknown_option_has_a_hint() -> None:
    with pytest.raises(TypeError, match="did you mean epochs"):
        owlmine.fit(TEXTS, LABELS, options={"epoch": 3})


def test_a_taken_folder_is_not_overwritten(model: owlmine.Model, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").write_text("precious")
    with pytest.raises(OwlmineError, match="already exists"):
        model.save(tmp_path / "model")
    assert [file.name for file in (tmp_path / "model").iterdir()] == ["mine"]


def test_dense_dataset_on_disk() -> None:
    assert owlmine.fit(dense_data(), options=OPTIONS).takes == "dense vectors"


def test_import_does_not_load_torch() -> None:
    code = "import sys, owlmine; dir(owlmine); assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_reading_left_out_of_training_is_said(tmp_path: Path) -> None:
    """And files are read by the options of ``data convert``."""
    rows = "".join(f'the {word} tree {number},"{word},plant"\n' for number, word in enumerate(["red", "green"] * 20))
    (tmp_path / "train.csv").write_text("text,labels\n" + rows)
    options = {"recipe": "single", "epochs": 1, "dim": 8, "device": "cpu"}
    with pytest.warns(UserWarning, match="classes contain a comma"):
        assert len(owlmine.fit(tmp_path / "train.csv", options=options).classes) == 2
    reading = ConvertOptions(label_separator=",")
    assert len(owlmine.fit(tmp_path / "train.csv", options=options, reading=reading).classes) == 3
