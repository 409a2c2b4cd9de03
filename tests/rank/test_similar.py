"""Similar classes: against cosines of all class vectors, in blocks of any size.

Shapes: K classes, D dimension.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from owlmine.data.arrays import StringTable
from owlmine.errors import OwlmineError
from owlmine.rank import similar as module
from owlmine.rank.similar import similar_classes

from .test_explain import FORMS, predictor_of


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_added", [0, 3])
@pytest.mark.parametrize("block", [1, 60, 1 << 22])
def test_cosines_against_a_loop(monkeypatch: pytest.MonkeyPatch, form: str, num_added: int, block: int) -> None:
    """Whatever the lengths of vectors, which those of added classes are not."""
    monkeypatch.setattr(module, "_BLOCK_NUMBERS", block)
    model = predictor_of(form, num_added=num_added)
    vectors_KD, keys = model.dense.rows[:].double().numpy(), list(model.classes.keys)
    unit_KD = vectors_KD / np.linalg.norm(vectors_KD, axis=1, keepdims=True)
    for own in (0, 7, len(keys) - 1):
        cosines_K = unit_KD @ unit_KD[own]
        order = [c for c in np.argsort(-cosines_K, kind="stable").tolist() if c != own]
        for k in (1, 5, len(keys)):
            found = similar_classes(model, keys[own], k)
            assert [one.key for one in found] == [keys[c] for c in order[:k]]
            assert [one.name for one in found] == [model.classes.names[c] for c in order[:k]]
            assert [one.examples for one in found] == [model.classes.counts[c] for c in order[:k]]
            np.testing.assert_allclose([one.cosine for one in found], cosines_K[order[:k]], rtol=0, atol=1e-6)
    assert json.loads(json.dumps(found[0].to_dict())).keys() == {"key", "name", "cosine", "examples"}


@pytest.mark.parametrize("block", [1, 16, 1 << 22])
def test_equal_classes_come_by_their_numbers(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """A class without a vector has the cosine 0, and so have all others with it."""
    monkeypatch.setattr(module, "_BLOCK_NUMBERS", block)
    model = predictor_of(judges=())
    rows_KD = torch.zeros_like(model.dense.rows[:])
    rows_KD[1:, 0] = 2.0
    dense = type(model.dense).from_tensors(model.dense.shape, model.dense.tensors() | {"classes": rows_KD})
    model = replace(model, dense=dense)
    keys = list(model.classes.keys)
    assert [(one.key, one.cosine) for one in similar_classes(model, keys[0], 4)] == [(key, 0.0) for key in keys[1:5]]
    found = similar_classes(model, keys[3], 23)
    assert [one.key for one in found] == [*keys[1:3], *keys[4:], keys[0]]
    assert [one.cosine for one in found] == [1.0] * 22 + [0.0]


def test_a_class_goes_by_its_name_too() -> None:
    model = predictor_of()
    assert similar_classes(model, "Castles of 1", 3) == similar_classes(model, "c1", 3)
    keys = StringTable.of(map(str, range(24)))
    numbered = replace(model, classes=replace(model.classes, keys=keys))
    assert similar_classes(numbered, 1, 3) == similar_classes(numbered, "1", 3)


@pytest.mark.parametrize(
    ("key", "k", "told"),
    [
        ("c99", 3, "the model has no class 'c99'; did you mean"),
        (["c1"], 3, "key: found a list that holds 'c1' at 0; wanted the key of one class"),
        (True, 3, "key: found True"),
        ("c1", 0, "k: found 0; wanted a whole number of 1 or more"),
    ],
)
def test_bad_input(key: Any, k: int, told: str) -> None:
    with pytest.raises(OwlmineError, match=told):
        similar_classes(predictor_of(), key, k)
