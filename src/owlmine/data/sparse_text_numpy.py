"""The NumPy engine, for installations without the compiled one.

A block is cut at every byte that is not a digit. The two neighbours of a run of digits determine its meaning (between a
blank and a colon it is a feature id, between a colon and a point the whole part of a value, ...), so one table lookup
both checks and reads the block. Rows with neighbours that are not in the table, with a number too long to be exact, an
id out of bounds or a repeated id go to the plain engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .rows import Float32, Int64, SparseRows, offsets_from_counts
from .sparse_text_plain import NO_BOUND, Grammar, LineRules, ParsedBlock, parse_line, parse_plain

_CHUNK_BYTES = 1 << 18  # the arrays of a chunk stay in the processor's cache
_MAX_DIGITS = 15  # a double holds every integer of this many digits, and their powers of ten, exactly
_POWERS_OF_TEN = np.array([10**power for power in range(_MAX_DIGITS + 1)], np.float64)

# Bytes that separate runs of digits, numbered after the digits themselves. Signs before values and signs before
# labels have different numbers, since different things may follow them.
_NEWLINE, _BLANK, _COMMA, _COLON, _POINT, _MINUS, _PLUS, _LABEL_SIGN, _OTHER = range(10, 19)
_CODES = bytearray([_OTHER]) * 256
_SEPARATORS = (_NEWLINE, _BLANK, _BLANK, _COMMA, _COLON, _POINT, _MINUS, _PLUS)
for _byte, _code in zip(b"0123456789\n \t,:.-+", (*range(10), *_SEPARATORS), strict=True):
    _CODES[_byte] = _code

_ODD, _NOTHING, _LABEL, _FEATURE_ID, _WHOLE, _DECIMALS = range(6)
_Roles = NDArray[np.uint8]
_Mask = NDArray[np.bool_]
_T = TypeVar("_T", bound=np.generic)


def _role_table(grammar: Grammar) -> _Roles:
    """The role of the digits between two neighbours, at [any digits at all, left, right]."""
    table = np.full((2, 32, 32), _ODD, np.uint8)
    without, with_digits = table
    ends = [_BLANK, _NEWLINE]
    without[np.ix_(ends, ends)] = _NOTHING
    without[_COLON, [_MINUS, _PLUS]] = _NOTHING
    with_digits[ends, _COLON] = _FEATURE_ID
    with_digits[np.ix_([_COLON, _MINUS, _PLUS], [_POINT, *ends])] = _WHOLE
    with_digits[_POINT, ends] = _DECIMALS
    if grammar is not Grammar.MATRIX:
        with_digits[np.ix_([_NEWLINE, _COMMA], [_COMMA, *ends])] = _LABEL
    if grammar is Grammar.SVMLIGHT:
        without[[_NEWLINE, _COMMA], _LABEL_SIGN] = _NOTHING
        with_digits[_LABEL_SIGN, [_COMMA, *ends]] = _LABEL
    return table.ravel()


_TABLES = {grammar: _role_table(grammar) for grammar in Grammar}


def parse_numpy(data: bytes, rules: LineRules, *, first_line: int) -> ParsedBlock:
    blocks = []
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + _CHUNK_BYTES) + 1 or len(data)
        blocks.append(_parse_chunk(data[start:end], rules, first_line=first_line))
        first_line += len(blocks[-1].features)
        start = end
    if not blocks:
        return parse_plain(data, rules, first_line=first_line)
    return ParsedBlock(
        _joined([block.features for block in blocks]),
        _joined([block.labels for block in blocks]),
        sum(block.crlf_lines for block in blocks),
        sum(block.duplicate_labels for block in blocks),
    )


def _parse_chunk(data: bytes, rules: LineRules, *, first_line: int) -> ParsedBlock:
    crlf_lines = data.count(b"\r\n")
    text = data.replace(b"\r\n", b"\n") if crlf_lines else data
    if not text.endswith(b"\n"):
        text += b"\n"
    runs = _cut(text, rules.grammar)
    is_odd = _odd_rows(runs, rules)
    lines = text.split(b"\n") if is_odd.any() else []
    plain_rows = [parse_line(lines[i], rules, line_number=first_line + int(i)) for i in np.flatnonzero(is_odd)]

    label_runs = runs.clean(_LABEL, is_odd)
    plain_labels = [row.labels for row in plain_rows]
    label_counts = _counts(is_odd, runs.rows[label_runs], plain_labels)
    id_runs = runs.clean(_FEATURE_ID, is_odd)
    plain_ids = [row.feature_ids for row in plain_rows]
    feature_counts = _counts(is_odd, runs.rows[id_runs], plain_ids)
    is_plain = np.repeat(is_odd, feature_counts)
    return ParsedBlock(
        SparseRows(
            offsets_from_counts(feature_counts),
            _merged(is_plain, runs.numbers[id_runs].astype(np.int32), plain_ids),
            _merged(is_plain, _read_values(runs, is_odd), [row.values for row in plain_rows]),
        ),
        SparseRows(
            offsets_from_counts(label_counts),
            _merged(np.repeat(is_odd, label_counts), runs.numbers[label_runs], plain_labels),
            None,
        ),
        crlf_lines,
        sum(row.duplicate_labels for row in plain_rows),
    )


@dataclass(frozen=True)
class _Runs:
    """One entry per byte that is not a digit, for the digits (perhaps none) right before it."""

    lengths: Int64
    numbers: Int64
    """The number that the digits spell, 0 where they have no role; labels with their sign."""
    roles: _Roles
    is_negative: _Mask
    """Whether there is a minus before the digits."""
    rows: Int64

    def clean(self, role: int, is_odd: _Mask) -> Int64:
        """Positions of the runs with this role, except those in odd rows."""
        positions = np.flatnonzero(self.roles == role)
        return positions[~is_odd[self.rows[positions]]] if is_odd.any() else positions


def _cut(text: bytes, grammar: Grammar) -> _Runs:
    codes = np.frombuffer(text.translate(_CODES), np.uint8)
    ends = np.flatnonzero(codes >= _NEWLINE)
    lengths = np.diff(ends, prepend=-1) - 1
    right = codes[ends]
    left = _shifted(right)
    is_negative = left == _MINUS
    if grammar is Grammar.SVMLIGHT:
        is_sign = (right == _MINUS) | (right == _PLUS)
        right = np.where(is_sign & (left != _COLON), np.uint8(_LABEL_SIGN), right)
        left = _shifted(right)
    roles = _TABLES[grammar][((lengths > 0) * np.int64(32) + left) * 32 + right]
    roles[lengths > _MAX_DIGITS] = _ODD
    is_newline = right == _NEWLINE
    numbers = _read_digits(codes, ends, np.where(roles > _NOTHING, lengths, 0))
    np.negative(numbers, out=numbers, where=is_negative & (roles == _LABEL))
    return _Runs(lengths, numbers, roles, is_negative, rows=np.cumsum(is_newline) - is_newline)


def _shifted(right: _Roles) -> _Roles:
    return np.concatenate((np.array([_NEWLINE], np.uint8), right[:-1]))


def _read_digits(codes: _Roles, ends: Int64, lengths: Int64) -> Int64:
    """The numbers that the digits before each end spell, at most 16 digits."""
    padded = np.concatenate((np.zeros(16, np.uint8), codes))
    numbers = _read_eight(padded, ends + 8, np.minimum(lengths, 8))
    long = np.flatnonzero(lengths > 8)
    if len(long):
        numbers[long] += 10**8 * _read_eight(padded, ends[long], lengths[long] - 8)
    return numbers


def _read_eight(padded: _Roles, starts: Int64, lengths: Int64) -> Int64:
    """The last ``lengths`` of the eight digits from each start on, read as one word of eight bytes.

    Neighbours are joined three times: digits to pairs, pairs to fours, fours to the number. The first digit is
    in the lowest byte.
    """
    words = np.ndarray((len(padded) - 7,), "<u8", buffer=padded, strides=(1,))[starts]
    surplus = (64 - 8 * lengths).astype(np.uint64)
    words = np.where(lengths > 0, (words >> surplus) << surplus, np.uint64(0))
    words = words * np.uint64(10) + (words >> np.uint64(8))
    every_other_pair = np.uint64(0x000000FF000000FF)
    firsts = (words & every_other_pair) * np.uint64(100 + (10**6 << 32))
    seconds = ((words >> np.uint64(16)) & every_other_pair) * np.uint64(1 + (10**4 << 32))
    return ((firsts + seconds) >> np.uint64(32)).astype(np.int64)


def _odd_rows(runs: _Runs, rules: LineRules) -> _Mask:
    """The rows that the plain engine must read."""
    is_odd = np.zeros(int(runs.rows[-1]) + 1, bool)
    is_odd[runs.rows[runs.roles == _ODD]] = True
    # The whole part and the decimals of a value count together.
    decimals = np.flatnonzero(runs.roles == _DECIMALS)
    is_long = runs.lengths[decimals] + runs.lengths[decimals - 1] > _MAX_DIGITS
    is_odd[runs.rows[decimals[is_long]]] = True
    for role, lowest, bound in (
        (_LABEL, rules.lowest_label, rules.class_bound),
        (_FEATURE_ID, 0, rules.feature_bound),
    ):
        entries = np.flatnonzero(runs.roles == role)
        rows, ids = runs.rows[entries], runs.numbers[entries]
        is_odd[rows[(ids < lowest) | (ids >= bound)]] = True
        is_odd[_rows_with_repeats(rows, ids)] = True
    return is_odd


def _rows_with_repeats(rows: Int64, ids: Int64) -> Int64:
    # Keys increase where ids increase within their row. Ids beyond 31 bits are out of bounds anyhow.
    keys = (rows << 32) + np.clip(ids, -NO_BOUND, NO_BOUND - 1)
    if (keys[1:] > keys[:-1]).all():
        return np.zeros(0, np.int64)
    keys.sort()
    repeated: Int64 = keys[1:][keys[1:] == keys[:-1]]
    return (repeated + NO_BOUND) >> 32


def _read_values(runs: _Runs, is_odd: _Mask) -> Float32:
    """The values of rows that are not odd: those have one for each feature id, in the same order."""
    wholes = runs.clean(_WHOLE, is_odd)
    values = runs.numbers[wholes].astype(np.float64)
    decimals = runs.clean(_DECIMALS, is_odd)
    if len(decimals):
        with_decimals = np.searchsorted(wholes, decimals - 1)
        scales = _POWERS_OF_TEN[runs.lengths[decimals]]
        # Sum and power are exact, so the division rounds correctly.
        values[with_decimals] = (values[with_decimals] * scales + runs.numbers[decimals]) / scales
    np.negative(values, out=values, where=runs.is_negative[wholes])
    return values.astype(np.float32)


def _counts(is_odd: _Mask, rows: Int64, plain_entries: Sequence[Sequence[float]]) -> Int64:
    """Entries per row: ``rows`` is the row of each clean entry, ``plain_entries`` holds the odd rows."""
    counts = np.bincount(rows, minlength=len(is_odd))
    counts[is_odd] = [len(entries) for entries in plain_entries]
    return counts


def _merged(is_plain: _Mask, clean: NDArray[_T], plain_entries: Sequence[Sequence[float]]) -> NDArray[_T]:
    """Clean and plain entries in the order of the file."""
    if not plain_entries:
        return clean
    merged = np.empty(len(is_plain), clean.dtype)
    merged[~is_plain] = clean
    merged[is_plain] = list(chain.from_iterable(plain_entries))
    return merged


def _joined(parts: Sequence[SparseRows]) -> SparseRows:
    values = [part.values for part in parts if part.values is not None]
    return SparseRows(
        offsets_from_counts(np.concatenate([part.counts for part in parts])),
        np.concatenate([part.indices for part in parts]),
        np.concatenate(values) if values else None,
    )
