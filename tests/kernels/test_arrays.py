"""Helpers on arrays against the plain way to the same answer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.arrays import distinct, followed, rows_by


@given(st.lists(st.integers(-5, 5), max_size=40))
def test_every_place_is_among_those_of_its_key(keys: list[int]) -> None:
    expected = {key: [i for i, one in enumerate(keys) if one == key] for key in sorted(set(keys))}
    found = rows_by(np.array(keys, np.int64))
    assert {key: rows.tolist() for key, rows in found.items()} == expected
    assert list(found) == list(expected)


@given(st.lists(st.integers(-3, 3), max_size=30))
def test_each_value_is_told_once_in_order(values: list[int]) -> None:
    assert distinct(np.array(values, np.int64)).tolist() == sorted(set(values))


@given(st.data())
def test_ways_are_followed_to_their_ends(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 40))
    # each goes to a place before it, to itself or nowhere, so that no way comes back
    to = [data.draw(st.integers(-1, place)) for place in range(n)]

    def end(place: int) -> int:
        while place >= 0 and to[place] != place:
            place = to[place]
        return place

    assert followed(np.array(to, np.int64)).tolist() == [end(place) for place in range(n)]


def test_the_longest_way_is_followed() -> None:
    for n in (1, 2, 3, 64, 65, 1000):
        assert not followed(np.maximum(np.arange(n) - 1, 0)).any()


def test_a_way_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="never ends"):
        followed(np.array([1, 2, 0], np.int64))
