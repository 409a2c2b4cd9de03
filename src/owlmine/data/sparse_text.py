"""Parses sparse text: chooses the engine, and calls the compiled one.

C reads runs of well-formed lines, and the plain engine each line between them.
"""

from __future__ import annotations

from os import PathLike
from types import ModuleType

import numpy as np

from ..extensions import load_extension
from .rows import SparseRows
from .sparse_text_numpy import parse_numpy
from .sparse_text_plain import Grammar, LineRules, ParsedBlock, parse_line, parse_plain, split_lines


def compiled_module() -> ModuleType | None:
    return load_extension("owlmine.data._sparse_text")


def parse_compiled(data: bytes, rules: LineRules, *, first_line: int) -> ParsedBlock:
    extension = compiled_module()
    assert extension is not None
    newlines, colons, commas = extension.count_marks(data)
    # Upper bounds for a block: each feature has a colon, and a line has at most one label more than commas.
    feature_offsets, label_offsets = np.zeros(newlines + 2, np.int64), np.zeros(newlines + 2, np.int64)
    feature_ids, values = np.empty(colons, np.int32), np.empty(colons, np.float32)
    labels = np.empty(commas + newlines + 1, np.int64)
    outputs = (feature_offsets, feature_ids, values, label_offsets, labels)
    c_rules = _rules_for_c(rules)

    last_newline = data.rfind(b"\n") + 1  # a line without its newline is for the plain engine
    position = rows = crlf_lines = duplicate_labels = 0
    while True:
        position, rows, newly_crlf = extension.parse(
            data, position, max(position, last_newline), c_rules, rows, *outputs
        )
        crlf_lines += newly_crlf
        if position == len(data):
            break
        end = data.find(b"\n", position) + 1 or len(data)
        [(line, is_crlf)] = split_lines(data[position:end])
        row = parse_line(line, rules, line_number=first_line + rows)
        feature_start, label_start = feature_offsets[rows], label_offsets[rows]
        feature_stop, label_stop = feature_start + len(row.feature_ids), label_start + len(row.labels)
        feature_ids[feature_start:feature_stop] = row.feature_ids
        values[feature_start:feature_stop] = row.values
        labels[label_start:label_stop] = row.labels
        rows += 1
        feature_offsets[rows], label_offsets[rows] = feature_stop, label_stop
        crlf_lines += is_crlf
        duplicate_labels += row.duplicate_labels
        position = end
    num_pairs = feature_offsets[rows]
    return ParsedBlock(
        SparseRows(feature_offsets[: rows + 1], feature_ids[:num_pairs], values[:num_pairs]),
        SparseRows(label_offsets[: rows + 1], labels[: label_offsets[rows]], None),
        crlf_lines,
        duplicate_labels,
    )


def _rules_for_c(rules: LineRules) -> tuple[bool, bool, int, int, int]:
    has_labels, has_signs = rules.grammar is not Grammar.MATRIX, rules.grammar is Grammar.SVMLIGHT
    return has_labels, has_signs, rules.feature_bound, rules.lowest_label, rules.class_bound


# One grammar of sparse text, and three engines that agree bit for bit.
#
# ``plain`` defines the grammar and raises the errors. ``compiled`` and ``numpy`` are fast on well-formed lines
# and leave all others to ``plain``, so the choice of engine changes the time and nothing else.


__all__ = ["ENGINES", "Grammar", "ParsedBlock", "parse_block"]

ENGINES = ("auto", "compiled", "numpy", "plain")


def parse_block(
    data: bytes,
    *,
    grammar: Grammar,
    num_features: int | None,
    num_classes: int | None,
    path: str | PathLike[str],
    first_line: int,
    engine: str = "auto",
) -> ParsedBlock:
    """The rows of ``data``, which holds whole lines (the last may lack its newline).

    ``num_features`` and ``num_classes`` bound the ids from above; None allows every id below 2**31. Labels of SVMLIGHT
    may be negative as long as ``num_classes`` is None. ``path`` and ``first_line`` (the number of the first line in its
    file) are only for messages. Raises DataError at the first line that the grammar rejects. ``auto`` uses the compiled
    engine if it was built, otherwise NumPy's.
    """
    for name, bound in (("num_features", num_features), ("num_classes", num_classes)):
        if bound is not None and bound < 0:
            raise ValueError(f"{name} is {bound}; wanted None or a number of 0 or more")
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}; wanted one of {', '.join(ENGINES)}")
    rules = LineRules(grammar, num_features, num_classes, path)
    if engine in ("auto", "compiled") and compiled_module() is not None:
        return parse_compiled(data, rules, first_line=first_line)
    if engine == "compiled":
        raise ValueError("engine is 'compiled', which was not built here; wanted 'auto', 'numpy' or 'plain'")
    parse = parse_plain if engine == "plain" else parse_numpy
    return parse(data, rules, first_line=first_line)
