"""What a terminal is sent: texts of users as they are, but none of their control characters."""

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
    r"""Control characters written out, an escape as ``\x1b``, so that they cannot command a terminal. Lines stay."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def visible_json(text: str) -> str:
    """The same in the notation of JSON, so that what is shown can still be read as JSON."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def literal(text: str) -> str:
    r"""A user's text within a line of markup: no tags, and a newline as ``\n``."""
    return escape(text.replace("\n", "\\n"))


class Terminal(Console):
    """A console that writes control characters out where it is a terminal. Elsewhere bytes stay what they are.

    Everything that is printed as a string goes through here, so that no command has to think of it.
    """

    def __init__(self, *, stderr: bool = False, file: IO[str] | None = None, width: int | None = None) -> None:
        # Without emoji: a class named ":cat:" is not to become a picture.
        super().__init__(stderr=stderr, file=file, width=width, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text) if self.is_terminal else text, **options)


def print_line(text: str, *, stderr: bool = False) -> None:
    """A line without style, with control characters written out on a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    print(visible(text) if stream.isatty() else text, file=stream)
