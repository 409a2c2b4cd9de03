"""The folder of a comparison: what is where, and whether it is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import owlmine
from owlmine.errors import OwlmineError
from owlmine.model.whole_files import remove_unfinished, write_text
from owlmine.train.run_folder import is_free, working_in

MARK = ".owlmine-compare"
"""A file that only the folder of a comparison has."""


class CompareFolder:
    """``runs`` holds one small file per finished run; ``working`` the model of the run under way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs, self.working, self.models = path / "runs", path / "working", path / "models"

    def check(self) -> None:
        """Raises OwlmineError where the folder holds something else."""
        if not (is_free(self.path) or (self.path / MARK).is_file()):
            raise OwlmineError(
                f"{self.path}: holds something else; wanted a new folder or one of an earlier comparison"
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """For this process alone. ``working`` goes at the end; after an interruption it stays, to be gone on with."""
        self.check()
        with working_in(self.path):
            try:
                write_text(self.path / MARK, f"made by: owlmine {owlmine.__version__} compare\n")
                self.runs.mkdir(exist_ok=True)
                for folder in (self.path, self.runs):
                    remove_unfinished(folder)
            except OSError as error:
                raise OwlmineError(f"{self.path}: cannot be written: {error.strerror}") from error
            yield
            shutil.rmtree(self.working, ignore_errors=True)
