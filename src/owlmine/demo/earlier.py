"""What an earlier demo left in its folder: taken over where it is what is wanted now, removed where it is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import owlmine
from owlmine.data.store import Store
from owlmine.errors import OwlmineError
from owlmine.model.whole_files import write_text
from owlmine.train.options import TrainOptions
from owlmine.train.run_folder import is_free, is_run_of, working_in

RESULTS, REPORT = "results.json", "report.html"
_MARK = ".owlmine-demo"


class DemoFolder:
    """The folder of a demo. Only in one that a demo made itself is anything ever removed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if is_free(path):
                path.mkdir(parents=True, exist_ok=True)
                write_text(path / _MARK, f"made by: owlmine {owlmine.__version__} demo\n")
        except OSError as error:
            raise OwlmineError(f"{path}: cannot be written: {error.strerror}") from error

    def clear(self, name: str, store: Store, options: TrainOptions) -> bool:
        """Removes the run ``name`` if it is one of other options or data, and results with it; whether it was."""
        folder = self.path / name
        if not (folder / "run.json").exists() or is_run_of(folder, store, options):
            return False
        if not (self.path / _MARK).exists():
            raise OwlmineError(
                f"{folder}: holds a run of other options or data, and {self.path} is no folder that a demo made;"
                " give another with --out"
            )
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
