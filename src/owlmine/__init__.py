"""Learning to retrieve among very many classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from owlmine.model.folder import load
    from owlmine.train import TrainOptions, train

__version__ = "0.1.0"
__all__ = ["TrainOptions", "__version__", "load", "train"]


def __getattr__(name: str) -> Any:
    """The public names, imported on first use: torch costs a second that data commands need not spend."""
    if name == "load":
        from owlmine.model.folder import load

        return load
    if name in ("TrainOptions", "train"):
        import owlmine.train

        return getattr(owlmine.train, name)
    raise AttributeError(f"module 'owlmine' has no attribute {name!r}")
