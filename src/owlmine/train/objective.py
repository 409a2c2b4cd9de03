"""The loss of a batch: which classes are scored, and which of the scores carry gradients.

A loss that mines needs only its few hardest negatives: the pool is scored without gradient, the hardest are found, and
the positive and those are scored once more with gradient. A loss in which the whole pool counts scores it once, with
gradient; a loss over all classes scores all.

Memory: N x B scores (N x K for losses over all classes), B rows of the class table, and for the kept negatives
N x (T + 1) rows.

Shapes: N points, K classes, W classes of the shared pool, T kept, U distinct rows, D dimension, P labels of a batch.
"""

from __future__ import annotations

from typing import Protocol, cast

import torch
from torch import Tensor
from torch.nn import functional

from owlmine.data.rows import SparseRows
from owlmine.losses import RankWeights, power_law, top_k
from owlmine.losses.modules import ClassLoss, MinedLoss, PoolLoss, ScaledLoss
from owlmine.losses.modules.registry import LOSSES, LossSetting
from owlmine.losses.modules.softmax import MinedSoftmax
from owlmine.mining import BatchPool, draw_batch_pool, known_in_batch_pool
from owlmine.mining.pool import find_in_shared
from owlmine.model.row_table import RowTable
from owlmine.train.options import MAX_POOL, TrainOptions

# What a pool costs on two cores grows with it; what it brings flattens out.
_CPU_POOL = 4096
# The hardest of nearly all classes is often one that is relevant and was not marked: a pool of an eighth does better.
_POOL_SHARE = 8


class Objective(Protocol):
    """Losses [N] of queries [N, D] with these positives [N]; ``labels`` are all known labels of the points."""

    @property
    def loss(self) -> ScaledLoss: ...

    def __call__(
        self, queries_ND: Tensor, positives_N: Tensor, labels: SparseRows, generator: torch.Generator
    ) -> Tensor: ...


class PoolObjective:
    """A loss on a pool that the batch shares. ``kept`` is how many of the hardest it looks at, None for all."""

    def __init__(
        self, loss: PoolLoss, classes: RowTable, *, pool_size: int, kept: int | None, exclude_known: bool
    ) -> None:
        self._loss, self.kept, self.pool_size = loss, kept, pool_size
        self._classes, self._exclude_known = classes, exclude_known
        self._buffers: dict[str, Tensor] = {}

    @property
    def loss(self) -> ScaledLoss:
        return self._loss

    def __call__(
        self, queries_ND: Tensor, positives_N: Tensor, labels: SparseRows, generator: torch.Generator
    ) -> Tensor:
        pool = draw_batch_pool(
            positives_N,
            num_classes=len(self._classes),
            pool_size=self.pool_size,
            generator=generator,
            validate=False,
        )
        if self.kept is None:
            return self._score_all(queries_ND, positives_N, pool, self._mask(pool, labels))
        kept_NT, hidden_NT = self._mine(queries_ND, pool, labels)
        ids_NT = torch.cat([positives_N[:, None], pool.shared_ids[kept_NT]], dim=1)
        rows_UD, places_NT = self._classes.read(ids_NT)
        # Not rows_UD[places_NT]: the gradient of indexing adds up in an order that changes from run to run.
        scores_NT = torch.einsum("nd,ntd->nt", queries_ND, functional.embedding(places_NT, rows_UD))
        return self._loss.of_each_point(scores_NT[:, 0], scores_NT[:, 1:], hidden_NT)

    @torch.no_grad()
    def _mine(self, queries_ND: Tensor, pool: BatchPool, labels: SparseRows) -> tuple[Tensor, Tensor | None]:
        """Places in the pool of each point's hardest classes [N, T], and which of those must not count."""
        assert self.kept is not None
        rows_WD = self._buffer("rows", len(pool.shared_ids), self._classes.dim)
        torch.index_select(self._classes.weight, 0, pool.shared_ids, out=rows_WD)
        scores_NW = torch.mm(queries_ND, rows_WD.T, out=self._buffer("scores", len(queries_ND), len(rows_WD)))
        # Single entries, not a mask of the whole matrix: the class that each point leaves out, and known labels.
        scores_NW.scatter_(1, pool.dropped[:, None], -torch.inf)
        if self._exclude_known:
            scores_NW.index_put_(_known_places(pool, labels), scores_NW.new_tensor(-torch.inf))
        if self.kept == 1:
            hardest_NT, kept_NT = scores_NW.max(dim=1, keepdim=True)
        else:
            hardest_NT, kept_NT = scores_NW.topk(self.kept, dim=1)
        # Only known labels can leave fewer than T classes to choose from.
        return kept_NT, hardest_NT == -torch.inf if self._exclude_known else None

    def _buffer(self, name: str, *shape: int) -> Tensor:
        """Memory that steps share: fresh pages for tens of MiB in every step cost more than filling them."""
        if name not in self._buffers or self._buffers[name].shape != shape:
            self._buffers[name] = self._classes.weight.new_empty(shape)
        return self._buffers[name]

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

    def __init__(self, loss: ClassLoss, classes: RowTable) -> None:
        self._loss, self._classes = loss, classes

    @property
    def loss(self) -> ScaledLoss:
        return self._loss

    def __call__(
        self, queries_ND: Tensor, positives_N: Tensor, labels: SparseRows, generator: torch.Generator
    ) -> Tensor:
        del labels, generator
        everything = torch.arange(len(self._classes), device=positives_N.device)
        return self._loss.of_each_point(queries_ND @ self._classes.read_distinct(everything).T, positives_N)


def _known_places(pool: BatchPool, labels: SparseRows) -> tuple[Tensor, Tensor]:
    """Rows and columns of the labels' scores in the pool; a label outside of it points at what its point leaves out."""
    device = pool.shared_ids.device
    rows_P = torch.from_numpy(labels.row_ids).to(device)
    places_P, is_in_P = find_in_shared(pool.shared_ids, torch.from_numpy(labels.indices.astype("int64")).to(device))
    return rows_P, torch.where(is_in_P, places_P, pool.dropped[rows_P])


def padded_labels(labels: SparseRows, device: torch.device) -> Tensor:
    """[N, most labels] class ids, -1 where a point has fewer."""
    rows, counts = torch.from_numpy(labels.row_ids), torch.from_numpy(labels.counts)
    padded = torch.full((len(labels), max(int(counts.max()), 1)), -1)
    starts = torch.from_numpy(labels.offsets[:-1])
    padded[rows, torch.arange(len(rows)) - starts[rows]] = torch.from_numpy(labels.indices.astype("int64"))
    return padded.to(device)


def pool_size_for(options: TrainOptions, *, num_classes: int, device: torch.device) -> int:
    """The pool asked for, or what suits the device."""
    if options.pool > num_classes - 1:
        raise ValueError(
            f"pool is {options.pool}; wanted at most {num_classes - 1}, all of {num_classes} classes but the positive"
        )
    most = MAX_POOL if device.type == "cuda" else _CPU_POOL
    return options.pool or min(most, max(num_classes // _POOL_SHARE, 256, options.top), num_classes - 1)


def make_objective(options: TrainOptions, classes: RowTable) -> Objective:
    """The loss that the options name, on this class table."""
    pool_size = pool_size_for(options, num_classes=len(classes), device=classes.weight.device)
    if options.top > pool_size:
        raise ValueError(f"top is {options.top}; wanted at most the pool of {pool_size}")
    entry = LOSSES[options.loss]

    def built(size: int) -> ScaledLoss:
        setting = LossSetting(
            num_classes=len(classes),
            pool_size=size,
            kept=options.top,
            phi=options.surrogate,
            scale=options.scale,
            learn_scale=options.learn_scale,
            reduction="none",
        )
        return entry.build(setting).to(classes.weight.device)

    if entry.inputs == "classes":
        return ClassObjective(cast(ClassLoss, built(pool_size)), classes)
    loss, kept = cast(PoolLoss, built(pool_size)), None
    if options.loss in ("bowl", "powl"):
        weights = _rank_weights(options, pool_size)
        kept = len(weights.prefix) if weights.tail == 0 else None
        # Of a mined pool only the kept reach the loss.
        own = weights if kept is None else RankWeights(weights.prefix, 0.0, kept)
        assert isinstance(loss, MinedLoss)
        loss.weights = own
    elif isinstance(loss, MinedSoftmax):
        kept = options.top
    return PoolObjective(loss, classes, pool_size=pool_size, kept=kept, exclude_known=options.exclude_known)


def _rank_weights(options: TrainOptions, pool_size: int) -> RankWeights:
    if options.power:
        weights = power_law(options.power, pool_size=pool_size, kept=options.top)
    else:
        weights = top_k(options.top, pool_size=pool_size)
    return weights.with_tail(options.tail) if options.tail else weights
