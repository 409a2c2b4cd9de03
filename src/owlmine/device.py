"""Where tensors live."""

from __future__ import annotations

import torch

from owlmine.errors import OwlmineError

_DEVICES = ("auto", "cpu", "cuda")


def choose_device(name: str) -> torch.device:
    """The device of that name; ``auto`` is CUDA where there is one. Raises OwlmineError where it cannot be had."""
    if name not in _DEVICES:
        raise OwlmineError(f"device is {name!r}; wanted cpu, cuda or auto")
    if name == "cuda" and not torch.cuda.is_available():
        raise OwlmineError("device is cuda; this machine has none that PyTorch can use")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
