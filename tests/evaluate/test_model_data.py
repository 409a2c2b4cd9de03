"""Files read in a model's own terms give what the store of the training data gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import owlmine
from owlmine.data import ConvertOptions, Store, convert
from owlmine.data.rows import SparseRows
from owlmine.data.store import Batch
from owlmine.errors import OwlmineError
from owlmine.evaluate.model_data import ReadOptions, open_for_model, split_from
from owlmine.recipe.fit import fit

from ..small_models import (
    MODELS,
    OPTIONS,
    dense_model,
    sparse_data,
    sparse_model,
    text_data,
    text_model,
    text_point,
    text_store,
    write_jsonl,
)

BRIEF = OPTIONS.with_(epochs=0.1)


def same_split(one: Store, other: Store, split: str) -> None:
    """Except for the ids of points that models learn from."""
    arrays = {name for name in other.meta["arrays"] if name.startswith(f"{split}.") and ".ids." not in name}
    assert arrays
    assert arrays == {name for name in one.meta["arrays"] if name.startswith(f"{split}.")}
    for name in arrays:
        np.testing.assert_array_equal(one.array(name), other.array(name), err_msg=name)
    assert one.meta["splits"][split] == other.meta["splits"][split]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("split", ["test", "train"])
def test_files_become_the_split_that_the_conversion_made(kind: str, split: str, tmp_path: Path) -> None:
    model, data, store = MODELS[kind]
    predictor = owlmine.load(model())
    read, name = open_for_model(predictor, data(), tmp_path, split=split)
    assert name == split
    same_split(read, Store.open(store()), split)
    predictor.check_fits(read)


@pytest.mark.parametrize(
    "options",
    [ConvertOptions(min_df=3, max_df=0.9, ngrams=2), ConvertOptions(hash_bits=8), ConvertOptions(weighting="none")],
    ids=["bigrams", "hashed", "unweighted"],
)
def test_the_model_remembers_the_options_of_its_conversion(options: ConvertOptions, tmp_path: Path) -> None:
    store = convert(text_data(), tmp_path / "store", options)
    predictor = fit(store, BRIEF)
    read, _ = open_for_model(predictor, text_data(), tmp_path / "scratch")
    same_split(read, store, "test")


@pytest.mark.parametrize("first", [0, 1])
def test_svmlight_counts_from_where_the_training_files_did(first: int, tmp_path: Path) -> None:
    folder = tmp_path / "svm"
    folder.mkdir()
    # Feature 0 of the files occurs in train alone: test by itself would be taken to count from 1.
    for name, least in (("train", 0), ("test", 1)):
        lines = [f"{n % 5} {least + first}:1 {n % 5 + 2 + first}:2" for n in range(40)]
        (folder / f"{name}.svm").write_text("\n".join(lines) + "\n")
    store = convert(folder, tmp_path / "store")
    predictor = fit(store, BRIEF)
    read, _ = open_for_model(predictor, folder, tmp_path / "scratch")
    same_split(read, store, "test")
    alone, _ = open_for_model(
        predictor, folder / "test.svm", tmp_path / "alone", options=ReadOptions(first_feature=str(first))
    )
    same_split(alone, store, "test")


def test_any_labelled_file_will_do(tmp_path: Path) -> None:
    predictor = owlmine.load(text_model())
    rows = [text_point(number) for number in range(7)]
    file = tmp_path / "more.csv"
    lines = ["body,classes"] + [f"{row['text']},{'|'.join(row['labels'])}" for row in rows]
    file.write_text("\n".join(lines) + "\n")
    options = ReadOptions(text_column="body", label_separator="|")
    read, name = open_for_model(predictor, file, tmp_path / "scratch", options=options)
    split = read[name]
    assert len(split) == 7
    keys = [{read.class_keys[c] for c in split.labels.slice(row, row + 1).indices} for row in range(7)]
    assert keys == [set(row["labels"]) for row in rows]
    prepared = predictor.prepare([str(r["text"]) for r in rows])
    np.testing.assert_allclose(split.queries.values, prepared.values, rtol=1e-6)


def test_keep_empty_keeps_points_without_known_label_or_feature(tmp_path: Path) -> None:
    predictor = owlmine.load(text_model())
    read, _ = open_for_model(predictor, text_data(), tmp_path, options=ReadOptions(keep_empty=True))
    assert len(read["test"]) == 36
    assert len(Store.open(text_store())["test"]) == 34


def refused(model: Path, data: str | Path, scratch: Path, message: str, **more: object) -> None:
    with pytest.raises(OwlmineError, match=message):
        open_for_model(owlmine.load(model), data, scratch, **more)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    refused(text_model(), sparse_data(), tmp_path, "found sparse vectors; wanted text, which the model takes")
    refused(sparse_model(), text_data(), tmp_path, "found text; wanted sparse vectors")
    refused(dense_model(), text_data(), tmp_path, "found text; wanted dense vectors")
    refused(text_model(), tmp_path / "nothing", tmp_path, "found no such file or folder")
    refused(text_model(), text_data(), tmp_path, "no split 'dev'; it has train, test", split="dev")
    refused(text_model(), text_data() / "test.jsonl", tmp_path, "is a single file", split="test")
    refused(text_model(), text_store(), tmp_path, "is a finished store", options=ReadOptions(keep_empty=True))
    refused(text_model(), MODELS["dense"][2](), tmp_path, "found 7 classes; the model was trained with 12")
    assert list(tmp_path.iterdir()) == []


def test_labels_that_the_model_has_never_heard_of(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "other.jsonl", [{"text": "the river", "labels": ["x", "y"]}])
    refused(text_model(), file, tmp_path, "found 2 labels, none of which is a class of the model")


def test_vectors_that_do_not_fit(tmp_path: Path) -> None:
    wide = tmp_path / "wide.txt"
    wide.write_text("1 60 20\n0 3:1\n")
    refused(sparse_model(), wide, tmp_path, "found 60 features; wanted 50")
    file = tmp_path / "real.txt"
    file.write_text("1 50 20\n0 3:0.5\n")
    refused(sparse_model(), file, tmp_path, "found values that are not whole counts")
    svm = tmp_path / "far.svm"
    svm.write_text("0 51:1\n")
    refused(sparse_model(), svm, tmp_path, "found feature 51; wanted 1 to 50")


def test_a_store_of_the_same_size_but_another_vocabulary(tmp_path: Path) -> None:
    folder = tmp_path / "renamed"
    folder.mkdir()
    for name in ("train.jsonl", "test.jsonl"):
        text = (text_data() / name).read_text()
        rows = [json.loads(line) for line in text.splitlines()]
        for row in rows:
            row["text"] = row["text"].replace("quiet", "noisy")
        write_jsonl(folder / name, rows)
    store = convert(folder, tmp_path / "store")
    assert store.num_features == Store.open(text_store()).num_features
    refused(text_model(), store.path, tmp_path, "features were made from different documents")


def points_in_memory(kind: str) -> tuple[Any, list[list[str]]]:
    """The test points of the files, with the keys of their labels."""
    data = MODELS[kind][1]()
    if kind == "text":
        rows = [json.loads(line) for line in (data / "test.jsonl").read_text().splitlines()]
        return [row["text"] for row in rows], [row["labels"] for row in rows]
    if kind == "dense":
        return np.load(data / "test.npy"), [[str(label)] for label in np.load(data / "test.labels.npy").tolist()]
    lines = [line.split() for line in (data / "test.txt").read_text().splitlines()[1:]]
    matrix = np.zeros((len(lines), 50), np.float32)
    for row, (_, *features) in enumerate(lines):
        for feature in features:
            number, _, value = feature.partition(":")
            matrix[row, int(number)] = float(value)
    return csr_array(matrix), [line[0].split(",") for line in lines]


@pytest.mark.parametrize("kind", MODELS)
def test_points_in_memory_become_the_split_that_their_files_become(kind: str) -> None:
    predictor, stored = owlmine.load(MODELS[kind][0]()), Store.open(MODELS[kind][2]())["test"]
    split = split_from(predictor, *points_in_memory(kind))
    assert len(split) == len(stored)
    rows = np.arange(len(split))
    for one, other in zip(contents(split.batch(rows)), contents(stored.batch(rows)), strict=True):
        np.testing.assert_array_equal(one, other)


def contents(batch: Batch) -> list[Any]:
    queries = batch.queries
    own = [queries] if isinstance(queries, np.ndarray) else [queries.offsets, queries.indices, queries.values]
    return [*own, batch.labels.offsets, batch.labels.indices]


def test_any_form_that_predict_takes_will_do() -> None:
    predictor = owlmine.load(sparse_model())
    matrix, labels = points_in_memory("sparse")
    wanted = contents(split_from(predictor, matrix, labels).batch(np.arange(60)))
    indicator = np.zeros((60, 20))
    for row, own in enumerate(labels):
        indicator[row, [int(label) for label in own]] = 1
    rows = SparseRows(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)
    for queries, given in ((matrix.toarray(), labels), (rows, indicator), (matrix.tocoo(), csr_array(indicator))):
        for one, other in zip(
            contents(split_from(predictor, queries, given).batch(np.arange(60))), wanted, strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_points_in_memory_that_do_not_fit_are_refused() -> None:
    predictor = owlmine.load(text_model())
    for queries, labels, message in (
        (np.zeros((2, 3)), ["c-river", "c-river"], "X: found dense vectors; wanted text, which the model takes"),
        (["the river"], ["x"], "found 1 labels, none of which is a class of the model"),
        (["the river"], ["c-river", "c-falcon"], "Y: found 2 rows of labels; wanted 1, one per query"),
    ):
        with pytest.raises(OwlmineError, match=message):
            split_from(predictor, queries, labels)


@pytest.mark.parametrize("wrong", [{"format": "xml"}, {"first_feature": "2"}, {"label_separator": ""}])
def test_bad_options(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} is "):
        ReadOptions(**wrong)
