"""The weights of the best epoch so far, on disk: a second copy in memory would double what training needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from owlmine.errors import OwlmineError
from owlmine.files import sha256_of
from owlmine.model.whole_files import TensorFile, write_tensors


class BestWeights:
    """``record`` is the line of metrics of the epoch whose weights are kept, None before the first."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.record: dict[str, Any] | None = None
        self._sha256 = ""

    def offer(self, record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Keeps the weights if their P@1 is higher. Raises OwlmineError where the disk does not take them; what was
        kept before stays then."""
        if self.record is not None and record["P@1"] <= self.record["P@1"]:
            return
        try:
            write_tensors(self._file, tensors)
            self._sha256 = sha256_of(self._file)
        except OSError as error:
            reason = error.strerror or error
            raise OwlmineError(f"{self._file}: the best weights so far cannot be kept: {reason}") from error
        self.record = record

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Puts the kept weights into these tensors. Raises OwlmineError, and writes nothing, where they are harmed."""
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
