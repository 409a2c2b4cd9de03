"""The form that every softmax here has: one positive against the log of a sum over negatives.

ℓ = log(e^a + Σ_j e^{b_j}) - a = log(1 + e^{L - a})    with a = s v_y and L = log Σ_j e^{b_j}

The softmaxes differ in what enters L. Written with L - a, a loss near 0 keeps its digits and rounding cannot make it
negative.

Legend: N points, B negatives of each.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def scaled(scores: Tensor, scale: float | Tensor, dtype: torch.dtype) -> Tensor:
    """s v, widened to ``dtype`` before the product."""
    scores = scores.to(dtype)
    if isinstance(scale, Tensor):
        return scores * scale.reshape(()).to(scores)
    return scores if scale == 1 else scores * scale


def log_sum(logits_NB: Tensor, hidden_NB: Tensor | None) -> Tensor:
    """log Σ e^b over what is not hidden; -inf where nothing is."""
    if hidden_NB is not None:
        # Hiding is the last step before the sum, so that whatever stands there gets gradient 0, NaN included.
        logits_NB = logits_NB.masked_fill(hidden_NB, -torch.inf)
    return torch.logsumexp(logits_NB, dim=1)


def against(positive_N: Tensor, log_negatives_N: Tensor) -> Tensor:
    """log(1 + e^{L - a}); 0 where there are no negatives."""
    # softplus would switch to a straight line at 20, which costs float64 half of its digits.
    return -functional.logsigmoid(positive_N - log_negatives_N)
