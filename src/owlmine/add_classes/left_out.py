"""How well new classes are found: each example is ranked by what the others of its class make.

Shapes: N examples, C new classes, P pairs of an example and a class of its, D dimension, B pairs of a block, T best
known classes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from owlmine.data.rows import Int64, gather_rows
from owlmine.model.new_classes import QuerySpace
from owlmine.model.new_classifiers import FeatureEvidence
from owlmine.model.new_names import NameEvidence

_BLOCK_SCORES = 1 << 24


def left_out_ranks(
    space: QuerySpace,
    examples_ND: Tensor,
    rows_P: Int64,
    classes_P: Int64,
    sums_CD: Tensor,
    best_NT: Tensor,
    *,
    by_features: FeatureEvidence | None = None,
    by_names: NameEvidence | None = None,
    floor_N: Tensor | None = None,
) -> Int64:
    """The rank of each pair's class for its example; 0 where the class has no other example.

    ``rows_P`` ascend. ``sums_CD``: the sum of examples, and perhaps of a name, of each class. ``best_NT``: the T best
    scores of known classes for each example, best first; a rank up to T is exact, one beyond it only tells that it is.
    New classes compete as they are, but those of the example itself have left it out as well. ``by_features`` and
    ``by_names`` are what a re-ranker adds, to classes whose vector alone scores at least ``floor_N``, or whose name is
    listed for itself: others have a rank beyond T.
    """
    assert (np.diff(rows_P) >= 0).all()
    judged_P = np.bincount(classes_P, minlength=len(sums_CD))[classes_P] >= 2
    white_ND, directions_CD = space.whiten(examples_ND), space.directions(sums_CD)
    scores_P = _left_out_scores(space, white_ND, rows_P, classes_P, space.whiten(sums_CD))
    listed_P = np.ones(len(rows_P), bool) if floor_N is None else (scores_P >= floor_N.cpu()[rows_P]).numpy()
    if by_features is not None:
        scores_P += torch.from_numpy(by_features.left_out_scores(rows_P, classes_P)).to(scores_P)
    if by_names is not None:
        scores_P += torch.from_numpy(by_names.pair_scores(rows_P, classes_P)).to(scores_P)
        listed_P |= by_names.are_listed(rows_P, classes_P)
    scores_P[torch.from_numpy(~judged_P)] = -torch.inf
    offsets_N = np.searchsorted(rows_P, np.arange(len(examples_ND) + 1)).astype(np.int64)
    ranks_P = np.zeros(len(rows_P), np.int64)
    pairs, size = np.flatnonzero(judged_P), max(_BLOCK_SCORES // len(sums_CD), 1)
    for start in range(0, len(pairs), size):
        block = pairs[start : start + size]
        rows_B = torch.from_numpy(rows_P[block]).to(white_ND.device)
        rivals_BC = (space.length * (white_ND[rows_B] @ directions_CD.T)).cpu()
        if by_features is not None:
            rivals_BC += torch.from_numpy(by_features.scores(rows_P[block])).to(rivals_BC)
        if by_names is not None:
            rivals_BC += torch.from_numpy(by_names.scores(rows_P[block])).to(rivals_BC)
        own_offsets, own_pairs = gather_rows(offsets_N, rows_P[block])
        places = torch.from_numpy(np.repeat(np.arange(len(block)), np.diff(own_offsets)))
        rivals_BC[places, torch.from_numpy(classes_P[own_pairs])] = scores_P[torch.from_numpy(own_pairs)]
        scores_B = scores_P[torch.from_numpy(block), None]
        better_B = (best_NT[rows_B].cpu() > scores_B).sum(dim=1) + (rivals_BC > scores_B).sum(dim=1)
        ranks_P[block] = 1 + better_B.numpy()
    ranks_P[judged_P & ~listed_P] += best_NT.shape[1]
    return ranks_P


def _left_out_scores(
    space: QuerySpace, white_ND: Tensor, rows_P: Int64, classes_P: Int64, white_sums_CD: Tensor
) -> Tensor:
    """The score of each pair's class for its example, the class's vector made without it."""
    scores, size = [white_ND.new_zeros(0)], max(_BLOCK_SCORES // white_ND.shape[1], 1)
    for start in range(0, len(rows_P), size):
        block = slice(start, start + size)
        queries_BD = white_ND[torch.from_numpy(rows_P[block]).to(white_ND.device)]
        others_BD = white_sums_CD[torch.from_numpy(classes_P[block]).to(white_ND.device)] - queries_BD
        scores.append(space.length * (queries_BD * normalize(others_BD, dim=1)).sum(dim=1))
    return torch.cat(scores).cpu()
