"""The folder of a model with added classes: whole, under its name, or not there."""

from __future__ import annotations

from pathlib import Path

import owlmine
from owlmine.errors import OwlmineError
from owlmine.files import NewFolder
from owlmine.model.folder import save_model
from owlmine.model.predictor import Predictor


def save_added(out: Path, predictor: Predictor, *, model: Path) -> None:
    """``predictor`` as ``add_classes`` gave it; ``model`` is the folder of the model that it was made from."""
    try:
        with NewFolder(out) as folder:
            save_model(folder.path, predictor, _card(predictor, model))
            folder.publish()
    except OSError as error:
        raise OwlmineError(f"{out}: cannot be written: {error.strerror or error}") from error


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
