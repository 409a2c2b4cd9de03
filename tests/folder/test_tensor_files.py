"""Tensors in files: what safetensors writes and reads, a block at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from owlmine.folder import tensor_files
from owlmine.folder.tensor_files import TensorFile, write_tensors


def test_our_files_are_safetensors(tmp_path: Path) -> None:
    """Every type and odd shape, read by the package; and the package's files read by us."""
    tensors = {
        "bytes": torch.arange(5, dtype=torch.uint8),
        "flags": torch.tensor([True, False, True]),
        "wide": torch.arange(7, dtype=torch.int64).reshape(7, 1),
        "double": torch.randn(2, 3, dtype=torch.float64),
        "single": torch.randn(3, 0, 2),
        "half": torch.randn(3).half(),
        "brain": torch.randn(3).bfloat16(),
        "ints": torch.arange(3, dtype=torch.int32),
        "number": torch.tensor(2.5),
        "turned": torch.randn(4, 3).T,
    }
    write_tensors(tmp_path / "ours", tensors)
    theirs = load_file(tmp_path / "ours")
    assert set(theirs) == set(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "theirs")
    for file in (TensorFile(tmp_path / "ours"), TensorFile(tmp_path / "theirs")):
        assert set(file.names) == set(tensors)
        for name, tensor in tensors.items():
            for read in (theirs[name], file.read(name)):
                assert read.dtype == tensor.dtype
                assert torch.equal(read, tensor)
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["ours", "theirs"]


def test_tensors_larger_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "_BLOCK_BYTES", 100)
    tensor, place = torch.randn(123, 7), torch.zeros(123, 7)
    write_tensors(tmp_path / "file", {"t": tensor})
    TensorFile(tmp_path / "file").read_into("t", place)
    assert torch.equal(place, tensor)


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", {"t": torch.randn(123, 7)})
    with pytest.raises(ValueError, match=r"t is F32 of shape \[123, 7\]; wanted F32 of shape \[7, 123\]"):
        TensorFile(tmp_path / "file").read_into("t", torch.zeros(7, 123))
    with pytest.raises(ValueError, match=r"t is F32 of shape \[123, 7\]; wanted F64 of shape \[123, 7\]"):
        TensorFile(tmp_path / "file").read_into("t", torch.zeros(123, 7, dtype=torch.float64))


def test_files_that_were_cut_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_tensors(file, {"t": torch.randn(123, 7)})
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    with pytest.raises(ValueError, match="t is truncated"):
        TensorFile(file).read("t")
    file.write_bytes(data[:20])
    with pytest.raises(ValueError, match="its header is longer than the file"):
        TensorFile(file)
