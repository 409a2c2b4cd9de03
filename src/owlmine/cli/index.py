"""``owlmine index``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from owlmine.cli.data import ConversionProgress, JsonOption
from owlmine.cli.model_options import ModelArgument, open_model
from owlmine.cli.options import with_options
from owlmine.errors import OwlmineError
from owlmine.evaluate.model_data import ReadOptions
from owlmine.index.approximate import DEFAULT_KIND


@with_options(ReadOptions)
def index_command(
    model: ModelArgument,
    options: ReadOptions,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="Queries to measure with: a store, a file, a folder of files, or: sample.",
            show_default="training points that the model keeps",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option("--split", help="The split to measure with.", show_default="test; all of a single file"),
    ] = None,
    kind: Annotated[
        str,
        typer.Option("--kind", help="ivf: groups of short codes. hnsw: links between near classes; larger."),
    ] = DEFAULT_KIND,
    as_json: JsonOption = False,
) -> None:
    """Build an approximate index of a model's classes, and measure its recall and speed.

    predict, evaluate and add-classes then find candidates with it, unless --exact is given. An existing index is
    replaced. Needs faiss: pip install '.[index]'.
    """
    from owlmine.evaluate.model_data import open_for_model
    from owlmine.evaluate.of_index import index_model, measure_index, queries_of, training_queries
    from owlmine.folder.model_folder import save_index
    from owlmine.index.approximate import KINDS, ApproximateIndex, require_faiss

    require_faiss()
    if kind not in KINDS:
        raise OwlmineError(f"--kind is {kind!r}; wanted {' or '.join(KINDS)}")
    predictor = index_model(open_model(model, "cpu", exact=True), kind)
    assert isinstance(predictor.index, ApproximateIndex)
    if data is None:
        if split is not None or options != ReadOptions():
            raise OwlmineError("reading options need DATA: owlmine index MODEL DATA")
        queries, source = training_queries(predictor), "training points"
    else:
        with TemporaryDirectory(prefix="owlmine-") as scratch:
            with ConversionProgress() as reading:
                store, name = open_for_model(
                    predictor, data, Path(scratch), split=split, options=options, progress=reading
                )
            queries, source = queries_of(store[name]), "queries"
    figures = measure_index(predictor, queries)
    save_index(model, predictor.index, asdict(figures))
    if as_json:
        typer.echo(json.dumps({"model": str(model), "kind": kind} | asdict(figures), indent=1))
        return
    typer.echo(
        f"{model}: an index ({kind}) of {len(predictor.classes):,} classes, measured on {figures.queries:,} {source}\n"
        f"recall of the best {figures.best}: {figures.recall_of_best:.2f} %, of the {figures.listed} on the"
        f" shortlist: {figures.recall_of_list:.2f} %\n"
        f"per query in a batch: {figures.index_ms:.2f} ms (exact search: {figures.exact_ms:.2f} ms)\n"
        f"a single query: {figures.one_query_ms:.2f} ms (exact search: {figures.one_query_exact_ms:.2f} ms)"
    )
