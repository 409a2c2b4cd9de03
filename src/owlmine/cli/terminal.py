"""Output to a terminal: users' texts, with control characters escaped."""

from __future__ import annotations

import re
import sys
from typing import IO, Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

# C0 without the newline, DEL, C1, line and paragraph separators, marks and overrides of direction, lone surrogates.
_CONTROLS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)  # fmt: skip


def visible(text: str) -> str:
    r"""Escapes control characters, such as ``\x1b``, so that they cannot control a terminal. Newlines stay."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def visible_json(text: str) -> str:
    """The same in JSON notation, so that the output is still valid JSON."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def literal(text: str) -> str:
    r"""A user's text inside a line of markup: tags escaped, a newline as ``\n``."""
    return escape(text.replace("\n", "\\n"))


class Terminal(Console):
    """A console that escapes control characters if it is a terminal. Elsewhere, bytes stay as they are.

    Every string is printed through this class, so that no command has to escape it.
    """

    def __init__(self, *, stderr: bool = False, file: IO[str] | None = None, width: int | None = None) -> None:
        # Without emoji: a class named ":cat:" must not become a picture.
        super().__init__(stderr=stderr, file=file, width=width, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text) if self.is_terminal else text, **options)


def print_line(text: str, *, stderr: bool = False) -> None:
    """Prints a line without style; on a terminal, control characters are escaped."""
    stream = sys.stderr if stderr else sys.stdout
    print(visible(text) if stream.isatty() else text, file=stream)
