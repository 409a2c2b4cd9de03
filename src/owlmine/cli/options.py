"""Command-line options made from a dataclass: name, type, default and help stand in one place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

import typer
from rich.markup import escape

from owlmine.errors import OwlmineError


def with_options(
    options_class: type[Any], *, parameter: str = "options", group: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replaces a parameter of a command by one option per field of ``options_class``.

    ``group`` is the panel of the help for fields that name none.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command)
        own_types = get_type_hints(command, include_extras=True)
        field_types = get_type_hints(options_class)
        names = [field.name for field in fields(options_class)]
        added = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=Annotated[
                    field_types[field.name],
                    _option(field.name, field_types[field.name], field.default, field.metadata, group),
                ],
            )
            for field in fields(options_class)
        ]
        kept = [
            given.replace(annotation=own_types[name]) for name, given in own.parameters.items() if name != parameter
        ]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            try:
                options = options_class(**{name: given.pop(name) for name in names})
            except ValueError as error:
                raise OwlmineError(f"--{str(error).replace('_', '-', 1)}") from error
            command(**{parameter: options}, **given)

        keyword_only = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in kept]
        run.__signature__ = inspect.Signature(keyword_only + added)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in keyword_only + added}
        return run

    return decorate


def _option(name: str, kind: Any, default: Any, metadata: Any, group: str | None) -> Any:
    flag = "--" + name.replace("_", "-")
    if kind is bool and default:
        flag += "/--no-" + name.replace("_", "-")
    # A switch that is off by default needs no --no- form.
    return typer.Option(
        flag,
        help=escape(metadata["help"]),
        show_default=kind is not bool or default,
        rich_help_panel=metadata.get("group") or group,
    )
