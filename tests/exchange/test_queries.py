"""Queries out of every kind of file, and from standard input."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import owlmine
from owlmine.data import Store
from owlmine.errors import OwlmineError
from owlmine.exchange.answers import answer
from owlmine.exchange.queries import QueryOptions, open_queries, standard_input
from owlmine.rank.predictor import Predictor

from ..small_models import (
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


def read(predictor: Predictor, path: Path, **options: Any) -> tuple[list[Any], list[Any]]:
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
    assert read(owlmine.load(text_model()), path) == (TEXTS, ids)


def test_columns(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "q.jsonl", [{"a": "one", "b": "two", "key": 7}, {"a": "x", "b": None, "key": [1]}])
    predictor = owlmine.load(text_model())
    assert read(predictor, path, text_column="a,b", id_column="key") == (["one two", "x "], [7, "[1]"])
    with pytest.raises(OwlmineError, match=r"columns 'a', 'b', 'key'; wanted a column for text \(--text-column\)"):
        read(predictor, path)
    with pytest.raises(OwlmineError, match="line 1: found columns 'a', 'b', 'key'; wanted a column 'name'"):
        read(predictor, path, text_column="a", id_column="name")


def test_tables_come_in_blocks_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("owlmine.exchange.queries._BLOCK_ROWS", 2)
    path = write_jsonl(tmp_path / "q.jsonl", ROWS)
    assert [len(b.queries) for b in open_queries(owlmine.load(text_model()), path)] == [2, 2, 1]


def ranked(predictor: Predictor, blocks: Any, k: int = 4) -> list[list[str]]:
    return [[c.key for c in a.classes] for block in answer(predictor, blocks, k) for a in block.answers]


def from_store(predictor: Predictor, store: Path, k: int = 4) -> list[list[str]]:
    answers = predictor.answer(next(Store.open(store)["test"].blocks()).queries, k)
    return [[predictor.classes.keys[c] for c in row] for row in answers.ids_Nk.tolist()]


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
        (text_model(), tmp_path, "found a folder that is not a store"),
    ]
    for model, path, message in cases:
        with pytest.raises(OwlmineError, match=message):
            open_queries(owlmine.load(model), path)
    with pytest.raises(OwlmineError, match="is not a store; leave out --split test"):
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
    with pytest.raises(OwlmineError, match="found feature 0; wanted features numbered from 1"):
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


FILTERED: list[dict[str, Any]] = [
    {"text": "the river", "allowed": ["c-castle", "c-pepper"]},
    {"text": "the river", "forbidden": ["c-river"]},
    {"text": "the river"},
    {"text": "the river", "allowed": ["c-river", "Castle"], "forbidden": ["c-river"]},
    {"text": "the river", "allowed": None, "forbidden": None},
]


@pytest.mark.parametrize("name", ["jsonl", "csv", "tsv", "parquet"])
@pytest.mark.parametrize("block", [1024, 2])
def test_each_query_has_its_own_classes(name: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("owlmine.exchange.queries._BLOCK_ROWS", block)
    path, predictor = tmp_path / f"queries.{name}", owlmine.load(text_model())
    if name == "jsonl":
        write_jsonl(path, FILTERED)
    elif name == "parquet":
        import pandas as pd

        pd.DataFrame(FILTERED).to_parquet(path)
    else:
        comma, columns = "," if name == "csv" else "\t", ("text", "allowed", "forbidden")
        lines = [[row["text"], *(";".join(row.get(column) or []) for column in columns[1:])] for row in FILTERED]
        path.write_text("".join(comma.join(cells) + "\n" for cells in [columns, *lines]))
    answers = ranked(predictor, open_queries(predictor, path), k=12)
    assert set(answers[0]) == {"c-castle", "c-pepper"}
    assert answers[2][0] == "c-river"
    assert answers[2] == answers[4]
    assert answers[1] == answers[2][1:]
    assert set(answers[2]) == set(predictor.classes.keys)
    assert answers[3] == ["c-castle"]


def test_an_empty_list_of_allowed_classes_allows_none(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "q.jsonl", [{"text": "the river", "allowed": []}, {"text": "a river", "forbidden": []}]
    )
    predictor = owlmine.load(text_model())
    assert list(map(len, ranked(predictor, open_queries(predictor, path), k=2))) == [0, 2]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            {"allowed": ["c-river", "c-rivers"]},
            "'allowed' with an unknown class (the model has no class 'c-rivers'; did",
        ),
        ({"forbidden": "c-river; c-x"}, "'forbidden' with an unknown class (the model has no class 'c-x'"),
        ({"forbidden": 1.5}, "'1.5' in column 'forbidden'; wanted a list of labels"),
        ({"allowed": [True]}, "the label 'True'; wanted a name or a whole number"),
    ],
)
def test_an_unknown_class_is_named_with_its_line(cell: dict[str, object], message: str, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "q.jsonl", [{"text": "the river"}, {"text": "the river"} | cell])
    with pytest.raises(OwlmineError) as refused:
        list(open_queries(owlmine.load(text_model()), path))
    assert "q.jsonl, line 2: found" in str(refused.value)
    assert message in str(refused.value)
