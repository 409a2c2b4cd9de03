"""Tensors in files that are written whole or not at all, without a second copy in memory.

We write the safetensors format ourselves: the package's own writer leaves files with random names behind when the
process is killed, and copies every tensor in releases before 0.8; its reader maps the whole file, so that a table that
is read into another one would be in memory twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from owlmine.files import whole_file

_TYPES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.bool: "BOOL",
}
_BLOCK_BYTES = 16 << 20


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes a safetensors file, whole or not at all."""
    # Wide types first, so that every tensor starts at a multiple of its item size.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    entries: dict[str, Any] = {}
    end = 0
    for name, tensor in ordered:
        start, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with whole_file(path) as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _, tensor in ordered:
            for block in _byte_blocks(tensor):
                file.write(block.cpu().numpy().data)


class TensorFile:
    """A safetensors file opened for plain reads, tensor by tensor. Raises ValueError if it is invalid."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > path.stat().st_size:
                raise ValueError("its header is longer than the file")
            entries = json.loads(file.read(length))
        self._data_start = 8 + length
        self._entries: dict[str, Any] = {name: e for name, e in entries.items() if name != "__metadata__"}

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def read(self, name: str) -> Tensor:
        """A new tensor in main memory."""
        types = {word: dtype for dtype, word in _TYPES.items()}
        tensor = torch.empty(self._entries[name]["shape"], dtype=types[self._entries[name]["dtype"]])
        self.read_into(name, tensor)
        return tensor

    def read_into(self, name: str, tensor: Tensor) -> None:
        """Fills a contiguous tensor of the same type and shape, on any device."""
        entry = self._entries[name]
        found, wanted = (entry["dtype"], entry["shape"]), (_TYPES[tensor.dtype], list(tensor.shape))
        if found != wanted:
            raise ValueError(f"{name} is {found[0]} of shape {found[1]}; wanted {wanted[0]} of shape {wanted[1]}")
        with self._path.open("rb", buffering=0) as file:
            file.seek(self._data_start + entry["data_offsets"][0])
            for block in _byte_blocks(tensor):
                here = block if block.device.type == "cpu" else torch.empty_like(block, device="cpu")
                if file.readinto(here.numpy().data) != len(block):
                    raise ValueError(f"{name} is truncated")
                if here is not block:
                    block.copy_(here)


def _byte_blocks(tensor: Tensor) -> Iterator[Tensor]:
    """The memory of a tensor as bytes, one bounded piece at a time; views if it is contiguous."""
    if not tensor.numel():  # whose strides may not allow a view as bytes
        return
    flat = tensor.detach().reshape(-1).view(torch.uint8)
    for start in range(0, len(flat), _BLOCK_BYTES):
        yield flat[start : start + _BLOCK_BYTES]
