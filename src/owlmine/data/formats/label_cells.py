"""What one cell of a table may hold: a text, or labels in any of their usual spellings."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from owlmine.errors import excerpt

Labels = tuple[list[str], list[float] | None]
"""The labels of a point, and their weights where they have any."""


SEPARATOR_NAMES = {",": "comma", ";": "semicolon", "|": "vertical bar"}
"""What people put between labels, in words."""


class BadCellError(Exception):
    """What was found in a cell and what was wanted; the reader adds the place."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(found, wanted)
        self.found, self.wanted = found, wanted


def text_of(cells: Mapping[str, Any], column: str) -> str:
    value = _cell(cells, column)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadCellError(f"{shown(value)} in column {column!r}", "text")
    return value


def labels_of(cells: Mapping[str, Any], column: str, separator: str) -> Labels:
    """A list, an object of weights, one whole number, or one string that parts its labels by ``separator``."""
    value = _cell(cells, column)
    if isinstance(value, str):
        if not value.strip().startswith("["):
            pieces = (piece.strip() for piece in value.split(separator))
            return [label_of(piece) for piece in pieces if piece], None
        value = _json_list(value, column)
    if value is None:
        return [], None
    if isinstance(value, dict):
        return [label_of(key) for key in value], [_weight(item, column) for item in value.values()]
    if isinstance(value, (int, np.integer)):
        return [label_of(value)], None
    if not isinstance(value, (list, tuple)):
        raise BadCellError(f"{shown(value)} in column {column!r}", "a list of labels")
    labels = [label_of(item) for item in value]
    relevance = cells.get("target_rel") if column == "target_ind" else None
    if relevance is None:
        return labels, None
    if not isinstance(relevance, (list, tuple)) or len(relevance) != len(labels):
        raise BadCellError("'target_rel' that does not fit 'target_ind'", "a weight per label")
    return labels, [_weight(item, "target_rel") for item in relevance]


def joined_classes(keys: Collection[str], separator: str) -> dict[str, int]:
    """Classes that look like several labels which another separator should have split, by the name of that separator.

    Either most classes hold it, or most of what it separates are classes by themselves.
    """
    found: dict[str, int] = {}
    for mark, name in SEPARATOR_NAMES.items():
        joined = [] if mark in separator else [key for key in keys if mark in key]
        parts = [part.strip() for key in joined for part in key.split(mark)]
        alone = sum(part in keys for part in parts)
        if joined and (2 * len(joined) > len(keys) or 2 * alone >= len(parts)):
            found[name] = len(joined)
    return found


def label_of(item: Any) -> str:
    """A label as a string; 1 and "1" are the same, 1.0 and true are none."""
    if isinstance(item, str) and item and _is_text(item):
        return str(item)
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        try:
            return str(item)
        except ValueError:  # thousands of digits
            pass
    raise BadCellError(f"the label {shown(item)}", "a name or a whole number")


def shown(value: Any) -> str:
    """A short form for messages of whatever a cell may hold."""
    try:
        return excerpt(repr(value))
    except (ValueError, RecursionError):  # a number of thousands of digits, a list a thousand deep
        return f"a {type(value).__name__} beyond printing"


def _cell(cells: Mapping[str, Any], column: str) -> Any:
    if column not in cells:
        raise BadCellError(f"columns {', '.join(map(repr, cells)) or 'none'}", f"a column {column!r} as in other rows")
    return cells[column]


def _is_text(name: str) -> bool:
    """Whether UTF-8 can hold it: a lone surrogate is half a character."""
    try:
        return name.isascii() or bool(name.encode())
    except UnicodeEncodeError:
        return False


def _json_list(text: str, column: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise BadCellError(f"{excerpt(text)} in column {column!r}", "a JSON list of labels") from None
    assert isinstance(value, list)
    return value


def _weight(item: Any, column: str) -> float:
    if isinstance(item, (int, float)) and not isinstance(item, bool) and _LEAST_WEIGHT <= item <= _LARGEST_WEIGHT:
        return float(item)
    raise BadCellError(f"the weight {shown(item)} in column {column!r}", "a positive number that float32 can hold")


_LEAST_WEIGHT = float(np.finfo(np.float32).tiny)
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)
