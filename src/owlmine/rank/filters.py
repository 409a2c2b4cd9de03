"""Filters from the keys of classes: from Python, from a file of keys, and from the cells of tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from owlmine.data.formats.memory import without_pandas
from owlmine.data.rows import Int64
from owlmine.data.streams import text_lines
from owlmine.errors import DataError, OwlmineError
from owlmine.index import Filter
from owlmine.rank.class_index import ClassFinder
from owlmine.rank.queries import described

_WANTED = "keys of classes, or a list with a collection of keys, or None, for each query"


def filter_of(finder: ClassFinder, *, allowed: Any = None, forbidden: Any = None, num_queries: int) -> Filter | None:
    """Of the arguments of ``predict``; None if all classes are allowed."""
    only: Filter | None = None
    for what, given in (("allowed", allowed), ("forbidden", forbidden)):
        if given is not None:
            own = _filter(finder, what, given, num_queries)
            only = own if only is None else only & own
    return only


def _filter(finder: ClassFinder, what: str, given: Any, num_queries: int) -> Filter:
    given = without_pandas(given, what, _WANTED)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise DataError(what, found=described(given), wanted=_WANTED)
    values = list(given)
    is_allowed = what == "allowed"
    if not any(value is None or _is_collection(value) for value in values):
        ids = found_classes(finder, what, values)
        if is_allowed and not len(ids):
            raise DataError(what, found="no class", wanted=_WANTED)
        return (Filter.allowing if is_allowed else Filter.forbidding)(ids, len(finder))
    if len(values) != num_queries:
        raise DataError(what, found=f"collections for {len(values):,} queries", wanted=f"{num_queries:,}, one for each")
    own = [
        None if value is None else found_classes(finder, f"{what} of query {row}", value)
        for row, value in enumerate(values)
    ]
    return Filter.per_query(own, len(finder), allowed=is_allowed)


def _is_collection(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes)


def found_classes(finder: ClassFinder, what: str, keys: Any) -> Int64:
    """The classes with these keys. ``what``: the argument, for errors."""
    if not _is_collection(keys):
        raise DataError(what, found=described(keys), wanted="a collection of keys, or None")
    for key in keys:
        if isinstance(key, bool) or not isinstance(key, str | int | np.integer):
            raise DataError(what, found=described(key), wanted="keys of classes: text or whole numbers")
    with _at(what):
        return finder.find(map(str, keys))


def classes_in_file(finder: ClassFinder, path: Path) -> Int64:
    """The classes that a file names, one key per line. Blank lines are skipped."""
    if not path.is_file():
        raise DataError(path, found="no such file", wanted="a file with a key of a class on each line")
    lines = [(number, word) for number, line, _ in text_lines(path) if (word := line.strip())]
    for number, word in lines:
        if not finder.knows(word):
            with _at(f"{path}, line {number}"):
                finder.find([word])
    with _at(str(path)):
        return finder.find(word for _, word in lines)


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Names the place of an unknown class."""
    try:
        yield
    except DataError:
        raise
    except OwlmineError as error:
        raise OwlmineError(f"{place}: {error}") from error


def check_filter(only: Filter, num_classes: int, num_queries: int) -> None:
    """Raises DataError unless it is for these classes and queries."""
    if only.num_classes != num_classes:
        raise DataError("filter", found=f"one for {only.num_classes:,} classes", wanted=f"{num_classes:,}")
    if only.num_queries not in (None, num_queries):
        raise DataError("filter", found=f"one for {only.num_queries:,} queries", wanted=f"{num_queries:,}")
