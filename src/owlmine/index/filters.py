"""Filters: which classes may be answers, for all queries or for each of its own; and search by them.

A query's filter is a set of classes that are allowed, or of classes that are forbidden. Few allowed classes are all
scored. Otherwise the index is asked for more classes than wanted, and those that are not allowed are left out. Where
too few remain, it is asked for more again, and in the end all allowed classes are scored: codes of an approximate index
tell apart the best classes of all, not those far below.

Shapes: N queries, S sets, E classes listed in all sets, K classes, D dimension, k best classes, W places of a list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from owlmine.data.rows import Int64, offsets_from_counts
from owlmine.index.exact import best_of_pairs, searched_among
from owlmine.mining.coded_rows import Table

# At most so many allowed classes are all scored, and at most this part of all classes: an index takes as long.
_FEW_CLASSES, _FEW_OF = 4_096, 8
# Instead of longer lists, the allowed classes are all scored.
_LONGEST_LIST = 1_024
# Further classes asked for, relative to the number expected to be left out, and how lists grow if that was too few.
_MARGIN, _LEAST_FURTHER, _GROWTH = 2, 8, 4

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ClassSets:
    """S sets: each the classes that it lists, or all but these."""

    num_classes: int
    offsets_S1: Int64
    ids_E: Int64
    """Of each set: ascending, each once."""
    lists_allowed_S: Bools

    @classmethod
    def of(cls, num_classes: int, sets: Sequence[tuple[Int64, bool]]) -> Self:
        """Each: ids in any order, and whether they are those allowed."""
        ids = [_checked(listed, num_classes) for listed, _ in sets]
        joined = np.concatenate([np.zeros(0, np.int64), *ids])
        offsets_S1 = offsets_from_counts(np.array([len(listed) for listed in ids], np.int64))
        return cls(num_classes, offsets_S1, joined, np.array([is_allowed for _, is_allowed in sets], np.bool_))

    @cached_property
    def sizes_S(self) -> Int64:
        """How many classes each contains."""
        counts_S = np.diff(self.offsets_S1)
        return np.where(self.lists_allowed_S, counts_S, self.num_classes - counts_S)

    @cached_property
    def _keys_E(self) -> Int64:
        """Ascending: the number of the set, and within it the class."""
        return np.repeat(np.arange(len(self.sizes_S)), np.diff(self.offsets_S1)) * self.num_classes + self.ids_E

    def contain(self, sets_E: Int64, ids_E: Int64) -> Bools:
        """Whether each set, by its number, contains that class."""
        if not len(self._keys_E):
            return ~self.lists_allowed_S[sets_E]
        keys_E = sets_E * self.num_classes + ids_E
        places_E = np.searchsorted(self._keys_E, keys_E).clip(max=len(self._keys_E) - 1)
        found_E: Bools = (self._keys_E[places_E] == keys_E) == self.lists_allowed_S[sets_E]
        return found_E

    def listed(self, number: int) -> Int64:
        return self.ids_E[self.offsets_S1[number] : self.offsets_S1[number + 1]]

    def allowed_K(self, number: int) -> Bools:
        allowed_K = np.full(self.num_classes, not self.lists_allowed_S[number])
        allowed_K[self.listed(number)] = self.lists_allowed_S[number]
        return allowed_K


@dataclass(frozen=True, eq=False)
class _Rule:
    """A set for each query: its number; None if one set is for all queries, however many."""

    sets: ClassSets
    set_N: Int64 | None

    def numbers(self, rows_E: Int64) -> Int64:
        """The set of each of these queries."""
        return np.zeros(len(rows_E), np.int64) if self.set_N is None else self.set_N[rows_E]


@dataclass(frozen=True, eq=False)
class Filter:
    """Which classes may be answers. A class must be in the query's set by every rule."""

    rules: tuple[_Rule, ...] = field(repr=False)

    @classmethod
    def allowing(cls, ids: Int64, num_classes: int) -> Self:
        """These classes, for all queries."""
        return cls((_Rule(ClassSets.of(num_classes, [(ids, True)]), None),))

    @classmethod
    def forbidding(cls, ids: Int64, num_classes: int) -> Self:
        """All but these classes, for all queries."""
        return cls((_Rule(ClassSets.of(num_classes, [(ids, False)]), None),))

    @classmethod
    def per_query(cls, ids_of_queries: Sequence[Int64 | None], num_classes: int, *, allowed: bool) -> Self:
        """The ids that are allowed, or those that are forbidden, for each query; None: all classes are allowed.

        An array that several queries share is kept once.
        """
        distinct = {id(ids): ids for ids in ids_of_queries}
        numbers = {key: number for number, key in enumerate(distinct)}
        sets = [(np.zeros(0, np.int64), False) if ids is None else (ids, allowed) for ids in distinct.values()]
        set_N = np.array([numbers[id(ids)] for ids in ids_of_queries], np.int64)
        return cls((_Rule(ClassSets.of(num_classes, sets), set_N),))

    def __and__(self, other: Filter) -> Filter:
        """Both filters at once."""
        rules = (*self.rules, *other.rules)
        shared = [rule for rule in rules if rule.set_N is None]
        if len(shared) < 2:
            return Filter(rules)
        allowed_K = reduce(np.logical_and, (rule.sets.allowed_K(0) for rule in shared))
        joined = Filter.allowing(np.flatnonzero(allowed_K), len(allowed_K))
        return Filter((*joined.rules, *(rule for rule in rules if rule.set_N is not None)))

    def __getitem__(self, rows: slice | Int64) -> Filter:
        """That of some queries."""
        return Filter(tuple(_Rule(rule.sets, None if rule.set_N is None else rule.set_N[rows]) for rule in self.rules))

    @property
    def num_classes(self) -> int:
        return self.rules[0].sets.num_classes

    @property
    def num_queries(self) -> int | None:
        """None if it is for any number of queries."""
        return next((len(rule.set_N) for rule in self.rules if rule.set_N is not None), None)

    @property
    def most(self) -> int:
        """At least as many as any query may have for an answer; exactly, with one rule."""
        most = [
            rule.sets.sizes_S[0] if rule.set_N is None else rule.sets.sizes_S[rule.set_N].max(initial=0)
            for rule in self.rules
        ]
        return int(min(most))

    def checksum(self) -> str:
        """SHA-256 of the sets and of whose they are. Equal sets that are listed in other ways differ."""
        digest = hashlib.sha256()
        for rule in self.rules:
            sets = rule.sets
            parts = (sets.offsets_S1, sets.ids_E, sets.lists_allowed_S, rule.set_N)
            for part in parts:
                digest.update(b"shared" if part is None else f"{part.dtype}{len(part)}".encode() + part.tobytes())
        return digest.hexdigest()

    def allows(self, ids_NW: Int64) -> Bools:
        """Whether each class may be an answer; never in empty places, of id -1."""
        rows_E, ids_E = np.indices(ids_NW.shape)[0].ravel(), np.maximum(ids_NW, 0).ravel()
        return self._allows(rows_E, ids_E).reshape(ids_NW.shape) & (ids_NW >= 0)

    def _allows(self, rows_E: Int64, ids_E: Int64) -> Bools:
        allowed_E = np.ones(len(ids_E), np.bool_)
        for rule in self.rules:
            allowed_E &= rule.sets.contain(rule.numbers(rows_E), ids_E)
        return allowed_E

    def sizes(self, num_queries: int) -> tuple[Int64, Int64, Int64]:
        """Bounds [N] for each query: at most so many allowed classes, and so many forbidden; and the size of the
        smallest set that lists allowed classes, or more than there are classes."""
        sizes_RN, lists_allowed_RN = self._sizes(np.arange(num_queries))
        forbidden_N = np.minimum((self.num_classes - sizes_RN).sum(axis=0), self.num_classes)
        return sizes_RN.min(axis=0), forbidden_N, np.where(lists_allowed_RN, sizes_RN, self.num_classes + 1).min(axis=0)

    def _sizes(self, rows_N: Int64) -> tuple[Int64, Bools]:
        """[R, N] by rule: the sizes of sets, and whether they list what is allowed."""
        numbers_RN = [rule.numbers(rows_N) for rule in self.rules]
        pairs = list(zip(self.rules, numbers_RN, strict=True))
        sizes_RN = np.stack([rule.sets.sizes_S[own_N] for rule, own_N in pairs])
        return sizes_RN, np.stack([rule.sets.lists_allowed_S[own_N] for rule, own_N in pairs])

    def pairs(self, rows_N: Int64) -> tuple[Int64, Int64]:
        """Places [E] in ``rows_N``, ascending, and allowed classes, of queries with a rule that lists those allowed."""
        sizes_RN, lists_allowed_RN = self._sizes(rows_N)
        rule_N = np.where(lists_allowed_RN, sizes_RN, self.num_classes + 1).argmin(axis=0)
        parts = [np.zeros((2, 0), np.int64)]
        for number, rule in enumerate(self.rules):
            places, sets = np.flatnonzero(rule_N == number), rule.sets
            set_n = rule.numbers(rows_N[places])
            counts_n = sets.sizes_S[set_n]
            within_E = np.arange(counts_n.sum()) - np.repeat(np.cumsum(counts_n) - counts_n, counts_n)
            ids_E = sets.ids_E[np.repeat(sets.offsets_S1[set_n], counts_n) + within_E]
            parts.append(np.stack([np.repeat(places, counts_n), ids_E]))
        rows_E, ids_E = np.concatenate(parts, axis=1)
        good_E = self._allows(rows_N[rows_E], ids_E)
        order_E = np.argsort(rows_E[good_E], kind="stable")
        return rows_E[good_E][order_E], ids_E[good_E][order_E]

    def groups(self, rows_N: Int64) -> Iterator[tuple[Int64, Int64]]:
        """Queries with equal sets, and the ids that they allow."""
        numbers_RN = np.stack([rule.numbers(rows_N) for rule in self.rules])
        distinct, group_N = np.unique(numbers_RN, axis=1, return_inverse=True)
        for number, sets_R in enumerate(distinct.T.tolist()):
            masks = (rule.sets.allowed_K(own) for rule, own in zip(self.rules, sets_R, strict=True))
            yield rows_N[group_N.ravel() == number], np.flatnonzero(reduce(np.logical_and, masks))


class Searches(Protocol):
    """What an index offers."""

    @property
    def table_KD(self) -> Table: ...

    def search(self, queries_ND: Tensor, k: int) -> tuple[Tensor, Tensor]: ...


@torch.no_grad()
def search(index: Searches, queries_ND: Tensor, k: int, own: Filter | None) -> tuple[Tensor, Tensor]:
    """Scores and ids [N, k] as the index finds them, of classes that the filter allows; then -inf and -1."""
    if own is None:
        return index.search(queries_ND, k)
    device, num_classes = queries_ND.device, len(index.table_KD)
    scores_Nk = torch.full((len(queries_ND), k), -torch.inf, device=device)
    ids_Nk = torch.full((len(queries_ND), k), -1, device=device)

    def vectors(rows: Int64) -> Tensor:
        return queries_ND[torch.from_numpy(rows).to(device)]

    def fill(rows: Int64, found: tuple[Tensor, Tensor]) -> None:
        places = torch.from_numpy(rows).to(device)
        scores_Nk[places], ids_Nk[places] = found[0].float(), found[1]

    allowed_N, forbidden_N, listed_N = own.sizes(len(queries_ND))
    is_few_N = listed_N <= min(_FEW_CLASSES, num_classes // _FEW_OF)
    if len(few := np.flatnonzero(is_few_N)):
        if own.num_queries is None:
            [(few, ids)] = own.groups(few)
            fill(few, searched_among(queries_ND, index.table_KD, k, ids))
        else:
            fill(few, best_of_pairs(vectors(few), index.table_KD, *own.pairs(few), k))
    rest, lists = [], list(_first_lists(k, allowed_N, forbidden_N, np.flatnonzero(~is_few_N)))
    while lists:
        length, rows = lists.pop()
        if length > max(_LONGEST_LIST, 2 * k):
            rest.append(rows)
            continue
        found, is_full_N = _remaining(index.search(vectors(rows), min(length, num_classes)), own[rows], k)
        # A list of all classes cannot be longer.
        is_full_N |= length >= num_classes
        fill(rows[is_full_N], (found[0][is_full_N], found[1][is_full_N]))
        if not is_full_N.all():
            lists.append((_GROWTH * length, rows[~is_full_N]))
    if rest:
        for rows, ids in own.groups(np.concatenate(rest)):
            fill(rows, searched_among(vectors(rows), index.table_KD, k, ids))
    return scores_Nk, ids_Nk


def _first_lists(k: int, allowed_N: Int64, forbidden_N: Int64, rows: Int64) -> Iterator[tuple[int, Int64]]:
    """How long a list to ask for first, and for which queries. It depends on the query alone: it gets the same answer
    in every batch."""
    forbidden = forbidden_N[rows]
    expected = k * forbidden / np.maximum(allowed_N[rows], 1)
    further = np.minimum(forbidden, _MARGIN * expected + _LEAST_FURTHER)
    # Powers of two: few different lengths.
    lengths = k + np.where(forbidden > 0, 2 ** np.ceil(np.log2(np.maximum(further, 1))), 0).astype(np.int64)
    for length in np.unique(lengths).tolist():
        yield length, rows[lengths == length]


def _remaining(found: tuple[Tensor, Tensor], own: Filter, k: int) -> tuple[tuple[Tensor, Tensor], Bools]:
    """The first ``k`` of the classes found that are allowed, in their order, and whether there are so many."""
    scores_NW, ids_NW = found
    allowed_NW = own.allows(ids_NW.cpu().numpy())
    order_Nk = np.argsort(~allowed_NW, axis=1, kind="stable")[:, :k]
    good_Nk = torch.from_numpy(np.take_along_axis(allowed_NW, order_Nk, axis=1)).to(ids_NW.device)
    order = torch.from_numpy(order_Nk).to(ids_NW.device)
    scores_Nk = scores_NW.gather(1, order).masked_fill(~good_Nk, -torch.inf)
    is_full_N: Bools = allowed_NW.sum(axis=1) >= k
    return (scores_Nk, ids_NW.gather(1, order).masked_fill(~good_Nk, -1)), is_full_N


def _checked(ids: Int64, num_classes: int) -> Int64:
    """Ascending, each once."""
    given = np.asarray(ids)
    if given.ndim != 1 or (len(given) and given.dtype.kind not in "iu"):
        raise ValueError(f"a filter of {given.dtype} of shape {given.shape}; wanted a vector of class ids")
    distinct = np.unique(given).astype(np.int64)
    if len(distinct) and not 0 <= distinct[0] <= distinct[-1] < num_classes:
        wanted = f"ids from 0 to {num_classes - 1:,}"
        raise ValueError(f"a filter of class ids from {distinct[0]:,} to {distinct[-1]:,}; wanted {wanted}")
    return distinct
