"""An approximate index over class vectors: inverted lists of short codes by faiss, then exact scores of what they find.

Class vectors are grouped by k-means. A query looks into the few groups nearest to it and compares codes of 4 bits for
two dimensions, many at once; the best of them are scored again with the class vectors themselves. So a class may be
missed, but its score is that of exact search. faiss is optional: ``pip install '.[index]'``.

Shapes: N queries, K classes, D dimension, k best classes, R classes to score again, C new classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.errors import OwlmineError

# Groups are about four times the root of the number of classes: then finding groups and looking into some cost alike.
_GROUPS_PER_ROOT = 4.0
_MOST_GROUPS = 1 << 16
# Of k-means: more vectors or rounds do not find more classes.
_SAMPLES_PER_GROUP, _ROUNDS = 32, 4
_DIM_PER_CODE = 2
_CODE_BITS = 4
# Groups that a query looks into, of 32: for answers, and for training, which can do without some classes.
_PROBED, _PROBED_ROUGHLY = 2, 0.5
# Classes that are scored again, for each that is wanted, and at least.
_SCORED_AGAIN, _LEAST_SCORED_AGAIN = 4, 100
# More answers than these are found by exact search.
MOST_ANSWERS = 1024
_FEW_QUERIES = 16
_BLOCK_NUMBERS = 1 << 24


@cache
def faiss_module() -> ModuleType | None:
    """faiss, where it is installed."""
    try:
        import faiss
    except ImportError:
        return None
    module: ModuleType = faiss
    return module


def require_faiss() -> ModuleType:
    faiss = faiss_module()
    if faiss is None:
        raise OwlmineError("an index needs faiss; install it with: pip install '.[index]', in the checkout")
    return faiss


@dataclass(frozen=True, eq=False)
class ApproximateIndex:
    """Of one table of class vectors, on the CPU. It does not change and may be used from many threads at once."""

    lists: Any
    """faiss.IndexIVFPQFastScan."""

    @classmethod
    def build(cls, table_KD: Tensor, *, seed: int = 0) -> ApproximateIndex:
        """The same bits for the same table, seed, machine and number of threads."""
        faiss = require_faiss()
        rows_KD = _numbers(table_KD)
        num_classes, dim = rows_KD.shape
        num_groups = min(2 ** int(np.log2(_GROUPS_PER_ROOT * np.sqrt(num_classes))), _MOST_GROUPS)
        padded = -(-dim // _DIM_PER_CODE) * _DIM_PER_CODE
        codes = f"PQ{padded // _DIM_PER_CODE}x{_CODE_BITS}fs"
        lists = faiss.index_factory(padded, f"IVF{num_groups},{codes}", faiss.METRIC_INNER_PRODUCT)
        lists.cp.niter, lists.cp.seed, lists.cp.min_points_per_centroid = _ROUNDS, 1 + seed % 2**30, 1
        count = min(num_classes, _SAMPLES_PER_GROUP * num_groups)
        chosen = np.sort(np.random.default_rng(seed).choice(num_classes, count, replace=False))
        _use_threads(faiss)
        lists.train(_widened(rows_KD[chosen], padded))
        lists.add(_widened(rows_KD, padded))
        return cls(lists)

    @property
    def num_classes(self) -> int:
        return int(self.lists.ntotal)

    @property
    def dim(self) -> int:
        """Of its vectors: that of the table, and one more where it is odd."""
        return int(self.lists.d)

    @torch.no_grad()
    def search(self, queries_ND: Tensor, table_KD: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Exact scores and ids [N, k] of nearly the best classes, best first, among equals the smaller id first.

        Where fewer are found: -inf and -1. ``table_KD``: that of which the index was built.
        """
        ids_NR = self._found(queries_ND, min(max(_SCORED_AGAIN * k, _LEAST_SCORED_AGAIN), self.num_classes), _PROBED)
        scores_Nk = torch.empty(len(ids_NR), k)
        ids_Nk = torch.empty(len(ids_NR), k, dtype=torch.int64)
        size = max(_BLOCK_NUMBERS // (ids_NR.shape[1] * table_KD.shape[1]), 1)
        for start in range(0, len(ids_NR), size):
            block = slice(start, start + size)
            # In ascending order, so that equal scores stay in it; -1 comes first and is put last by its score.
            own_NR = ids_NR[block].sort(dim=1).values
            rows_NRD = table_KD[own_NR.clamp_min(0)]
            scores_NR = torch.einsum("nrd,nd->nr", rows_NRD, queries_ND[block].to(table_KD.dtype)).float()
            scores_NR.masked_fill_(own_NR < 0, -torch.inf)
            scores_NR, order_NR = scores_NR.sort(dim=1, descending=True, stable=True)
            scores_Nk[block], ids_Nk[block] = scores_NR[:, :k], own_NR.gather(1, order_NR)[:, :k]
        return scores_Nk, ids_Nk

    @torch.no_grad()
    def rough(self, queries_ND: Tensor, k: int) -> Tensor:
        """Ids [N, k] of classes that score high by their codes alone, in no order; -1 where fewer are found."""
        return self._found(queries_ND, k, _PROBED_ROUGHLY)

    def with_more(self, rows_CD: Tensor) -> ApproximateIndex:
        """With classes behind the known ones."""
        faiss = require_faiss()
        lists = faiss.clone_index(self.lists)
        _use_threads(faiss)
        lists.add(_widened(_numbers(rows_CD), self.dim))
        return ApproximateIndex(lists)

    def to_bytes(self) -> NDArray[np.uint8]:
        """As faiss writes it."""
        code: NDArray[np.uint8] = require_faiss().serialize_index(self.lists)
        return code

    @classmethod
    def from_bytes(cls, code: NDArray[np.uint8], *, num_classes: int, dim: int) -> ApproximateIndex:
        """What ``to_bytes`` gave; ValueError where it cannot be an index of such a table."""
        faiss = require_faiss()
        try:
            lists = faiss.deserialize_index(code)
        except (RuntimeError, ValueError) as error:
            raise ValueError("faiss cannot read it") from error
        if not isinstance(lists, faiss.IndexIVFPQFastScan):
            raise ValueError(f"a {type(lists).__name__}; wanted an IndexIVFPQFastScan")
        padded = -(-dim // _DIM_PER_CODE) * _DIM_PER_CODE
        if (lists.ntotal, lists.d) != (num_classes, padded):
            raise ValueError(f"{lists.ntotal} classes of {lists.d} dimensions; wanted {num_classes} of {padded}")
        return cls(lists)

    def to_dict(self) -> dict[str, Any]:
        """What a record says of it."""
        return {"kind": "faiss", "faiss": require_faiss().__version__, "groups": int(self.lists.nlist)}

    def _found(self, queries_ND: Tensor, count: int, probed: float) -> Tensor:
        faiss = require_faiss()
        num_probes = max(int(probed * self.lists.nlist / 32), 1)
        _use_threads(faiss, num_queries=len(queries_ND))
        _, ids_NR = self.lists.search(
            _widened(_numbers(queries_ND), self.dim),
            count,
            params=faiss.SearchParametersIVF(nprobe=num_probes),
        )
        return torch.from_numpy(ids_NR)


def check_version(record: Mapping[str, Any]) -> None:
    """ValueError for an index that another faiss wrote."""
    faiss, found = require_faiss(), record.get("faiss")
    if found != faiss.__version__:
        raise ValueError(f"it was built by faiss {found}; wanted {faiss.__version__}")


def _use_threads(faiss: ModuleType, *, num_queries: int | None = None) -> None:
    """As many as PyTorch has, since faiss has a number of its own; one for few queries, which would wait for others."""
    num_threads = 1 if num_queries is not None and num_queries < _FEW_QUERIES else torch.get_num_threads()
    if faiss.omp_get_max_threads() != num_threads:
        faiss.omp_set_num_threads(num_threads)


def _numbers(rows: Tensor) -> NDArray[np.float32]:
    return rows.detach().to("cpu", torch.float32).contiguous().numpy()


def _widened(rows: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """With zeros up to a whole number of codes, which change no product."""
    return rows if rows.shape[1] == width else np.pad(rows, ((0, 0), (0, width - rows.shape[1])))
