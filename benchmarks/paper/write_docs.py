"""Puts the stored results between the marks of README.md and docs/research/study.md, and draws the pictures.

    python benchmarks/paper/write_docs.py

A block begins with ``<!-- results: NAME -->`` and ends with ``<!-- end -->``; NAME is table1, table2, ratios, table3,
moved, best, summary or a question.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import moved
import pictures
import table2
import tables
from best import best_table, draw_summary, summary_table
from questions import QUESTIONS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "research" / "study.md")
_BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

BLOCKS: dict[str, Callable[[], str]] = {
    "table1": tables.table1,
    "table2": table2.figure_table,
    "ratios": table2.ratio_table,
    "table3": tables.table3,
    "moved": moved.table,
    "best": best_table,
    "summary": summary_table,
} | {name: lambda question=question: pictures.table(question) for name, question in QUESTIONS.items()}


def with_results(text: str) -> str:
    """``text`` with every block filled anew."""

    def filled(found: re.Match[str]) -> str:
        begin, name, _, end = found.groups()
        if name not in BLOCKS:
            raise ValueError(f"the text asks for results of {name!r}; wanted one of {', '.join(BLOCKS)}")
        return f"{begin}{BLOCKS[name]()}\n{end}"

    return _BLOCK.sub(filled, text)


def main() -> None:
    for document in DOCUMENTS:
        document.write_text(with_results(document.read_text("utf-8")), "utf-8")
    draw_summary()
    for question in QUESTIONS.values():
        pictures.draw(question)


if __name__ == "__main__":
    main()
