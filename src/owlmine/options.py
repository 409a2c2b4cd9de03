"""Options as data: a field of a dataclass with its default and its help. The command line is made from such fields."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(default: Any, help: str, *, group: str | None = None, common: bool = False) -> Any:
    """A dataclass field that knows its help text.

    group: the panel of the help in which it stands. common: whether ``--help`` shows it, where that shows only some.
    """
    return field(default=default, metadata={"help": help, "group": group, "common": common})
