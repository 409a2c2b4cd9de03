"""Learning to retrieve among very many classes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from owlmine.errors import OwlmineError
from owlmine.version import __version__

if TYPE_CHECKING:
    from owlmine.estimator import OwlmineClassifier
    from owlmine.losses import MinedLoss, top_k
    from owlmine.mining import draw_batch_pool
    from owlmine.model import Model, Prediction, Predictions, Reasons, SimilarClass, fit, load
    from owlmine.recipe.options import TrainOptions

__all__ = [
    "MinedLoss",
    "Model",
    "OwlmineClassifier",
    "OwlmineError",
    "Prediction",
    "Predictions",
    "Reasons",
    "SimilarClass",
    "TrainOptions",
    "__version__",
    "draw_batch_pool",
    "fit",
    "load",
    "top_k",
]

_HOMES = {
    **dict.fromkeys(("Model", "Prediction", "Predictions", "Reasons", "SimilarClass", "fit", "load"), "owlmine.model"),
    "OwlmineClassifier": "owlmine.estimator",
    "TrainOptions": "owlmine.recipe.options",
    **dict.fromkeys(("MinedLoss", "top_k"), "owlmine.losses"),
    "draw_batch_pool": "owlmine.mining",
}


def __getattr__(name: str) -> Any:
    """The public names, imported on first use: importing torch takes a second, which data commands do not need."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'owlmine' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
