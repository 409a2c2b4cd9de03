"""The repository's old and new formats, split-index files and svmlight: what each allows."""

from __future__ import annotations

import gzip

import pytest

from owlmine.errors import DataError

from .conftest import Convert
from .points import stored_rows


def test_a_header_may_claim_more_features_and_classes_than_there_are(converted: Convert) -> None:
    store = converted({"train.txt": "1 1000 1000\n7 3:1.5\n"})
    assert (store.num_features, store.num_classes) == (1000, 1)
    assert list(store.class_keys) == ["7"]


def test_a_test_split_may_be_empty(converted: Convert) -> None:
    store = converted({"train.txt": "1 2 2\n0 0:1\n", "test.txt": "0 2 2\n"})
    assert len(store["test"]) == 0


def test_values_in_every_spelling(converted: Convert) -> None:
    store = converted({"train.txt": "1 7 1\n0\t0:1 1:+2.5 2:-.5  3:1e-3 4:5. 5:1E2 6:0.1\n"})
    values = store["train"].queries.values.tolist()  # type: ignore[union-attr]
    assert values == pytest.approx([1, 2.5, -0.5, 1e-3, 5, 100, 0.1], rel=1e-7)


def test_features_out_of_order_are_sorted(converted: Convert) -> None:
    store = converted({"train.txt": "2 5 1\n0 4:4 0:1 2:3\n0 1:1 3:2\n"})
    assert store["train"].queries.indices.tolist() == [0, 2, 4, 1, 3]  # type: ignore[union-attr]
    assert store["train"].queries.values.tolist() == [1, 3, 4, 1, 2]  # type: ignore[union-attr]


def test_the_column_of_a_split_list_is_chosen(converted: Convert) -> None:
    files = {
        "Bibtex_data.txt": "4 2 4\n0 0:1\n1 0:2\n2 0:3\n3 0:4\n",
        "bibtex_trSplit.txt": "1 2\n2 3\n\n3 4\n",
        "bibtex_tstSplit.txt": "4 2\r\n",
    }
    first = stored_rows(converted(files))
    assert first["train"] == [({str(n): 1.0}, {"0": n + 1.0}) for n in range(3)]
    second = converted(files, split_column=1)
    assert stored_rows(second) == {
        "train": [({str(n): 1.0}, {"0": n + 1.0}) for n in (1, 2, 3)],
        "test": [({"1": 1.0}, {"0": 2.0})],
    }
    with pytest.raises(DataError, match=r"trSplit\.txt, line 1: found 2 columns; wanted more than 2"):
        converted(files, split_column=2)


def test_a_matrix_may_end_with_blank_lines(converted: Convert) -> None:
    store = converted({"trn_X_Xf.txt": "2 3\n0:1\n\n\n\n", "trn_X_Y.txt": "2 2\n\n1:1\n\n"})
    assert stored_rows(store)["train"] == [({}, {"0": 1.0}), ({"1": 1.0}, {})]
    assert store.meta["splits"]["train"]["accepted"] == {"blank_lines": 3}


def test_stored_zeros_are_no_labels_and_no_features(converted: Convert) -> None:
    store = converted({"trn_X_Xf.txt": "1 3\n0:1 1:0\n", "trn_X_Y.txt": "1 3\n0:0 1:0.5\n"})
    assert stored_rows(store)["train"] == [({"1": 0.5}, {"0": 1.0})]
    assert store.num_classes == 1


@pytest.mark.parametrize(
    ("train", "test", "features"),
    [
        ("1 1:5\n", "1 2:6\n", {"train": {"0": 5.0}, "test": {"1": 6.0}}),
        ("1 0:5 1:4\n", "1 2:6\n", {"train": {"0": 5.0, "1": 4.0}, "test": {"2": 6.0}}),
        ("1 1:5\n", "1 0:6\n", {"train": {"1": 5.0}, "test": {"0": 6.0}}),
        ("1 2:5\n", "1\n", {"train": {"1": 5.0}, "test": {}}),
    ],
    ids=["from one", "zero in train", "zero in test", "none in test"],
)
def test_svmlight_counts_from_one_unless_a_zero_occurs(
    train: str, test: str, features: dict[str, dict[str, float]], converted: Convert
) -> None:
    found = stored_rows(converted({"train.svm": train, "test.libsvm": test}))
    assert {split: rows[0][1] for split, rows in found.items()} == features


def test_svmlight_labels_comments_and_query_ids(converted: Convert) -> None:
    text = "\ufeff+1,-3 qid:7 1:2 # note: 9:9\r\n# alone\n\n-1.0 2:1\n 3:1\n10 1:1"
    store = converted({"train.svm": text})
    assert list(store.class_keys) == ["-3", "-1", "1", "10"]
    assert [labels for labels, _ in stored_rows(store)["train"]] == [
        {"-3": 1.0, "1": 1.0}, {"-1": 1.0}, {}, {"10": 1.0},
    ]  # fmt: skip
    assert store.meta["splits"]["train"]["accepted"] == {"crlf_lines": 1, "blank_lines": 2}


def test_compression_is_known_by_content_not_by_name(converted: Convert) -> None:
    text = b"1 2 2\n1 0:1\n"
    assert stored_rows(converted({"train.txt": gzip.compress(text)})) == stored_rows(converted({"train.txt.gz": text}))


def test_features_beyond_train_are_weighted_too(converted: Convert) -> None:
    store = converted({"train.svm": "1 1:1\n", "test.svm": "1 900000:2\n"}, weighting="auto")
    assert store.num_features == 900_000
    assert stored_rows(store)["test"] == [({"1": 1.0}, {"899999": 1.0})]
