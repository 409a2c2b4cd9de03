"""A pool for each point of a batch, as the paper's Algorithm 1 has it, instead of one for the whole batch.

Scores of a batch are then no matrix product: the rows of each point's pool are gathered for it alone, a block of points
at a time. Independent pools cost many times as much; ``docs/research/study.md`` has what they bring.

Shapes: N points, B pool, T kept, D dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor

from owlmine.data.rows import SparseRows
from owlmine.losses.modules import PoolLoss
from owlmine.mining import draw_pools, known_in_pools
from owlmine.model.row_table import RowTable

# Numbers of gathered rows held at a time, unless the pool of a single point has more.
_BLOCK_NUMBERS = 1 << 24


class PointPoolObjective:
    """A loss on the ``kept`` hardest of a pool of each point's own. Not for losses in which the whole pool counts:
    their gradients would want the rows of all pools at once."""

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
        """[N, T] places in each point's pool, hardest first; hidden ones only where nothing else is left."""
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
