"""Writes the stored results and the tables of the plan between the markers in the docs, and draws the pictures.

    python benchmarks/paper/write_docs.py

A block begins with ``<!-- results: NAME -->`` or ``<!-- plan: NAME -->`` and ends with ``<!-- end -->``. Results are
table1, table2, ratios, table3, moved, best, summary, costs, latency, stages and the questions; of the plan there are
sizes, efforts, pools and losses.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import costs
import moved
import pictures
import plans
import stages
import table2
import tables
from best import best_table, draw_summary, summary_table
from questions import QUESTIONS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "docs" / "training.md",
    ROOT / "docs" / "research" / "study.md",
    ROOT / "docs" / "research" / "cpu.md",
)
_BLOCK = re.compile(r"(<!-- ((?:results|plan): [\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

BLOCKS: dict[str, Callable[[], str]] = {
    "results: table1": tables.table1,
    "results: table2": table2.figure_table,
    "results: ratios": table2.ratio_table,
    "results: table3": tables.table3,
    "results: moved": moved.table,
    "results: best": best_table,
    "results: summary": summary_table,
    "results: costs": costs.costs_table,
    "results: latency": costs.latency_table,
    "results: stages": stages.table,
    **{f"results: {name}": partial(pictures.table, question) for name, question in QUESTIONS.items()},
    "plan: sizes": plans.sizes,
    "plan: efforts": plans.efforts,
    "plan: pools": plans.pools,
    "plan: losses": plans.losses,
}


def with_tables(text: str) -> str:
    """``text`` with every block filled again."""

    def filled(found: re.Match[str]) -> str:
        begin, name, _, end = found.groups()
        if name not in BLOCKS:
            raise ValueError(f"the text has the marker {name!r}; expected one of {', '.join(BLOCKS)}")
        return f"{begin}{BLOCKS[name]()}\n{end}"

    return _BLOCK.sub(filled, text)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for document in DOCUMENTS:
        document.write_text(with_tables(document.read_text("utf-8")), "utf-8")
    draw_summary()
    for question in QUESTIONS.values():
        pictures.draw(question)


if __name__ == "__main__":
    main()
