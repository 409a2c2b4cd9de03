"""Finds the best classes for queries: exactly, or approximately and faster."""

from __future__ import annotations

from typing import Protocol, Self

from torch import Tensor

from owlmine.index.approximate import ApproximateIndex
from owlmine.index.exact import ExactIndex
from owlmine.index.filters import Filter, search
from owlmine.mining.coded_rows import Table

__all__ = ["ApproximateIndex", "ExactIndex", "Filter", "Index", "search"]


class Index(Protocol):
    """Searches the rows of one table of class vectors. It never changes, and many threads may use it at once.

    Shapes: N queries, K classes, D dimension, k best classes.
    """

    @property
    def table_KD(self) -> Table: ...

    def search(self, queries_ND: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Exact scores and ids [N, k] of the best classes, best first, ties by smaller id."""

    def rough(self, queries_ND: Tensor, k: int) -> Tensor:
        """Ids [N, k] of high-scoring classes for training, which tolerates missed ones; in no order, -1 in empty
        places."""

    def of_larger(self, table_KD: Table) -> Self:
        """An index for a longer table that starts with the rows of this one."""
