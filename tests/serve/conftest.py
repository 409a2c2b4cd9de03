"""Models to serve, and one service that most tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import owlmine

from ..small_models import TOPICS, calibrated_model, dense_model, sparse_model, text_point, workplace
from .running import Service

NASTY_NAMES = {
    "c-river": "<script>alert(1)</script>",
    "c-castle": "\x1b[31mred\x1b[0m\nforged line",
    "c-violin": "\u202eright to left\u2028",
    "c-falcon": "🦅 \u0000",
}


@pytest.fixture(scope="session")
def nasty_model() -> Path:
    """A model with class names that try to leave their place."""
    points = [text_point(number) for number in range(240)]
    names = {f"c-{topic}": topic.title() for topic in TOPICS} | NASTY_NAMES
    model = owlmine.fit(
        [point["text"] for point in points],
        [point["labels"] for point in points],
        class_names=names,
        options={"recipe": "single", "dim": 16, "epochs": 4, "batch_size": 16, "validation": 0.4, "device": "cpu"},
    )
    model.save(workplace() / "nasty")
    return workplace() / "nasty"


@pytest.fixture(scope="session")
def service(nasty_model: Path) -> Iterator[Service]:
    models = (
        f"text={calibrated_model()}",
        f"sparse={sparse_model()}",
        f"dense={dense_model()}",
        f"nasty={nasty_model}",
    )
    with Service(*models, options=("--max-queries", 40, "--max-text", 200_000, "--max-k", 100)) as running:
        yield running
