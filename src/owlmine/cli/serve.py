"""``owlmine serve``."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from owlmine.cli.options import with_options
from owlmine.errors import OwlmineError, how_to_install
from owlmine.serve.options import ServeOptions, keys_from_environment


@with_options(ServeOptions)
def serve_command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", help="Folders of trained models; NAME=FOLDER serves one under another name."
        ),
    ],
    options: ServeOptions,
) -> None:
    """Serve models over HTTP, with a page for people.

    The queries of many clients are answered in batches. After SIGTERM, the service answers the requests it has
    accepted, then exits. When the folder of a model is replaced, the service loads the new model.

    OWLMINE_API_KEYS holds API keys, separated by commas; without it, anyone who can reach the address can use the
    service. Needs FastAPI and uvicorn: pip install '.[serve]'.
    """
    keys = keys_from_environment()
    # The models enable it when they are loaded: imports leave no garbage, and looking for it takes time.
    gc.disable()
    try:
        from owlmine.serve.models import named_folders
        from owlmine.serve.service import serve

        serve(named_folders(models), options, keys)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("owlmine"):
            raise
        raise OwlmineError(f"the service needs {error.name}; {how_to_install('serve')}") from error
    finally:
        gc.enable()
