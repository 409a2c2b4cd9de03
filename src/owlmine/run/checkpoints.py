"""The files of an unfinished run: checkpoints, and the weights of its best epoch.

Files are written under a temporary name and renamed, and verified when they are read.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from owlmine.data.store import meta_checksum
from owlmine.dense.loop import Snapshot
from owlmine.errors import OwlmineError
from owlmine.files import sha256_of, write_text
from owlmine.folder.tensor_files import TensorFile, write_tensors

_KEPT = 2
_NAME = re.compile(r"step-(\d{10})\.json")
# The names of all files that a run writes here; hidden names are files still being written.
_OURS = re.compile(r"(step-\d{10})\.(?:json|safetensors)|\.step-\d{10}\.(?:json|safetensors)\.[0-9a-f]{16}\.writing")


@dataclass(frozen=True)
class FoundCheckpoint:
    """A verified checkpoint on disk. Its tensors stay on disk until they are read."""

    step: int
    tensors: TensorFile
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run. A checkpoint counts once its small ``.json`` is there; that is written last.

    The folder may be a link to another disk and may contain other files, which are left alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, checkpoint: Snapshot) -> None:
        """Raises OwlmineError if it cannot be written, and then leaves older checkpoints untouched."""
        name = f"step-{checkpoint.step:010d}"
        tensors = self._folder / f"{name}.safetensors"
        try:
            self._folder.mkdir(exist_ok=True)
            write_tensors(tensors, checkpoint.tensors)
            record = {"step": checkpoint.step, "sha256": sha256_of(tensors), "state": checkpoint.state}
            write_text(self._folder / f"{name}.json", json.dumps(record | {"checksum": meta_checksum(record)}))
        except OSError as error:
            with suppress(OSError):
                (self._folder / f"{name}.json").unlink(missing_ok=True)
                tensors.unlink(missing_ok=True)
            reason = error.strerror or error
            raise OwlmineError(f"{self._folder}: checkpoint of step {checkpoint.step} not written: {reason}") from error

    def newest(self) -> tuple[FoundCheckpoint | None, list[str]]:
        """The newest intact checkpoint, and the problems of newer ones."""
        complaints: list[str] = []
        for step in self._steps():
            try:
                return self._read(step), complaints
            except (OSError, ValueError, KeyError) as error:
                complaints.append(f"checkpoint of step {step:,} is damaged ({error})")
        return None, complaints

    def remove_old(self) -> None:
        """Removes all but the newest, and leftovers of killed processes. Raises OSError if that fails."""
        self._remove_all_but(self._steps()[:_KEPT])

    def remove_all(self) -> None:
        """Raises OSError if that fails."""
        self._remove_all_but([])
        # A link stays, and so does a folder with other files.
        with suppress(OSError):
            self._folder.rmdir()

    def _steps(self) -> list[int]:
        """Newest first."""
        matches = (_NAME.fullmatch(file.name) for file in self._folder.glob("step-*.json") if file.is_file())
        return sorted((int(match[1]) for match in matches if match), reverse=True)

    def _read(self, step: int) -> FoundCheckpoint:
        file = self._folder / f"step-{step:010d}.safetensors"
        record = json.loads((self._folder / f"step-{step:010d}.json").read_text("utf-8"))
        if not isinstance(record, dict) or record.get("checksum") != meta_checksum(record):
            raise ValueError("its description has changed")
        if sha256_of(file) != record["sha256"]:
            raise ValueError("its tensors have changed")
        return FoundCheckpoint(record["step"], TensorFile(file), record["state"])

    def _remove_all_but(self, steps: list[int]) -> None:
        kept = {f"step-{step:010d}" for step in steps}
        matches = [(file, _OURS.fullmatch(file.name)) for file in self._folder.glob("*step-*")]
        # By name, so that the description is removed first: without it, the tensors no longer count.
        for leftover in sorted(file for file, match in matches if match and match[1] not in kept):
            if leftover.is_file():
                leftover.unlink()


class BestWeights:
    """``record`` is the line of metrics of the best epoch so far, None before the first."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.record: dict[str, Any] | None = None
        self._sha256 = ""

    def offer(self, record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Keeps the weights if their P@1 is higher. Raises OwlmineError if they cannot be written; the previous ones
        then stay."""
        if self.record is not None and record["P@1"] <= self.record["P@1"]:
            return
        try:
            write_tensors(self._file, tensors)
            self._sha256 = sha256_of(self._file)
        except OSError as error:
            reason = error.strerror or error
            raise OwlmineError(f"{self._file}: the best weights so far cannot be saved: {reason}") from error
        self.record = record

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Loads the saved weights into these tensors. Raises OwlmineError, and changes nothing, if they are damaged."""
        assert self.record is not None
        if not self._file.is_file() or sha256_of(self._file) != self._sha256:
            raise OwlmineError(f"{self._file}: is missing or has changed")
        file = TensorFile(self._file)
        for name, tensor in tensors.items():
            file.read_into(name, tensor)

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)

    def state_dict(self) -> dict[str, Any]:
        return {"record": self.record, "sha256": self._sha256}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.record, self._sha256 = state["record"], state["sha256"]
