"""The compiled parts of the package, all optional, and the messages about missing ones."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType

EXTENSIONS = (
    "owlmine.data._sparse_text",
    "owlmine.mining._coded_rows",
    "owlmine.mining._int8",
    "owlmine.mining._lists",
    "owlmine.dense._rows",
    "owlmine.dense._step",
    "owlmine.rank._linear",
    "owlmine.rank._points",
    "owlmine.rank._votes",
)
_announced = False


@cache
def load_extension(name: str) -> ModuleType | None:
    """The extension module with this full name, or None if the package was installed without a compiler."""
    try:
        return import_module(name)
    except ImportError:
        if name in EXTENSIONS and not _announced:
            _set_announced()
            warnings.warn(slowness(missing_extensions() or (name,)), RuntimeWarning, stacklevel=2)
        return None


def missing_extensions() -> tuple[str, ...]:
    """Names of the compiled parts that were not built, or that cannot be loaded. Imports no package for that."""
    return tuple(name for name in EXTENSIONS if not _loads(name))


def _loads(name: str) -> bool:
    stem = Path(__file__).parent.parent.joinpath(*name.split("."))
    for suffix in EXTENSION_SUFFIXES:
        if (file := stem.with_name(stem.name + suffix)).is_file():
            try:
                ExtensionFileLoader(name, str(file)).create_module(ModuleSpec(name, None, origin=str(file)))
            except ImportError:
                return False
            return True
    return False


def announce_missing() -> None:
    """Prints a note once, on standard error, if compiled parts are missing."""
    if missing := missing_extensions():
        _set_announced()
        print(f"owlmine: note: {slowness(missing)}", file=sys.stderr)


def describe_extensions() -> str:
    """One line with the compiled parts."""
    missing = missing_extensions()
    present = [name for name in EXTENSIONS if name not in missing]
    if not missing:
        return f"compiled parts: {_short(present)}"
    return f"compiled parts: {_short(present) or 'none'}; missing: {_short(missing)}\n{slowness(missing)}"


def slowness(missing: tuple[str, ...]) -> str:
    """The cost of missing parts, and how to get them."""
    return (
        f"{len(missing)} of {len(EXTENSIONS)} compiled parts are missing, so work on a CPU is up to 18 times slower. "
        "Install a C compiler, then run in the checkout: pip install --force-reinstall --no-deps ."
    )


def _short(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(name.removeprefix("owlmine.") for name in names)


def _set_announced() -> None:
    global _announced  # noqa: PLW0603
    _announced = True
