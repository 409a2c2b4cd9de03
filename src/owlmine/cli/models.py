"""``owlmine models``: verify model folders."""

from __future__ import annotations

import typer

from owlmine.cli.model_options import ModelArgument

models_app = typer.Typer(no_args_is_help=True, help="Verify model folders.")


@models_app.command("verify")
def verify_command(model: ModelArgument) -> None:
    """Read every file of a model and verify its checksum.

    Names damaged files, and exits with status 1 if there are any.
    """
    from owlmine.folder.model_folder import files_of_model, verify_model

    damage = verify_model(model)
    for error in damage:
        typer.echo(f"owlmine: error: {error}", err=True)
    if damage:
        raise typer.Exit(1)
    files = files_of_model(model)
    mib = sum(file.stat().st_size for file in files) / 2**20
    typer.echo(f"{model}: OK, {mib:,.1f} MiB read: {', '.join(file.name for file in files)}")
