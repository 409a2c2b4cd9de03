"""``owlmine theory``: compares mining and negative sampling before any training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from owlmine.cli.terminal import Terminal, literal
from owlmine.errors import OwlmineError
from owlmine.pictures import check_picture

if TYPE_CHECKING:
    from owlmine.theory import Compared, Setting

_TOPS = (1, 16, 64, 256)
_RETRIEVED = 5
# The names of Setting as the options are called.
_FLAGS = {"num_classes": "--classes", "pool_size": "--pool", "tops": "--top", "k": "--k"}


def theory_command(
    classes: Annotated[int, typer.Option("--classes", help="Number of classes: K.")],
    pool: Annotated[int, typer.Option("--pool", help="Number of negatives in a pool: B.")],
    top: Annotated[
        str | None,
        typer.Option(
            "--top",
            help="Numbers of hardest negatives that count (k'), separated by commas.",
            show_default=f"those of {', '.join(map(str, _TOPS))} that fit the pool",
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "-k",
            "--k",
            help="Number of classes to retrieve; sets the weight of negative sampling.",
            show_default=f"{_RETRIEVED}, but less than --classes",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="PNG", help="Plot theta to this file; must not exist.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of a table.")] = False,
) -> None:
    """Compare the weights theta of Top-k' mining and negative sampling, before any training.

    Both losses estimate an ordered loss with weights theta, shown on the
    paper's scale: mining gives each of the k' hardest (K - 1)/(k'B), negative
    sampling gives each negative (K - 1)/(kB). k is the number retrieved.
    """
    # NumPy, SciPy and PyTorch take a second to load, which `owlmine --help` should not.
    from owlmine.theory import Setting, compare, plot_theta

    try:
        setting = Setting(
            num_classes=classes,
            pool_size=pool,
            tops=tuple(size for size in _TOPS if size <= pool) if top is None else _numbers(top),
            k=min(_RETRIEVED, classes - 1) if k is None else k,
        )
    except ValueError as error:
        name, _, rest = str(error).partition(":")
        raise OwlmineError(f"{_FLAGS[name]}:{rest}") from error
    if plot is not None:
        check_picture(plot)
    compared = list(compare(setting))
    console = Terminal()
    if as_json:
        typer.echo(json.dumps([_as_json(method) for method in compared], indent=1))
    else:
        _print_table(console, setting, compared)
    if plot is None:
        return
    plot_theta(setting, compared, plot)
    if not as_json:
        console.print(f"Picture: {literal(str(plot))}", soft_wrap=True)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        wanted = "whole numbers separated by commas, such as 1,16,64"
        raise OwlmineError(f"--top: given {text!r}; wanted {wanted}") from None


def _as_json(method: Compared) -> dict[str, Any]:
    return {
        "method": method.name,
        "top": method.top,
        "vartheta": method.vartheta,
        "theta_first": method.norms.first,
        "theta_l1": method.norms.l1,
        "theta_l2": method.norms.l2,
        "theta_l2_bound": method.l2_bound,
        "effective_ranks": method.norms.effective_ranks,
        "half_rank": method.norms.half_rank,
        "retrieval_factor": method.factor,
        "l1_per_factor": method.l1_per_factor,
    }


def _print_table(console: Console, setting: Setting, compared: list[Compared]) -> None:
    columns = ("θ₁", "‖θ‖₁", "‖θ‖₂", "bound\non ‖θ‖₂", "ranks in\neffect", "c", "‖θ‖₁ / c")
    title = f"{setting.num_classes:,} classes, pools of {setting.pool_size:,}, {setting.k} retrieved"
    table = Table("method", *columns, title=title, box=SIMPLE, padding=(0, 1), collapse_padding=True)
    for column in table.columns:
        column.justify, column.no_wrap = "right", True
    table.columns[0].justify = "left"
    for method in compared:
        norms = method.norms
        sizes = (norms.first, norms.l1, norms.l2, method.l2_bound)
        table.add_row(
            "sampling" if method.top is None else f"Top-{method.top}",
            *(f"{size:.3g}" for size in sizes),
            f"{norms.effective_ranks:,.0f}",
            f"{method.factor:.3g}",
            f"{method.l1_per_factor:.3g}",
        )
    console.print(table)
    console.print(
        f"Paper's scale: Top-k' SNM gives each of the k' hardest the weight (K - 1)/(k'B), negative sampling"
        f" each of its B negatives (K - 1)/({setting.k}B). Ranks in effect: ‖θ‖₁² / ‖θ‖₂². c: POWL >= c x retrieval"
        f" loss at k = {setting.k}; ‖θ‖₁ / c compares methods at equal guarantees."
    )
