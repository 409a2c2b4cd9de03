"""Similarity of spelling between words and names: the cosine of their character n-grams.

"Bildungspolitik" and "Politik" share most n-grams of the shorter one, and so do "numpy" and "python3-numpy": a word can
match a name without being one of its words.

Python would look at every n-gram by itself. ``ngram_counts`` takes all texts as one array of characters, and numbers
what begins at a place anew with each further character: by the number of all but the last, and the last.

Shapes: T texts, F words, C names, G n-grams, P places where an n-gram begins, n nearest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from scipy.sparse import csr_matrix, diags

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.data.text import TOKEN_PATTERN
from owlmine.rank.points import SparsePoints

_BLANK = ord(" ")


def ngram_counts(texts: Sequence[str], shortest: int, longest: int) -> csr_matrix:
    """How often each text has each n-gram of ``shortest`` (3 or more) to ``longest`` characters, int64 [T, G]. n-grams
    come in the order of their lengths, then of their characters.

    n-grams are those of single words with a blank on either side, so that beginnings and ends are known as such.
    """
    padded = [f" {' '.join(text.split())} " for text in texts]
    # A file may contain half of a surrogate pair, which no encoding can represent.
    characters = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
    owners = np.repeat(np.arange(len(padded)), np.fromiter(map(len, padded), np.int64, len(padded)))
    num_characters = int(characters.max(initial=0)) + 1
    starts_P, numbers_P = np.arange(len(characters)), characters
    rows, columns, num_ngrams = [], [], 0
    for length in range(2, longest + 1):
        goes_on_P = starts_P + length <= len(characters)
        if length > 2:
            # A blank is the first or last character of its n-gram: no n-gram spans two words or two texts.
            goes_on_P &= characters[starts_P + length - 2] != _BLANK
        starts_P = starts_P[goes_on_P]
        keys_P = numbers_P[goes_on_P] * num_characters + characters[starts_P + length - 1]
        ngrams, numbers_P = np.unique(keys_P, return_inverse=True)
        if length >= shortest:
            rows.append(owners[starts_P])
            columns.append(numbers_P + num_ngrams)
            num_ngrams += len(ngrams)
    places = (np.concatenate(rows), np.concatenate(columns))
    # Ones at the same place are summed.
    return csr_matrix((np.ones(len(places[0]), np.int64), places), shape=(len(texts), num_ngrams))


_SHORTEST, _LONGEST = 3, 5
# Limit on the products of values when all words are compared with all names: some seconds. Beyond it, the most common
# and least informative n-grams are left out.
_MOST_PRODUCTS = 1 << 34
_BLOCK_WORDS = 1 << 14
_TOKENS = re.compile(TOKEN_PATTERN)


def nearest_names(
    words: Sequence[str], names: Sequence[str], count: int, *, between: Callable[[], None] = lambda: None
) -> tuple[Float32, Int64]:
    """Cosines and numbers [F, n] of the names nearest to each word, n = min(count, C): highest first. If no further
    name has a cosine above 0: the cosine 0 and the number 0.

    ``words``: at least one, and none of them empty. A name without a letter, such as a number, matches nothing.
    ``between`` is called now and then, and may raise to stop.
    """
    words_FG, names_CG = _ngrams(words, [_tokenised(name) for name in names])
    between()
    points = SparsePoints.of(_rows(names_CG), num_features=names_CG.shape[1])
    rows, found = _rows(words_FG), []
    for start in range(0, len(rows), _BLOCK_WORDS):
        found.append(points.nearest(rows[start : start + _BLOCK_WORDS], None, count))
        between()
    cosines, numbers = zip(*found, strict=True)
    return np.concatenate(cosines), np.concatenate(numbers)


def _tokenised(name: str) -> str:
    """A name tokenised like a text: lower case, without punctuation."""
    words = " ".join(_TOKENS.findall(name.lower()))
    return words if any(map(str.isalpha, words)) else ""


def _ngrams(words: Sequence[str], names: Sequence[str]) -> tuple[csr_matrix, csr_matrix]:
    """Rows of n-grams, (1 + ln tf) · (ln((1 + F + C) / (1 + df)) + 1) each: rare n-grams count more."""
    all_rows = ngram_counts([*words, *names], _SHORTEST, _LONGEST)
    idf_G = np.log((1 + all_rows.shape[0]) / (1 + all_rows.getnnz(axis=0))) + 1
    values = ((1 + np.log(all_rows.data)) * idf_G[all_rows.indices]).astype(np.float32)
    all_rows = csr_matrix((values, all_rows.indices, all_rows.indptr), shape=all_rows.shape)
    words_FG, names_CG = all_rows[: len(words)], all_rows[len(words) :]
    names_G, words_G = names_CG.getnnz(axis=0).astype(np.int64), words_FG.getnnz(axis=0)
    if int(names_G @ words_G) > _MOST_PRODUCTS:
        order_G = np.argsort(names_G, kind="stable")
        kept_G = np.zeros(len(order_G), np.float32)
        kept_G[order_G[np.cumsum((names_G * words_G)[order_G]) <= _MOST_PRODUCTS]] = 1
        words_FG, names_CG = words_FG @ diags(kept_G), names_CG @ diags(kept_G)
    return csr_matrix(words_FG), csr_matrix(names_CG)


def _rows(matrix: csr_matrix) -> SparseRows:
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return SparseRows(matrix.indptr.astype(np.int64), matrix.indices, matrix.data)
