"""Learning to retrieve among very many classes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from owlmine.estimator import OwlmineClassifier
    from owlmine.model.folder import load

__version__ = "0.1.0"
__all__ = ["OwlmineClassifier", "__version__", "load"]

_HOMES = {"OwlmineClassifier": "owlmine.estimator", "load": "owlmine.model.folder"}


def __getattr__(name: str) -> Any:
    """The public names, imported on first use: torch costs a second that data commands need not spend."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'owlmine' has no attribute {name!r}")
