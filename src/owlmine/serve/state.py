"""What all parts of the service know about it."""

from __future__ import annotations

from dataclasses import dataclass

from owlmine.errors import OwlmineError


@dataclass
class State:
    """Whether the service takes requests."""

    draining: bool = False
    """It answers what it has accepted, and refuses the rest."""
    failure: OwlmineError | None = None
    """Why it cannot start."""

    def fail(self, error: OwlmineError) -> None:
        self.failure = error
