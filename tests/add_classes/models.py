"""Models to which tests add classes, made once per test run."""

from __future__ import annotations

import functools
from pathlib import Path

from owlmine.run import train

from ..small_models import OPTIONS, text_point, text_store, workplace

TEXTS = [str(text_point(number)["text"]) for number in range(300, 320)]
PAIRED = [f"the {one} with the {other}" for one in ("violin", "ballad") for other in ("copper", "pepper", "saddle")]


@functools.cache
def composed_model() -> Path:
    """An ensemble of two, re-ranked by linear classifiers and names."""
    train(text_store(), workplace() / "composed-model", OPTIONS.with_(heads=2, shortlist=6, epochs=2))
    return workplace() / "composed-model"


@functools.cache
def weighed_model() -> Path:
    """Like the composed one, with weights fitted on validation points, by which rarity counts too."""
    options = OPTIONS.with_(heads=2, shortlist=6, epochs=2, validation=0.3)
    train(text_store(), workplace() / "weighed-model", options)
    return workplace() / "weighed-model"


def texts_of(label: str, texts: list[str]) -> tuple[list[str], list[list[str]]]:
    return texts, [[label]] * len(texts)
