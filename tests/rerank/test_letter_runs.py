"""Character n-grams of many texts, against a loop and against scikit-learn's."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from owlmine.rank.spelling import ngram_counts


def by_loop(texts: list[str], shortest: int, longest: int) -> tuple[list[str], np.ndarray]:
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
def test_against_a_loop(texts: list[str], shortest: int, more: int) -> None:
    found = ngram_counts(texts, shortest, shortest + more)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found.toarray(), by_loop(texts, shortest, shortest + more)[1])


@pytest.mark.parametrize("texts", [["numpy", "python3 numpy", "aaaaaa", "x", "münchen und umgebung", "漢 漢字"]])
def test_against_scikit_learn(texts: list[str]) -> None:
    vectoriser = CountVectorizer(analyzer="char_wb", ngram_range=(3, 5))
    theirs = vectoriser.fit_transform(texts)
    ngrams = by_loop(texts, 3, 5)[0]
    order = [vectoriser.vocabulary_[ngram] for ngram in ngrams]
    assert len(order) == theirs.shape[1]
    np.testing.assert_array_equal(ngram_counts(texts, 3, 5).toarray(), theirs[:, order].toarray())
