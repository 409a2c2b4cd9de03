"""Tests that ask for ``way`` run with the compiled parts and without them."""

from __future__ import annotations

import pytest

from .small_tasks import needs_build, without_extensions


@pytest.fixture(params=[pytest.param("compiled", marks=needs_build), "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        without_extensions(monkeypatch)
    return str(request.param)
