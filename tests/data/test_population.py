"""Which points and labels a store holds, and what it tells about those it leaves out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from owlmine.data import ConvertOptions, Store, convert

from .formats.points import stored_rows

AS_GIVEN = ConvertOptions(weighting="none", min_df=1, max_df=1.0)
KEEP_EMPTY = ConvertOptions(weighting="none", min_df=1, max_df=1.0, keep_empty=True)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def counts_of(store: Store, split: str) -> dict[str, int]:
    told = store.meta["splits"][split]
    return {name: told[name] for name in told if name != "accepted"}


def write(folder: Path, train: str, test: str) -> Path:
    (folder / "train.txt").write_text(train)
    (folder / "test.txt").write_text(test)
    return folder


def test_every_count_is_told(tmp_path: Path) -> None:
    source = write(
        tmp_path,
        "4 5 6\n0,2 0:1.5\n 1:1\n4\n2 3:0\n",
        "6 5 6\n2 0:1\n1 0:1\n1,4 2:1\n 3:1\n0\n2 4:0\n",
    )
    store = convert(source, tmp_path / "out", AS_GIVEN)
    assert list(store.class_keys) == ["0", "2", "4"]
    assert stored_rows(store) == {
        "train": [({"0": 1.0, "2": 1.0}, {"0": 1.5}), ({}, {"1": 1.0}), ({"4": 1.0}, {})],
        "test": [({"2": 1.0}, {"0": 1.0}), ({"4": 1.0}, {"2": 1.0}), ({}, {"3": 1.0}), ({"0": 1.0}, {})],
    }
    assert counts_of(store, "train") == {
        "points": 3, "points_read": 4, "emptied_of_labels": 0, "emptied_of_features": 1, "without_label": 1,
        "labels": 3, "unseen_labels_dropped": 0, "feature_entries": 2,
    }  # fmt: skip
    assert counts_of(store, "test") == {
        "points": 4, "points_read": 6, "emptied_of_labels": 1, "emptied_of_features": 1, "without_label": 1,
        "labels": 3, "unseen_labels_dropped": 2, "feature_entries": 3,
    }  # fmt: skip
    # Class 2 lost its only other point: the row whose single feature was a stored zero.
    assert store.class_counts.tolist() == [1, 1, 1]


def test_keep_empty_keeps_the_points_of_test_alone(tmp_path: Path) -> None:
    source = write(tmp_path, "2 5 6\n0 0:1\n1 3:0\n", "3 5 6\n5 0:1\n0 3:0\n0 1:1\n")
    store = convert(source, tmp_path / "out", KEEP_EMPTY)
    assert len(store["train"]) == 1
    assert stored_rows(store)["test"] == [({}, {"0": 1.0}), ({"0": 1.0}, {}), ({"0": 1.0}, {"1": 1.0})]
    told = counts_of(store, "test")
    assert (told["points"], told["points_read"]) == (3, 3)
    assert (told["emptied_of_labels"], told["emptied_of_features"], told["without_label"]) == (1, 1, 1)


def test_texts_without_a_known_token_are_dropped(tmp_path: Path) -> None:
    rows = {
        "train": [("barn owl", ["a"]), ("- - !", ["b"]), ("owl", [])],
        "test": [("snow", ["a"]), ("", []), ("Barn!", ["b"]), ("owl", ["zzz"])],
    }
    for split, points in rows.items():
        lines = [json.dumps({"text": text, "labels": labels}) for text, labels in points]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
    store = convert(tmp_path, tmp_path / "out", AS_GIVEN)
    assert list(store.class_keys) == ["a", "b"]
    assert store.class_counts.tolist() == [1, 0]
    assert stored_rows(store) == {
        "train": [({"a": 1.0}, {"barn": 1.0, "owl": 1.0}), ({}, {"owl": 1.0})],
        "test": [({"b": 1.0}, {"barn": 1.0})],
    }
    kept = convert(tmp_path, tmp_path / "kept", KEEP_EMPTY)
    assert [labels for labels, _ in stored_rows(kept)["test"]] == [{"a": 1.0}, {}, {"b": 1.0}, {}]
    assert len(kept["train"]) == 2


def test_blank_lines_are_points_only_where_the_header_counts_them(tmp_path: Path) -> None:
    source = write(tmp_path, "2 2 2\n\n0 0:1\n\n\n1 1:1\n\n", "3 2 2\n0 0:1\n\n1 1:1\n")
    (tmp_path / "filter_labels_train.txt").write_text("1 1\n")
    store = convert(source, tmp_path / "out", AS_GIVEN)
    assert stored_rows(store)["train"] == [({"0": 1.0}, {"0": 1.0}), ({"1": 1.0}, {"1": 1.0})]
    assert stored_rows(store)["test"] == [({"0": 1.0}, {"0": 1.0}), ({}, {}), ({"1": 1.0}, {"1": 1.0})]
    assert store.meta["splits"]["train"]["accepted"] == {"blank_lines": 4}
    assert store.meta["splits"]["train"]["points_read"] == 2
    assert store.meta["splits"]["test"]["accepted"] == {"blank_points": 1}
    pairs = store["train"].filter_pairs
    assert pairs is not None
    assert pairs.tolist() == [[1, 1]]  # the second point, though it stands on the sixth line


def test_filter_pairs_follow_points_and_classes(tmp_path: Path) -> None:
    source = write(tmp_path, "2 2 5\n4 0:1\n2 1:1\n", "4 2 5\n2 0:1\n3 0:1\n4 1:1\n4 0:1\n")
    (tmp_path / "filter_labels_test.txt").write_text("3 4\n\n2 2\n1 4\n0 3\n2 4\n")
    store = convert(source, tmp_path / "out", AS_GIVEN)
    pairs = store["test"].filter_pairs
    assert pairs is not None
    # Point 1 is gone with its class 3; classes 2 and 4 are called 0 and 1, points 2 and 3 are called 1 and 2.
    assert pairs.tolist() == [[1, 0], [1, 1], [2, 1]]
    assert store["train"].filter_pairs is None


def test_filters_and_class_features_of_raw_text_go_by_class_number(tmp_path: Path) -> None:
    """Labels of raw text have no stated bound, and train meets them in another order than their numbers."""
    for word, labels in (("trn", [[7, 3], [3], [12]]), ("tst", [[12], [3]])):
        lines = [json.dumps({"title": "barn", "content": "owl", "target_ind": own}) for own in labels]
        (tmp_path / f"{word}.json").write_text("\n".join(lines))
    (tmp_path / "lbl.json").write_text("".join(f'{{"title": "name {n}"}}\n' for n in range(13)))
    (tmp_path / "filter_labels_test.txt").write_text("0 7\n0 5\n1 12\n")
    (tmp_path / "lbl_X_Xf.txt").write_text("13 9\n" + "".join(f"{n % 9}:{n}.5\n" for n in range(13)))
    store = convert(tmp_path, tmp_path / "out", AS_GIVEN)
    assert list(store.class_keys) == ["3", "7", "12"]
    assert list(store.class_names) == ["name 3", "name 7", "name 12"]
    pairs = store["test"].filter_pairs
    assert pairs is not None
    assert pairs.tolist() == [[0, 1], [1, 2]]
    assert store.class_features is not None
    rows = store.class_features.rows(np.arange(3))
    assert rows.values is not None
    assert (rows.indices.tolist(), rows.values.tolist()) == ([3, 7, 3], [3.5, 7.5, 12.5])


def test_class_features_that_share_the_space_share_the_weighting(tmp_path: Path) -> None:
    source = write(tmp_path, "2 3 3\n0 0:1 1:2\n2 1:3\n", "1 3 3\n2 2:1\n")
    (tmp_path / "Yf.txt").write_text("3 3\n0:1 1:2\n2:9\n1:3\n")
    store = convert(source, tmp_path / "out")
    assert store.meta["weighting"]["kind"] == "tfidf"
    assert store.class_features is not None
    classes, train = store.class_features.rows(np.arange(2)), store["train"].batch(np.arange(2)).queries
    np.testing.assert_array_equal(classes.values, train.values)  # type: ignore[union-attr]
    np.testing.assert_array_equal(classes.indices, train.indices)  # type: ignore[union-attr]


def test_names_of_classes(tmp_path: Path) -> None:
    source = write(tmp_path, "3 1 5\n0 0:1\n3 0:1\n4 0:1\n", "1 1 5\n0 0:1\n")
    (tmp_path / "labels.tsv").write_text("3\tthree\twith tab \n\n1\tunseen\n4\t\n", encoding="utf-8")
    store = convert(source, tmp_path / "out", AS_GIVEN)
    assert list(store.class_names) == ["0", "three\twith tab", "4"]
    (tmp_path / "labels.tsv").unlink()
    (tmp_path / "Yf.txt").write_text("zéro\none\ntwo\n\nfour\n", encoding="utf-8")
    assert list(convert(source, tmp_path / "other", AS_GIVEN).class_names) == ["zéro", "3", "four"]


def test_splits_in_memory_may_come_in_any_order(tmp_path: Path) -> None:
    splits = {"test": (np.eye(2), [["b"], ["c"]]), "train": (np.eye(2) * 2, [["b"], ["a"]])}
    store = convert(splits, tmp_path / "out")
    assert stored_rows(store) == {
        "train": [({"b": 1.0}, [2.0, 0.0]), ({"a": 1.0}, [0.0, 2.0])],
        "test": [({"b": 1.0}, [1.0, 0.0])],
    }


def test_ids_follow_first_appearance_or_number(tmp_path: Path) -> None:
    def keys(name: str, *labels: list[object]) -> list[str]:
        return list(convert({"train": (np.eye(len(labels)), list(labels))}, tmp_path / name).class_keys)

    assert keys("names", ["b", "a", "b"], ["c", "a"]) == ["b", "a", "c"]
    assert keys("numbers", [10, "9"], ["-3", 9]) == ["-3", "9", "10"]
    assert keys("mixed", [10, "9"], ["x"]) == ["10", "9", "x"]
    assert keys("not quite", ["007", "7"], ["1"]) == ["007", "7", "1"]
    digits = "9" * 5000
    assert keys("long", [digits, 1], [0]) == [digits, "1", "0"]


@pytest.mark.parametrize("repeated", ['["b", "a", "b"]', '"b; a;b"'])
def test_labels_said_twice_count_once(repeated: str, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(f'{{"text": "owl", "labels": {repeated}}}\n')
    store = convert(tmp_path, tmp_path / "out", AS_GIVEN)
    assert list(store.class_keys) == ["b", "a"]
    assert store.meta["splits"]["train"]["accepted"] == {"duplicate_labels": 1}


NUMBERS = st.lists(st.integers(0, 6), max_size=3, unique=True)
POINTS = st.lists(st.tuples(NUMBERS, st.dictionaries(st.integers(0, 3), st.sampled_from([0.0, 0.5, 2.0]))), max_size=8)


@given(train=POINTS, test=POINTS, keep_empty=st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_counts_add_up(
    train: list[tuple[list[int], dict[int, float]]],
    test: list[tuple[list[int], dict[int, float]]],
    keep_empty: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Nothing vanishes untold: every point and every label of the files is in the store or in a count."""
    folder = tmp_path_factory.mktemp("counts")
    splits = {"train": [([0], {0: 0.5}), *train], "test": test}
    for split, points in splits.items():
        lines = [
            f"{','.join(map(str, labels))} {' '.join(f'{i}:{v}' for i, v in row.items())}" for labels, row in points
        ]
        (folder / f"{split}.txt").write_text("\n".join([f"{len(points)} 4 7", *lines]) + "\n")
    store = convert(folder, folder / "out", KEEP_EMPTY if keep_empty else AS_GIVEN)
    for split, points in splits.items():
        told = counts_of(store, split)
        emptied = told["emptied_of_labels"] + told["emptied_of_features"]
        kept_all = keep_empty and split == "test"
        assert told["points_read"] == len(points) == told["points"] + (0 if kept_all else emptied)
        assert told["points"] == len(store[split])
        in_store = store[split].batch(np.arange(len(store[split])))
        assert told["labels"] == len(in_store.labels.indices)
        assert told["without_label"] == int((in_store.labels.counts == 0).sum())
        assert told["unseen_labels_dropped"] == sum(
            str(label) not in list(store.class_keys) for labels, _ in points for label in labels
        )
    assert list(store.class_keys) == [str(n) for n in sorted({n for labels, _ in splits["train"] for n in labels})]
