"""How alike words and names are spelled: the cosine of their character n-grams.

"Bildungspolitik" and "Politik" share most n-grams of the shorter one, and so do "numpy" and "python3-numpy": a word
need not be a word of the name to speak for it.

Shapes: F words, C names, G n-grams, n nearest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix, diags

from owlmine.data.rows import Float32, Int64, SparseRows
from owlmine.data.text import TOKEN_PATTERN
from owlmine.rerank.sparse_points import SparsePoints

_SHORTEST, _LONGEST = 3, 5
# Products of values that one comparison of all words with all names may take: some seconds. Beyond it n-grams that most
# names have, and that tell least, do not count.
_MOST_PRODUCTS = 1 << 34
_WORDS = re.compile(TOKEN_PATTERN)


class Spelling:
    """Of a vocabulary, which tells how rare each n-gram is."""

    def __init__(self, words: Sequence[str]) -> None:
        """``words``: at least one, and none of them empty."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        # n-grams of single words with the blanks around them, so that beginnings and ends are known as such.
        self._vectoriser = TfidfVectorizer(
            analyzer="char_wb", ngram_range=(_SHORTEST, _LONGEST), sublinear_tf=True, dtype=np.float32
        )
        self._words_FG = csr_matrix(self._vectoriser.fit_transform(words))

    def nearest(self, names: Sequence[str], count: int) -> tuple[Float32, Int64]:
        """Cosines and numbers [F, n] of the names nearest to each word, n = min(count, C): highest first. Where no
        further name has a cosine above 0: the cosine 0 and the number 0."""
        names_CG = csr_matrix(self._vectoriser.transform([" ".join(_WORDS.findall(name.lower())) for name in names]))
        words_FG, most = self._words_FG, _MOST_PRODUCTS
        names_G, words_G = names_CG.getnnz(axis=0), words_FG.getnnz(axis=0)
        if int(names_G.astype(np.int64) @ words_G) > most:
            order_G = np.argsort(names_G, kind="stable")
            kept_G = np.zeros(len(order_G), np.float32)
            kept_G[order_G[np.cumsum((names_G.astype(np.int64) * words_G)[order_G]) <= most]] = 1
            names_CG, words_FG = csr_matrix(names_CG @ diags(kept_G)), csr_matrix(words_FG @ diags(kept_G))
        points = SparsePoints.of(_rows(names_CG), num_features=names_CG.shape[1])
        return points.nearest(_rows(words_FG), None, count)


def _rows(matrix: csr_matrix) -> SparseRows:
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return SparseRows(matrix.indptr.astype(np.int64), matrix.indices, matrix.data)
