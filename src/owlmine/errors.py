"""Errors that a user can act on. The command line prints them without a traceback and exits with 2."""

from __future__ import annotations


class OwlmineError(Exception):
    """The user's input cannot be used; the message says what was found and what was wanted."""

    signal: int | None = None
    """The signal that ended the work, if any."""


class DataError(OwlmineError, ValueError):
    """A file that cannot be read as requested: the place, what was found, what was wanted.

    ``path`` is anything whose ``str`` names the place: a path, a name, a stream with a name.
    """

    def __init__(self, path: object, *, found: str, wanted: str, line: int | None = None) -> None:
        self.path, self.line, self.found, self.wanted = str(path), line, found, wanted
        place = f"{self.path}, line {line}" if line is not None else self.path
        super().__init__(f"{place}: found {found}; wanted {wanted}")


def excerpt(text: str | bytes, limit: int = 60) -> str:
    """A short, quoted, printable form of a text, for messages."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="backslashreplace")
    return repr(text if len(text) <= limit else text[:limit] + "…")


def how_to_install(extra: str) -> str:
    """The command that installs an extra. The package is not on an index, so the command names the checkout."""
    return f"in a checkout of owlmine: pip install '.[{extra}]'"
