"""Every loss by name, for training options and for the contract tests, which run over all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from owlmine.losses.inputs import Kind, Reduction
from owlmine.losses.members import top_k_loss
from owlmine.losses.modules.base import CommonOptions, ScaledLoss
from owlmine.losses.modules.baselines import (
    MultiPositive,
    MultiPositiveSoftmax,
    OneVsAll,
    PooledOneVsAll,
    SemiHard,
)
from owlmine.losses.modules.ordered import MinedLoss, OrderedWeightedLoss, negative_sampling_loss
from owlmine.losses.modules.softmax import FullSoftmax, MinedSoftmax, SampledSoftmax, StratifiedSoftmax
from owlmine.losses.multi_positive import SoftmaxForm
from owlmine.losses.rank_weights import top_k
from owlmine.losses.surrogates import Surrogate

Inputs = Literal["classes", "labels", "pool", "pool_others", "kept_pool", "pool_labels"]


@dataclass(frozen=True)
class LossSetting:
    """The parameters for building any of the losses."""

    num_classes: int
    """K."""
    pool_size: int
    """B, for losses on pools."""
    kept: int = 1
    """How many of the hardest count, for losses that mine."""
    phi: str | Surrogate = "hinge"
    """Surrogate of the ordered and mined losses."""
    scale: float = 1.0
    """Factor on scores."""
    learn_scale: bool = False
    """Whether the factor is a parameter."""
    reduction: Reduction = "mean"
    """Reduction of the losses of a batch."""

    def common(self) -> CommonOptions:
        return {"scale": self.scale, "learn_scale": self.learn_scale, "reduction": self.reduction}


@dataclass(frozen=True)
class LossEntry:
    """A loss by name."""

    build: Callable[[LossSetting], ScaledLoss]
    inputs: Inputs
    """The arguments of ``forward``. classes: scores_NK, positives_N. labels: scores_NK, positives_NP. pool:
    positive_scores_N, pool_scores_NB, mask. pool_others: the same and others_NM. kept_pool: positive_scores_N,
    kept_scores_NT, pool_scores_NB, mask. pool_labels: positive_scores_NP, pool_scores_NB, mask, padding_NP."""
    falls_with_positive: bool = True
    """Whether the loss never rises when a positive's score rises."""


def _ordered(kind: Kind) -> LossEntry:
    def build(setting: LossSetting) -> ScaledLoss:
        return OrderedWeightedLoss(top_k_loss(setting.kept, kind=kind), phi=setting.phi, **setting.common())

    return LossEntry(build, "classes")


def _mined(kind: Kind) -> LossEntry:
    return LossEntry(lambda setting: _mined_loss(setting, kind), "pool")


def _mined_loss(setting: LossSetting, kind: Kind) -> MinedLoss:
    weights = top_k(setting.kept, pool_size=setting.pool_size)
    return MinedLoss(weights, kind=kind, phi=setting.phi, **setting.common())


def _negative_sampling(kind: Kind) -> LossEntry:
    def build(setting: LossSetting) -> ScaledLoss:
        return negative_sampling_loss(pool_size=setting.pool_size, kind=kind, phi=setting.phi, **setting.common())

    return LossEntry(build, "pool")


def _sized(loss: Callable[..., ScaledLoss], inputs: Inputs) -> LossEntry:
    def build(setting: LossSetting) -> ScaledLoss:
        return loss(num_classes=setting.num_classes, pool_size=setting.pool_size, **setting.common())

    return LossEntry(build, inputs)


def _estimated(setting: LossSetting) -> ScaledLoss:
    return MinedSoftmax(
        kept=setting.kept,
        tail="estimate",
        num_classes=setting.num_classes,
        pool_size=setting.pool_size,
        **setting.common(),
    )


def _labels_softmax(form: SoftmaxForm, *, falls: bool) -> LossEntry:
    return LossEntry(lambda setting: MultiPositiveSoftmax(form=form, **setting.common()), "labels", falls)


LOSSES: dict[str, LossEntry] = {
    "bowl": _mined("bowl"),
    "powl": _mined("powl"),
    "negative-sampling-bowl": _negative_sampling("bowl"),
    "negative-sampling-powl": _negative_sampling("powl"),
    "full-bowl": _ordered("bowl"),
    "full-powl": _ordered("powl"),
    "softmax": LossEntry(lambda setting: FullSoftmax(**setting.common()), "classes"),
    "sampled-softmax": _sized(SampledSoftmax, "pool"),
    "mined-softmax": LossEntry(lambda setting: MinedSoftmax(kept=setting.kept, **setting.common()), "pool"),
    "mined-softmax-estimate": LossEntry(_estimated, "pool_others"),
    "stratified-softmax": _sized(StratifiedSoftmax, "kept_pool"),
    "one-vs-all": LossEntry(lambda setting: OneVsAll(**setting.common()), "classes"),
    "one-vs-all-labels": LossEntry(lambda setting: OneVsAll(**setting.common()), "labels"),
    "pooled-one-vs-all": _sized(PooledOneVsAll, "pool"),
    "semi-hard": LossEntry(lambda setting: SemiHard(**setting.common()), "pool", falls_with_positive=False),
    "multi-positive-bowl": LossEntry(lambda setting: MultiPositive(_mined_loss(setting, "bowl")), "pool_labels"),
    "softmax-decoupled": _labels_softmax("decoupled", falls=True),
    "softmax-log-sum": _labels_softmax("log_sum", falls=True),
    # A positive that leads the others is pushed down.
    "softmax-mean-log": _labels_softmax("mean_log", falls=False),
}
