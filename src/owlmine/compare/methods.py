"""The methods to compare: the loss of each, the settings to search, and where the search starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BASELINE = "negative-sampling"
# With more classes than this, full softmax is included only on request.
FULL_SOFTMAX_CLASSES = 20_000
FULL_SOFTMAX = "full-softmax"

_RATES = ("class_rate", "feature_rate", "map_rate")
_RATES_AND_SCALE = ("class_rate", "scale", "feature_rate", "map_rate")


@dataclass(frozen=True)
class Setting:
    """The values to search. Methods do not share settings, since their gradients differ by orders of magnitude."""

    class_rate: float
    feature_rate: float
    map_rate: float
    scale: float = 1.0


@dataclass(frozen=True)
class Method:
    """One row of the comparison. ``number`` chooses its colour, mark and dashes in pictures."""

    number: int
    name: str
    title: str
    loss: str
    top: int
    knobs: tuple[str, ...]
    """The parts of a setting to search, in this order; if empty, the first start is used as it is."""
    starts: tuple[Setting, ...]
    """Where the search begins: below, one start for the method, and one that all methods share except for the scale."""
    own: tuple[tuple[str, Any], ...] = ()
    """Other training options in which the method differs, such as ("surrogate", "logistic")."""
    epochs_share: float = 1.0
    """Share of the common number of epochs, for methods that get equal seconds instead of equal epochs."""


def _shared(scale: float = 1.0) -> Setting:
    """Class vectors that barely move, and an encoder that learns to match them."""
    return Setting(0.003, 3.0, 0.003, scale)


def _mined(number: int, top: int, own: Setting) -> Method:
    return Method(number, f"top-{top}", f"Top-{top} SNM", "bowl", top, _RATES, (own, _shared()))


def _softmax(number: int, name: str, title: str, loss: str, *, top: int = 1) -> Method:
    # Scores lie in [-1, 1]: without a scale, the probability of a positive among many classes could never approach 1.
    starts = (Setting(0.03, 1.0, 0.0001, 10.0), _shared(20.0))
    return Method(number, name, title, loss, top, _RATES_AND_SCALE, starts)


_ALL = (
    _mined(1, 1, Setting(0.3, 10.0, 0.001)),
    _mined(2, 16, Setting(0.3, 10.0, 0.001)),
    _mined(3, 64, Setting(0.3, 10.0, 0.001)),
    _mined(4, 256, Setting(0.03, 3.0, 0.001)),
    # Scores of unit vectors almost always differ by less than the hinge's margin of 1, and then top-1 POWL and BOWL
    # have the same gradients. With a scale, the margin is 1 / scale, and points beyond it have no gradient.
    Method(5, "powl-top-1", "Top-1 POWL", "powl", 1, _RATES_AND_SCALE, (Setting(0.3, 10.0, 0.001), _shared())),
    Method(
        6,
        BASELINE,
        "Negative sampling",
        "negative-sampling-bowl",
        1,
        _RATES,
        (Setting(0.01, 1.0, 0.0001), _shared()),
    ),
    _softmax(7, "sampled-softmax", "Sampled softmax", "sampled-softmax"),
    _softmax(8, FULL_SOFTMAX, "Full softmax", "softmax"),
    _softmax(9, "mined-softmax", "Top-64 softmax", "mined-softmax", top=64),
    # Its margin of 0.2 is in units of scaled scores: a scale of 0.2 makes it the hinge's margin of 1.
    Method(
        10,
        "semi-hard",
        "Semi-hard",
        "semi-hard",
        1,
        _RATES_AND_SCALE,
        (Setting(0.3, 10.0, 0.001), _shared(0.2)),
    ),
)
METHODS = {method.name: method for method in _ALL}


def parse_methods(text: str) -> tuple[str, ...]:
    """Names separated by commas, in the order of ``METHODS``; empty for an empty text."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in METHODS]:
        raise ValueError(
            f"methods is {text!r}, but there is no {', '.join(unknown)}; wanted some of {', '.join(METHODS)}"
        )
    return tuple(name for name in METHODS if name in names)


def choose_methods(names: Sequence[str], *, num_classes: int, pool: int) -> tuple[list[Method], list[str]]:
    """The methods with these names (without names, all that fit the data), and why others are skipped."""
    chosen, skipped = [], []
    for method in METHODS.values():
        if names and method.name not in names:
            continue
        if not names and method.name == FULL_SOFTMAX and num_classes > FULL_SOFTMAX_CLASSES:
            skipped.append(
                f"{method.title} skipped: it scores all {num_classes:,} classes in every step;"
                f" name {method.name} in --methods to include it"
            )
        elif method.top > pool:
            skipped.append(f"{method.title} skipped: it keeps {method.top} negatives, more than the pool of {pool:,}")
        else:
            chosen.append(method)
    return chosen, skipped
