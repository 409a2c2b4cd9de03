"""Which scores rank first, with one rule for ties: among equal scores the smaller position ranks first.

torch.topk promises nothing about ties. A loss does not notice, its gradient does: it would go to another
class from one device or version to the next, most often in bfloat16, where ties are common.

Legend: N points, B scores of each, T kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.mining.checks import may_look


def highest_reference(scores_NB: Tensor, count: int) -> Tensor:
    """Positions of the ``count`` highest scores of each row, in rank order: a full stable sort."""
    return torch.argsort(scores_NB, dim=1, descending=True, stable=True)[:, :count]


@torch.no_grad()
def highest(scores_NB: Tensor, count: int) -> Tensor:
    """The same positions as ``highest_reference``, without a full sort where ``count`` is small."""
    width = scores_NB.shape[1]
    assert 0 <= count <= width
    if count == 0:
        return torch.empty(scores_NB.shape[0], 0, dtype=torch.int64, device=scores_NB.device)
    if count == 1:
        # Documented to return the first of several maxima.
        return scores_NB.max(dim=1, keepdim=True).indices
    if 2 * count > width:
        return highest_reference(scores_NB, count)
    # One more than asked shows whether a tie crosses the boundary.
    values_NT, ids_NT = scores_NB.topk(count + 1, dim=1)
    boundary_N1, next_N1 = values_NT[:, count - 1 : count], values_NT[:, count:]
    values_NT, ids_NT = _order_ties(values_NT[:, :count], ids_NT[:, :count])
    if may_look(scores_NB, None) and not bool((boundary_N1 == next_N1).any()):
        return ids_NT
    return _settle_boundary(scores_NB, values_NT, ids_NT, boundary_N1)


def _order_ties(values_NT: Tensor, ids_NT: Tensor) -> tuple[Tensor, Tensor]:
    """Equal values among those kept, put in the order of their positions."""
    ids_NT, order_NT = ids_NT.sort(dim=1)
    values_NT, order_NT = values_NT.gather(1, order_NT).sort(dim=1, descending=True, stable=True)
    return values_NT, ids_NT.gather(1, order_NT)


def _settle_boundary(scores_NB: Tensor, values_NT: Tensor, ids_NT: Tensor, boundary_N1: Tensor) -> Tensor:
    """Fills the ranks whose value equals the boundary with the smallest positions that have this value."""
    width, count = scores_NB.shape[1], values_NT.shape[1]
    countdown_B = torch.arange(width, 0, -1, dtype=torch.int32, device=scores_NB.device)
    tied_ids_NT = torch.where(scores_NB == boundary_N1, countdown_B, 0).topk(count, dim=1).indices
    # Written so that NaN, which topk puts first, stays where it is and reaches the loss.
    above_NT = ~(values_NT <= boundary_N1)
    ranks_T = torch.arange(count, device=scores_NB.device)
    place_NT = (ranks_T - above_NT.sum(dim=1, keepdim=True)).clamp_min(0)
    return torch.where(above_NT, ids_NT, tied_ids_NT.gather(1, place_NT))
