"""The README of a model folder: data, recipe, figures. Generated from the model alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from owlmine.rank.predictor import Predictor
from owlmine.rank.record import Record
from owlmine.recipe.options import TrainOptions
from owlmine.version import __version__

_USE = 'model = owlmine.load("this folder")\nmodel.predict(queries, k=5)'


def model_card(predictor: Predictor) -> str:
    """The text of the card."""
    shape, record = predictor.dense.shape, predictor.record
    lines = [
        f"# A model that retrieves among {shape.num_classes:,} classes",
        "",
        f"Trained by owlmine {__version__} on `{record.data}`: {predictor.classes.num_points:,} training points,"
        f" {shape.num_features:,} {'dense' if shape.dense else 'sparse'} features, weighting"
        f" {predictor.features.weighting['kind']}. It takes {predictor.takes}.",
        "",
        f"{shape.num_parameters:,} parameters: {_form(predictor)}. {_judges(predictor)}",
        "",
        f"Options that differ from the defaults: {_changed(record.options)}.",
        "",
        *_figures(record),
        *(line for entry in record.added for line in (_addition(entry), "")),
        f"```python\nimport owlmine\n\n{_USE}\n```",
        "",
    ]
    return "\n".join(lines)


def _form(predictor: Predictor) -> str:
    shape = predictor.dense.shape
    if shape.kind == "linear":
        return "a linear model"
    form = f"dimension {shape.dim // shape.heads}, depth {shape.depth}"
    return f"an ensemble of {shape.heads} encoders, {form} each" if shape.heads > 1 else f"an encoder, {form}"


def _judges(predictor: Predictor) -> str:
    ranker = predictor.ranker
    if not ranker.judges:
        return "Classes are ordered by the dense score."
    return f"The best {ranker.shortlist} classes are re-ranked; {ranker.mix}."


def _changed(options: Mapping[str, Any]) -> str:
    defaults = TrainOptions().to_dict()
    changed = [f"{name} = {value}" for name, value in options.items() if value != defaults.get(name)]
    return ", ".join(changed) or "none"


def _figures(record: Record) -> list[str]:
    """A table of epochs for one model; of its members and the complete model, for an ensemble or with judges."""
    names = list(record.figures)
    if not names:
        return []
    last = {line["model"]: line for line in record.history}
    # The complete model ranks like its only member: a line per epoch says more.
    if len(last) == 1 and record.rehearsal is None and not record.plan.get("judges", {}).get("shortlist"):
        table = _table(("epoch", "loss", *names), [_epoch(line, names) for line in record.history])
        return [*table, "", "Precision in percent, on validation points that training did not see.", "", *_best(record)]
    best = {line["model"]: line for line in record.history if line.get("best")}
    rows = [_member(number, best.get(number, line), line, names) for number, line in last.items()]
    rows.append(["complete model", *_percent(record.figures, names)])
    return [*_table(("", *names), rows), "", _judged_on(record), ""]


def _member(number: int, line: Mapping[str, Any], last: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    epoch = "last epoch" if line is last else f"epoch {line['epoch']:g}"
    return [f"model {number}, {epoch}", *_percent(line, names)]


def _epoch(line: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [f"{line['epoch']:g}", f"{line['loss']:.4f}", *_percent(line, names)]


def _percent(figures: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [f"{figures[name]:.2f}" if name in figures else "–" for name in names]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def _best(record: Record) -> list[str]:
    """The epoch whose weights the model has, if that may not be the last. The best ones may have been lost."""
    own = [line for line in record.history if line.get("best")]
    if not own:
        return []
    is_best = own[0]["P@1"] == max(line["P@1"] for line in record.history)
    return [f"The weights are those of epoch {own[0]['epoch']:g}{', the best of these' if is_best else ''}.", ""]


def _judged_on(record: Record) -> str:
    if record.rehearsal is None:
        return "Precision in percent, on validation points that training did not see."
    return (
        f"Precision in percent, from a rehearsal: the same recipe trained without {record.rehearsal:.0%} of the"
        " training points and evaluated on them. This model was trained on all points."
    )


def _addition(entry: Mapping[str, Any]) -> str:
    recall = f" Of the left-out examples, {entry['R@5']:.1f} % are found in the top five." if "R@5" in entry else ""
    return (
        f"{entry['classes']:,} classes were added without training, from {entry['examples']:,} examples and"
        f" {entry['names']:,} names.{recall}"
    )
