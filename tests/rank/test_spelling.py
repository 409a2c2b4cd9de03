"""How alike words and names are spelled, against a loop that counts n-grams.

Shapes: F words, C names, n nearest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from owlmine.data.rows import SparseRows
from owlmine.rank import spelling
from owlmine.rank.points import SparsePoints
from owlmine.rank.spelling import nearest_names, ngram_counts

from .small_tasks import WAYS, without_extensions

WORDS = ["politik", "bildungspolitik", "numpy", "python3", "ab", "ab cd", "aaaaaaaa", "münchen", "漢", "漢字", "rivers"]
# Lower case first, as texts are read: of the first letter of İstanbul a dot remains, which is no letter.
WORDS += ["stanbul", "1914", "42"]
NAMES = [
    "Bildung",
    "Politik",
    "python3-numpy",
    "River",
    "AB",
    "abcd",
    "MÜNCHEN und Umgebung",
    "漢 & 漢字",
    "aaaa",
    "İstanbul",
    "C",
    "?!",
    "",
    "1914-1918",
    "42",
    "World War 1914",
    "of_many words: the river, the rivers, numpy and politics of PYTHON3",
]


# Names are compared as bytes.
BYTES = 0.01


def counted(text: str) -> Counter[str]:
    """Substrings of 3, 4 and 5 characters of each word with a blank on either side."""
    padded = [f" {word} " for word in text.split()]
    return Counter(word[i : i + n] for word in padded for n in (3, 4, 5) for i in range(len(word) - n + 1))


def plain_name(name: str) -> str:
    """Letters and digits in lower case, without single ASCII characters: what a token of a text is. Nothing, where no
    letter is among them."""
    if not any(letter.isalpha() for letter in name):
        return ""
    words = "".join(letter if letter.isalnum() else " " for letter in name.lower()).split()
    return " ".join(word for word in words if len(word) > 1 or not word.isascii())


def cosines_by_loop(words: Sequence[str], names: Sequence[str], left_out: frozenset[str] = frozenset()) -> np.ndarray:
    """[F, C] of (1 + ln tf)(ln((1 + F + C) / (1 + df)) + 1), df the words and names that have the n-gram."""
    told = [*words, *map(plain_name, names)]
    frequencies = Counter(gram for text in told for gram in counted(text))

    def unit(text: str) -> dict[str, float]:
        values = {
            gram: (1 + math.log(count)) * (math.log((1 + len(told)) / (1 + frequencies[gram])) + 1)
            for gram, count in counted(text).items()
            if gram not in left_out
        }
        length = math.sqrt(sum(value * value for value in values.values()))
        return {gram: value / length for gram, value in values.items()}

    units_F, units_C = (list(map(unit, part)) for part in (told[: len(words)], told[len(words) :]))
    return np.array([[sum(v * own.get(gram, 0.0) for gram, v in word.items()) for own in units_C] for word in units_F])


def assert_nearest(found: tuple[np.ndarray, np.ndarray], exact_FC: np.ndarray, count: int) -> None:
    cosines_Fn, names_Fn = found
    assert (cosines_Fn.dtype, names_Fn.dtype) == (np.float32, np.int64)
    assert cosines_Fn.shape == names_Fn.shape == (len(exact_FC), min(count, exact_FC.shape[1]))
    np.testing.assert_allclose(cosines_Fn, -np.sort(-exact_FC, axis=1)[:, :count], atol=BYTES)
    for exact_C, cosines_n, names_n in zip(exact_FC, cosines_Fn, names_Fn, strict=True):
        own = names_n[cosines_n > 0]
        assert len(set(own.tolist())) == len(own)
        np.testing.assert_allclose(exact_C[own], cosines_n[: len(own)], atol=BYTES)
        assert not names_n[len(own) :].any()
        assert not cosines_n[len(own) :].any()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("count", [0, 1, 3, len(NAMES), 1000])
def test_nearest_against_a_loop(count: int) -> None:
    exact_FC = cosines_by_loop(WORDS, NAMES)
    assert_nearest(nearest_names(WORDS, NAMES, count), exact_FC, count)
    has_one_F = (exact_FC > 0).any(axis=1)
    assert [word for word, has_one in zip(WORDS, has_one_F, strict=True) if not has_one] == ["42"]


_letters = st.text(alphabet="abcé漢1", min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(_letters, min_size=1, max_size=8, unique=True),
    names=st.lists(st.text(alphabet="abcABCéÉ漢1 -_.", max_size=14), min_size=1, max_size=8),
    count=st.integers(0, 9),
    is_compiled=st.sampled_from(WAYS),
)
def test_any_words_and_names(words: list[str], names: list[str], count: int, is_compiled: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not is_compiled:
            without_extensions(patch)
        assert_nearest(nearest_names(words, names, count), cosines_by_loop(words, names), count)


@pytest.mark.usefixtures("way")
def test_a_word_need_not_be_a_word_of_the_name() -> None:
    cosines_Fn, names_Fn = nearest_names(
        ["bildungspolitik", "numpy", "table"], ["Politik", "python3-numpy", "chair"], 1
    )
    assert names_Fn[:2, 0].tolist() == [0, 1]
    assert (cosines_Fn[:2, 0] > 0.3).all()
    assert cosines_Fn[2, 0] == 0


@pytest.mark.usefixtures("way")
def test_names_that_are_spelled_alike_come_in_their_order() -> None:
    names = ["Lake", "RIVER", "castle", "river", "-river-", "River (?)", "r i v e r"]
    cosines_Fn, names_Fn = nearest_names(["castle", "river"], names, 5)
    assert names_Fn.tolist() == [[2, 0, 0, 0, 0], [1, 3, 4, 5, 0]]
    np.testing.assert_allclose(cosines_Fn, [[1, 0, 0, 0, 0], [1, 1, 1, 1, 0]], atol=BYTES)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("names", [[""], ["", "?!", "C", "_"], ["xyzzy", "qqqq"], ["1914", "42", "1914/42"]])
def test_names_that_no_word_is_spelled_like(names: list[str]) -> None:
    cosines_Fn, names_Fn = nearest_names(WORDS, names, 3)
    assert cosines_Fn.shape == names_Fn.shape == (len(WORDS), min(3, len(names)))
    assert not cosines_Fn.any()
    assert not names_Fn.any()


def frequent_grams(words: Sequence[str], names: Sequence[str], most: int) -> frozenset[str]:
    """What is left out: from the first n-gram on, rare ones first, whose products no longer fit."""
    of_words = Counter(gram for word in words for gram in counted(word))
    of_names = Counter(gram for name in names for gram in counted(plain_name(name)))
    order, products = sorted(of_words | of_names, key=lambda gram: (of_names[gram], len(gram), gram)), 0
    for place, gram in enumerate(order):
        products += of_names[gram] * of_words[gram]
        if products > most:
            return frozenset(order[place:])
    return frozenset()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("most", [0, 1, 25, 50, 80, 10_000])
def test_n_grams_of_most_names_are_left_out_where_products_are_too_many(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(spelling, "_MOST_PRODUCTS", most)
    left_out = frequent_grams(WORDS, NAMES, most)
    exact_FC = cosines_by_loop(WORDS, NAMES, left_out)
    assert_nearest(nearest_names(WORDS, NAMES, 4), exact_FC, 4)
    assert bool(left_out) == (most < 10_000)
    assert exact_FC.any() == (most > 0)


def test_the_bound_is_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """At it nothing is left out, and one below it something is."""
    of_words = Counter(gram for word in WORDS for gram in counted(word))
    of_names = Counter(gram for name in NAMES for gram in counted(plain_name(name)))
    needed = sum(of_words[gram] * of_names[gram] for gram in of_words)
    whole = nearest_names(WORDS, NAMES, 4)[0]
    for most, is_whole in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(spelling, "_MOST_PRODUCTS", most)
        assert np.array_equal(nearest_names(WORDS, NAMES, 4)[0], whole) == is_whole


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("size", [1, 3, len(WORDS), len(WORDS) + 1])
def test_blocks_of_words_do_not_show(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    whole = nearest_names(WORDS, NAMES, 4)
    monkeypatch.setattr(spelling, "_BLOCK_WORDS", size)
    for found, wanted in zip(nearest_names(WORDS, NAMES, 4), whole, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("size", [1, 5, 100])
def test_there_is_a_call_before_and_after_each_block(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A search of a million words may be stopped on the way, and finds the same where it is not."""
    monkeypatch.setattr(spelling, "_BLOCK_WORDS", size)
    done: list[str] = []
    nearest = SparsePoints.nearest

    def noted(points: SparsePoints, queries: SparseRows, vectors_ND: None, count: int) -> Any:
        done.append(f"{len(queries)} words")
        return nearest(points, queries, vectors_ND, count)

    monkeypatch.setattr(SparsePoints, "nearest", noted)
    found = nearest_names(WORDS, NAMES, 4, between=lambda: done.append("call"))
    blocks = [min(size, len(WORDS) - start) for start in range(0, len(WORDS), size)]
    assert done == ["call", *(event for block in blocks for event in (f"{block} words", "call"))]
    for part, wanted in zip(found, nearest_names(WORDS, NAMES, 4), strict=True):
        np.testing.assert_array_equal(part, wanted)


@pytest.mark.parametrize("calls", [1, 2, 4])
def test_a_call_may_stop_it(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    monkeypatch.setattr(spelling, "_BLOCK_WORDS", 2)
    made: list[int] = []

    def between() -> None:
        made.append(len(made))
        if len(made) == calls:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        nearest_names(WORDS, NAMES, 4, between=between)
    assert len(made) == calls


def ngrams_by_loop(texts: list[str], shortest: int, longest: int) -> tuple[list[str], np.ndarray]:
    """All n-grams, by length and then by characters, and how often each text has each."""
    lengths, counts = range(shortest, longest + 1), []
    for text in texts:
        padded = [f" {word} " for word in text.split()]
        counts.append(Counter(word[i : i + n] for word in padded for n in lengths for i in range(len(word) - n + 1)))
    ngrams = sorted({ngram for own in counts for ngram in own}, key=lambda ngram: (len(ngram), ngram))
    rows = [[own[ngram] for ngram in ngrams] for own in counts]
    return ngrams, np.array(rows, np.int64).reshape(len(texts), len(ngrams))


_texts = st.lists(st.text(alphabet="abc \t\né漢\U0001f989\ud800", max_size=12), max_size=8)


@settings(max_examples=200, deadline=None)
@given(_texts, st.integers(3, 5), st.integers(0, 3))
@example([], 3, 2)
@example([""], 3, 2)
@example(["", "a", "", "ab"], 3, 0)
@example(["a b", "b"], 3, 2)
def test_ngrams_against_a_loop(texts: list[str], shortest: int, more: int) -> None:
    found = ngram_counts(texts, shortest, shortest + more)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found.toarray(), ngrams_by_loop(texts, shortest, shortest + more)[1])


@pytest.mark.parametrize("texts", [["numpy", "python3 numpy", "aaaaaa", "x", "münchen und umgebung", "漢 漢字"]])
def test_ngrams_against_scikit_learn(texts: list[str]) -> None:
    vectoriser = CountVectorizer(analyzer="char_wb", ngram_range=(3, 5))
    theirs = vectoriser.fit_transform(texts)
    ngrams = ngrams_by_loop(texts, 3, 5)[0]
    order = [vectoriser.vocabulary_[ngram] for ngram in ngrams]
    assert len(order) == theirs.shape[1]
    np.testing.assert_array_equal(ngram_counts(texts, 3, 5).toarray(), theirs[:, order].toarray())
