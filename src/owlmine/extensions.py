"""The compiled parts of the package, all optional."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType


@cache
def load_extension(name: str) -> ModuleType | None:
    """The extension module with this full name, or None where the package was installed without a compiler."""
    try:
        return import_module(name)
    except ImportError:
        return None
