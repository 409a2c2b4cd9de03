"""From the key or name of a class to its number in a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np

from owlmine.data.arrays import StringTable
from owlmine.data.formats.block import RowLabels
from owlmine.data.rows import Int64
from owlmine.errors import OwlmineError, excerpt
from owlmine.rank.words import ClassWords

# Comparing spellings takes some microseconds per key; with more keys than this, only those with the same beginning are
# compared.
_MAX_COMPARED = 100_000


class ClassIndex:
    """Class ids by key. Reads labels of files as a conversion does, but with the classes of a model."""

    def __init__(self, keys: StringTable) -> None:
        self._keys = keys

    @cached_property
    def _by_key(self) -> dict[str, int]:
        return {key: number for number, key in enumerate(self._keys)}

    @cached_property
    def _by_number(self) -> tuple[Int64, Int64]:
        """The numeric keys, ascending, and the class of each: 16 bytes per class instead of 150 in a dictionary."""
        pairs = [(int(key), number) for number, key in enumerate(self._keys) if _is_number(key)]
        numbers, ids = np.array(pairs, np.int64).reshape(-1, 2).T
        order = np.argsort(numbers)
        return numbers[order], ids[order]

    def get(self, key: str) -> int | None:
        return self._by_key.get(key)

    def raw_ids(self, labels: RowLabels, *, training: bool) -> Int64:
        """The class of each label entry; -1 if the model does not have it."""
        assert not training
        if isinstance(labels.classes, np.ndarray):
            return self.final_of_numbers(labels.classes)
        return np.array([self._by_key.get(name, -1) for name in labels.classes], np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    def final_of_raw(self, raw_ids: Int64) -> Int64:
        return raw_ids

    def final_of_numbers(self, numbers: Int64) -> Int64:
        known, ids = self._by_number
        if not len(known):
            return np.full(len(numbers), -1, np.int64)
        places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
        return np.where(known[places] == numbers, ids[places], -1)

    def keys(self) -> Iterator[str]:
        return iter(self._keys)


class ClassFinder:
    """Finds classes by their keys or, if no key matches, by their names."""

    def __init__(self, words: ClassWords) -> None:
        self._words = words

    @cached_property
    def _by_key(self) -> dict[str, int]:
        return {key: number for number, key in enumerate(self._words.keys)}

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, name in enumerate(self._words.names):
            found.setdefault(name, []).append(number)
        return found

    def __len__(self) -> int:
        return len(self._words)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles make their own dictionaries."""
        return ClassFinder, (self._words,)

    def knows(self, word: str) -> bool:
        return word in self._by_key or word in self._by_name

    def find(self, wanted: Iterable[str]) -> Int64:
        """The ids of these classes. An unknown one raises an error with the closest spellings."""
        by_key = self._by_key
        return np.array([by_key[word] if word in by_key else self._named(word) for word in wanted], np.int64)

    def _named(self, word: str) -> int:
        ids = self._by_name.get(word, [])
        if len(ids) == 1:
            return ids[0]
        if ids:
            keys = ", ".join(repr(self._words.keys[number]) for number in ids[:3])
            raise OwlmineError(f"{len(ids)} classes are named {excerpt(word)}; give a key, such as {keys}")
        close = _close(self._words, word)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise OwlmineError(f"the model has no class {excerpt(word)}{hint}")


def _close(words: ClassWords, word: str) -> list[str]:
    spellings = {key.casefold(): key for key in words.keys}
    spellings |= {name.casefold(): name for name in words.names}
    folded = word.casefold()
    if folded in spellings:
        return [spellings[folded]]
    candidates = list(spellings)
    if len(candidates) > _MAX_COMPARED:
        candidates = [spelling for spelling in candidates if spelling[:2] == folded[:2]][:_MAX_COMPARED]
    return [spellings[near] for near in get_close_matches(folded, candidates, n=3, cutoff=0.6)]


def _is_number(key: str) -> bool:
    """Whether a number in a file can mean this key: no leading zeros, and it fits into 64 bits."""
    digits = key.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 18 and str(int(key)) == key
