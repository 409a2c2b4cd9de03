"""Which classes there are: those that train has, whether files call them by number or by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from owlmine.data.formats.block import RowLabels
from owlmine.data.number_counts import NumberCounts
from owlmine.data.rows import Int64

# Up to 18 digits: what 64 bits hold. A longer run of digits is a name.
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


class ClassKeys(Protocol):
    """Labels as files have them, to raw ids while reading, to final ids when train has been read."""

    def raw_ids(self, labels: RowLabels, *, training: bool) -> Int64:
        """A number per label entry; -1 for a class that train does not have and that has no number yet."""

    def __len__(self) -> int:
        """How many classes train has."""

    def final_of_raw(self, raw_ids: Int64) -> Int64:
        """The class ids of the store; -1 where train never had the class."""

    def keys(self) -> Iterator[str]:
        """The files' word for each class, in the order of the final ids."""

    def final_of_numbers(self, numbers: Int64) -> Int64:
        """For class numbers as files beside the splits have them: the class ids of the store, or -1."""


def class_keys(num_classes: int | None) -> ClassKeys:
    """For a source that states this bound of class numbers, or none."""
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
        # Where -1 stands for an unknown class, the -1 behind the end of the table answers.
        return self._final[raw_ids]

    def keys(self) -> Iterator[str]:
        if all(map(_WHOLE_NUMBER.fullmatch, self._numbers)):
            return iter(sorted(self._numbers, key=int))
        return iter(self._numbers)

    def final_of_numbers(self, numbers: Int64) -> Int64:
        raw_ids = [self._numbers.get(str(number), -1) for number in numbers.tolist()]
        return self.final_of_raw(np.array(raw_ids, np.int64))
