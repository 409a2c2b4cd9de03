"""The folder of a comparison: what is where, and whether it is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from owlmine.errors import OwlmineError
from owlmine.files import remove_unfinished
from owlmine.train.run_folder import check_own_folder, own_folder

_COMMAND = "compare"


class CompareFolder:
    """``runs`` holds one small file per finished run; ``working`` the model of the run under way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs, self.working, self.models = path / "runs", path / "working", path / "models"

    def check(self) -> None:
        """Raises OwlmineError where the folder holds something else."""
        check_own_folder(self.path, _COMMAND)

    @contextmanager
    def held(self) -> Iterator[None]:
        """For this process alone. ``working`` goes at the end; after an interruption it stays, to be gone on with."""
        with own_folder(self.path, _COMMAND):
            try:
                self.runs.mkdir(exist_ok=True)
                remove_unfinished(self.runs)
            except OSError as error:
                raise OwlmineError(f"{self.path}: cannot be written: {error.strerror}") from error
            yield
            shutil.rmtree(self.working, ignore_errors=True)
