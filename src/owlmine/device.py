"""Where tensors live."""

from __future__ import annotations

import torch

from owlmine.errors import OwlmineError

_DEVICES = ("auto", "cpu", "cuda")


def choose_device(name: str) -> torch.device:
    """The device with that name; ``auto`` is CUDA if available. Raises OwlmineError if it is not available."""
    if name not in _DEVICES:
        raise OwlmineError(f"device is {name!r}; wanted cpu, cuda or auto")
    if name == "cuda" and not torch.cuda.is_available():
        raise OwlmineError("device is cuda; PyTorch finds no CUDA device on this machine")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
