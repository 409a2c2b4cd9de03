"""Which classes there are: those that train has, whether files call them by number or by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from owlmine.data.formats.block import RowLabels
from owlmine.data.rows import Int64

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]*")


class ClassKeys(Protocol):
    """Labels as files have them, to raw ids while reading, to final ids when train has been read."""

    def raw_ids(self, labels: RowLabels, *, training: bool) -> Int64:
        """A number per label entry; -1 for a class that train does not have and that has no number yet."""

    def final_ids(self) -> Int64:
        """By raw id: the class id of the store, or -1 where train never had the class."""

    def keys(self) -> Iterator[str]:
        """The files' word for each class, in the order of the final ids."""


class NumberedClasses:
    """Class numbers below a bound that the files state: a flag per class, no dictionary."""

    def __init__(self, num_classes: int) -> None:
        self._seen: NDArray[np.bool_] = np.zeros(num_classes, np.bool_)

    def raw_ids(self, labels: RowLabels, *, training: bool) -> Int64:
        numbers = labels.classes
        assert isinstance(numbers, np.ndarray)
        if training:
            self._seen[numbers] = True
        return numbers

    def final_ids(self) -> Int64:
        return np.where(self._seen, np.cumsum(self._seen) - 1, -1)

    def keys(self) -> Iterator[str]:
        return map(str, np.flatnonzero(self._seen).tolist())


class NamedClasses:
    """Names, or numbers without a stated bound. Ids follow first appearance, or numeric order if all are numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def raw_ids(self, labels: RowLabels, *, training: bool) -> Int64:
        names = labels.classes
        if isinstance(names, np.ndarray):
            names = [str(number) for number in names.tolist()]
        numbers = self._numbers
        if training:
            return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
        return np.array([numbers.get(name, -1) for name in names], np.int64)

    def final_ids(self) -> Int64:
        final = np.empty(len(self._numbers), np.int64)
        final[[self._numbers[key] for key in self.keys()]] = np.arange(len(self._numbers))
        return final

    def keys(self) -> Iterator[str]:
        if all(map(_WHOLE_NUMBER.fullmatch, self._numbers)):
            return iter(sorted(self._numbers, key=int))
        return iter(self._numbers)
