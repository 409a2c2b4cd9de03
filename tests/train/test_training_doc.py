"""docs/training.md names every option once, in its group, with its default; and the figures that it quotes."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from owlmine.train import TrainOptions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "training.md").read_text("utf-8")


def documented() -> dict[str, tuple[str, str]]:
    """Group and default of every option in the tables."""
    found: dict[str, tuple[str, str]] = {}
    for group, table in re.findall(r"\*\*([\w ]+)\*\*\n\n((?:\|.*\n)+)", PAGE):
        for row in table.splitlines()[2:]:
            names, defaults = (cell.strip().split(", ") for cell in row.split("|")[1:3])
            for name, default in zip(names, defaults, strict=True):
                assert name not in found
                found[name] = (group, default)
    return found


def test_every_option_with_its_group_and_default() -> None:
    shown = {True: "on", False: "off"}
    expected = {
        f"`--{field.name.replace('_', '-')}`": (
            field.metadata["group"],
            shown[field.default] if isinstance(field.default, bool) else str(field.default),
        )
        for field in fields(TrainOptions)
    }
    assert documented() == expected


def test_measured_memory_is_that_of_the_benchmark() -> None:
    ratios = json.loads((ROOT / "benchmarks" / "results" / "train_memory.json").read_text())["peak_over_parameters"]
    told = re.search(r"([\d.]+) for a run with a warm start, ([\d.]+) for one that is resumed", PAGE)
    assert told is not None
    assert [float(told[1]), float(told[2])] == pytest.approx([ratios["train"], ratios["resume"]], abs=0.005)
