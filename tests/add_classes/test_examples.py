"""Examples of new classes, in memory and out of every kind of file, in the model's own terms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

import owlmine
from owlmine.add_classes.add import add_classes
from owlmine.add_classes.examples import Examples
from owlmine.data import convert
from owlmine.data.rows import SparseRows
from owlmine.errors import DataError, OwlmineError
from owlmine.exchange.labelled import ExampleOptions
from owlmine.rank.predictor import Predictor

from ..small_models import (
    dense_data,
    dense_model,
    dense_store,
    sparse_data,
    sparse_model,
    text_data,
    text_model,
    text_store,
    write_jsonl,
)

ROWS: list[dict[str, Any]] = [
    {"text": "the violin and the copper", "labels": ["new", "c-violin"]},
    {"text": "the river", "labels": ["c-river"]},
    {"text": "", "labels": ["new"]},
    {"text": "the pepper, the violin", "labels": ["newer", "new"]},
]


def assert_same(found: Examples, wanted: Examples) -> None:
    assert found.keys == wanted.keys
    assert found.rows_P.tolist() == wanted.rows_P.tolist()
    assert found.classes_P.tolist() == wanted.classes_P.tolist()
    assert (found.known_labels, found.without_features) == (wanted.known_labels, wanted.without_features)
    torch.testing.assert_close(found.queries.vectors_ND, wanted.queries.vectors_ND)
    torch.testing.assert_close(found.queries.best_NT, wanted.queries.best_NT)


@pytest.mark.parametrize("name", ["jsonl", "csv", "tsv", "parquet", "folder"])
def test_tables_of_texts(name: str, tmp_path: Path) -> None:
    import pandas

    model, path = owlmine.load(text_model()), tmp_path / f"examples.{name}"
    wanted = Examples.of(model, [row["text"] for row in ROWS], [row["labels"] for row in ROWS])
    assert (wanted.keys, wanted.known_labels, wanted.without_features) == (("new", "newer"), 2, 1)
    cells = pandas.DataFrame([{"text": row["text"], "labels": "|".join(row["labels"])} for row in ROWS])
    options = ExampleOptions(label_separator="|")
    if name == "folder":
        path.mkdir()
        write_jsonl(path / "train.jsonl", ROWS)
    elif name == "jsonl":
        write_jsonl(path, ROWS)
    elif name == "parquet":
        cells.to_parquet(path)
    else:
        cells.to_csv(path, index=False, sep="," if name == "csv" else "\t")
    assert_same(Examples.read(model, path, options=options), wanted)


def test_blocks_are_joined(tmp_path: Path) -> None:
    """More rows than a reader hands out at once, and than are scored at once."""
    model = owlmine.load(text_model())
    rows = [ROWS[0] if number % 900 == 0 else ROWS[number % 4] for number in range(9_001)]
    found = Examples.read(model, write_jsonl(tmp_path / "many.jsonl", rows))
    wanted = Examples.of(model, [row["text"] for row in rows], [row["labels"] for row in rows])
    assert_same(found, wanted)
    assert (np.diff(found.rows_P) >= 0).all()


@pytest.mark.parametrize("name", ["xmc", "svmlight", "npz"])
def test_sparse_vectors(name: str, tmp_path: Path) -> None:
    model = owlmine.load(sparse_model())
    rows = SparseRows(np.array([0, 2, 3, 5]), np.array([1, 7, 3, 7, 9]), np.array([2, 1, 1, 3, 1], "f4"))
    labels = [[77, 3], [4], [78, 77]]
    wanted = Examples.of(model, rows, [[str(label) for label in own] for own in labels])
    assert wanted.keys == ("77", "78")
    lines = ["77,3 {}:2 {}:1", "4 {}:1", "78,77 {}:3 {}:1"]
    features = [(1, 7), (3,), (7, 9)]
    if name == "xmc":
        path = tmp_path / "examples.txt"
        rows_of_file = [line.format(*own) for line, own in zip(lines, features, strict=True)]
        path.write_text("3 50 100\n" + "\n".join(rows_of_file) + "\n")
    elif name == "svmlight":
        path = tmp_path / "examples.svm"
        rows_of_file = [line.format(*(f + 1 for f in own)) for line, own in zip(lines, features, strict=True)]
        path.write_text("\n".join(rows_of_file) + "\n")
    else:
        path = tmp_path / "pairs"
        path.mkdir()
        sparse.save_npz(path / "X.trn.npz", rows.to_scipy(50))
        offsets, indices = np.array([0, 2, 3, 5]), np.array([3, 77, 4, 77, 78])
        sparse.save_npz(path / "Y.trn.npz", sparse.csr_matrix((np.ones(5, "f4"), indices, offsets), shape=(3, 100)))
        wanted = Examples.of(model, rows, [["3", "77"], ["4"], ["77", "78"]])
    assert_same(Examples.read(model, path), wanted)


def test_dense_vectors(tmp_path: Path) -> None:
    model, vectors = owlmine.load(dense_model()), np.load(dense_data() / "test.npy")[:6]
    folder = tmp_path / "vectors"
    folder.mkdir()
    np.save(folder / "train.npy", vectors)
    np.save(folder / "train.labels.npy", np.array([90, 1, 90, 91, 2, 91]))
    wanted = Examples.of(model, vectors, [["90"], ["1"], ["90"], ["91"], ["2"], ["91"]])
    assert_same(Examples.read(model, folder), wanted)


def test_a_store_of_the_same_features(tmp_path: Path) -> None:
    """The same points under other keys: the features are the model's, every class is new, and has its name."""
    folder = tmp_path / "other"
    folder.mkdir()
    lines = (text_data() / "train.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    write_jsonl(folder / "train.jsonl", [row | {"labels": [f"x{key}" for key in row["labels"]]} for row in rows])
    write_jsonl(folder / "test.jsonl", [{"text": "the river", "labels": ["xc-river"]}])
    (folder / "labels.tsv").write_text("xc-river\tAnother river\n")
    store, model = convert(folder, tmp_path / "other.store"), owlmine.load(text_model())
    examples = Examples.read(model, store.path)
    assert (len(examples.keys), len(examples.queries), examples.known_labels) == (12, 240, 0)
    assert examples.names["xc-river"] == "Another river"
    assert Examples.read(model, store.path, split="test").keys == ("xc-river",)
    with pytest.raises(DataError, match="all of classes that the model already has"):
        Examples.read(model, text_store())
    with pytest.raises(OwlmineError, match="is a finished store"):
        Examples.read(model, store.path, options=ExampleOptions(text_column="text"))
    with pytest.raises(OwlmineError, match="found queries dense"):
        Examples.read(model, dense_store())


def test_bad_files(tmp_path: Path) -> None:
    text, counts, dense = (owlmine.load(model()) for model in (text_model, sparse_model, dense_model))
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps(ROWS[0]) + "\n{broken\n")
    unlabelled = write_jsonl(tmp_path / "unlabelled.jsonl", [{"text": "the river"}])
    known = write_jsonl(tmp_path / "known.jsonl", [ROWS[1]])
    wide, real = tmp_path / "wide.txt", tmp_path / "real.txt"
    wide.write_text("1 60 100\n99 3:1\n")
    real.write_text("1 50 100\n99 3:1.5\n")
    svm, zero = tmp_path / "a.svm", tmp_path / "zero.svm"
    svm.write_text("99 51:1\n")
    zero.write_text("99 0:1\n")
    cases: list[tuple[Predictor, Path, dict[str, Any], str]] = [
        (text, tmp_path / "none.jsonl", {}, "none.jsonl: found no such file or folder"),
        (text, bad, {}, "bad.jsonl, line 2: found '{broken'"),
        (text, unlabelled, {}, "unlabelled.jsonl, line 1: found columns 'text'; wanted a column for labels"),
        (
            text,
            known,
            {},
            "known.jsonl: found 1 labels, all of classes that the model already has; wanted labels of new classes",
        ),
        (text, sparse_data(), {}, "found sparse vectors; wanted text"),
        (text, text_data(), {"split": "dev"}, "no split 'dev'; it has train, test"),
        (text, known, {"split": "train"}, "is a single file, which is read whole"),
        (counts, wide, {}, "found 60 features; wanted 50, as the model was trained with"),
        (counts, real, {}, "real.txt: values that are not whole counts"),
        (counts, svm, {"options": ExampleOptions(first_feature="0")}, "a.svm: queries: found id 51 in row 0"),
        (counts, zero, {"options": ExampleOptions(first_feature="1")}, "zero.svm: found feature 0"),
        (dense, text_data(), {}, "found text; wanted dense vectors"),
    ]
    for model, path, options, message in cases:
        with pytest.raises(OwlmineError) as caught:
            Examples.read(model, path, **options)
        assert message in str(caught.value)


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


def test_labels_in_every_form() -> None:
    """As ``fit`` takes them: one per query, lists, or columns of an indicator matrix that go on behind the classes."""
    model, vectors = owlmine.load(dense_model()), np.load(dense_data() / "test.npy")[:3]
    lists = Examples.of(model, vectors, [["7"], ["7"], ["8"]])
    for labels in (["7", "7", "8"], [7, 7, 8], np.array([7, 7, 8])):
        assert_same(Examples.of(model, vectors, labels), lists)
    columns = np.zeros((3, 9), int)
    columns[[0, 1, 2], [7, 7, 8]] = 1
    for indicator in (columns, sparse.csr_matrix(columns)):
        assert_same(Examples.of(model, vectors, indicator), lists)
    counts = owlmine.load(sparse_model())
    rows = SparseRows(np.array([0, 2]), np.array([3, 20]), np.array([2, 1], np.float32))
    assert_same(
        Examples.of(counts, rows, [["new"]]), Examples.of(counts, rows.to_scipy(50).toarray(), [["new", "new"]])
    )
