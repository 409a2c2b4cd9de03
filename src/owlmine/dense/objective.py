"""The loss of a batch: which classes are scored, and which scores have gradients.

A loss that mines needs only its few hardest negatives: the pool is scored without gradient, the hardest are found, and
the positive and those are scored once more with gradient. A loss in which the whole pool counts scores it once, with
gradient; a loss over all classes scores all.

Memory: N x B scores (N x K for losses over all classes), B rows of the class table, and for the kept negatives
N x (T + 1) rows.

Shapes: N points, K classes, B pool, W classes of the shared pool, T kept, U distinct rows, D dimension, P labels of a
batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

import torch
from torch import Tensor

from owlmine.data.rows import SparseRows
from owlmine.dense.pool_mining import PoolMiner
from owlmine.dense.row_table import RowTable
from owlmine.dense.settings import DenseSettings
from owlmine.losses import RankWeights, power_law, top_k
from owlmine.losses.modules import ClassLoss, MinedLoss, PoolLoss, ScaledLoss
from owlmine.losses.modules.registry import LOSSES, LossSetting
from owlmine.mining import (
    BatchPool,
    draw_batch_pool,
    draw_pool_with_positives,
    draw_pools,
    known_in_batch_pool,
    known_in_pools,
)

# Numbers of gathered rows held at a time, unless the pool of a single point has more.
_BLOCK_NUMBERS = 1 << 24


class PointPoolObjective:
    """A loss on the ``kept`` hardest of a pool of each point's own. Not for losses in which the whole pool counts:
    their gradients would need the rows of all pools at once."""

    def __init__(self, loss: PoolLoss, classes: RowTable, *, pool_size: int, kept: int, exclude_known: bool) -> None:
        self._loss, self._classes, self._exclude_known = loss, classes, exclude_known
        self.pool_size, self.kept = pool_size, kept

    @property
    def loss(self) -> PoolLoss:
        return self._loss

    def __call__(
        self, queries_ND: Tensor, positives_N: Tensor, labels: SparseRows, generator: torch.Generator
    ) -> Tensor:
        ids_NB = draw_pools(
            positives_N,
            num_classes=len(self._classes),
            pool_size=self.pool_size,
            generator=generator,
            validate=False,
        )
        hidden_NB = self._known(ids_NB, labels) if self._exclude_known else None
        places_NT = self._hardest_places(queries_ND.detach(), ids_NB, hidden_NB)
        hidden_NT = None if hidden_NB is None else hidden_NB.gather(1, places_NT)
        scores = self._classes.dots(queries_ND, torch.cat([positives_N[:, None], ids_NB.gather(1, places_NT)], dim=1))
        return self._loss.of_each_point(scores[:, 0], scores[:, 1:], hidden_NT)

    def _known(self, ids_NB: Tensor, labels: SparseRows) -> Tensor:
        offsets = torch.from_numpy(labels.offsets).to(ids_NB.device)
        ids = torch.from_numpy(labels.indices.astype("int64")).to(ids_NB.device)
        return known_in_pools(ids_NB, (offsets, ids), num_classes=len(self._classes), validate=False)

    @torch.no_grad()
    def _hardest_places(self, queries_ND: Tensor, ids_NB: Tensor, hidden_NB: Tensor | None) -> Tensor:
        """[N, T] places in each point's pool, hardest first; hidden ones only if nothing else is left."""
        block = max(_BLOCK_NUMBERS // (self.pool_size * self._classes.dim), 1)
        found = []
        for start in range(0, len(ids_NB), block):
            points = slice(start, start + block)
            rows = self._classes.weight.index_select(0, ids_NB[points].reshape(-1))
            rows_NBD = rows.reshape(-1, self.pool_size, self._classes.dim)
            scores_NB = torch.bmm(rows_NBD, queries_ND[points, :, None])[:, :, 0]
            if hidden_NB is not None:
                scores_NB.masked_fill_(hidden_NB[points], -torch.inf)
            found.append(scores_NB.topk(self.kept, dim=1).indices)
        return torch.cat(found)


class Objective(Protocol):
    """Losses [N] of queries [N, D] with these positives [N]; ``labels`` are all known labels of the points."""

    @property
    def loss(self) -> ScaledLoss: ...

    def __call__(
        self, queries_ND: Tensor, positives_N: Tensor, labels: SparseRows, generator: torch.Generator
    ) -> Tensor: ...


class PoolObjective:
    """A loss on a pool that the batch shares. ``kept`` is the number of hardest classes that count, None for all."""

    def __init__(
        self,
        loss: PoolLoss,
        classes: RowTable,
        *,
        pool_size: int,
        kept: int | None,
        exclude_known: bool,
        positives_in_pool: bool = False,
    ) -> None:
        self._loss, self.kept, self.pool_size = loss, kept, pool_size
        self._positives_in_pool = positives_in_pool
        self._classes, self._exclude_known = classes, exclude_known
        self._mine = None if kept is None else PoolMiner(classes, kept=kept)

    @property
    def loss(self) -> PoolLoss:
        return self._loss

    def __call__(
        self, queries_ND: Tensor, positives_N: Tensor, labels: SparseRows, generator: torch.Generator
    ) -> Tensor:
        pool = self.draw(positives_N, generator)
        if self._mine is None:
            return self._score_all(queries_ND, positives_N, pool, self._mask(pool, labels))
        places_NT, hidden_NT = self._mine(queries_ND, pool, labels if self._exclude_known else None)
        scores_NT = self._classes.dots(queries_ND, torch.cat([positives_N[:, None], pool.shared_ids[places_NT]], dim=1))
        return self._loss.of_each_point(scores_NT[:, 0], scores_NT[:, 1:], hidden_NT)

    def draw(self, positives_N: Tensor, generator: torch.Generator) -> BatchPool:
        num_classes = len(self._classes)
        if self._positives_in_pool:
            return draw_pool_with_positives(
                positives_N, num_classes=num_classes, pool_size=self.pool_size, generator=generator
            )
        return draw_batch_pool(
            positives_N, num_classes=num_classes, pool_size=self.pool_size, generator=generator, validate=False
        )

    def _score_all(self, queries_ND: Tensor, positives_N: Tensor, pool: BatchPool, mask_NW: Tensor) -> Tensor:
        # One read for pool and positives together, so that a class that is both has one gradient.
        rows_UD, places = self._classes.read(torch.cat([pool.shared_ids, positives_N]))
        scores_NU = queries_ND @ rows_UD.T
        width = len(pool.shared_ids)
        positive_N = scores_NU.gather(1, places[width:, None])[:, 0]
        return self._loss.of_each_point(positive_N, scores_NU.index_select(1, places[:width]), mask_NW)

    def _mask(self, pool: BatchPool, labels: SparseRows) -> Tensor:
        if not self._exclude_known:
            return pool.mask()
        return known_in_batch_pool(pool, padded_labels(labels, pool.shared_ids.device))


class ClassObjective:
    """A loss on the scores of all classes."""

    def __init__(self, loss: ClassLoss, classes: RowTable, *, exclude_known: bool) -> None:
        self._loss, self._classes, self._exclude_known = loss, classes, exclude_known

    @property
    def loss(self) -> ScaledLoss:
        return self._loss

    def __call__(
        self, queries_ND: Tensor, positives_N: Tensor, labels: SparseRows, generator: torch.Generator
    ) -> Tensor:
        del generator
        everything = torch.arange(len(self._classes), device=positives_N.device)
        scores_NK = queries_ND @ self._classes.read_distinct(everything).T
        if self._exclude_known:
            hide_known(scores_NK, positives_N, labels)
        return self._loss.of_each_point(scores_NK, positives_N)


@torch.no_grad()
def hide_known(scores_NK: Tensor, positives_N: Tensor, labels: SparseRows) -> None:
    """Sets the scores of a point's labels, except its positive, so low that they do not count, in place.

    As the score of a negative falls, every loss here and its derivative tend to 0. So autograd need not know, and there
    is no second N x K matrix. Lowest finite numbers, not -inf: 0 x inf would reach a learned scale.
    """
    device = scores_NK.device
    rows_P = torch.from_numpy(labels.row_ids).to(device)
    ids_P = torch.from_numpy(labels.indices.astype("int64")).to(device)
    is_positive_P = positives_N[rows_P] == ids_P
    # Headroom for the scale, and for sums of a few.
    low = torch.finfo(scores_NK.dtype).min / 2**40
    scores_NK.index_put_((rows_P, ids_P), torch.where(is_positive_P, scores_NK[rows_P, ids_P], low))


def padded_labels(labels: SparseRows, device: torch.device) -> Tensor:
    """[N, most labels] class ids, -1 if a point has fewer."""
    rows, counts = torch.from_numpy(labels.row_ids), torch.from_numpy(labels.counts)
    padded = torch.full((len(labels), max(int(counts.max()), 1)), -1)
    starts = torch.from_numpy(labels.offsets[:-1])
    padded[rows, torch.arange(len(rows)) - starts[rows]] = torch.from_numpy(labels.indices.astype("int64"))
    return padded.to(device)


def mines(settings: DenseSettings) -> bool:
    """Whether only the hardest of a pool reach the loss."""
    if settings.loss in ("bowl", "powl"):
        return _rank_weights(settings).tail == 0
    return settings.loss == "mined-softmax"


def check_objective(settings: DenseSettings, *, num_classes: int) -> None:
    """Raises ValueError if the settings are inconsistent, or do not fit the number of classes."""
    if num_classes < 2:
        raise ValueError(f"num_classes is {num_classes}; wanted 2 or more")
    for name, good, wanted in _checks(settings, num_classes):
        if not good:
            value = "off" if name == "shared_pool" else getattr(settings, name)
            raise ValueError(f"{name} is {value}; wanted {wanted}")


def _checks(settings: DenseSettings, num_classes: int) -> Iterator[tuple[str, bool, str]]:
    """In this order: weights by rank require that no more negatives count than the pool has."""
    most, top, pool, start = num_classes - 1, settings.top, settings.pool, settings.pool_start
    yield "pool", pool <= most, f"at most {most}, all {num_classes} classes except the positive"
    yield "top", top <= pool, f"at most the pool of {pool}"
    if LOSSES[settings.loss].inputs == "classes":
        yield "pool_start", start is None, "none with a loss over all classes"
        yield "shared_pool", settings.shared_pool, "it on with a loss over all classes"
    elif not mines(settings):
        yield "pool_start", start is None, "none with a loss in which the whole pool counts"
        yield "shared_pool", settings.shared_pool, "it on with a loss in which the whole pool counts"
    if settings.positives_in_pool:
        yield "shared_pool", settings.shared_pool, "it on if the pool has the positives of the batch"
        yield "batch_size", settings.batch_size <= (start or pool), f"at most the pool of {start or pool}"
    if start is not None:
        yield "pool_start", settings.shared_pool, "none with a pool for each point"
        yield "pool_start", start <= pool, f"at most the pool of {pool}"
        yield "pool_start", start >= max(top, 2), f"at least 2, and no fewer than the {top} that count (--top)"


def make_objective(settings: DenseSettings, classes: RowTable) -> Objective:
    """The loss of these settings, on this class table."""
    check_objective(settings, num_classes=len(classes))
    entry = LOSSES[settings.loss]
    setting = LossSetting(
        num_classes=len(classes),
        pool_size=settings.pool,
        kept=settings.top,
        phi=settings.surrogate,
        scale=settings.scale,
        learn_scale=settings.learn_scale,
        reduction="none",
    )
    built = entry.build(setting).to(classes.weight.device)
    # A loss that rejects non-finite scores could name neither the step nor the remedy.
    built.validate = False
    if entry.inputs == "classes":
        return ClassObjective(cast(ClassLoss, built), classes, exclude_known=settings.exclude_known)
    return _pool_objective(settings, cast(PoolLoss, built), classes)


def _pool_objective(settings: DenseSettings, loss: PoolLoss, classes: RowTable) -> Objective:
    kept = settings.top if mines(settings) else None
    if settings.loss in ("bowl", "powl"):
        assert isinstance(loss, MinedLoss)
        weights = _rank_weights(settings)
        if kept is not None:
            # Only the kept classes of a mined pool reach the loss.
            kept = len(weights.prefix)
            weights = RankWeights(weights.prefix, 0.0, kept)
        loss.weights = weights
    if not settings.shared_pool:
        assert kept is not None
        return PointPoolObjective(
            loss, classes, pool_size=settings.pool, kept=kept, exclude_known=settings.exclude_known
        )
    pool_size = settings.pool_start or settings.pool
    return PoolObjective(
        loss,
        classes,
        pool_size=pool_size,
        kept=kept,
        exclude_known=settings.exclude_known,
        positives_in_pool=settings.positives_in_pool,
    )


def _rank_weights(settings: DenseSettings) -> RankWeights:
    if settings.power:
        weights = power_law(settings.power, pool_size=settings.pool, kept=settings.top)
    else:
        weights = top_k(settings.top, pool_size=settings.pool)
    return weights.with_tail(settings.least_weight) if settings.least_weight else weights
