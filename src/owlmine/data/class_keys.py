"""Which classes there are: those that train has, whether files call them by number or by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from owlmine.data.formats.block import RowLabels
from owlmine.data.rows import Int64

# Up to 18 digits: what 64 bits hold. A longer run of digits is a name.
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
# Beyond this bound a table by class number could cost gigabytes because of one large number.
_MAX_NUMBERED = 1 << 27


class ClassKeys(Protocol):
    """Labels as files have them, to raw ids while reading, to final ids when train has been read."""

    def raw_ids(self, labels: RowLabels, *, training: bool) -> Int64:
        """A number per label entry; -1 for a class that train does not have and that has no number yet."""

    def final_ids(self) -> Int64:
        """By raw id: the class id of the store, or -1 where train never had the class."""

    def keys(self) -> Iterator[str]:
        """The files' word for each class, in the order of the final ids."""

    def final_of_numbers(self, numbers: Int64) -> Int64:
        """For class numbers as files beside the splits have them: the class ids of the store, or -1."""


def class_keys(num_classes: int | None) -> ClassKeys:
    """For a source that states this bound of class numbers, or none."""
    return NamedClasses() if num_classes is None or num_classes > _MAX_NUMBERED else NumberedClasses()


class NumberedClasses:
    """Class numbers that stay below a stated bound: a flag per number up to the largest of train, no dictionary."""

    def __init__(self) -> None:
        self._seen: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._final: Int64 | None = None

    def raw_ids(self, labels: RowLabels, *, training: bool) -> Int64:
        numbers = labels.classes
        assert isinstance(numbers, np.ndarray)
        if not training:
            return np.where(numbers < len(self._seen), numbers, -1)
        size = int(numbers.max(initial=-1)) + 1
        if size > len(self._seen):
            seen = np.zeros(max(size, 2 * len(self._seen)), np.bool_)
            seen[: len(self._seen)] = self._seen
            self._seen = seen
        self._seen[numbers] = True
        self._final = None
        return numbers

    def final_ids(self) -> Int64:
        if self._final is None:
            self._final = np.cumsum(self._seen, dtype=np.int64)
            self._final -= 1
            self._final[~self._seen] = -1
        return self._final

    def final_of_numbers(self, numbers: Int64) -> Int64:
        known = numbers < len(self._seen)
        ids = np.full(len(numbers), -1, np.int64)
        ids[known] = self.final_ids()[numbers[known]]
        return ids

    def keys(self) -> Iterator[str]:
        return map(str, np.flatnonzero(self._seen).tolist())


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

    def final_ids(self) -> Int64:
        if self._final is None:
            self._final = np.empty(len(self._numbers), np.int64)
            self._final[[self._numbers[key] for key in self.keys()]] = np.arange(len(self._numbers))
        return self._final

    def keys(self) -> Iterator[str]:
        if all(map(_WHOLE_NUMBER.fullmatch, self._numbers)):
            return iter(sorted(self._numbers, key=int))
        return iter(self._numbers)

    def final_of_numbers(self, numbers: Int64) -> Int64:
        # Where -1 stands for an unknown number, the -1 behind the end of the table answers.
        final = np.append(self.final_ids(), -1)
        return final[[self._numbers.get(str(number), -1) for number in numbers.tolist()]]
