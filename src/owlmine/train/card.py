"""The model's README: data, recipe, figures."""

from __future__ import annotations

import owlmine
from owlmine.data.store import Store
from owlmine.model.predictor import Predictor
from owlmine.train.options import TrainOptions
from owlmine.train.run_folder import recipe


def model_card(predictor: Predictor, store: Store, options: TrainOptions) -> str:
    """What somebody who finds this folder wants to know."""
    shape, history = predictor.retriever.shape, predictor.config["history"]
    splits = ", ".join(f"{split['points']:,} {name}" for name, split in store.meta["splits"].items())
    defaults = recipe(TrainOptions())
    changed = {name: value for name, value in recipe(options).items() if value != defaults[name]}
    lines = [
        f"# A model that retrieves among {shape.num_classes:,} classes",
        "",
        f"Made by owlmine {owlmine.__version__} from `{predictor.config['data']['name']}`: {splits} points,"
        f" {shape.num_features:,} {store.meta['queries']} features, weighting {store.meta['weighting']['kind']}.",
        "",
        f"{shape.num_parameters:,} parameters: {shape.kind}, dimension {shape.dim}, depth {shape.depth}."
        f" Loss {options.loss}, top {options.top}, {options.epochs:g} epochs, seed {options.seed}.",
        "",
        "Options that differ from the defaults: "
        + (", ".join(f"{k} = {v}" for k, v in changed.items()) or "none")
        + ".",
        "",
    ]
    figures = [name for name in ("P@1", "P@3", "P@5") if name in history[-1]]
    if figures and "model" in history[-1]:
        lines += _together(predictor, figures)
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


def _together(predictor: Predictor, figures: list[str]) -> list[str]:
    """Each model at its last epoch, and the whole."""
    last = {record["model"]: record for record in predictor.config["history"]}
    rows = [(f"model {number}", record) for number, record in last.items()]
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
