"""Where tensors live."""

from __future__ import annotations

import pytest
import torch

from owlmine.device import choose_device
from owlmine.errors import OwlmineError


@pytest.mark.parametrize(
    ("name", "has_cuda", "expected"),
    [
        ("auto", True, "cuda"),
        ("auto", False, "cpu"),
        ("cpu", True, "cpu"),
        ("cpu", False, "cpu"),
        ("cuda", True, "cuda"),
    ],
)
def test_choice(name: str, has_cuda: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    assert choose_device(name) == torch.device(expected)


def test_what_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OwlmineError, match="device is cuda; PyTorch finds no CUDA device"):
        choose_device("cuda")
    with pytest.raises(OwlmineError, match="device is 'abacus'; wanted cpu, cuda or auto"):
        choose_device("abacus")
