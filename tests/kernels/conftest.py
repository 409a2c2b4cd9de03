"""Kernels on a GPU, or on the CPU by Triton's interpreter; where neither can be had the folder is skipped, and Triton
is not even imported.

What a kernel leaves unwritten or writes out of bounds is found by poisoned memory around and under every output; what
it reads out of bounds by inputs with a fence of wrong values around them (``fenced``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor

Fenced = Callable[[Tensor], Tensor]
Rounded = Callable[[Tensor, torch.dtype], Tensor]

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_CAN_RUN = find_spec("triton") is not None and (_INTERPRETED or torch.cuda.is_available())
_WHY_NOT = (
    "kernels need Triton and a CUDA device, or Triton's interpreter: TRITON_INTERPRET=1 python -m pytest tests/kernels"
)
# Cells before and after a tensor; a multiple of the 16 bytes that tile descriptors align to.
_MARGIN = 64


class _NotRun(pytest.Module):
    """A file that is not imported."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        pytest.skip(_WHY_NOT, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    if not _CAN_RUN:
        return _NotRun.from_parent(parent, path=module_path)
    module: pytest.Module = pytest.Module.from_parent(parent, path=module_path)
    # Of the interpreter, which turns arrays of one element into numbers.
    module.add_marker(pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"))
    return module


@pytest.fixture(scope="session")
def device() -> str:
    return "cuda" if torch.cuda.is_available() and not _INTERPRETED else "cpu"


@pytest.fixture(scope="session")
def fenced(device: str) -> Fenced:
    """The same values on the device, amid NaN or, for integers, amid ones: ids that exist, so a wrong read is a wrong
    result and not a crash."""

    def inside_a_fence(values: Tensor) -> Tensor:
        fence = torch.nan if values.is_floating_point() else 1
        memory = torch.full((values.numel() + 2 * _MARGIN,), fence, dtype=values.dtype, device=device)
        return memory[_MARGIN:-_MARGIN].view(values.shape).copy_(values)

    return inside_a_fence


@pytest.fixture(scope="session")
def rounded(device: str) -> Rounded:
    """float32 values in another type as kernels have them: the interpreter cuts them off for bfloat16, and does not
    round."""

    def in_type(values: Tensor, dtype: torch.dtype) -> Tensor:
        if device == "cpu" and dtype == torch.bfloat16:
            values = (values.contiguous().view(torch.int32) & -0x10000).view(torch.float32)
        return values.to(dtype)

    return in_type


@pytest.fixture
def long_table(device: str) -> Tensor:
    """More than 2^31 numbers, so that a place in it does not fit 32 bits: rows of zeros, the last one of 1/8."""
    if device != "cuda":
        pytest.skip("takes 4 GiB, too much for the interpreter")
    table = torch.zeros((1 << 20) + 100, 2048, dtype=torch.bfloat16, device=device)
    table[-1] = 0.125
    return table


@pytest.fixture(autouse=True)
def poisoned_outputs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``torch.empty`` gives NaN, or -77 for integers, within a margin that must be found untouched after the test."""
    plain_empty, plain_empty_like = torch.empty, torch.empty_like
    memories: list[Tensor] = []

    def poisoned(made: Tensor) -> Tensor:
        if not made.is_floating_point() and made.dtype not in (torch.int32, torch.int64):
            return made
        assert made.is_contiguous()
        poison = torch.nan if made.is_floating_point() else -77
        memory = plain_empty(made.numel() + 2 * _MARGIN, dtype=made.dtype, device=made.device).fill_(poison)
        memories.append(memory)
        return memory[_MARGIN:-_MARGIN].view(made.shape)

    monkeypatch.setattr(torch, "empty", lambda *size, **options: poisoned(plain_empty(*size, **options)))
    monkeypatch.setattr(torch, "empty_like", lambda *of, **options: poisoned(plain_empty_like(*of, **options)))
    yield
    for memory in memories:
        margin = torch.cat([memory[:_MARGIN], memory[-_MARGIN:]])
        untouched = margin.isnan() if margin.is_floating_point() else margin == -77
        assert bool(untouched.all()), f"written beside an output: {margin[~untouched].tolist()}"
