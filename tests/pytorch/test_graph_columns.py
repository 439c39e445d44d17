"""Columns of the linked graph: what their one declaration makes of nodes."""

import numpy as np
import pytest

from chakra.converters.pytorch.comm.operations import Comm
from chakra.converters.pytorch.graph.columns import (
    COMP,
    Draft,
    Given,
    NodeColumns,
    append,
    columns_of,
    compact,
    from_node,
    joined,
    ordered,
)

NEEDED: Given = {"kind": 1, "name": 2, "start": np.array([10, 20]), "chain_group": 3}


def draft() -> Draft:
    return joined([(2, NEEDED), (2, {**NEEDED, "kind": 4, "stream_key": 7})], {3: Comm(5, 0, 8, "")})


def test_nodes_without_a_value_have_the_fill_and_others_their_own() -> None:
    made = draft()
    assert made.kind.tolist() == [1, 1, 4, 4]
    assert made.stream_key.tolist() == [-1, -1, 7, 7]
    assert made.start.tolist() == [10, 20, 10, 20]
    assert (made.type == COMP).all()
    assert {name for name, column in columns_of(Draft).items() if column.fill is None} == set(NEEDED)
    for name in NEEDED:
        with pytest.raises(ValueError, match=name):
            joined([(2, {key: value for key, value in NEEDED.items() if key != name})], {})


def test_every_column_grows_narrows_and_is_put_in_order() -> None:
    made = draft()
    append(made, 1, {**NEEDED, "start": np.array([5]), "parent": 1})
    made.edges = [(np.array([0]), np.array([1]), 2)]
    compact(made)
    for name, column in columns_of(Draft).items():
        values = getattr(made, name)
        assert (len(values), values.dtype) == (5, np.dtype(column.dtype)), name
    assert made.edges[0][0].dtype == np.int32
    kept = ordered(made, np.array([4, 0, 1, 2, 3]))
    assert set(kept) == set(columns_of(NodeColumns))
    assert kept["start"].tolist() == [5, 10, 20, 10, 20]
    assert kept["parent"].tolist() == [1, -1, -1, -1, -1]


def test_nodes_behind_the_first_keep_all_but_their_parents() -> None:
    made = draft()
    made.parent[:] = 0
    rest = from_node(made, 2, [])
    assert rest.kind.tolist() == [4, 4]
    assert rest.parent.tolist() == [-1, -1]
    assert list(rest.comm) == [1]
