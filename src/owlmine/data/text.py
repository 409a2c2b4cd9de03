"""Texts to counts of tokens, and counts to TF-IDF values: fitted on train, and the same at prediction time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from owlmine.data.rows import Float32, Int64, SparseRows, offsets_from_counts

# Runs of letters and digits of any script; single ASCII characters carry next to nothing.
TOKEN_PATTERN = r"[^\W_]{2,}|[^\W_\x00-\x7f]"


@dataclass(frozen=True)
class TokenOptions:
    """The definition of a token."""

    ngrams: int = 1
    """Sequences of up to this many words are tokens too."""
    hash_bits: int = 0
    """0: a vocabulary. n > 0: tokens are hashed into 2**n features."""


class TokenCounter:
    """Texts to rows of token counts. With a vocabulary it learns new tokens until it is frozen."""

    def __init__(self, options: TokenOptions, tokens: Sequence[str] | None = None) -> None:
        from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

        shared: dict[str, Any] = {"token_pattern": TOKEN_PATTERN, "ngram_range": (1, options.ngrams)}
        self.options = options
        self.frozen = tokens is not None
        self._analyse: Callable[[str], list[str]] = CountVectorizer(**shared).build_analyzer()
        self._hasher = (
            HashingVectorizer(n_features=2**options.hash_bits, alternate_sign=False, norm=None, **shared)
            if options.hash_bits
            else None
        )
        self._numbers = {token: number for number, token in enumerate(tokens or ())}

    @property
    def num_tokens(self) -> int:
        return 2**self.options.hash_bits if self._hasher else len(self._numbers)

    @property
    def tokens(self) -> list[str]:
        """The vocabulary by number."""
        return list(self._numbers)

    def count(self, texts: Sequence[str]) -> SparseRows:
        """How often each token occurs in each text; once frozen, without unknown tokens."""
        if self._hasher is not None:
            matrix = self._hasher.transform(texts)
            matrix.sort_indices()
            return SparseRows(matrix.indptr.astype(np.int64), matrix.indices, matrix.data.astype(np.float32))
        numbers: list[int] = []
        ends = np.empty(len(texts), np.int64)
        known = self._numbers
        for row, text in enumerate(texts):
            tokens = self._analyse(text)
            if self.frozen:
                numbers.extend([known[token] for token in tokens if token in known])
            else:
                numbers.extend([known.setdefault(token, len(known)) for token in tokens])
            ends[row] = len(numbers)
        return _counted(np.array(numbers, np.int64), np.diff(ends, prepend=0), len(known))

    def places(self, text: str) -> Iterator[tuple[int, str, int, int]]:
        """The tokens of a text in order: number (-1 if unknown), token, and its first and its last character + 1."""
        lowered = text.lower()
        # The lower case of a character may be two of them.
        origins = [place for place, character in enumerate(text) for _ in character.lower()]
        words = [(found.start(), found.end()) for found in re.finditer(TOKEN_PATTERN, lowered)]
        spans = [
            (
                words[first][0],
                words[first + length - 1][1],
                " ".join(lowered[slice(*word)] for word in words[first : first + length]),
            )
            for length in range(1, self.options.ngrams + 1)
            for first in range(len(words) - length + 1)
        ]
        numbers = self._numbers_of([token for _, _, token in spans])
        for (start, end, token), number in zip(spans, numbers, strict=True):
            yield number, token, origins[start], origins[end - 1] + 1

    def _numbers_of(self, tokens: Sequence[str]) -> list[int]:
        if self._hasher is None:
            return [self._numbers.get(token, -1) for token in tokens]
        from sklearn.feature_extraction import FeatureHasher

        hasher = FeatureHasher(n_features=self.num_tokens, input_type="string", alternate_sign=False)
        numbers: list[int] = hasher.transform([[token] for token in tokens]).indices.tolist() if tokens else []
        return numbers


def _counted(numbers: Int64, lengths: Int64, num_tokens: int) -> SparseRows:
    """Rows of token numbers to rows of distinct numbers, ascending, with counts."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    keys, counts = np.unique(rows * max(num_tokens, 1) + numbers, return_counts=True)
    key_rows, indices = np.divmod(keys, max(num_tokens, 1))
    return SparseRows(
        offsets_from_counts(np.bincount(key_rows, minlength=len(lengths))), indices, counts.astype(np.float32)
    )


def kept_tokens(frequencies: Int64, num_documents: int, *, min_df: int, max_df: float) -> Int64:
    """Numbers of the tokens that occur in at least ``min_df`` documents and at most that share of all of them."""
    return np.flatnonzero((frequencies >= min_df) & (frequencies <= max_df * num_documents))


@dataclass(frozen=True)
class TfIdf:
    """The weighting (1 + ln tf)(ln(N / (df + offset)) + 1), each row scaled to unit length."""

    frequencies: Int64
    """Training documents with each feature."""
    num_documents: int
    df_offset: int
    """0 for text, whose features all occur; 1 for counts, where a feature may occur in no training point."""

    def apply(self, rows: SparseRows) -> SparseRows:
        """Weighted rows; counts must be positive."""
        assert rows.values is not None
        idf = np.log(self.num_documents / (self.frequencies[rows.indices] + self.df_offset)) + 1.0
        values = (1.0 + np.log(rows.values.astype(np.float64))) * idf
        norms = np.sqrt(np.bincount(rows.row_ids, values * values, minlength=len(rows)))
        scaled: Float32 = (values / norms[rows.row_ids]).astype(np.float32)
        return SparseRows(rows.offsets, rows.indices, scaled)


class TextVectoriser:
    """A fitted vocabulary and weighting: texts in, feature rows out."""

    def __init__(
        self, options: TokenOptions, tokens: Sequence[str] | None, tfidf: TfIdf | None, used: NDArray[np.bool_]
    ) -> None:
        """``used`` marks the features in use: hashing also yields others, which have no weight."""
        self._used = used
        self._counter = TokenCounter(options, tokens)
        self._counter.frozen = True
        self.tfidf = tfidf
        self.num_features = self._counter.num_tokens

    def transform(self, texts: Sequence[str]) -> SparseRows:
        """A row of features per text, the same as in a store."""
        if isinstance(texts, str):
            raise ValueError("texts is a single string; wanted a list of texts")
        rows = self._counter.count(texts)
        rows = rows.select(self._used[rows.indices])
        return rows if self.tfidf is None else self.tfidf.apply(rows)

    def places(self, text: str) -> Iterator[tuple[int, str, int, int]]:
        """Where a text has a feature: its number, the token, its first character and its last one + 1. A token of
        several words comes after those of fewer."""
        return (place for place in self._counter.places(text) if place[0] >= 0 and self._used[place[0]])
