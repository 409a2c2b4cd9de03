"""jsonl, csv, tsv, parquet and pandas: what a cell may hold and which columns are taken."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from owlmine.errors import DataError

from .conftest import Convert
from .points import stored_rows


def labels_of(store: Any, split: str = "train") -> list[dict[str, float]]:
    return [labels for labels, _ in stored_rows(store)[split]]


def parquet_of(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("null", {}),
        ("[]", {}),
        ('""', {}),
        ('" ; "', {}),
        ("7", {"7": 1.0}),
        ('"7"', {"7": 1.0}),
        ('[1, "1", 2]', {"1": 1.0, "2": 1.0}),
        ('"a; b c ;a"', {"a": 1.0, "b c": 1.0}),
        ('"a,b"', {"a,b": 1.0}),
        ('"[\\"a\\", 3]"', {"a": 1.0, "3": 1.0}),
        ('["a;b", " c ", "d\\ne"]', {"a;b": 1.0, " c ": 1.0, "d\ne": 1.0}),
        ('{"a": 0.5, "b": 2}', {"a": 0.5, "b": 2.0}),
        ("{}", {}),
        ("123456789012345678901234567890", {"123456789012345678901234567890": 1.0}),
        ('["\\ud83e\\udd89"]', {"🦉": 1.0}),
    ],
)
def test_labels_of_a_json_cell(cell: str, labels: dict[str, float], converted: Convert) -> None:
    store = converted({"train.jsonl": f'{{"text": "owl", "labels": {cell}}}\n{{"text": "owl", "labels": ["last"]}}'})
    assert labels_of(store) == [labels, {"last": 1.0}]


def test_one_class_by_number_and_by_name(converted: Convert) -> None:
    store = converted(
        {"train.jsonl": '{"text": "owl", "labels": [1]}\n', "test.csv": 'text,labels\nowl,1\n"owl",[1]\n'}
    )
    assert labels_of(store, "test") == [{"1": 1.0}, {"1": 1.0}]


def test_weights_of_raw_text(converted: Convert) -> None:
    store = converted(
        {"trn.json": '{"title": "barn", "content": "owl", "target_ind": [4, 9, 4], "target_rel": [2.0, 1, 3]}\n'}
    )
    assert stored_rows(store)["train"] == [({"4": 2.0, "9": 1.0}, {"barn": 1.0, "owl": 1.0})]


def test_csv_with_quotes_commas_and_line_breaks(converted: Convert) -> None:
    text = (
        '\ufeff\r\nid,"text",labels\r\n1,"an ""owl"", barn\r\nand snow",a;b\r\n\r\n2,plain,\r\n3,"x, y\ty zz",  c  \r\n'
    )
    store = converted({"train.csv": text})
    assert stored_rows(store)["train"] == [
        ({"a": 1.0, "b": 1.0}, {"an": 1.0, "and": 1.0, "barn": 1.0, "owl": 1.0, "snow": 1.0}),
        ({}, {"plain": 1.0}),
        ({"c": 1.0}, {"zz": 1.0}),
    ]
    assert store.meta["splits"]["train"]["accepted"] == {"crlf_lines": 7, "blank_lines": 2}


def test_tsv_with_commas_and_a_separator_of_ones_own(converted: Convert) -> None:
    store = converted({"train.tsv": "title\ttags\nbarn, owl\ta|b\n"}, label_separator="|")
    assert stored_rows(store)["train"] == [({"a": 1.0, "b": 1.0}, {"barn": 1.0, "owl": 1.0})]


@pytest.mark.parametrize(
    ("cells", "options", "accepted"),
    [
        (["a,b", "c,d", "e"], {}, {"classes_with_comma": 2}),
        (["a,b", "a", "b", "c", "d"], {}, {"classes_with_comma": 1}),
        (["a|b", "c|d", "e"], {}, {"classes_with_vertical bar": 2}),
        (["a;b", "c;d", "e"], {"label_separator": ","}, {"classes_with_semicolon": 2}),
        (["Paris, France", "owl", "barn", "snow"], {}, {}),
        (["a,b", "c,d", "e"], {"label_separator": ","}, {}),
        ([["a,b"], ["c,d"], ["e"]], {}, {}),
        (['["a,b"]', '["c,d"]', '["e"]'], {}, {}),
    ],
)
def test_labels_that_another_separator_should_have_split_are_told(
    cells: list[object], options: dict[str, str], accepted: dict[str, int], converted: Convert
) -> None:
    """Where most classes hold it, or what it separates are classes by themselves; in a list a comma is a name's own."""
    lines = "".join(json.dumps({"text": "owl", "labels": cell}) + "\n" for cell in cells)
    store = converted({"train.jsonl": lines}, **options)
    assert store.meta["splits"]["train"]["accepted"] == accepted


def test_columns_are_chosen(converted: Convert) -> None:
    text = "head,body,text,cls,labels\nbarn,owl,snow,a,b\n"
    assert stored_rows(converted({"train.csv": text}))["train"] == [({"b": 1.0}, {"snow": 1.0})]
    store = converted({"train.csv": text}, text_column="head,body", label_column="cls")
    assert stored_rows(store)["train"] == [({"a": 1.0}, {"barn": 1.0, "owl": 1.0})]
    with pytest.raises(DataError, match="wanted a column for labels called 'nowhere'"):
        converted({"train.csv": text}, label_column="nowhere")


def test_parquet_as_pandas_writes_it(converted: Convert) -> None:
    frame = pd.DataFrame(
        {
            "text": ["owl", None, "barn owl"],
            "labels": [[3, 1], [], None],
            "vector": [[0.5], [0.5], [0.5]],
            "when": pd.to_datetime(["2020-01-01"] * 3),
        }
    )
    store = converted({"train.parquet": parquet_of(frame)})
    assert stored_rows(store)["train"] == [({"1": 1.0, "3": 1.0}, {"owl": 1.0}), ({}, {"barn": 1.0, "owl": 1.0})]


def test_columns_of_no_use_are_not_read(converted: Convert) -> None:
    """A time that Python cannot hold, in a column that nobody asked for."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    buffer = io.BytesIO()
    far = pa.array([2**62], pa.timestamp("ms"))
    pq.write_table(pa.table({"text": ["owl"], "labels": ["x"], "far": far}), buffer)
    assert labels_of(converted({"train.parquet": buffer.getvalue()})) == [{"x": 1.0}]
    with pytest.raises(DataError, match="parquet"):
        converted({"train.parquet": buffer.getvalue()}, label_column="far")


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, np.nan])
def test_missing_values_of_pandas(missing: Any, converted: Convert) -> None:
    frame = pd.DataFrame({"text": ["owl", missing, "barn"], "labels": [["x"], ["y"], missing]})
    store = converted({"train": frame})
    assert stored_rows(store)["train"] == [({"x": 1.0}, {"owl": 1.0}), ({}, {"barn": 1.0})]


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series([3, 1], dtype="int64"),
        pd.Series([3, 1], dtype="Int64"),
        pd.Series(["3", "1"], dtype="category"),
        pd.Series([np.int32(3), np.int64(1)], dtype=object),
        pd.Series([np.array([3]), (1,)]),
        pd.Series(["3", "1"], dtype="string"),
    ],
    ids=["int64", "Int64", "category", "object", "arrays", "string"],
)
def test_label_columns_of_pandas(labels: Any, converted: Convert) -> None:
    frame = pd.DataFrame({"text": ["owl", "barn"], "labels": labels}).set_axis([7, 7])
    assert labels_of(converted({"train": frame})) == [{"3": 1.0}, {"1": 1.0}]


@pytest.mark.parametrize("labels", [[1.0, 2.0], [True, False], [{1}, {2}]], ids=["reals", "flags", "sets"])
def test_label_columns_that_are_refused(labels: list[Any], converted: Convert) -> None:
    with pytest.raises(DataError, match=r"train: found .* in row 0; wanted"):
        converted({"train": pd.DataFrame({"text": ["owl", "barn"], "labels": labels})})


def test_a_column_twice(converted: Convert) -> None:
    frame = pd.DataFrame([["owl", "a", "b"]], columns=["text", "labels", "labels"])
    with pytest.raises(DataError, match="the column 'labels' twice"):
        converted({"train": frame})


def test_blocks_end_with_many_rows_and_with_long_texts(converted: Convert) -> None:
    rows = [{"text": f"owl w{number}", "labels": [number]} for number in range(5000)]
    rows += [{"text": "barn " * 500_000, "labels": [number]} for number in range(3)]
    store = converted({"train.jsonl": "\n".join(map(json.dumps, rows))})
    assert len(store["train"]) == 5003
    assert store["train"].labels.indices[:5000].tolist() == list(range(5000))
