"""docs/training.md names every option once, in its group, with its default; and the figures that it quotes."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from owlmine.recipe.options import TrainOptions

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


def shown(name: str, default: Any) -> str:
    if default is None:
        return "off" if name in ("pool_start", "minutes") else "chosen"
    return {True: "on", False: "off"}[default] if isinstance(default, bool) else str(default)


def test_every_option_with_its_group_and_default() -> None:
    expected = {
        f"`--{name.replace('_', '-')}`": (group.metadata["group"], shown(name, default))
        for group in fields(TrainOptions)
        for name, default in vars(getattr(TrainOptions(), group.name)).items()
    }
    assert documented() == expected


def test_measured_memory_is_that_of_the_benchmark() -> None:
    ratios = json.loads((ROOT / "benchmarks" / "results" / "train_memory.json").read_text())["peak_over_parameters"]
    quoted = re.search(r"([\d.]+) for a run with a warm start, ([\d.]+) for one that is resumed", PAGE)
    assert quoted is not None
    assert [float(quoted[1]), float(quoted[2])] == pytest.approx([ratios["train"], ratios["resume"]], abs=0.005)
