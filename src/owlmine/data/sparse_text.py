"""The door to the parsers of sparse text: one grammar, three engines that agree bit for bit.

``plain`` defines the grammar and words the errors. ``compiled`` and ``numpy`` are fast on well-formed lines
and hand all others to ``plain``, so the choice of engine changes the time and nothing else.
"""

from __future__ import annotations

from os import PathLike

from .sparse_text_compiled import compiled_module, parse_compiled
from .sparse_text_numpy import parse_numpy
from .sparse_text_plain import Grammar, LineRules, ParsedBlock, parse_plain

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

    ``num_features`` and ``num_classes`` bound the ids from above; None admits every id below 2**31. Labels
    of SVMLIGHT may be negative as long as ``num_classes`` is None. ``path`` and ``first_line`` (the number of
    the first line in its file) are for messages alone. Raises DataError at the first line that the grammar
    refuses. ``auto`` takes the compiled engine where it was built, and NumPy's otherwise.
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
