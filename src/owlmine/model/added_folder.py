"""The folder of a model with added classes: whole, under its name, or not there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import owlmine
from owlmine.data.store_writer import current_umask, sync_folder
from owlmine.errors import OwlmineError
from owlmine.model.folder import save_model
from owlmine.model.predictor import Predictor


def check_new_folder(out: Path) -> None:
    """Before any work: nothing may be there."""
    if out.exists() or out.is_symlink():
        raise OwlmineError(f"{out}: already exists; give a new name or remove it first")


def save_added(out: Path, predictor: Predictor, *, model: Path) -> None:
    """``predictor`` as ``add_classes`` gave it; ``model`` is the folder of the model that it was made from."""
    try:
        with _new_folder(out) as folder:
            save_model(folder, predictor, _card(predictor, model))
    except OSError as error:
        raise OwlmineError(f"{out}: cannot be written: {error.strerror or error}") from error


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """A hidden folder beside ``out`` that takes its name at the end; it is removed where something fails."""
    check_new_folder(out)
    new_parents = [folder for folder in out.parents if not folder.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
        try:
            folder.chmod(0o777 & ~current_umask())
            yield folder
            # rename replaces an empty folder without a word.
            check_new_folder(out)
            folder.rename(out)
            sync_folder(out.parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except BaseException:
        with suppress(OSError):
            for parent in new_parents:
                parent.rmdir()
        raise


def _card(predictor: Predictor, model: Path) -> str:
    """What was added, and below it the card of the model before."""
    record = predictor.config["added"][-1]
    found = (
        "" if "R@5" not in record else f" Left out one by one, {record['R@5']:.1f} % are found among the first five."
    )
    lines = [
        f"# A model that retrieves among {predictor.retriever.shape.num_classes:,} classes",
        "",
        f"Made by owlmine {owlmine.__version__} from the model below: {record['classes']:,} classes were added without"
        f" training, from {record['examples']:,} examples and {record['names']:,} names.{found}",
        "",
    ]
    old = model / "README.md"
    if old.is_file():
        lines += ["---", "", old.read_text("utf-8", errors="replace")]
    return "\n".join(lines)
