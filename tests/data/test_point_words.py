"""What a store keeps of its training points besides features and labels: ids, texts where asked, rows of the files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from owlmine.data import ConvertOptions, Store, convert, open_dataset
from owlmine.data.arrays import StringTable
from owlmine.data.memory import MemoryDataset
from owlmine.data.python_data import dataset_from
from owlmine.data.store import PointWords, meta_checksum
from owlmine.errors import DataError

from ..small_models import write_jsonl

KEEP = ConvertOptions(min_df=1, max_df=1.0, keep_texts=True)
# Rows 1 and 4 have no word; row 3 has no label, and stays.
TEXTS = ["owl snow", "?", "barn\towl 🦉", "snow", "", "tawny owl", "snow barn"]
LABELS = [["a"], ["a"], ["b"], [], ["b"], ["a", "b"], ["b"]]
IDS = ["p0", "p1", "é", None, 5, 7.5, ""]
STAY, LEFT_OUT = [0, 2, 3, 5, 6], [1, 4]
SHOWN_IDS = ["p0", "é", "", "7.5", ""]


def rows() -> list[dict[str, Any]]:
    return [{"id": i, "text": t, "labels": y} for i, t, y in zip(IDS, TEXTS, LABELS, strict=True)]


def words_of(table: StringTable | None) -> list[str] | None:
    return None if table is None else list(table)


def write_csv(file: Path) -> Path:
    lines = [f'"{"" if i is None else i}","{t}","{";".join(y)}"' for i, t, y in zip(IDS, TEXTS, LABELS, strict=True)]
    file.write_text("\n".join(["id,text,labels", *lines]) + "\n")
    return file


def write_parquet(file: Path) -> Path:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    ids = [None if i is None else str(i) for i in IDS]
    parquet.write_table(arrow.table({"id": ids, "text": TEXTS, "labels": LABELS}), file)
    return file


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "data frame"])
@pytest.mark.parametrize("options", [KEEP, replace(KEEP, keep_texts=False)], ids=["with texts", "without"])
def test_ids_and_texts_of_tables(tmp_path: Path, kind: str, options: ConvertOptions) -> None:
    source: Any = tmp_path / f"train.{kind}"
    if kind == "jsonl":
        write_jsonl(source, rows())
    elif kind == "data frame":
        source = {"train": pytest.importorskip("pandas").DataFrame(rows())}
    else:
        {"csv": write_csv, "parquet": write_parquet}[kind](source)
    store = convert(source, tmp_path / "store", options)
    words = Store.open(store.path, verify=True)["train"].words
    assert words_of(words.ids) == SHOWN_IDS
    assert words_of(words.texts) == ([TEXTS[row] for row in STAY] if options.keep_texts else None)
    assert words.left_out.tolist() == LEFT_OUT
    assert words.rows(np.arange(5)).tolist() == STAY
    store.check_content()


def test_only_train_is_kept_and_only_what_is_there(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [{"text": "owl", "labels": ["a"]}, {"text": "barn", "labels": ["b"]}])
    write_jsonl(tmp_path / "test.jsonl", rows())
    store = convert(tmp_path, tmp_path / "store", KEEP)
    assert words_of(store["train"].words.ids) is None
    assert words_of(store["train"].words.texts) == ["owl", "barn"]
    assert not len(store["train"].words.left_out)
    assert not store["test"].words
    assert not convert(tmp_path, tmp_path / "plain", replace(KEEP, keep_texts=False))["train"].words


def test_ids_from_another_column(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [row | {"doc": f"d{n}"} for n, row in enumerate(rows())])
    store = convert(tmp_path / "train.jsonl", tmp_path / "store", replace(KEEP, id_column="doc"))
    assert words_of(store["train"].words.ids) == [f"d{row}" for row in STAY]
    none = convert(tmp_path / "train.jsonl", tmp_path / "none", replace(KEEP, id_column="other"))
    assert none["train"].words.ids is None


def test_rows_without_the_column_have_no_id(tmp_path: Path) -> None:
    """The first row says whether there is one."""
    points = [{"id": "x", "text": "owl", "labels": ["a"]}, {"text": "barn", "labels": ["b"]}]
    write_jsonl(tmp_path / "train.jsonl", points)
    store = convert(tmp_path / "train.jsonl", tmp_path / "store", KEEP)
    assert words_of(store["train"].words.ids) == ["x", ""]
    write_jsonl(tmp_path / "train.jsonl", points[::-1])
    assert convert(tmp_path / "train.jsonl", tmp_path / "other", KEEP)["train"].words.ids is None


def test_many_blocks(tmp_path: Path) -> None:
    points = [
        {"id": f"id{n}", "text": "?" if n % 7 == 3 else f"owl w{n % 50} {'x' * (n % 40)}", "labels": [f"c{n % 3}"]}
        for n in range(20_000)
    ]
    write_jsonl(tmp_path / "train.jsonl", points)
    words = convert(tmp_path / "train.jsonl", tmp_path / "store", KEEP)["train"].words
    stay = [n for n in range(20_000) if n % 7 != 3]
    assert words_of(words.ids) == [f"id{n}" for n in stay]
    assert words_of(words.texts) == [points[n]["text"] for n in stay]
    assert words.rows(np.arange(len(stay))).tolist() == stay


def test_data_in_memory() -> None:
    data = dataset_from(TEXTS, LABELS, options=KEEP)
    words = data["train"].words
    assert (words_of(words.ids), words_of(words.texts)) == (None, [TEXTS[row] for row in STAY])
    assert words.rows(np.arange(5)).tolist() == STAY
    plain = dataset_from(TEXTS, LABELS, options=replace(KEEP, keep_texts=False))
    assert plain["train"].words.texts is None
    assert plain.meta["checksum"] != data.meta["checksum"]


def test_half_of_a_character_becomes_a_question_mark() -> None:
    data = dataset_from(["owl \ud800", "barn"], ["a", "b"], options=KEEP)
    assert words_of(data["train"].words.texts) == ["owl ?", "barn"]


def test_a_table_of_another_length(tmp_path: Path) -> None:
    data = dataset_from(TEXTS, LABELS, options=KEEP)
    split = data["train"]
    split.words = PointWords(texts=StringTable.of(["one"]))
    with pytest.raises(DataError, match="texts of train: found 1 entries; wanted 5"):
        MemoryDataset(
            {"train": split},
            num_features=data.num_features,
            class_keys=data.class_keys,
            queries="sparse",
            weighting={"kind": "none", "why": "a test"},
        )


def test_vectors_have_no_texts(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("2 5 6\n0,2 0:1.5\n4 3:1\n")
    with pytest.raises(DataError, match=r"train\.txt: found sparse queries; wanted texts for --keep-texts"):
        convert(tmp_path / "train.txt", tmp_path / "store", ConvertOptions(keep_texts=True))
    assert not (tmp_path / "store").exists()


def test_an_id_that_is_no_text(tmp_path: Path) -> None:
    frame = pytest.importorskip("pandas").DataFrame(
        {"id": ["\ud800"], "text": ["owl"], "labels": [["a"]]}, dtype=object
    )
    with pytest.raises(DataError, match=r"train: found .* in column 'id' in row 0; wanted text"):
        convert({"train": frame}, tmp_path / "store", KEEP)


def test_a_cached_store_has_texts_only_where_asked_for(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", rows())
    plain, kept = (open_dataset(tmp_path / "train.jsonl", keep_texts=keep) for keep in (False, True))
    assert plain["train"].words.texts is None
    assert kept["train"].words.texts is not None
    again = open_dataset(tmp_path / "train.jsonl", ConvertOptions(keep_texts=True))
    assert again.path == kept.path != plain.path


def damage(store: Store, name: str, array: np.ndarray[Any, Any]) -> None:
    """With sizes and checksums that fit."""
    np.save(store.path / f"{name}.npy", array)
    meta = json.loads((store.path / "meta.json").read_text())
    size = (store.path / f"{name}.npy").stat().st_size
    meta["arrays"][name] |= {"shape": list(array.shape), "dtype": array.dtype.str, "bytes": size}
    meta["checksum"] = meta_checksum(meta)
    (store.path / "meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize(
    ("name", "array", "told"),
    [
        (
            "train.ids.offsets",
            np.arange(5),
            "train.ids.offsets of dtype .* and shape .*; wanted dtype '<i8' and shape 6",
        ),
        ("train.ids.offsets", np.array([0, 1, 2, 3, 4, 99]), "train.ids.offsets.npy: .*do not fit"),
        ("train.texts.offsets", np.array([0, 30, 2, 3, 4, 43]), "train.texts.offsets.npy: .*do not ascend"),
        ("train.texts.bytes", np.full(43, 255, np.uint8), "string 0 that is not UTF-8"),
        ("train.left_out", np.array([4, 1]), "train.left_out.npy: found rows that do not ascend"),
        ("train.left_out", np.array([-1, 1]), "train.left_out.npy: found rows that do not ascend"),
        ("train.left_out", np.array([1.5]), "train.left_out of dtype '<f8'"),
    ],
)
def test_damaged_words(tmp_path: Path, name: str, array: np.ndarray[Any, Any], told: str) -> None:
    write_jsonl(tmp_path / "train.jsonl", rows())
    store = convert(tmp_path / "train.jsonl", tmp_path / "store", KEEP)
    assert store["train"].words.texts is not None
    assert store["train"].words.texts.arrays()[1][-1] == 43
    damage(store, name, array)
    with pytest.raises(DataError, match=told):
        Store.open(store.path).check_content()


def test_half_a_table_is_refused(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", rows())
    store = convert(tmp_path / "train.jsonl", tmp_path / "store", KEEP)
    meta = json.loads((store.path / "meta.json").read_text())
    del meta["arrays"]["train.texts.bytes"]
    meta["checksum"] = meta_checksum(meta)
    (store.path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(DataError, match=r"no array train\.texts\.bytes"):
        Store.open(store.path)


def test_some_strings_of_a_table() -> None:
    strings = ["", "owl", "é", "日本", "", "barn", "x"]
    table, generator = StringTable.of(strings), np.random.default_rng(0)
    chosen = [np.arange(7), np.arange(0), np.array([3]), np.array([6, 5, 5, 0])]
    chosen += [np.flatnonzero(generator.random(7) < 0.6) for _ in range(20)]
    for numbers in chosen:
        assert list(table.take(numbers)) == [strings[number] for number in numbers.tolist()]
    bad = StringTable(np.zeros(3, np.uint8), np.array([0, 9, 1, 3]))
    with pytest.raises(DataError, match="do not ascend"):
        bad.take(np.array([0]))


def test_some_points_know_their_rows() -> None:
    words = PointWords(StringTable.of("abcdef"), None, np.array([0, 3, 4]))
    assert words.rows(np.arange(6)).tolist() == [1, 2, 5, 6, 7, 8]
    assert words.take(np.arange(6), 6) is words
    some = words.take(np.array([1, 2, 5]), 6)
    assert words_of(some.ids) == ["b", "c", "f"]
    assert some.rows(np.arange(3)).tolist() == [2, 5, 8]
    assert some.left_out.tolist() == [0, 1, 3, 4, 6, 7]
    assert bool(words)
    assert not PointWords()
