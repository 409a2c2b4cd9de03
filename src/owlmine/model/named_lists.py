"""Shortlists with the classes that their names suggest: a dense model does not list a class that it has hardly seen.

Shapes: N queries, S places of a shortlist, n places for names, D dimension, E places that are filled.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import SparseRows
from owlmine.dense.retriever import Retriever
from owlmine.rank.names import NameMatches

NAMED = 20
"""Places for classes that names suggest."""

_BLOCK_NUMBERS = 1 << 24


def with_named(
    retriever: Retriever,
    names: NameMatches,
    queries: SparseRows,
    vectors_ND: Tensor,
    scores_NS: NDArray[np.float32],
    ids_NS: NDArray[np.int64],
    *,
    among: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores of the dense model and ids [N, S + n]. A place whose class is listed already, or is not ``among`` those
    asked for, is empty: the id -1 and the score -inf."""
    named_Nn = names.best(queries, NAMED)
    unwanted_Nn = np.stack([(named_N1 == ids_NS).any(axis=1) for named_N1 in named_Nn.T[:, :, None]], axis=1)
    if among is not None:
        unwanted_Nn |= ~np.isin(named_Nn, among)
    named_Nn[unwanted_Nn] = -1
    own_Nn = np.full(named_Nn.shape, -np.inf, np.float32)
    rows_E, places_E = np.nonzero(named_Nn >= 0)
    own_Nn[rows_E, places_E] = _products(vectors_ND, retriever.classes.weight, rows_E, named_Nn[rows_E, places_E])
    return np.concatenate([scores_NS, own_Nn], axis=1), np.concatenate([ids_NS, named_Nn], axis=1)


def _products(
    vectors_ND: Tensor, table_KD: Tensor, rows_E: NDArray[np.int64], ids_E: NDArray[np.int64]
) -> NDArray[np.float32]:
    """[E] of a query and a class each."""
    products_E, size = np.empty(len(rows_E), np.float32), max(_BLOCK_NUMBERS // table_KD.shape[1], 1)
    for start in range(0, len(rows_E), size):
        block = slice(start, start + size)
        rows, ids = (torch.from_numpy(part[block]).to(table_KD.device) for part in (rows_E, ids_E))
        products_E[block] = (vectors_ND[rows] * table_KD[ids]).sum(dim=1).float().cpu().numpy()
    return products_E
