"""Character n-grams of many short texts at once.

Python would look at every n-gram by itself. Here all texts are one array of characters, and what begins at a place is
numbered anew with each further character: by the number of all but the last, and the last.

Shapes: T texts, G n-grams, P places where an n-gram begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix

_BLANK = ord(" ")


def ngram_counts(texts: Sequence[str], shortest: int, longest: int) -> csr_matrix:
    """How often each text has each n-gram of ``shortest`` (3 or more) to ``longest`` characters, int64 [T, G]. n-grams
    come in the order of their lengths, then of their characters.

    n-grams are those of single words with a blank on either side, so that beginnings and ends are known as such.
    """
    padded = [f" {' '.join(text.split())} " for text in texts]
    # A file may hold half of a surrogate pair, which is no character of any encoding.
    characters = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
    owners = np.repeat(np.arange(len(padded)), np.fromiter(map(len, padded), np.int64, len(padded)))
    num_characters = int(characters.max(initial=0)) + 1
    starts_P, numbers_P = np.arange(len(characters)), characters
    rows, columns, num_ngrams = [], [], 0
    for length in range(2, longest + 1):
        goes_on_P = starts_P + length <= len(characters)
        if length > 2:
            # A blank is the first or the last of its n-gram: between words, and between texts, nothing goes on.
            goes_on_P &= characters[starts_P + length - 2] != _BLANK
        starts_P = starts_P[goes_on_P]
        keys_P = numbers_P[goes_on_P] * num_characters + characters[starts_P + length - 1]
        ngrams, numbers_P = np.unique(keys_P, return_inverse=True)
        if length >= shortest:
            rows.append(owners[starts_P])
            columns.append(numbers_P + num_ngrams)
            num_ngrams += len(ngrams)
    places = (np.concatenate(rows), np.concatenate(columns))
    # Ones at the same place are added up.
    return csr_matrix((np.ones(len(places[0]), np.int64), places), shape=(len(texts), num_ngrams))
