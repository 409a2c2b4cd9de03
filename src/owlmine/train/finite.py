"""Whether a model still holds numbers."""

from __future__ import annotations

import torch

from owlmine.errors import OwlmineError
from owlmine.model.retriever import Retriever

# Looked at together: the mask of a whole table would be a quarter of it.
_BLOCK_ROWS = 1 << 16


class NotFinite(OwlmineError):  # noqa: N818
    """A run left the numbers: its loss, or what it has learnt."""


def first_not_finite(model: Retriever) -> str | None:
    """The name of a tensor with an infinite entry or one that is no number; None where all are fine."""
    for name, tensor in model.tensors().items():
        if not all(bool(torch.isfinite(block).all()) for block in torch.split(tensor, _BLOCK_ROWS)):
            return name
    return None
