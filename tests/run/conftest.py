"""Small datasets for runs, which do not measure the machine first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import owlmine.run
from owlmine.recipe.estimate import Estimate
from owlmine.recipe.plan import Plan

from ..recipe.named_texts import text_folder, text_store
from ..small_stores import dense_store, one_thread, store, store_with_dev

__all__ = ["dense_store", "one_thread", "store", "store_with_dev", "text_folder", "text_store"]


@pytest.fixture(autouse=True)
def unmeasured(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates take steps of their own, which would be counted here. Tests of estimates have the mark ``measured``."""

    def first(data: Any, options: Any, plans: Sequence[Plan]) -> tuple[Plan, Estimate]:
        return plans[0], Estimate(1.0, 1.0, 0.0, 1.0)

    if "measured" not in request.keywords:
        monkeypatch.setattr(owlmine.run, "choose_plan", first)
        monkeypatch.setattr(owlmine.run, "announcement", lambda *given, **named: [])
