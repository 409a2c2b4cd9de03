"""The folders of a comparison and of a demo: their layout, and what may be removed.

Each has its own marker file, and a folder without it is rejected, so that foreign files are never touched.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from owlmine.data.store import Store
from owlmine.errors import OwlmineError
from owlmine.files import remove_unfinished, write_text
from owlmine.recipe.options import TrainOptions
from owlmine.run.run_folder import check_own_folder, is_run_of, own_folder, working_in

RESULTS, REPORT = "results.json", "report.html"


class CompareFolder:
    """``runs`` holds one small file per finished run; ``working`` the model of the run in progress."""

    command = "compare"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs, self.working = path / "runs", path / "working"

    def check(self) -> None:
        """Raises OwlmineError if the folder has other contents."""
        check_own_folder(self.path, self.command)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Locks the folder for this process. ``working`` is removed at the end; after an interruption it stays for
        resuming."""
        with own_folder(self.path, self.command):
            try:
                self.runs.mkdir(exist_ok=True)
                remove_unfinished(self.runs)
            except OSError as error:
                raise OwlmineError(f"{self.path}: cannot be written: {error.strerror}") from error
            yield
            shutil.rmtree(self.working, ignore_errors=True)

    def record_of(self, purpose: str, name: str, key: str) -> Path:
        """The file of a run's record."""
        return self.runs / f"{purpose}-{name}-{key}.json"

    def model_of(self, name: str, *, seed: int, key: str) -> Path:
        """The folder of a model to keep."""
        return self.path / "models" / f"{name}-seed-{seed}-{key}"

    def write(self, name: str, text: str) -> None:
        """Writes a result file. Raises OwlmineError if that fails."""
        try:
            write_text(self.path / name, text)
        except OSError as error:
            raise OwlmineError(f"{self.path / name}: cannot be written: {error.strerror}") from error


class DemoFolder(CompareFolder):
    """One model per method, in a folder named after the method: the page shows commands that use it."""

    command = "demo"

    def model_of(self, name: str, *, seed: int, key: str) -> Path:
        del seed, key
        return self.path / name

    def clear(self, name: str, store: Store, options: TrainOptions) -> bool:
        """Removes the run ``name``, and the results, if it has other options or data. Returns
        whether there was such a run.

        A record without its model is removed too, so that the run is repeated.
        """
        folder = self.path / name
        other = (folder / "run.json").exists() and not is_run_of(folder, store, options)
        try:
            if other:
                with working_in(folder):
                    # The page and its numbers describe the old models.
                    for result in (RESULTS, REPORT):
                        (self.path / result).unlink(missing_ok=True)
                    self.forget(name)
                    _empty(folder)
            elif not (folder / "config.json").exists():
                self.forget(name)
        except OSError as error:
            raise OwlmineError(f"{folder}: cannot be removed: {error.strerror}") from error
        return other

    def forget(self, name: str) -> None:
        """Removes the records of the run ``name``."""
        for record in self.runs.glob(f"final-{name}-*.json"):
            record.unlink()


def _empty(folder: Path) -> None:
    """Removes the content so that, if killed halfway, no loadable model is left, and the options of the run stay
    known."""
    order = {"config.json": 0, "run.json": 2}
    for file in sorted(folder.iterdir(), key=lambda file: order.get(file.name, 1)):
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        else:
            file.unlink()
