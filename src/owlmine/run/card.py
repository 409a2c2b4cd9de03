"""The model's README: data, recipe, figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import owlmine
from owlmine.data.store import Store
from owlmine.dense.retriever import ModelShape
from owlmine.device import choose_device
from owlmine.model.predictor import Predictor
from owlmine.rank import Reranker
from owlmine.recipe.options import TrainOptions
from owlmine.train.composition import without_open_sizes
from owlmine.train.run_folder import recipe


def model_card(predictor: Predictor, store: Store, options: TrainOptions) -> str:
    """What somebody who finds this folder wants to know."""
    shape, history = predictor.retriever.shape, predictor.config["history"]
    splits = ", ".join(f"{split['points']:,} {name}" for name, split in store.meta["splits"].items())
    changed = _changed(options, store)
    lines = [
        f"# A model that retrieves among {shape.num_classes:,} classes",
        "",
        f"Made by owlmine {owlmine.__version__} from `{predictor.config['data']['name']}`: {splits} points,"
        f" {shape.num_features:,} {store.meta['queries']} features, weighting {store.meta['weighting']['kind']}.",
        "",
        f"{shape.num_parameters:,} parameters: {_form(shape)}."
        f" Loss {options.loss}, top {options.top}, {options.epochs:g} epochs, seed {options.seed}."
        f"{_judged_again(predictor.reranker)}",
        "",
        "Options that differ from the defaults: "
        + (", ".join(f"{k} = {v}" for k, v in changed.items()) or "none")
        + ".",
        "",
    ]
    figures = [name for name in ("P@1", "P@3", "P@5") if name in history[-1]]
    if figures and "model" in history[-1]:
        lines += _together(predictor, figures, best=options.patience > 0)
    elif figures:
        lines += [f"| epoch | loss | {' | '.join(figures)} |", "|---" * (2 + len(figures)) + "|"]
        lines += [
            f"| {record['epoch']:g} | {record['loss']:.4f} | "
            + " | ".join(f"{record[name]:.2f}" for name in figures)
            + " |"
            for record in history
        ]
        lines += ["", "Precision in percent, on validation points that training did not see."]
        if options.patience:
            lines += ["", f"The weights are those of epoch {predictor.config['kept']['epoch']:g}, the best of these."]
    lines += [
        "",
        '```python\nimport owlmine\n\nmodel = owlmine.load("this folder")\nmodel.predict(queries, k=5)\n```',
        "",
    ]
    return "\n".join(lines)


def _changed(options: TrainOptions, store: Store) -> dict[str, Any]:
    """Options that are not what they would have been, had none been given."""
    sizes = without_open_sizes(
        replace(options, dim=0, epochs=0.0),
        device=choose_device(options.device),
        dense=store.meta["queries"] == "dense",
        num_points=len(store["train"]),
    )
    defaults = recipe(TrainOptions()) | {"dim": sizes.dim, "epochs": sizes.epochs}
    return {name: value for name, value in recipe(options).items() if value != defaults[name]}


def _form(shape: ModelShape) -> str:
    if shape.kind == "linear":
        return "linear"
    several = f"{shape.heads} models side by side, each " if shape.heads > 1 else ""
    return f"{several}{shape.kind}, dimension {shape.dim // shape.heads}, depth {shape.depth}"


def _judged_again(reranker: Reranker | None) -> str:
    if reranker is None:
        return ""
    voters = reranker.neighbours
    votes = "" if voters is None else f", and by the votes of {voters.count} neighbours, {reranker.vote_weight:g} times"
    names = ""
    if reranker.names is not None:
        names = f" Names of classes that the query spells join them, and count {reranker.name_weight:g} times."
    return (
        f" Its {reranker.shortlist} best classes are judged again by linear classifiers, which count"
        f" {reranker.weight:g} times{votes}.{names}"
    )


def _together(predictor: Predictor, figures: list[str], *, best: bool) -> list[str]:
    """Each model at its last epoch, or at its best one where that was kept, and the whole."""
    kept: dict[int, dict[str, Any]] = {}
    for record in predictor.config["history"]:
        before = kept.get(record["model"])
        if before is None or not best or record["P@1"] > before["P@1"]:
            kept[record["model"]] = record
    rows = [(f"model {number}", record) for number, record in kept.items()]
    rows.append(("together" if predictor.reranker is None else "together, re-ranked", predictor.config["kept"]))
    return [
        f"|  | {' | '.join(figures)} |",
        "|---" * (1 + len(figures)) + "|",
        *(f"| {title} | " + " | ".join(f"{record[name]:.2f}" for name in figures) + " |" for title, record in rows),
        "",
        _where_judged(predictor.config.get("rehearsal")),
    ]


def _where_judged(rehearsal: float | None) -> str:
    if rehearsal is None:
        return "Precision in percent, on validation points that training did not see."
    return (
        f"Precision in percent, of a rehearsal: the same models trained without {rehearsal:.0%} of the training points"
        " and judged on these. The models here have learned from all points."
    )
