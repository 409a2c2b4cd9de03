"""The best retrieval for a known distribution (paper, Lemma 1 and Definition 1).

Legend: N queries, K classes, k retrieved.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.mining.checks import check_class_ids
from owlmine.mining.ranking import highest, highest_reference

# How far a row of probabilities may add up from 1: what float32 leaves over a million classes.
_SUM_SLACK = 1e-3


def bayes_top_k(probabilities_NK: Tensor, *, k: int) -> Tensor:
    """Ids of the k most probable classes of each query; among equals the smaller id."""
    check_distributions(probabilities_NK, k=k)
    return highest(probabilities_NK, k)


def bayes_risk(probabilities_NK: Tensor, *, k: int) -> Tensor:
    """The smallest probability, for each query, that the relevant class is not among k: 1 - Σ_{j<=k} D_[j]."""
    return retrieval_risk(probabilities_NK, bayes_top_k(probabilities_NK, k=k))


def retrieval_risk(probabilities_NK: Tensor, retrieved_Nk: Tensor) -> Tensor:
    """The probability, for each query, that the relevant class is not retrieved. Ids of a row must differ."""
    num_queries, num_classes = check_distributions(probabilities_NK)
    wanted = (num_queries, retrieved_Nk.shape[-1] if retrieved_Nk.ndim == 2 else 1)
    check_class_ids("retrieved", retrieved_Nk, shape=wanted, num_classes=num_classes, validate=None)
    left_NK = probabilities_NK.scatter(1, retrieved_Nk.to(torch.int64), 0)
    # Summing what is left out keeps the digits of a small risk, which 1 - sum would cancel.
    return left_NK.sum(dim=1)


def is_bayes_compatible(scores_NK: Tensor, probabilities_NK: Tensor, *, k: int) -> Tensor:
    """Whether the k highest scores retrieve with the Bayes risk however ties among scores are broken."""
    check_distributions(probabilities_NK, k=k)
    if scores_NK.shape != probabilities_NK.shape:
        wanted = f"that of the probabilities, {tuple(probabilities_NK.shape)}"
        raise ValueError(f"scores: given shape {tuple(scores_NK.shape)}; wanted {wanted}")
    # Of equal scores the least probable class comes first: the worst way to break ties.
    unlikely_first_NK = torch.argsort(probabilities_NK, dim=1, stable=True)
    order_NK = highest_reference(scores_NK.gather(1, unlikely_first_NK), k)
    worst_Nk = unlikely_first_NK.gather(1, order_NK)
    best_k = probabilities_NK.gather(1, bayes_top_k(probabilities_NK, k=k)).sort(dim=1).values
    return (probabilities_NK.gather(1, worst_Nk).sort(dim=1).values == best_k).all(dim=1)


def check_distributions(probabilities_NK: Tensor, *, k: int = 1) -> tuple[int, int]:
    """N and K of rows that are distributions with more than k classes."""
    if probabilities_NK.ndim != 2 or not probabilities_NK.is_floating_point():
        given = f"{probabilities_NK.dtype} of shape {tuple(probabilities_NK.shape)}"
        raise ValueError(f"probabilities: given {given}; wanted floats, one row per query")
    if not bool((probabilities_NK >= 0).all()):
        raise ValueError("probabilities: given a negative number or NaN; wanted numbers >= 0")
    totals_N = probabilities_NK.sum(dim=1)
    if not bool(((totals_N - 1).abs() <= _SUM_SLACK).all()):
        worst = float(totals_N[(totals_N - 1).abs().argmax()])
        raise ValueError(f"probabilities: given a row that adds up to {worst:g}; wanted 1")
    num_queries, num_classes = probabilities_NK.shape
    if not 1 <= k < num_classes:
        raise ValueError(f"k: given {k} of {num_classes} classes; wanted 1 to {num_classes - 1}")
    return num_queries, num_classes
