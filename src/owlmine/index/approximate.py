"""An approximate index over class vectors, by faiss; the classes that it finds get exact scores.

ivf     Class vectors are grouped by k-means. A query searches the few groups nearest to it and compares codes of 4 bits
        for two dimensions, many at once.
hnsw    Each class is linked to classes near it. A query walks along the links, with codes of 8 bits for a dimension.

The best classes by their codes are scored again with their vectors. So a class may be missed, but every class that is
found has its exact score. faiss is optional: ``pip install '.[index]'``.

Shapes: N queries, K classes, D dimension, k best classes, R classes to score again, C new classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.errors import OwlmineError
from owlmine.index.exact import rescored
from owlmine.mining.coded_rows import Table
from owlmine.mining.hardest_classes import hardest

# Exact search among fewer classes takes a fraction of a millisecond, and k-means has too little to group.
LEAST_CLASSES = 1_000
# At least so many classes are scored again.
_LEAST_SCORED_AGAIN = 100
# Exact search finds longer lists.
_MOST_ANSWERS = 1024
_FEW_QUERIES = 16

# About four times the square root of the number of classes: finding groups then costs about as much as searching some.
_GROUPS_PER_ROOT = 4.0
_MOST_GROUPS = 1 << 16
# For k-means: more vectors or rounds do not improve recall.
_SAMPLES_PER_GROUP, _ROUNDS = 32, 4
_DIM_PER_CODE = 2
_CODE_BITS = 4
# Groups that a query searches, of every 32: for answers, and for training, which tolerates missed classes.
_PROBED, _PROBED_ROUGHLY = 1.5, 0.3
_BLOCK_ROWS = 1 << 16

# Links of a class, and the length of the list of nearest classes while links are made.
_LINKS, _BUILDING_LIST = 32, 80
# The list of nearest classes while a query walks: for answers, at least, and for training.
_WALKING_LIST, _WALKING_LIST_ROUGHLY = 512, 64


@cache
def faiss_module() -> ModuleType | None:
    """faiss, or None if it is not installed."""
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


class _Groups:
    """IVF: groups of short codes."""

    faiss_class = "IndexIVFPQFastScan"
    scored_again = 4
    """Classes that are scored again, for each that is wanted."""

    @staticmethod
    def width(dim: int) -> int:
        """Vectors are padded to a whole number of codes."""
        return -(-dim // _DIM_PER_CODE) * _DIM_PER_CODE

    @staticmethod
    def empty(faiss: ModuleType, num_classes: int, width: int, seed: int) -> Any:
        num_groups = min(2 ** int(np.log2(_GROUPS_PER_ROOT * np.sqrt(num_classes))), _MOST_GROUPS)
        codes = f"PQ{width // _DIM_PER_CODE}x{_CODE_BITS}fs"
        lists = faiss.index_factory(width, f"IVF{num_groups},{codes}", faiss.METRIC_INNER_PRODUCT)
        lists.cp.niter, lists.cp.seed, lists.cp.min_points_per_centroid = _ROUNDS, 1 + seed % 2**30, 1
        return lists

    @staticmethod
    def num_samples(lists: Any) -> int:
        """Classes to learn groups from."""
        return _SAMPLES_PER_GROUP * int(lists.nlist)

    @staticmethod
    def parameters(faiss: ModuleType, lists: Any, count: int, *, roughly: bool) -> Any:
        del count
        probed = _PROBED_ROUGHLY if roughly else _PROBED
        return faiss.SearchParametersIVF(nprobe=max(int(probed * lists.nlist / 32), 1))

    @staticmethod
    def to_dict(lists: Any) -> dict[str, int]:
        return {"groups": int(lists.nlist)}


class _Graph:
    """HNSW: links between classes near each other. With several threads, every build makes slightly other links."""

    faiss_class = "IndexHNSWSQ"
    scored_again = 2

    @staticmethod
    def width(dim: int) -> int:
        return dim

    @staticmethod
    def empty(faiss: ModuleType, num_classes: int, width: int, seed: int) -> Any:
        del num_classes, seed
        graph = faiss.IndexHNSWSQ(width, faiss.ScalarQuantizer.QT_8bit, _LINKS, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = _BUILDING_LIST
        return graph

    @staticmethod
    def num_samples(graph: Any) -> int:
        """Classes to learn the range of each dimension from."""
        del graph
        return 1 << 16

    @staticmethod
    def parameters(faiss: ModuleType, graph: Any, count: int, *, roughly: bool) -> Any:
        del graph
        return faiss.SearchParametersHNSW(efSearch=max(_WALKING_LIST_ROUGHLY if roughly else _WALKING_LIST, count))

    @staticmethod
    def to_dict(graph: Any) -> dict[str, int]:
        del graph
        return {"links": _LINKS}


KINDS: dict[str, type[_Groups] | type[_Graph]] = {"ivf": _Groups, "hnsw": _Graph}
# Single queries are answered faster at the same recall, and it is much smaller and sooner built (docs/index.md).
DEFAULT_KIND = "ivf"


@dataclass(frozen=True, eq=False)
class ApproximateIndex:
    """An index of one table of class vectors, on the CPU. It never changes, and many threads may use it at once."""

    table_KD: Table
    kind: str
    """One of ``KINDS``."""
    lists: Any
    """The faiss index of that kind."""

    @classmethod
    def build(cls, table_KD: Table, *, kind: str = DEFAULT_KIND, seed: int = 0) -> ApproximateIndex:
        """Groups have the same bits for the same table, seed, machine and number of threads."""
        faiss = require_faiss()
        if kind not in KINDS:
            raise OwlmineError(f"the kind of index is {kind!r}; wanted {' or '.join(KINDS)}")
        num_classes, dim = table_KD.shape
        if num_classes < LEAST_CLASSES:
            raise OwlmineError(
                f"an index of {num_classes:,} classes; wanted {LEAST_CLASSES:,} or more: exact search is as fast"
            )
        own = KINDS[kind]
        lists = own.empty(faiss, num_classes, own.width(dim), seed)
        chosen = torch.from_numpy(_drawn(num_classes, own.num_samples(lists), seed))
        with _threads(faiss, torch.get_num_threads()):
            lists.train(_widened(_numbers(table_KD[chosen]), own.width(dim)))
        _add(lists, table_KD, 0)
        return cls(table_KD, kind, lists)

    @property
    def num_classes(self) -> int:
        return int(self.lists.ntotal)

    @torch.no_grad()
    def search(self, queries_ND: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Exact scores and ids [N, k] of nearly the best classes, best first, ties by smaller id."""
        if k > _MOST_ANSWERS:
            return hardest(queries_ND, self.table_KD, k)
        count = max(KINDS[self.kind].scored_again * k, _LEAST_SCORED_AGAIN)
        ids_NR = self._found(queries_ND, min(count, self.num_classes), roughly=False)
        scores_Nk, ids_Nk = rescored(queries_ND, self.table_KD, ids_NR, k)
        if bool((short_N := ids_Nk[:, -1] < 0).any()):
            # The groups searched have fewer classes than that.
            scores_Nk[short_N], ids_Nk[short_N] = hardest(queries_ND[short_N], self.table_KD, k)
        return scores_Nk, ids_Nk

    @torch.no_grad()
    def rough(self, queries_ND: Tensor, k: int) -> Tensor:
        """Ids [N, k] of classes with high scores by their codes alone, in no order; -1 if fewer are found."""
        return self._found(queries_ND, k, roughly=True)

    def of_larger(self, table_KD: Table) -> ApproximateIndex:
        """An index for a longer table that starts with the rows of this one."""
        faiss = require_faiss()
        lists = faiss.clone_index(self.lists)
        _add(lists, table_KD, self.num_classes)
        return ApproximateIndex(table_KD, self.kind, lists)

    def to_bytes(self) -> NDArray[np.uint8]:
        """The index as faiss writes it."""
        code: NDArray[np.uint8] = require_faiss().serialize_index(self.lists)
        return code

    @classmethod
    def from_bytes(cls, code: NDArray[np.uint8], table_KD: Table) -> ApproximateIndex:
        """The inverse of ``to_bytes``. Raises ValueError if it cannot be an index of this table."""
        faiss = require_faiss()
        try:
            lists = faiss.deserialize_index(code)
        except (RuntimeError, ValueError) as error:
            raise ValueError("faiss cannot read it") from error
        found = type(lists).__name__
        names = {own.faiss_class: name for name, own in KINDS.items()}
        if found not in names:
            raise ValueError(f"a {found}; wanted an {' or an '.join(names)}")
        kind, (num_classes, dim) = names[found], table_KD.shape
        width = KINDS[kind].width(dim)
        if (lists.ntotal, lists.d) != (num_classes, width):
            raise ValueError(f"{lists.ntotal} classes of {lists.d} dimensions; wanted {num_classes} of {width}")
        return cls(table_KD, kind, lists)

    def to_dict(self) -> dict[str, Any]:
        """What a record contains about it."""
        return {"kind": self.kind, "faiss": require_faiss().__version__} | KINDS[self.kind].to_dict(self.lists)

    def _found(self, queries_ND: Tensor, count: int, *, roughly: bool) -> Tensor:
        faiss = require_faiss()
        # More threads would cost a few queries more than they gain.
        num_threads = 1 if len(queries_ND) < _FEW_QUERIES else torch.get_num_threads()
        with _threads(faiss, num_threads):
            _, ids_NR = self.lists.search(
                _widened(_numbers(queries_ND), self.lists.d),
                count,
                params=KINDS[self.kind].parameters(faiss, self.lists, count, roughly=roughly),
            )
        if ids_NR.size and not -1 <= ids_NR.min() <= ids_NR.max() < len(self.table_KD):
            raise OwlmineError("the index contains classes that the model does not have; build it again: owlmine index")
        return torch.from_numpy(ids_NR)


def _add(lists: Any, table_KD: Table, start: int) -> None:
    """Adds the classes from ``start`` on."""
    faiss = require_faiss()
    with _threads(faiss, torch.get_num_threads()):
        for first in range(start, len(table_KD), _BLOCK_ROWS):
            lists.add(_widened(_numbers(table_KD[first : first + _BLOCK_ROWS]), lists.d))


def _drawn(num_classes: int, count: int, seed: int) -> NDArray[np.int64]:
    """Up to so many classes, ascending."""
    return np.sort(np.random.default_rng(seed).choice(num_classes, min(count, num_classes), replace=False))


def check_version(record: Mapping[str, Any]) -> None:
    """Raises ValueError for an index from another version of faiss."""
    faiss, found = require_faiss(), record.get("faiss")
    if found != faiss.__version__:
        raise ValueError(f"it was built by faiss {found}; wanted {faiss.__version__}")


@contextmanager
def _threads(faiss: ModuleType, num_threads: int) -> Iterator[None]:
    """Limits faiss to this many threads, then restores the setting, which PyTorch may share."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(num_threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _numbers(rows: Tensor) -> NDArray[np.float32]:
    return rows.detach().to("cpu", torch.float32).contiguous().numpy()


def _widened(rows: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Pads with zeros to a whole number of codes; zeros change no product."""
    return rows if rows.shape[1] == width else np.pad(rows, ((0, 0), (0, width - rows.shape[1])))
