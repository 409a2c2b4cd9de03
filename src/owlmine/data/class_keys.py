"""The classes of a dataset: those that occur in train, given as numbers or as names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from owlmine.data.formats.block import RowLabels
from owlmine.data.rows import Int64

# Numbers below this are counted in a table, which costs 32 MiB at most; those above in sorted arrays.
_TABLE_SIZE = 1 << 22
_PENDING = 1 << 20
# Up to 18 digits: what 64 bits hold. A longer run of digits is a name.
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


class ClassKeys(Protocol):
    """From the labels in files to class ids: to raw ids while files are read, and to final ids once train has been
    read."""

    def raw_ids(self, labels: RowLabels, *, training: bool) -> Int64:
        """A number per label entry; -1 for a class that is not in train and has no number yet."""

    def __len__(self) -> int:
        """The number of classes in train."""

    def final_of_raw(self, raw_ids: Int64) -> Int64:
        """The class ids of the store; -1 for a class that is not in train."""

    def keys(self) -> Iterator[str]:
        """The key of each class in the files, in the order of the final ids."""

    def final_of_numbers(self, numbers: Int64) -> Int64:
        """The class ids of the store, or -1, for class numbers in files that accompany the splits."""


def class_keys(num_classes: int | None) -> ClassKeys:
    """``num_classes``: the bound on class numbers, if the source states one."""
    return NamedClasses() if num_classes is None else NumberedClasses()


class NumberedClasses:
    """Class numbers as they are: no dictionary."""

    def __init__(self) -> None:
        self._seen = NumberCounts()

    def __len__(self) -> int:
        return len(self._seen.numbers)

    def raw_ids(self, labels: RowLabels, *, training: bool) -> Int64:
        numbers = labels.classes
        assert isinstance(numbers, np.ndarray)
        if training:
            self._seen.add(numbers)
        return numbers

    def final_of_raw(self, raw_ids: Int64) -> Int64:
        return self._seen.ranks(raw_ids)

    def final_of_numbers(self, numbers: Int64) -> Int64:
        return self._seen.ranks(numbers)

    def keys(self) -> Iterator[str]:
        return map(str, self._seen.numbers.tolist())


class NamedClasses:
    """Names, or numbers without a stated bound. Ids follow first appearance, or numeric order if all are numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._final: Int64 | None = None

    def raw_ids(self, labels: RowLabels, *, training: bool) -> Int64:
        names = labels.classes
        if isinstance(names, np.ndarray):
            names = [str(number) for number in names.tolist()]
        numbers = self._numbers
        if training:
            self._final = None
            return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
        return np.array([numbers.get(name, -1) for name in names], np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    def final_of_raw(self, raw_ids: Int64) -> Int64:
        if self._final is None:
            self._final = np.full(len(self._numbers) + 1, -1, np.int64)
            self._final[[self._numbers[key] for key in self.keys()]] = np.arange(len(self._numbers))
        # An unknown class is -1, which is the last place of the table, and that holds -1.
        return self._final[raw_ids]

    def keys(self) -> Iterator[str]:
        if all(map(_WHOLE_NUMBER.fullmatch, self._numbers)):
            return iter(sorted(self._numbers, key=int))
        return iter(self._numbers)

    def final_of_numbers(self, numbers: Int64) -> Int64:
        raw_ids = [self._numbers.get(str(number), -1) for number in numbers.tolist()]
        return self.final_of_raw(np.array(raw_ids, np.int64))


class NumberCounts:
    """Counts of non-negative integers."""

    def __init__(self) -> None:
        self._table: Int64 = np.zeros(0, np.int64)
        self._far: Int64 = np.zeros(0, np.int64)
        self._far_counts: Int64 = np.zeros(0, np.int64)
        # Numbers above the table that are not in the sorted arrays yet, which are not rebuilt for a few.
        self._pending: list[tuple[Int64, Int64]] = []
        self._num_pending = 0
        self._ranks: Int64 | None = None
        self._num_near = 0

    def add(self, numbers: Int64) -> None:
        self._ranks = None
        is_far = numbers >= _TABLE_SIZE
        near = numbers[~is_far]
        size = int(near.max(initial=-1)) + 1
        if size > len(self._table):
            grown = np.zeros(min(max(size, 2 * len(self._table)), _TABLE_SIZE), np.int64)
            grown[: len(self._table)] = self._table
            self._table = grown
        if size <= 4 * len(near):
            self._table[:size] += np.bincount(near, minlength=size)
        else:  # few entries, wide range: the cost depends on the entries only
            distinct, counts = np.unique(near, return_counts=True)
            self._table[distinct] += counts
        if is_far.any():
            self._add_far(*np.unique(numbers[is_far].astype(np.int64), return_counts=True))

    @property
    def numbers(self) -> Int64:
        """The distinct numbers, ascending."""
        self._settle()
        return np.concatenate([np.flatnonzero(self._table), self._far])

    @property
    def counts(self) -> Int64:
        """How often each of ``numbers`` occurs."""
        self._settle()
        return np.concatenate([self._table[self._table > 0], self._far_counts])

    def ranks(self, numbers: Int64) -> Int64:
        """The position of each number among the distinct ones, or -1 for a number that never occurred."""
        self._settle()
        if self._ranks is None:
            occurs = self._table > 0
            self._ranks, self._num_near = np.where(occurs, np.cumsum(occurs) - 1, -1), int(np.count_nonzero(occurs))
        ranks = np.full(len(numbers), -1, np.int64)
        near = numbers < len(self._ranks)
        ranks[near] = self._ranks[numbers[near]]
        if len(self._far):
            places = np.minimum(np.searchsorted(self._far, numbers), len(self._far) - 1)
            found = self._far[places] == numbers
            ranks[found] = self._num_near + places[found]
        return ranks

    def _add_far(self, numbers: Int64, counts: Int64) -> None:
        if len(self._far):
            places = np.minimum(np.searchsorted(self._far, numbers), len(self._far) - 1)
            known = self._far[places] == numbers
            self._far_counts[places[known]] += counts[known]
            numbers, counts = numbers[~known], counts[~known]
        self._pending.append((numbers, counts))
        self._num_pending += len(numbers)
        if self._num_pending > max(_PENDING, len(self._far)):
            self._settle()

    def _settle(self) -> None:
        if not self._pending:
            return
        numbers = np.concatenate([self._far, *(numbers for numbers, _ in self._pending)])
        counts = np.concatenate([self._far_counts, *(counts for _, counts in self._pending)])
        self._pending, self._num_pending = [], 0
        self._far, places = np.unique(numbers, return_inverse=True)
        self._far_counts = np.zeros(len(self._far), np.int64)
        np.add.at(self._far_counts, places, counts)
