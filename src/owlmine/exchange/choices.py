"""What a command asks of a model, from its options: the classes to choose from, how many, and how probable."""

from __future__ import annotations

from pathlib import Path

from owlmine.data.rows import Int64
from owlmine.errors import OwlmineError
from owlmine.index import Filter
from owlmine.rank.filters import classes_in_file
from owlmine.rank.predictor import Predictor

DEFAULT_K = 5
"""Classes per query."""


def least_probability(predictor: Predictor, at_least: float | None, precision: float | None) -> tuple[float, str]:
    """The least probability of a class, 0 for any, and in words where it comes from if the model chose it."""
    if at_least is None and precision is None:
        return 0.0, ""
    if at_least is not None and precision is not None:
        raise OwlmineError("--at-least and --precision were both given; wanted one of them")
    for option, given in (("--at-least", at_least), ("--precision", precision)):
        if given is not None and not 0 < given <= 1:
            raise OwlmineError(f"{option} is {given:g}; wanted a number above 0, at most 1 (0.8 is 80 %)")
    calibration = predictor.record.calibration
    if calibration is None:
        option = "--at-least" if precision is None else "--precision"
        raise OwlmineError(f"{option}: the model has no probabilities; train it with validation points (--validation)")
    if precision is None:
        assert at_least is not None
        return at_least, ""
    found = calibration.threshold_for(precision)
    if found is None:
        highest = max((entry.precision for entry in calibration.thresholds), default=None)
        reached = "none was reached" if highest is None else f"the highest was {highest:g}"
        raise OwlmineError(
            f"--precision {precision:g} was not reached on the {calibration.num_points:,} validation points; {reached}"
        )
    return found.threshold, (
        f"classes with a probability of {found.threshold:.4g} or more: on {calibration.num_points:,} validation points,"
        f" this reached a precision of {found.precision:g} and kept {found.kept:.1%} of the predictions"
    )


def chosen_classes(
    predictor: Predictor, classes: list[str] | None, allowed: Path | None, forbidden: Path | None
) -> Filter | None:
    """The classes to choose from, for all queries; None for all. ``classes``: keys or names, perhaps several in one
    value, separated by commas; ``allowed`` and ``forbidden``: files of keys."""
    if classes is not None and allowed is not None:
        raise OwlmineError("--classes and --allowed were both given; wanted one of them")
    num_classes, only = len(predictor.classes), None
    if classes is not None:
        only = Filter.allowing(_named_classes(predictor, classes), num_classes)
    elif allowed is not None:
        only = Filter.allowing(classes_in_file(predictor.finder, allowed), num_classes)
    if forbidden is not None:
        left_out = Filter.forbidding(classes_in_file(predictor.finder, forbidden), num_classes)
        only = left_out if only is None else only & left_out
    if only is not None and not only.most:
        given = {"--allowed": allowed, "--forbidden": forbidden}
        names = " and ".join(f"{option} {file}" for option, file in given.items() if file is not None)
        raise OwlmineError(f"{names}: no class is left to choose from")
    return only


def _named_classes(predictor: Predictor, given: list[str]) -> Int64:
    values = [value.strip() for value in given]
    has_commas = any("," in value for value in values)
    # A key may contain a comma: a value that is a class as a whole is not split.
    classes = {*predictor.classes.keys, *predictor.classes.names} if has_commas else set()
    words: list[str] = []
    for value in values:
        words += [value] if value in classes else [word.strip() for word in value.split(",") if word.strip()]
    if not words:
        raise OwlmineError("--classes has no class; wanted keys separated by commas")
    try:
        return predictor.finder.find(words)
    except OwlmineError as error:
        hint = "; if a key contains a comma, give it in a --classes of its own" if has_commas else ""
        raise OwlmineError(f"--classes: {error}{hint}") from error


def chosen_count(predictor: Predictor, only: Filter | None, k: int | None, *, all_chosen: bool) -> int:
    """The number of classes per query. ``all_chosen``: all of them, unless ``k`` says otherwise."""
    available = len(predictor.classes) if only is None else only.most
    if k is None:
        return available if all_chosen else min(DEFAULT_K, available)
    if not 1 <= k <= available:
        raise OwlmineError(f"--k is {k}; wanted 1 to {available:,}, the number of classes to choose from")
    return k
