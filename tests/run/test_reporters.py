"""What people see of a run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from owlmine.data import Store
from owlmine.dense.progress import Progress
from owlmine.run import train
from owlmine.run.reporters import BarReporter, LineReporter, figures_line

from .runs import small_options


@pytest.mark.parametrize("validation", [0.1, 0.0])
def test_one_line_per_epoch(store: Store, tmp_path: Path, validation: float) -> None:
    shown = io.StringIO()
    options = small_options(epochs=3.0, validation=validation)
    train(store, tmp_path / "out", options, reporter=LineReporter(Console(file=shown, width=40)))
    lines = shown.getvalue().splitlines()
    assert [line[:11] for line in lines] == ["epoch  1.00", "epoch  2.00", "epoch  3.00"]
    assert all(("P@1" in line) == (validation > 0) for line in lines)
    assert all("loss" in line and "points/s" in line for line in lines)


def test_one_line_per_epoch_of_each_model(store: Store, tmp_path: Path) -> None:
    shown = io.StringIO()
    options = small_options(heads=2, validation=0.0)
    train(store, tmp_path / "out", options, reporter=LineReporter(Console(file=shown, width=40)))
    lines = [line[:11] for line in shown.getvalue().splitlines()]
    assert lines == [line for n in (1, 2) for line in (f"model {n} of ", "epoch  1.00", "epoch  2.00")]


def test_bar_on_a_terminal(store: Store, tmp_path: Path) -> None:
    shown = io.StringIO()
    with BarReporter(Console(file=shown, force_terminal=True, width=120)) as bar:
        train(store, tmp_path / "out", small_options(), reporter=bar)
        bar.message("odd [bold]name[/] of a file")
    assert "100%" in shown.getvalue()
    assert "odd [bold]name[/] of a file" in shown.getvalue(), "messages are no markup"


def test_figures_on_one_line() -> None:
    progress = Progress(5, 20, 0.25, 1.23456, 12345.6, 125.2, {"P@1": 12.345, "P@3": 1.0})
    assert figures_line(progress) == "loss 1.2346  12,346 points/s  2:05 left  P@1 12.35"
