"""Every number for training one dense model. Nothing is left open: ``recipe/plan.py`` has chosen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DenseSettings:
    """One model: its shape, loss and steps."""

    kind: str
    """``embedding`` (the paper's) or ``linear``."""
    dim: int
    depth: int
    loss: str
    top: int
    """Hardest negatives that count, for losses that mine."""
    pool: int
    """Classes drawn for a batch."""
    pool_start: int | None
    """Pool of the first steps, if it grows."""
    shared_pool: bool
    positives_in_pool: bool
    """Whether the pool that a batch shares has all its positives. They count as negatives of other points."""
    surrogate: str
    scale: float
    learn_scale: bool
    power: float
    least_weight: float
    """Minimum weight of every negative of the pool."""
    exclude_known: bool
    epochs: float
    batch_size: int
    class_rate: float
    feature_rate: float
    map_rate: float
    momentum: float
    optimiser: str
    schedule: str
    warm_start: bool
    patience: int
    """Epochs without a better validation P@1 after which to stop; 0: never."""
    kernels: bool
    """Whether a GPU uses Triton kernels where available."""
    seed: int
