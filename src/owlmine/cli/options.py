"""Command-line options generated from a dataclass: name, type, default and help are stated in one place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer
from rich.markup import escape

from owlmine.errors import OwlmineError


@dataclass(frozen=True)
class _Leaf:
    """One option of the command line. ``group``: the nested dataclass that it belongs to, if any."""

    name: str
    kind: Any
    default: Any
    help: str
    panel: str | None
    common: bool
    group: str | None = None
    group_class: Any = None


def with_options(
    options_class: type[Any],
    *,
    parameter: str = "options",
    panel: str | None = None,
    advanced: bool = False,
    without: Collection[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replaces a parameter of a command with one option per field of ``options_class``, including nested dataclasses.

    ``panel`` is the section of the help for fields that name none. If only some fields are ``common``, or all are
    ``advanced``, ``--help`` hides the others and ``--help-all`` shows them. Fields ``without`` an option keep their
    defaults.
    """
    leaves = [leaf for leaf in _leaves(options_class, panel) if leaf.name not in without]
    some_common = any(leaf.common for leaf in leaves)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command)
        own_types = get_type_hints(command, include_extras=True)
        added = []
        for leaf in leaves:
            hidden = advanced or (some_common and not leaf.common)
            annotation: Any = Annotated[leaf.kind, _option(leaf, hidden=hidden)]
            added.append(
                inspect.Parameter(
                    leaf.name, inspect.Parameter.KEYWORD_ONLY, default=leaf.default, annotation=annotation
                )
            )
        kept = [p.replace(annotation=own_types[name]) for name, p in own.parameters.items() if name != parameter]
        has_more = (advanced or some_common) and "help_all" not in own.parameters
        if has_more:
            added.append(
                inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_HelpAll)
            )

        @functools.wraps(command)
        def run(**given: Any) -> None:
            if has_more:
                given.pop("help_all")
            try:
                options = _assembled(options_class, leaves, given)
            except ValueError as error:
                raise OwlmineError(f"--{str(error).replace('_', '-', 1)}") from error
            command(**{parameter: options}, **given)

        keyword_only = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in kept]
        run.__signature__ = inspect.Signature(keyword_only + added)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in keyword_only + added}
        return run

    return decorate


def _leaves(options_class: type[Any], panel: str | None) -> list[_Leaf]:
    kinds, leaves = get_type_hints(options_class), []
    for field in fields(options_class):
        kind = kinds[field.name]
        if is_dataclass(kind):
            inner = get_type_hints(kind)
            leaves += [
                _Leaf(
                    leaf.name,
                    inner[leaf.name],
                    leaf.default,
                    leaf.metadata["help"],
                    field.metadata["group"],
                    leaf.metadata["common"],
                    field.name,
                    kind,
                )
                for leaf in fields(kind)
            ]
        else:
            meta = field.metadata
            shown = meta.get("group") or panel
            leaves.append(_Leaf(field.name, kind, field.default, meta["help"], shown, meta["common"]))
    return leaves


def _assembled(options_class: type[Any], leaves: list[_Leaf], given: dict[str, Any]) -> Any:
    """Takes the options of the command line out of ``given`` and builds the dataclass."""
    values: dict[str, Any] = {}
    groups: dict[str, tuple[Any, dict[str, Any]]] = {}
    for leaf in leaves:
        value = given.pop(leaf.name)
        if leaf.group is None:
            values[leaf.name] = value
        else:
            groups.setdefault(leaf.group, (leaf.group_class, {}))[1][leaf.name] = value
    values |= {name: group_class(**inner) for name, (group_class, inner) in groups.items()}
    return options_class(**values)


def _option(leaf: _Leaf, *, hidden: bool) -> Any:
    flag = "--" + leaf.name.replace("_", "-")
    if leaf.kind is bool and leaf.default:
        flag += "/--no-" + leaf.name.replace("_", "-")
    # A switch that is off by default needs no --no- form.
    return typer.Option(
        flag,
        help=escape(leaf.help),
        show_default=leaf.kind is not bool or leaf.default,
        rich_help_panel=leaf.panel,
        hidden=hidden,
    )


def _show_all(context: typer.Context, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    for parameter in context.command.params:
        if hasattr(parameter, "hidden"):  # an option, not an argument
            parameter.hidden = False
    typer.echo(context.get_help())
    raise typer.Exit


_HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        callback=_show_all,
        is_eager=True,
        help="Show every option, in groups, and exit.",
        show_default=False,
    ),
]
