"""Checkpoints: written beside their place and renamed, verified when read, the one before kept."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from owlmine.data.arrays import sha256_of
from owlmine.errors import OwlmineError
from owlmine.model.folder import write_tensors, write_text

_KEPT = 2
_NAME = re.compile(r"step-(\d{10})\.json")


@dataclass(frozen=True)
class Checkpoint:
    """A run at the end of a step: every tensor, and what else it takes to go on."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run. A checkpoint counts once its small ``.json`` is there; that is written last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, checkpoint: Checkpoint) -> None:
        """Raises OwlmineError where the disk does not take it; older checkpoints are untouched then."""
        name = f"step-{checkpoint.step:010d}"
        try:
            self._folder.mkdir(exist_ok=True)
            tensors = self._folder / f"{name}.safetensors"
            write_tensors(tensors, checkpoint.tensors)
            told = {"step": checkpoint.step, "sha256": sha256_of(tensors), "state": checkpoint.state}
            write_text(self._folder / f"{name}.json", json.dumps(told))
        except (OSError, SafetensorError) as error:
            raise OwlmineError(f"{self._folder}: checkpoint of step {checkpoint.step} not written: {error}") from error
        for old in self._steps()[_KEPT:]:
            self._remove(old)

    def newest(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest good checkpoint, and what was wrong with newer ones."""
        complaints: list[str] = []
        for step in self._steps():
            try:
                return self._read(step), complaints
            except (OSError, ValueError, KeyError, SafetensorError) as error:
                complaints.append(f"checkpoint of step {step} is damaged ({error}); going back to the one before")
        return None, complaints

    def remove_all(self) -> None:
        for step in self._steps():
            self._remove(step)
        for leftover in self._folder.glob("*"):
            leftover.unlink()
        if self._folder.exists():
            self._folder.rmdir()

    def _steps(self) -> list[int]:
        """Newest first."""
        matches = (_NAME.fullmatch(file.name) for file in self._folder.glob("step-*.json"))
        return sorted((int(match[1]) for match in matches if match), reverse=True)

    def _read(self, step: int) -> Checkpoint:
        tensors = self._folder / f"step-{step:010d}.safetensors"
        told = json.loads((self._folder / f"step-{step:010d}.json").read_text("utf-8"))
        if sha256_of(tensors) != told["sha256"]:
            raise ValueError("its checksum does not fit")
        return Checkpoint(told["step"], load_file(tensors), told["state"])

    def _remove(self, step: int) -> None:
        # The description first: without it the tensors no longer count.
        for suffix in ("json", "safetensors"):
            (self._folder / f"step-{step:010d}.{suffix}").unlink(missing_ok=True)
