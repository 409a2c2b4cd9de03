"""Options as data: dataclass fields with a default and a help text. The command line is generated from them."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(default: Any, help: str, *, group: str | None = None, common: bool = False) -> Any:
    """A dataclass field with a help text.

    group: its panel in the help.
    common: whether ``--help`` shows it, if that shows only some options.
    """
    return field(default=default, metadata={"help": help, "group": group, "common": common})
