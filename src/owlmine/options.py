"""Options as data: a field of a dataclass with its default and its help. The command line is made from such fields."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(default: Any, help: str, *, group: str | None = None) -> Any:
    """A dataclass field that knows what to say of itself; ``group`` is the panel of the help that it stands in."""
    return field(default=default, metadata={"help": help, "group": group})
