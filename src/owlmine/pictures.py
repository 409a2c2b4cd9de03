"""Pictures as files: checked before the work, and written whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from owlmine.errors import OwlmineError
from owlmine.files import check_new_file, whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_picture(path: Path) -> None:
    """Raises OwlmineError if ``save_picture`` would: the name is taken, or its extension is not that of a picture."""
    from matplotlib.backend_bases import FigureCanvasBase

    check_new_file(path)
    endings = sorted(FigureCanvasBase.get_supported_filetypes())
    if _ending(path) not in endings:
        found = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        raise OwlmineError(f"{path}: the name of the picture {found}; wanted one of {', '.join(endings)}")


def save_picture(figure: Figure, path: str | Path, *, dpi: int) -> None:
    """Draws into a new file whose extension gives the format (png, pdf, svg)."""
    path = Path(path)
    check_picture(path)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=_ending(path), dpi=dpi)
    try:
        with whole_file(path, replace=False) as file:
            file.write(drawn.getbuffer())
    except OSError as error:
        raise OwlmineError(f"{path}: the picture cannot be written: {error.strerror}") from error


def _ending(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()
