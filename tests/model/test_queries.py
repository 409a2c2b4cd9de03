"""Queries out of every kind of file, and their answers."""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import owlmine
from owlmine.data import Store
from owlmine.data.rows import SparseRows
from owlmine.errors import OwlmineError
from owlmine.model.answers import Answer, answer, csv_lines, json_lines, new_file
from owlmine.model.predictor import Prediction, Predictor
from owlmine.model.query_files import QueryBlock, QueryOptions, open_queries, standard_input
from owlmine.train import train

from ..small_models import (
    OPTIONS,
    dense_data,
    dense_model,
    dense_store,
    sparse_data,
    sparse_model,
    sparse_store,
    text_model,
    text_point,
    text_store,
    write_jsonl,
)

ROWS = [text_point(number) for number in range(5)]
TEXTS = [str(row["text"]) for row in ROWS]


def told(predictor: Predictor, path: Path, **options: Any) -> tuple[list[Any], list[Any]]:
    """All queries and all ids of a file."""
    blocks = list(open_queries(predictor, path, options=QueryOptions(**options)))
    assert all(isinstance(block.queries, list) for block in blocks)
    queries = [query for block in blocks for query in block.queries]
    return queries, [name for block in blocks for name in block.ids or [None] * len(block.queries)]


@pytest.mark.parametrize("name", ["jsonl", "json.gz", "csv", "tsv", "parquet", "txt", "md"])
def test_texts(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"queries.{name}"
    ids: list[Any] = [row["id"] for row in ROWS]
    if name == "jsonl":
        write_jsonl(path, ROWS)
    elif name == "json.gz":
        path.write_bytes(gzip.compress("".join(json.dumps({"query": text}) + "\n" for text in TEXTS).encode()))
        ids = [None] * 5
    elif name == "parquet":
        import pandas as pd

        pd.DataFrame({"id": range(5), "text": TEXTS}).to_parquet(path)
        ids = list(range(5))
    elif name in ("csv", "tsv"):
        comma = "," if name == "csv" else "\t"
        path.write_text(f"id{comma}text\n" + "".join(f"{row['id']}{comma}{row['text']}\n" for row in ROWS))
    else:
        path.write_text("\n".join(TEXTS) + "\n")
        ids = [None] * 5
    assert told(owlmine.load(text_model()), path) == (TEXTS, ids)


def test_columns(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "q.jsonl", [{"a": "one", "b": "two", "key": 7}, {"a": "x", "b": None, "key": [1]}])
    predictor = owlmine.load(text_model())
    assert told(predictor, path, text_column="a,b", id_column="key") == (["one two", "x "], [7, "[1]"])
    with pytest.raises(OwlmineError, match=r"columns 'a', 'b', 'key'; wanted a column for text \(--text-column\)"):
        told(predictor, path)
    with pytest.raises(OwlmineError, match="line 1: found columns 'a', 'b', 'key'; wanted a column 'name'"):
        told(predictor, path, text_column="a", id_column="name")


def test_tables_come_in_blocks_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("owlmine.model.query_tables._BLOCK_ROWS", 2)
    path = write_jsonl(tmp_path / "q.jsonl", ROWS)
    assert [len(b.queries) for b in open_queries(owlmine.load(text_model()), path)] == [2, 2, 1]


def ranked(predictor: Predictor, blocks: Any, k: int = 4) -> list[list[str]]:
    return [[c.key for c in a.classes] for block in answer(predictor, blocks, k) for a in block.answers]


def from_store(predictor: Predictor, store: Path, k: int = 4) -> list[list[str]]:
    _, ids = predictor.top(next(Store.open(store)["test"].blocks()).queries, k)
    return [[predictor.classes.keys[c] for c in row] for row in ids.tolist()]


@pytest.mark.parametrize("name", ["xmc", "matrix", "npz", "svmlight", "store", "gz"])
def test_sparse_vectors_rank_as_the_store_does(name: str, tmp_path: Path) -> None:
    predictor = owlmine.load(sparse_model())
    lines = (sparse_data() / "test.txt").read_text().splitlines()
    path = tmp_path / "test.txt"
    if name == "xmc":
        path.write_text("\n".join([lines[0], "", *lines[1:], "", ""]) + "\n")  # stray blank lines are no queries
    elif name == "gz":
        path = tmp_path / "test.txt.gz"
        path.write_bytes(gzip.compress((sparse_data() / "test.txt").read_bytes()))
    elif name == "matrix":
        path.write_text("60 50\n" + "".join(line.partition(" ")[2] + "\n" for line in lines[1:]))
    elif name == "svmlight":
        path = tmp_path / "test.svm"
        path.write_text("\n".join(["", *lines[1:]]) + "\n")
    elif name == "npz":
        path = tmp_path / "test.npz"
        dense = np.zeros((60, 50), np.float32)
        for row, line in enumerate(lines[1:]):
            for entry in line.split()[1:]:
                feature, value = entry.split(":")
                dense[row, int(feature)] = float(value)
        sparse.save_npz(path, sparse.csr_matrix(dense))
    else:
        path = sparse_store()
    assert ranked(predictor, open_queries(predictor, path)) == from_store(predictor, sparse_store())


def test_dense_vectors_and_stores_of_other_kinds() -> None:
    dense = owlmine.load(dense_model())
    assert ranked(dense, open_queries(dense, dense_data() / "test.npy")) == from_store(dense, dense_store())
    text = owlmine.load(text_model())
    assert ranked(text, open_queries(text, text_store())) == from_store(text, text_store())
    with pytest.raises(OwlmineError, match="found queries dense; the model was trained with sparse"):
        open_queries(text, dense_store())
    with pytest.raises(OwlmineError, match="no split 'dev'"):
        list(open_queries(text, text_store(), split="dev"))


def test_a_model_given_queries_of_another_kind(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(TEXTS))
    cases = [
        (text_model(), sparse_data() / "test.txt", "found sparse vectors; wanted text, which the model takes"),
        (text_model(), dense_data() / "test.npy", "found dense vectors; wanted text"),
        (sparse_model(), lines, "found text; wanted sparse vectors"),
        (sparse_model(), dense_data() / "test.npy", "found dense vectors; wanted sparse vectors"),
        (dense_model(), lines, "found text; wanted dense vectors"),
        (text_model(), tmp_path / "none.txt", "found no such file"),
        (text_model(), tmp_path, "found a folder that is no store"),
    ]
    for model, path, message in cases:
        with pytest.raises(OwlmineError, match=message):
            open_queries(owlmine.load(model), path)
    with pytest.raises(OwlmineError, match="is no store; --split test"):
        open_queries(owlmine.load(text_model()), lines, split="test")
    with pytest.raises(OwlmineError, match="found text; wanted sparse vectors"):
        next(standard_input(owlmine.load(sparse_model()), io.BytesIO(b"x\n")))


def test_vectors_of_another_width(tmp_path: Path) -> None:
    np.save(tmp_path / "narrow.npy", np.ones((2, 3), np.float32))
    dense = owlmine.load(dense_model())
    with pytest.raises(OwlmineError, match=r"narrow.npy: found 3 features; wanted 9"):
        ranked(dense, open_queries(dense, tmp_path / "narrow.npy"))
    wide = tmp_path / "wide.txt"
    wide.write_text("1 60 20\n0 3:1\n")
    with pytest.raises(OwlmineError, match="found 60 features; wanted 50"):
        open_queries(owlmine.load(sparse_model()), wide)
    svm = tmp_path / "zero.svm"
    svm.write_text("0 0:1 3:1\n")
    with pytest.raises(OwlmineError, match="found feature 0; wanted features from 1"):
        list(open_queries(owlmine.load(sparse_model()), svm, options=QueryOptions(first_feature="1")))


def test_standard_input_answers_what_has_arrived() -> None:
    class Pipe(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            return self.read(7)

    predictor = owlmine.load(text_model())
    data = "the river\r\n\nä castle\nno newline".encode()
    blocks = list(standard_input(predictor, Pipe(data)))
    assert [text for block in blocks for text in block.queries] == ["the river", "", "ä castle", "no newline"]
    assert len(blocks) > 2
    with pytest.raises(OwlmineError, match="standard input, line 2: found byte 0xff at column 2; wanted UTF-8"):
        list(standard_input(predictor, io.BytesIO(b"fine\nx\xff\n")))


def test_answers_are_numbered_through_and_empty_queries_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("owlmine.model.answers._BLOCK_ROWS", 2)
    predictor = owlmine.load(text_model())
    blocks = [QueryBlock(["the river", "???", "a castle"], ["x", None, "y"]), QueryBlock(["saddle"])]
    answers = [one for block in answer(predictor, blocks, 2) for one in block.answers]
    assert [(one.number, one.id, len(one.classes)) for one in answers] == [
        (0, "x", 2),
        (1, None, 0),
        (2, "y", 2),
        (3, None, 2),
    ]
    alone = predictor.predict(["the river"], 2)[0]
    assert [c.key for c in answers[0].classes] == [c.key for c in alone]
    assert [c.score for c in answers[0].classes] == pytest.approx([c.score for c in alone])
    assert answers[0].classes[0].key == "c-river"
    assert answers[0].classes[0].name == "River"
    for k in (0, 13):
        with pytest.raises(OwlmineError, match=f"{k} classes were asked for; there are 12"):
            answer(predictor, blocks, k)


def test_blocks_shrink_where_many_classes_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are held block by block: their number is bounded, not that of queries alone."""
    monkeypatch.setattr("owlmine.model.answers._BLOCK_ANSWERS", 12)
    predictor, blocks = owlmine.load(text_model()), [QueryBlock(["the river"] * 5), QueryBlock(["a castle"])]
    sizes = {k: [len(block.answers) for block in answer(predictor, blocks, k)] for k in (2, 5, 12)}
    assert sizes == {2: [5, 1], 5: [2, 2, 1, 1], 12: [1] * 6}


def test_chosen_classes_keep_their_scores() -> None:
    predictor = owlmine.load(text_model())
    features = predictor.prepare(["the river and the castle", "pepper"])
    scores, ids = predictor.top(features, 12)
    among = np.array([9, 2, 2, 5])
    some_scores, some_ids = predictor.top(features, 3, among=among)
    for row in range(2):
        kept = [(c, s) for c, s in zip(ids[row].tolist(), scores[row].tolist(), strict=True) if c in among]
        assert some_ids[row].tolist() == [c for c, _ in kept]
        np.testing.assert_allclose(some_scores[row], [s for _, s in kept], atol=1e-6)


def test_a_linear_model_is_asked_in_blocks_that_fit_its_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(sparse_store(), tmp_path / "model", replace(OPTIONS, kind="linear", epochs=1))
    predictor = owlmine.load(tmp_path / "model")
    queries = next(Store.open(sparse_store())["test"].blocks()).queries
    scores, _ = predictor.top(queries, 5)
    monkeypatch.setattr("owlmine.model.predictor._BLOCK_NUMBERS", 50 * 7)
    sizes: list[int] = []
    encode = predictor.retriever.encode
    monkeypatch.setattr(predictor.retriever, "encode", lambda batch: sizes.append(len(batch)) or encode(batch))
    np.testing.assert_allclose(predictor.top(queries, 5)[0], scores, atol=1e-6)
    assert sizes == [7] * 8 + [4]


def test_raw_counts_are_weighted_as_in_the_store() -> None:
    predictor = owlmine.load(sparse_model())
    rows = SparseRows(np.array([0, 3]), np.array([30, 4, 7]), np.array([2, 0, 1], np.float32))
    prepared = predictor.prepare(rows)
    assert isinstance(prepared, SparseRows)
    assert prepared.indices.tolist() == [7, 30]  # no zeros, ascending
    assert prepared.values is not None
    assert np.linalg.norm(prepared.values) == pytest.approx(1)
    with pytest.raises(OwlmineError, match="not whole counts"):
        predictor.prepare(SparseRows(np.array([0, 1]), np.array([3]), np.array([0.5], np.float32)))


ANSWERS = [
    Answer(0, "a,b", "text", [Prediction("k1", 'say "hi"', 0.1), Prediction("k2", "ü", -2.0)]),
    Answer(1, None, None, []),
    Answer(2, 5, None, [Prediction("k2", "ü", float(np.float32(0.1)))]),
]


def test_json_lines() -> None:
    rows = [json.loads(line) for line in json_lines(ANSWERS).splitlines()]
    assert rows[0]["classes"] == [
        {"key": "k1", "name": 'say "hi"', "score": 0.1},
        {"key": "k2", "name": "ü", "score": -2.0},
    ]
    assert [row.get("id") for row in rows] == ["a,b", None, 5]
    assert rows[1] == {"query": 1, "classes": []}
    assert rows[2]["classes"][0]["score"] == 0.1  # no digits that float32 does not have


def test_csv_lines_have_one_header() -> None:
    text = csv_lines(ANSWERS[:1]) + csv_lines(ANSWERS[1:])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["query"], row["id"], row["rank"], row["name"]) for row in rows] == [
        ("0", "a,b", "1", 'say "hi"'),
        ("0", "a,b", "2", "ü"),
        ("2", "5", "1", "ü"),
    ]


def test_a_new_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with pytest.raises(AttributeError), new_file(path) as file:
        file.write("half") and file.no_such_thing  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []
    with new_file(path) as file:
        file.write("ü\n")
        assert not path.exists()
    assert path.read_bytes() == "ü\n".encode()
    with pytest.raises(OwlmineError, match="already exists"), new_file(path):
        pass
    with pytest.raises(OwlmineError, match="cannot be written"), new_file(tmp_path / "no" / "out"):
        pass
    assert list(tmp_path.iterdir()) == [path]
