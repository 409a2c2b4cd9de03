"""What a loss wants: its gradients, and with them its best rates, differ from another's by orders of magnitude."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SuitedSetting:
    """Named as the training options whose place they take."""

    top: int
    scale: float
    class_rate: float
    feature_rate: float
    map_rate: float


_HINGE = SuitedSetting(top=1, scale=1.0, class_rate=0.1, feature_rate=10.0, map_rate=0.001)
# Scores lie in [-1, 1]: without a scale the probability of a positive among many could never come near 1.
_SOFTMAX = SuitedSetting(top=1, scale=20.0, class_rate=0.03, feature_rate=3.0, map_rate=0.0003)
# Class vectors that hardly move, and an encoder that learns to meet them.
_WHOLE_POOL = SuitedSetting(top=1, scale=1.0, class_rate=0.001, feature_rate=3.0, map_rate=0.003)

SUITED = {
    "mined-softmax": SuitedSetting(top=16, scale=10.0, class_rate=0.03, feature_rate=3.0, map_rate=0.0003),
    "sampled-softmax": _SOFTMAX,
    "softmax": _SOFTMAX,
    "negative-sampling-bowl": _WHOLE_POOL,
    "negative-sampling-powl": _WHOLE_POOL,
}
"""Losses that were measured on their own. All others take what suits the paper's loss."""


def suited_setting(loss: str) -> SuitedSetting:
    return SUITED.get(loss, _HINGE)
