"""Data from Python becomes what the converter stores of the same data in files, bit for bit."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from owlmine.data import ConvertOptions, Dataset, MemoryDataset, Store, conversion_notes, convert, dataset_from
from owlmine.data.formats import memory
from owlmine.errors import DataError

WORDS = [f"word{number}" for number in range(40)] + ["Ünïcode", "日本", "x", "don't"]
CLASSES = ["red", "green", "blue", "7", "007", "a;b"]
NUM_ROWS = 60


def texts_and_labels(seed: int, num_rows: int = NUM_ROWS) -> tuple[list[str], list[list[str]]]:
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(num_rows)]
    labels = [rng.sample(CLASSES, rng.randint(0, 3)) for _ in range(num_rows)]
    return texts, labels


def counts(seed: int, width: int = 25) -> Any:
    rng = np.random.default_rng(seed)
    values = rng.poisson(0.4, (NUM_ROWS, width)).astype(np.float64)
    values[:, 3] = 0  # a feature that no point has
    return sparse.csr_matrix(values)


def indicator(seed: int, width: int = 9) -> Any:
    matrix = np.random.default_rng(seed).random((NUM_ROWS, width)) < 0.2
    matrix[:, 4] = False  # a column without any point
    return sparse.csr_matrix(matrix, dtype=np.float32)


def assert_same(dataset: MemoryDataset, store: Store) -> None:
    """Every array of the store, and what its description says of the data."""
    names = {name for name, _ in dataset._named_arrays()}
    assert names == set(store.meta["arrays"])
    for name in names:
        ours, theirs = dataset.array(name), store.array(name)
        assert ours is not None
        assert theirs is not None
        assert ours.dtype == theirs.dtype, name
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    for key in ("queries", "features", "classes", "weighting", "splits", "keep_empty"):
        assert dataset.meta[key] == store.meta[key], key
    datasets: list[Dataset] = [dataset, store]
    first, second = map(conversion_notes, datasets)
    assert first == second


def write_jsonl(path: Path, texts: list[str], labels: list[list[str]]) -> None:
    lines = (json.dumps({"text": text, "labels": row}) for text, row in zip(texts, labels, strict=True))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("options", [ConvertOptions(), ConvertOptions(ngrams=2, min_df=1), ConvertOptions(hash_bits=6)])
def test_texts_become_what_the_same_jsonl_file_becomes(options: ConvertOptions, tmp_path: Path) -> None:
    train, dev = texts_and_labels(0), texts_and_labels(1)
    # Neither a text of unknown words nor a class that train does not have can be used.
    dev[0][0], dev[1][1], dev[1][2] = "nothing known", ["unseen"], ["unseen", "red"]
    (tmp_path / "files").mkdir()
    write_jsonl(tmp_path / "files" / "train.jsonl", *train)
    write_jsonl(tmp_path / "files" / "dev.jsonl", *dev)
    (tmp_path / "files" / "labels.tsv").write_text("red\tRouge\n007\tBond\nunseen\tNobody\n")
    store = convert(tmp_path / "files", tmp_path / "store", options)
    names = {"red": "Rouge", "007": "Bond", "unseen": "Nobody"}
    dataset = dataset_from(*train, class_names=names, validation=dev, options=options)
    assert_same(dataset, store)
    assert list(dataset.class_names) == list(store.class_names)
    assert "Rouge" in list(dataset.class_names)
    if options == ConvertOptions():
        assert len(dataset["dev"]) < NUM_ROWS
        assert any("lost all labels" in note for note in conversion_notes(dataset))


def test_pieces_of_reading_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = texts_and_labels(2)
    write_jsonl(tmp_path / "train.jsonl", *train)
    store = convert(tmp_path / "train.jsonl", tmp_path / "store")
    monkeypatch.setattr(memory, "BLOCK_ROWS", 7)
    assert_same(dataset_from(*train), store)


def test_numbers_as_labels_are_in_numeric_order(tmp_path: Path) -> None:
    texts, _ = texts_and_labels(3)
    labels = [int(number) for number in np.random.default_rng(0).integers(0, 13, NUM_ROWS)]
    write_jsonl(tmp_path / "train.jsonl", texts, [[str(label)] for label in labels])
    store = convert(tmp_path / "train.jsonl", tmp_path / "store")
    for given in (labels, np.array(labels), pd.Series(labels), pd.DataFrame({"label": labels})):
        assert_same(dataset_from(texts, given), store)
    assert [int(key) for key in store.class_keys] == sorted(set(labels))


@pytest.mark.parametrize("kind", ["counts", "real"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
def test_sparse_matrices_become_what_their_npz_files_become(kind: str, form: str, tmp_path: Path) -> None:
    X, Y = counts(0), indicator(0)
    if kind == "real":
        X.data *= 0.5
    for name, matrix in (("X.trn", X), ("Y.trn", Y), ("X.val", counts(1)), ("Y.val", indicator(1))):
        sparse.save_npz(tmp_path / f"{name}.npz", matrix)
    store = convert(tmp_path, tmp_path / "store")
    dataset = dataset_from(X.asformat(form), Y.asformat(form), validation=(counts(1), indicator(1)))
    assert_same(dataset, store)
    assert dataset.meta["weighting"]["kind"] == ("tfidf" if kind == "counts" else "none")
    assert "4" not in list(dataset.class_keys)
    assert_same(dataset_from(X, Y.toarray(), validation=(counts(1), indicator(1).toarray())), store)


def test_sparse_matrices_become_what_a_file_of_the_repository_becomes(tmp_path: Path) -> None:
    X, Y = counts(2), indicator(2)
    lines = [f"{NUM_ROWS} {X.shape[1]} {Y.shape[1]}"]
    for row in range(NUM_ROWS):
        cells = zip(X[row].indices, X[row].data, strict=True)
        lines.append(f"{','.join(map(str, Y[row].indices))} {' '.join(f'{i}:{v:g}' for i, v in cells)}")
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
    assert_same(dataset_from(X, Y), convert(tmp_path / "train.txt", tmp_path / "store"))


def test_dense_rows_become_what_their_npy_file_becomes(tmp_path: Path) -> None:
    X, Y = np.random.default_rng(0).normal(size=(NUM_ROWS, 8)), indicator(3)
    np.save(tmp_path / "train.npy", X)
    sparse.save_npz(tmp_path / "train.labels.npz", Y)
    store = convert(tmp_path, tmp_path / "store")
    for given in (X, X.tolist(), pd.DataFrame(X)):
        assert_same(dataset_from(given, Y), store)
    assert_same(dataset_from(X, pd.DataFrame(Y.toarray().astype(int))), store)


def test_every_form_of_texts_and_of_label_lists_means_the_same() -> None:
    texts, labels = texts_and_labels(4)
    labels = [sorted(row) for row in labels]
    wanted = dataset_from(texts, labels).meta["checksum"]
    for X in (tuple(texts), np.array(texts), np.array(texts, object), pd.Series(texts), pd.DataFrame({"text": texts})):
        assert dataset_from(X, labels).meta["checksum"] == wanted
    arrays = np.empty(NUM_ROWS, object)
    arrays[:] = [np.array(row) for row in labels]
    for Y in ([set(row) for row in labels], [frozenset(row) for row in labels], arrays, pd.Series(map(tuple, labels))):
        assert dataset_from(texts, Y).meta["checksum"] == wanted


def test_columns_of_a_data_frame_name_the_classes() -> None:
    frame = pd.DataFrame(np.eye(4), columns=["red", "green", "blue", "black"])
    data = dataset_from(TEXTS, frame)
    assert list(data.class_names) == ["red", "green", "blue", "black"]
    assert list(data.class_keys) == ["0", "1", "2", "3"]
    assert list(dataset_from(TEXTS, frame.set_axis(range(4), axis=1)).class_names) == ["0", "1", "2", "3"]
    assert list(dataset_from(TEXTS, frame, class_names=list("abcd")).class_names) == list("abcd")


def test_columns_of_an_indicator_are_named_in_order() -> None:
    names = [f"colour {number}" for number in range(9)]
    dataset = dataset_from(counts(0), indicator(0), class_names=names)
    assert list(dataset.class_names) == [f"colour {key}" for key in dataset.class_keys]


def test_later_changes_of_the_data_do_not_show() -> None:
    X, Y = counts(0), indicator(0)
    dataset = dataset_from(X, Y)
    before = dataset.meta["checksum"]
    X.data[:] = 5
    Y.indices[:] = 0
    assert before == dataset_from(counts(0), indicator(0)).meta["checksum"]
    dense = np.ones((4, 2), np.float32)
    dataset = dataset_from(dense, ["a", "b", "a", "b"])
    dense[:] = 7
    assert (np.asarray(dataset["train"].queries) == 1).all()


TEXTS = ["an owl", "an owl hoots", "a mouse", "a mouse hides"]
LABELS = ["owl", "owl", "mouse", "mouse"]
MATRIX = sparse.csr_matrix(np.eye(4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((TEXTS), LABELS[:3]), "Y: found 3 rows of labels; wanted 4, one per query"),
        (((), ()), "X: found no points; wanted at least one"),
        ((MATRIX[:0], []), "X: found no points"),
        (("an owl", ["owl"]), "X: found a single string, .*; wanted texts"),
        (([*TEXTS[:3], None], LABELS), "X: found 'None' as query 3; wanted texts"),
        (([*TEXTS[:3], float("nan")], LABELS), "X: found 'nan' as query 3"),
        (([*TEXTS[:3], 7], LABELS), "X: found '7' as query 3"),
        (([b"an owl"] * 4, LABELS), "X: found .* as query 0"),
        ((pd.Series([1.0, 2.0, 3.0, 4.0]), LABELS), "X: found '1.0' as query 0"),
        ((pd.DataFrame({"a": TEXTS, "b": [1] * 4}), LABELS), r"a data frame of 2 columns, 'a' \(\w+\); wanted texts"),
        ((np.array([[0.0, np.nan]] * 4), LABELS), "X: found nan in row 0, column 1"),
        ((pd.DataFrame({"a": [0.0, None, 1.0, 2.0], "b": 1.0}), LABELS), "X: found nan in row 1, column 0"),
        ((MATRIX * np.inf, LABELS), "X: found the value .* in row 0"),
        ((np.ones(4), LABELS), "X: found '1.0' as query 0|np.float64"),
        ((np.ones((4, 2, 2)), LABELS), r"X: found an array of dtype float64, shape \(4, 2, 2\)"),
        ((np.array(TEXTS)[:, None], LABELS), r"X: found an array of dtype <U13, shape \(4, 1\)"),
        ((7, LABELS), "X: found a int"),
        ((TEXTS, "owls"), "Y: found labels of type str; wanted labels, lists of labels, or an indicator matrix"),
        ((TEXTS, {"owl": 1}), "Y: found labels of type dict"),
        ((TEXTS, [*LABELS[:3], None]), "Y: found the label 'None' in row 3; wanted a name or a whole number"),
        ((TEXTS, [*LABELS[:3], float("nan")]), "Y: found the label 'nan' in row 3"),
        ((TEXTS, [["owl"], ["owl", 1.5], [], []]), "Y: found the label '1.5' in row 1"),
        ((TEXTS, [["owl"], [["owl"]], [], []]), "Y: found the label .* in row 1"),
        ((TEXTS, np.array(LABELS)[:, None]), "Y: found labels of dtype <U5"),
        ((TEXTS, pd.DataFrame({"a": LABELS, "b": LABELS})), "Y: found a data frame of 2 columns"),
        ((TEXTS, np.full((4, 2), np.nan)), "Y: found the value nan in row 0"),
        ((TEXTS, -np.eye(4)), "Y: found the label weight -1.0; wanted positive weights"),
        ((TEXTS, [[], [], [], []]), "Y: found no labels; wanted at least one labelled point"),
        ((TEXTS, np.zeros((4, 3))), "Y: found no labels; wanted at least one labelled point"),
        ((["one", "two", "three", "four"], LABELS), "X: found no token in at least 2 and at most 50% of 4 documents"),
    ],
)  # fmt: skip
def test_bad_input_is_named(arguments: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        dataset_from(*arguments)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"validation": (TEXTS, LABELS[:2])}, "Y of validation: found 2 rows of labels; wanted 4"),
        ({"validation": ([], [])}, "X of validation: found no points"),
        ({"validation": 0.1}, r"validation: found '0.1'; wanted a pair \(X, Y\)"),
        ({"validation": (MATRIX, LABELS)}, "X of validation: found sparse queries; wanted text queries, as in X"),
        ({"validation": (TEXTS, MATRIX)}, "X of validation: found 4 classes; wanted no stated classes, as in X"),
        ({"class_names": ["Owl", "Mouse"]}, "class_names: found 2 names in order; wanted a mapping"),
        ({"class_names": {"owl": 3}}, "class_names: found '3' for the class \"'owl'\"; wanted text"),
        ({"class_names": {1.5: "Owl"}}, "class_names: found the label '1.5'"),
    ],
)  # fmt: skip
def test_bad_names_and_validation_are_named(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        dataset_from(TEXTS, LABELS, **keywords)
    with pytest.raises(DataError, match=r"found 3 names in order; wanted a mapping .* or 4 names, one for each column"):
        dataset_from(TEXTS, MATRIX, class_names=["a", "b", "c"])
