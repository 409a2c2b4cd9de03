"""Tests that ask for ``way`` run with the extension and without it."""

from __future__ import annotations

import pytest

from owlmine.rank import linear as linear_ranker
from owlmine.rank import linear_training as training

from .small_tasks import needs_build


@pytest.fixture(params=[pytest.param("compiled", marks=needs_build), "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        for module in (training, linear_ranker):
            monkeypatch.setattr(module, "compiled_module", lambda: None)
    return str(request.param)
