"""The grammar of sparse text, line by line. This file decides what is legal, and words every error.

Three formats, all with ids that count from zero and with ``id:value`` pairs separated by spaces or tabs::

    LABELLED   3,17 5:1 12:0.25          class ids, then features (the header line is the caller's business)
    MATRIX     5:1 12:0.25               features alone
    SVMLIGHT   +1,-3 qid:7 5:1 # note    signed integral labels; query id and comment are passed over
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from os import PathLike

import numpy as np

from ..errors import DataError, excerpt
from .rows import Int64, SparseRows, offsets_from_counts

NO_BOUND = 2**31  # feature ids are int32
# The smallest double that float32 rounds to infinity: half a step above the largest finite float32.
FLOAT32_OVERFLOW = float(2**128 - 2**103)

_DIGITS = re.compile(rb"[0-9]+")
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


class Grammar(Enum):
    LABELLED = "labelled"
    MATRIX = "matrix"
    SVMLIGHT = "svmlight"


@dataclass(frozen=True)
class ParsedBlock:
    """The rows of some whole lines, one row per line, entries in the order of the file."""

    features: SparseRows
    """Indices int32, values float32."""
    labels: SparseRows
    """Indices int64, no values. Repeated labels of a row count once, at their first place."""
    crlf_lines: int
    """How many lines ended with carriage return and newline."""
    duplicate_labels: int
    """How many repeated labels were left out."""

    @cached_property
    def blank_rows(self) -> Int64:
        """Positions of rows with neither label nor feature: blank lines, or comments alone."""
        return np.flatnonzero((self.features.counts == 0) & (self.labels.counts == 0))

    def without_blank_rows(self) -> ParsedBlock:
        if not len(self.blank_rows):
            return self
        filled = np.delete(np.arange(len(self.labels)), self.blank_rows)
        return replace(self, features=self.features.take(filled), labels=self.labels.take(filled))


@dataclass(frozen=True)
class LineRules:
    """The limits for a line. A bound of None allows every id below 2**31."""

    grammar: Grammar
    num_features: int | None
    num_classes: int | None
    path: str | PathLike[str]

    @property
    def feature_bound(self) -> int:
        return NO_BOUND if self.num_features is None else min(self.num_features, NO_BOUND)

    @property
    def class_bound(self) -> int:
        return NO_BOUND if self.num_classes is None else min(self.num_classes, NO_BOUND)

    @property
    def lowest_label(self) -> int:
        is_signed = self.grammar is Grammar.SVMLIGHT and self.num_classes is None
        return 1 - NO_BOUND if is_signed else 0


@dataclass(frozen=True)
class ParsedLine:
    labels: list[int]
    feature_ids: list[int]
    values: list[float]
    duplicate_labels: int


class _UnfitError(Exception):
    """A token that the grammar rejects; the caller adds path and line number."""

    def __init__(self, found: str, wanted: str) -> None:
        self.found, self.wanted = found, wanted


def parse_plain(data: bytes, rules: LineRules, *, first_line: int) -> ParsedBlock:
    """Every line of ``data``; raises DataError at the first one that the grammar rejects."""
    feature_counts, label_counts = [], []
    feature_ids: list[int] = []
    values: list[float] = []
    labels: list[int] = []
    crlf_lines = duplicate_labels = 0
    for number, (line, is_crlf) in enumerate(split_lines(data), first_line):
        row = parse_line(line, rules, line_number=number)
        feature_ids += row.feature_ids
        values += row.values
        labels += row.labels
        feature_counts.append(len(row.feature_ids))
        label_counts.append(len(row.labels))
        crlf_lines += is_crlf
        duplicate_labels += row.duplicate_labels
    return ParsedBlock(
        SparseRows(
            offsets_from_counts(np.array(feature_counts, np.int64)),
            np.array(feature_ids, np.int32),
            np.array(values, np.float64).astype(np.float32),
        ),
        SparseRows(offsets_from_counts(np.array(label_counts, np.int64)), np.array(labels, np.int64), None),
        crlf_lines,
        duplicate_labels,
    )


def split_lines(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Each line without its end, and whether that end was CRLF. A carriage return elsewhere is not an end."""
    start = 0
    while start < len(data):
        newline = data.find(b"\n", start)
        stop = newline if newline >= 0 else len(data)
        is_crlf = newline > start and data[newline - 1] == ord("\r")
        yield data[start : stop - is_crlf], is_crlf
        start = stop + 1


def parse_line(line: bytes, rules: LineRules, *, line_number: int) -> ParsedLine:
    """One line without its end. Values are doubles that float32 can hold."""
    try:
        return _parse_line(line, rules)
    except _UnfitError as unfit:
        raise DataError(rules.path, found=unfit.found, wanted=unfit.wanted, line=line_number) from None


def _parse_line(line: bytes, rules: LineRules) -> ParsedLine:
    is_svmlight = rules.grammar is Grammar.SVMLIGHT
    if is_svmlight:
        line = line.partition(b"#")[0]
    tokens = [token for token in line.replace(b"\t", b" ").split(b" ") if token]
    found_labels: list[int] = []
    may_have_labels = rules.grammar is not Grammar.MATRIX and line[:1] not in (b"", b" ", b"\t")
    if may_have_labels and b":" not in tokens[0]:
        read_label = _signed_label if is_svmlight else _class_id
        found_labels = [read_label(piece, tokens[0], rules) for piece in tokens[0].split(b",")]
        tokens = tokens[1:]
    if is_svmlight and tokens and tokens[0].startswith(b"qid:"):
        if not _DIGITS.fullmatch(tokens[0], 4):
            raise _UnfitError(excerpt(tokens[0]), "a query id of plain digits after 'qid:'")
        tokens = tokens[1:]
    features: dict[int, float] = {}
    for token in tokens:
        feature_id, value = _pair(token, rules)
        if feature_id in features:
            raise _UnfitError(f"feature {feature_id} twice", "each feature at most once in a row")
        features[feature_id] = value
    labels = list(dict.fromkeys(found_labels))
    return ParsedLine(labels, list(features), list(features.values()), len(found_labels) - len(labels))


def _pair(token: bytes, rules: LineRules) -> tuple[int, float]:
    id_text, colon, value_text = token.partition(b":")
    if not colon:
        raise _UnfitError(excerpt(token), "a pair id:value")
    feature_id = _plain_id(id_text, token, kind="feature", bound=rules.feature_bound)
    if not _NUMBER.fullmatch(value_text):
        wanted = "a finite value" if _NOT_FINITE.fullmatch(value_text) else "a decimal number after ':'"
        raise _UnfitError(excerpt(token), wanted)
    value = float(value_text)
    if abs(value) >= FLOAT32_OVERFLOW:
        raise _UnfitError(excerpt(token), "a value that float32 can hold")
    return feature_id, value


def _class_id(text: bytes, token: bytes, rules: LineRules) -> int:
    return _plain_id(text, text or token, kind="class", bound=rules.class_bound)


def _plain_id(text: bytes, shown: bytes, *, kind: str, bound: int) -> int:
    if not _DIGITS.fullmatch(text):
        is_negative = text[:1] == b"-" and _DIGITS.fullmatch(text, 1)
        wanted = f"a {kind} id of 0 or more" if is_negative else f"a {kind} id of plain digits"
        raise _UnfitError(excerpt(shown), wanted)
    significant = text.lstrip(b"0") or b"0"
    # Ten digits hold every bound; more of them would cost time, and Python refuses to read thousands.
    if len(significant) > 10 or int(significant) >= bound:
        raise _UnfitError(excerpt(shown), f"a {kind} id below {bound}")
    return int(significant)


def _signed_label(text: bytes, token: bytes, rules: LineRules) -> int:
    value = float(text) if _NUMBER.fullmatch(text) else float("nan")
    if not value.is_integer():
        raise _UnfitError(excerpt(text or token), "whole-number labels separated by commas")
    if not rules.lowest_label <= value < rules.class_bound:
        raise _UnfitError(excerpt(text or token), f"labels from {rules.lowest_label} to {rules.class_bound - 1}")
    return int(value)
