"""The losses as ``nn.Module``s that only remember options, and all of them by name."""

from owlmine.losses.modules.base import ClassLoss, CommonOptions, PoolLoss, ScaledLoss
from owlmine.losses.modules.baselines import (
    MultiPositive,
    MultiPositiveSoftmax,
    OneVsAll,
    PooledOneVsAll,
    SemiHard,
)
from owlmine.losses.modules.ordered import MinedLoss, OrderedWeightedLoss, negative_sampling_loss
from owlmine.losses.modules.registry import LOSSES, LossEntry, LossSetting
from owlmine.losses.modules.softmax import FullSoftmax, MinedSoftmax, SampledSoftmax, StratifiedSoftmax

__all__ = [
    "LOSSES",
    "ClassLoss",
    "CommonOptions",
    "FullSoftmax",
    "LossEntry",
    "LossSetting",
    "MinedLoss",
    "MinedSoftmax",
    "MultiPositive",
    "MultiPositiveSoftmax",
    "OneVsAll",
    "OrderedWeightedLoss",
    "PoolLoss",
    "PooledOneVsAll",
    "SampledSoftmax",
    "ScaledLoss",
    "SemiHard",
    "StratifiedSoftmax",
    "negative_sampling_loss",
]
