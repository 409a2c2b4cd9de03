"""Texts to TF-IDF rows: scikit-learn's numbers, the definition's numbers, and the same rows at prediction time."""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer

from owlmine.data import ConvertOptions, SparseRows, Store, convert, stored_vectoriser
from owlmine.data.text import TOKEN_PATTERN, TextVectoriser, TokenCounter, TokenOptions
from owlmine.errors import DataError

from .formats.points import tokens_of

WORDS = [
    "owl",
    "Owls",
    "snow",
    "barn",
    "ärger",
    "日",
    "日本",
    "x",
    "7",
    "42",
    "snow_owl",
    "naïve",
    "İstanbul",
    "ǅ",
    "_",
    "don't",
]
TEXTS = st.lists(
    st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=8).map(" ".join), min_size=4, max_size=12
)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def random_texts(num_texts: int, seed: int = 0) -> list[str]:
    random = Random(seed)
    words = [f"w{number}" for number in range(60)] + WORDS
    return [" ".join(random.choices(words, k=random.randrange(1, 30))) for _ in range(num_texts)]


def store_of(texts: list[str], out: Path, **options: Any) -> Store:
    """Every text of train, with keep_empty's help for those without a token in test."""
    labels = [["x"]] * len(texts)
    return convert({"train": (texts, labels), "test": (texts, labels)}, out, ConvertOptions(keep_empty=True, **options))


def matrix_of(store: Store, split: str) -> sparse.csr_matrix:
    queries = store[split].batch(np.arange(len(store[split]))).queries
    assert isinstance(queries, SparseRows)
    return queries.to_scipy(store.num_features)


@given(text=st.text())
def test_tokens_are_runs_of_letters_and_digits(text: str) -> None:
    import re

    assert re.findall(TOKEN_PATTERN, text.lower()) == tokens_of(text)


@pytest.mark.parametrize("ngrams", [1, 2, 3])
def test_values_are_those_of_scikit_learn(ngrams: int, tmp_path: Path) -> None:
    texts = random_texts(300)
    store = store_of(texts, tmp_path / "out", ngrams=ngrams)
    oracle = TfidfVectorizer(
        sublinear_tf=True, smooth_idf=False, token_pattern=TOKEN_PATTERN, min_df=2, max_df=0.5, ngram_range=(1, ngrams)
    )
    wanted = oracle.fit_transform(texts)
    wanted.sort_indices()
    assert store.vocabulary is not None
    assert list(store.vocabulary) == oracle.get_feature_names_out().tolist()
    found = matrix_of(store, "test")
    np.testing.assert_array_equal(found.indptr, wanted.indptr)
    np.testing.assert_array_equal(found.indices, wanted.indices)
    np.testing.assert_allclose(found.data, wanted.data, rtol=2e-7)


@given(texts=TEXTS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_texts_agree_with_scikit_learn(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    oracle = TfidfVectorizer(sublinear_tf=True, smooth_idf=False, token_pattern=TOKEN_PATTERN, min_df=2, max_df=0.5)
    out = tmp_path_factory.mktemp("any") / "out"
    try:
        wanted = oracle.fit_transform(texts)
    except ValueError:
        with pytest.raises(DataError, match="no token in at least 2 and at most 50% of"):
            store_of(texts, out)
        return
    store = store_of(texts, out)
    assert store.vocabulary is not None
    assert list(store.vocabulary) == oracle.get_feature_names_out().tolist()
    np.testing.assert_allclose(matrix_of(store, "test").toarray(), wanted.toarray(), rtol=2e-7)
    norms = sparse.linalg.norm(matrix_of(store, "train"), axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-6)


def test_the_definition_in_plain_python(tmp_path: Path) -> None:
    """(1 + ln tf)(ln(N / df) + 1), rows of unit length, over all training documents, with or without label."""
    texts = ["owl owl owl barn", "owl snow", "barn snow snow", "mine", "mine", "  "]
    store = convert({"train": (texts, [["a"], ["b"], [], ["a"], ["a"], ["c"]])}, tmp_path / "out", ConvertOptions())
    assert store.vocabulary is not None
    vocabulary = list(store.vocabulary)
    assert vocabulary == ["barn", "mine", "owl", "snow"]
    counts = [{token: tokens_of(text).count(token) for token in vocabulary} for text in texts]
    frequencies = {token: sum(row[token] > 0 for row in counts) for token in vocabulary}
    rows = matrix_of(store, "train").toarray().tolist()
    assert len(rows) == 5  # the blank text has no token
    for row, found in zip(counts, rows, strict=False):
        values = [(1 + math.log(row[t])) * (math.log(6 / frequencies[t]) + 1) if row[t] else 0.0 for t in vocabulary]
        norm = math.sqrt(sum(value * value for value in values))
        assert found == pytest.approx([value / norm for value in values], rel=1e-6)
    assert store.meta["weighting"]["documents"] == 6
    assert store.num_classes == 3  # train has class c, though its only point is gone
    assert store.class_counts.tolist() == [3, 1, 0]


@pytest.mark.parametrize("weighting", ["auto", "none"])
@pytest.mark.parametrize(("ngrams", "hash_bits"), [(1, 0), (2, 0), (1, 6), (2, 8)])
def test_the_stored_vectoriser_gives_the_rows_of_the_store(
    ngrams: int, hash_bits: int, weighting: str, tmp_path: Path
) -> None:
    texts = random_texts(120)
    store = store_of(texts, tmp_path / "out", ngrams=ngrams, hash_bits=hash_bits, weighting=weighting)
    vectoriser = stored_vectoriser(Store.open(store.path))
    assert vectoriser is not None
    assert vectoriser.num_features == store.num_features
    wanted = store["test"].batch(np.arange(len(texts))).queries
    found = vectoriser.transform(texts)
    assert isinstance(wanted, SparseRows)
    np.testing.assert_array_equal(found.offsets, wanted.offsets)
    np.testing.assert_array_equal(found.indices, wanted.indices)
    np.testing.assert_array_equal(found.values, wanted.values)
    strange = vectoriser.transform(["", "never seen before, zzz yyy", "日"])
    assert len(strange) == 3
    assert strange.counts[0] == 0
    with pytest.raises(ValueError, match="wanted a list of texts"):
        vectoriser.transform("owl")


def test_hashing_is_scikit_learns(tmp_path: Path) -> None:
    texts = random_texts(80)
    store = store_of(texts, tmp_path / "out", hash_bits=7, weighting="none", min_df=1, max_df=1.0)
    hasher = HashingVectorizer(n_features=128, alternate_sign=False, norm=None, token_pattern=TOKEN_PATTERN)
    assert store.num_features == 128
    assert store.vocabulary is None
    np.testing.assert_array_equal(matrix_of(store, "test").toarray(), hasher.transform(texts).toarray())


def test_hashed_features_obey_the_bounds_too(tmp_path: Path) -> None:
    texts = random_texts(80)
    counts = HashingVectorizer(n_features=512, alternate_sign=False, norm=None, token_pattern=TOKEN_PATTERN).transform(
        texts
    )
    frequencies = (counts > 0).sum(axis=0).A1
    kept = (frequencies >= 3) & (frequencies <= 0.3 * 80)
    store = store_of(texts, tmp_path / "out", hash_bits=9, min_df=3, max_df=0.3)
    assert set(matrix_of(store, "train").indices.tolist()) == set(np.flatnonzero(kept).tolist())


def test_a_frozen_counter_learns_nothing() -> None:
    counter = TokenCounter(TokenOptions(), ["owl", "barn"])
    rows = counter.count(["barn snow owl owl", "snow"])
    assert rows.counts.tolist() == [2, 0]
    assert rows.values is not None
    assert (rows.indices.tolist(), rows.values.tolist()) == ([0, 1], [2.0, 1.0])
    assert counter.tokens == ["owl", "barn"]


def counts_text(rows: list[dict[int, float]], num_features: int) -> str:
    lines = [f"0 {' '.join(f'{index}:{value}' for index, value in row.items())}" for row in rows]
    return "\n".join([f"{len(rows)} {num_features} 1", *lines]) + "\n"


def test_counts_are_weighted_with_one_document_more(tmp_path: Path) -> None:
    """(1 + ln tf)(ln(N / (df + 1)) + 1): a feature of test may occur in no training point."""
    train: list[dict[int, float]] = [{0: 3, 2: 1}, {2: 2}, {2: 7, 1: 0}, {0: 1}]
    test: list[dict[int, float]] = [{1: 2, 2: 1}, {3: 5}]
    for split, rows in (("train", train), ("test", test)):
        (tmp_path / f"{split}.txt").write_text(counts_text(rows, 4))
    store = convert(tmp_path, tmp_path / "out")
    assert store.meta["weighting"] == {
        "kind": "tfidf", "why": "auto: whole-number counts", "documents": 4, "df_offset": 1,
    }  # fmt: skip
    frequencies = [2, 0, 3, 0]
    for split, rows in (("train", train), ("test", test)):
        for row, found in zip(rows, matrix_of(store, split).toarray().tolist(), strict=True):
            values = [0.0] * 4
            for index, count in row.items():
                if count:
                    values[index] = (1 + math.log(count)) * (math.log(4 / (frequencies[index] + 1)) + 1)
            norm = math.sqrt(sum(value * value for value in values))
            assert found == pytest.approx([value / norm for value in values], rel=1e-6)


@pytest.mark.parametrize(
    ("train", "test", "weighting", "kind", "why"),
    [
        ("0:1 1:2", "0:3", "auto", "tfidf", "auto: whole-number counts"),
        ("0:1 1:2.5", "0:3", "auto", "none", "auto: real values"),
        ("0:1 1:-2", "0:3", "auto", "none", "auto: real values"),
        ("0:1 1:2", "0:3.5", "auto", "none", "auto: real values"),
        ("0:1 1:2", "0:-3", "auto", "none", "auto: real values"),
        ("0:1 1:2", "0:3", "none", "none", "as asked"),
        ("0:1 1:2", "0:3", "tfidf", "tfidf", "as asked"),
    ],
)
def test_weighting_is_chosen_by_the_values(
    train: str, test: str, weighting: str, kind: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "train.txt").write_text(f"1 2 1\n0 {train}\n")
    (tmp_path / "test.txt").write_text(f"1 2 1\n0 {test}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = convert(tmp_path, tmp_path / "out", ConvertOptions(weighting=weighting))
    told = json.loads((tmp_path / "out" / "meta.json").read_text())["weighting"]
    assert (told["kind"], told["why"]) == (kind, why)
    values = matrix_of(store, "test").data
    assert values.tolist() == ([1.0] if kind == "tfidf" else [float(test.split(":")[1])])
    assert stored_vectoriser(store) is None


@pytest.mark.parametrize("split", ["train", "test"])
def test_tfidf_of_real_values_is_refused(split: str, tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / f"{name}.txt").write_text(f"1 2 1\n0 1:{0.5 if name == split else 2}\n")
    with pytest.raises(DataError, match=f"values that are not whole counts in {split}; wanted counts"):
        convert(tmp_path, tmp_path / "out", ConvertOptions(weighting="tfidf"))


def test_tfidf_of_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found dense vectors"):
        convert({"train": (np.eye(2), [["a"], ["b"]])}, tmp_path / "out", ConvertOptions(weighting="tfidf"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=TEXTS, ngrams=st.integers(1, 3), hash_bits=st.sampled_from([0, 3, 10]))
def test_places_of_words(texts: list[str], ngrams: int, hash_bits: int) -> None:
    """Every feature of a row, as often as it counts, where the text has these words."""
    counter = TokenCounter(TokenOptions(ngrams, hash_bits))
    counter.count(texts)
    counter.frozen = True
    used = np.arange(counter.num_tokens) % 3 != 1
    tokens = None if hash_bits else counter.tokens
    vectoriser = TextVectoriser(TokenOptions(ngrams, hash_bits), tokens, None, used)
    for text in [*texts, "OWL owl's an unheard-of word", "İİ owl  Owls", ""]:
        row = vectoriser.transform([text])
        places = list(vectoriser.places(text))
        features, counts = np.unique([feature for feature, *_ in places], return_counts=True)
        assert features.tolist() == row.indices.tolist()
        assert row.values is not None
        assert counts.tolist() == row.values.tolist()
        for feature, token, start, end in places:
            # What stands there is the token itself, but for what is between the words of several.
            assert tokens_of(text[start:end]) == token.split(" ")
            assert tokens is None or tokens[feature] == token
            before, after = text[:start].lower(), text[end:].lower()
            assert len(tokens_of(text)) == len(tokens_of(before)) + len(token.split(" ")) + len(tokens_of(after))


def test_places_count_characters_of_the_text() -> None:
    """Though one of them is two in lower case, or four bytes or two in other encodings."""
    counter = TokenCounter(TokenOptions(2), ["owl", "i", "stanbul", "owl owl", "日"])
    counter.frozen = True
    assert list(counter.places("İSTANBUL 🦉 Owl, OWL 日")) == [
        (2, "stanbul", 1, 8),
        (0, "owl", 11, 14),
        (0, "owl", 16, 19),
        (4, "日", 20, 21),
        (-1, "stanbul owl", 1, 14),
        (3, "owl owl", 11, 19),
        (-1, "owl 日", 16, 21),
    ]
