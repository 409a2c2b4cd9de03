"""Compiled parts: there, or None."""

from __future__ import annotations

import math

from owlmine.extensions import load_extension


def test_what_is_there_and_what_is_not() -> None:
    assert load_extension("math") is math
    assert load_extension("owlmine.mining._no_such_part") is None
    assert load_extension("owlmine.no_such_room._part") is None
