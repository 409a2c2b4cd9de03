"""Classes by key, by number and by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlmine.data.arrays import StringTable
from owlmine.data.formats.block import RowLabels
from owlmine.errors import OwlmineError
from owlmine.rank.class_index import ClassFinder, ClassIndex
from owlmine.rank.words import ClassWords


def words(keys: list[str], names: list[str] | None = None) -> ClassWords:
    counts = np.ones(len(keys), np.int64)
    return ClassWords(StringTable.of(keys), StringTable.of(names or keys), counts, len(keys))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=4), st.integers(-50, 50).map(str), st.just("007")), unique=True, min_size=1),
    st.lists(st.integers(-60, 60), max_size=30),
)
def test_numbers_and_names_find_the_class_of_that_spelling(keys: list[str], numbers: list[int]) -> None:
    index = ClassIndex(StringTable.of(keys))
    expected = [keys.index(str(number)) if str(number) in keys else -1 for number in numbers]
    offsets = np.array([0, len(numbers)])
    as_numbers = index.raw_ids(RowLabels(offsets, np.array(numbers, np.int64)), training=False)
    as_names = index.raw_ids(RowLabels(offsets, [str(number) for number in numbers]), training=False)
    assert as_numbers.tolist() == as_names.tolist() == expected
    assert index.final_of_numbers(np.array(numbers, np.int64)).tolist() == expected
    assert list(index.keys()) == keys


def test_find_by_key_before_name() -> None:
    known = words(["a", "b", "c"], ["b", "Bee", "Sea"])
    assert ClassFinder(known).find(["b", "Sea", "a"]).tolist() == [1, 2, 0]


def test_an_unknown_class_is_named_with_close_ones() -> None:
    known = words(["libsdl1.2debian", "zlib1g", "adduser"], ["SDL", "Zlib", "Add user"])
    with pytest.raises(OwlmineError, match=r"no class 'libsdl1.2'; did you mean 'libsdl1.2debian'\?"):
        ClassFinder(known).find(["adduser", "libsdl1.2"])
    with pytest.raises(OwlmineError, match=r"no class 'ADDUSER'; did you mean 'adduser'\?"):
        ClassFinder(known).find(["ADDUSER"])
    with pytest.raises(OwlmineError, match=r"no class 'qqq'$"):
        ClassFinder(known).find(["qqq"])


def test_a_large_catalogue_compares_what_begins_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("owlmine.rank.class_index._MAX_COMPARED", 3)
    known = words(["kestrel", "kettle", "xestrel", "other"])
    with pytest.raises(OwlmineError, match=r"did you mean 'kettle' or 'kestrel'\?"):
        ClassFinder(known).find(["kestle"])


def test_a_name_of_several_classes_needs_a_key() -> None:
    with pytest.raises(OwlmineError, match="2 classes are named 'same'; give a key, such as 'k1', 'k2'"):
        ClassFinder(words(["k1", "k2"], ["same", "same"])).find(["same"])
