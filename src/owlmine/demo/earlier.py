"""What an earlier demo left in its folder: taken over where it is what is wanted now, removed where it is not."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from owlmine.data.store import Store
from owlmine.errors import OwlmineError
from owlmine.recipe.options import TrainOptions
from owlmine.train.run_folder import check_own_folder, is_run_of, own_folder, working_in

RESULTS, REPORT = "results.json", "report.html"
_COMMAND = "demo"


class DemoFolder:
    """The folder of a demo: new, or one that a demo made itself."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Raises OwlmineError where the folder holds something else."""
        check_own_folder(self.path, _COMMAND)

    def held(self) -> AbstractContextManager[None]:
        """For this process alone."""
        return own_folder(self.path, _COMMAND)

    def clear(self, name: str, store: Store, options: TrainOptions) -> bool:
        """Removes the run ``name`` if it is one of other options or data, and results with it; whether it was."""
        folder = self.path / name
        if not (folder / "run.json").exists() or is_run_of(folder, store, options):
            return False
        try:
            with working_in(folder):
                # The page and its numbers tell of the models that were there.
                for result in (RESULTS, REPORT):
                    (self.path / result).unlink(missing_ok=True)
                _empty(folder)
        except OSError as error:
            raise OwlmineError(f"{folder}: cannot be removed: {error.strerror}") from error
        return True


def _empty(folder: Path) -> None:
    """Killed on the way, it leaves no model that could be loaded, and a run that is known as one of other options."""
    order = {"config.json": 0, "run.json": 2}
    for file in sorted(folder.iterdir(), key=lambda file: order.get(file.name, 1)):
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        else:
            file.unlink()
