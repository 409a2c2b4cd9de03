"""What commands with a trained model share: the model argument, the device, a progress bar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from owlmine.cli.terminal import Terminal
from owlmine.errors import OwlmineError

if TYPE_CHECKING:
    from owlmine.model import Model

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a trained model.")]
TailOption = Annotated[
    float,
    typer.Option(
        "--tail",
        metavar="T",
        help="Favour rare classes: order by probability * inverse propensity^T, T from 0 (off) to 1.",
    ),
]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda, or auto.")]
ExactOption = Annotated[bool, typer.Option("--exact", help="Search all classes, even if the model has an index.")]


def open_model(path: Path, device: str, *, exact: bool = False) -> Model:
    """Loads the model on the requested device."""
    from owlmine.device import choose_device
    from owlmine.model import load

    try:
        chosen = choose_device(device)
    except OwlmineError as error:
        raise OwlmineError(f"--{error}") from error
    return load(path, device=chosen, exact=exact)


def whole_numbers(text: str, option: str, example: str) -> tuple[int, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        wanted = f"whole numbers separated by commas, such as {example}"
        raise OwlmineError(f"{option} is {text!r}; wanted {wanted}") from None


class ShareBar:
    """A progress bar on standard error if that is a terminal, else nothing. A context manager."""

    def __init__(self, title: str, *, shown: bool = True) -> None:
        console = Terminal(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=32),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not (shown and console.is_terminal),
            transient=True,
        )
        self._task = self._bar.add_task(title, total=1.0)

    def __enter__(self) -> ShareBar:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def update(self, share: float) -> None:
        self._bar.update(self._task, completed=share)
