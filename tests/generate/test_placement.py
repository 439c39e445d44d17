"""The placement algebra: its table, sizes, joint axes, and duality."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.errors import UsageError
from chakra.generate.model.placement import (
    PARTIAL,
    REPLICATE,
    Conversion,
    Placement,
    Shard,
    convert,
    gradient_need,
)
from chakra.replay.config.model import CollectiveKind as Kind

A, B = Shard("a"), Shard("b")


@pytest.mark.parametrize(("have", "need", "kind", "result"), [
    (A, A, None, 48),
    (A, B, Kind.ALL_TO_ALL, 48),
    (A, REPLICATE, Kind.ALL_GATHER, 192),
    (REPLICATE, A, None, 12),
    (REPLICATE, REPLICATE, None, 48),
    (PARTIAL, A, Kind.REDUCE_SCATTER, 12),
    (PARTIAL, REPLICATE, Kind.ALL_REDUCE, 48),
    (PARTIAL, PARTIAL, None, 48),
])  # fmt: skip
def test_transition_table(have: Placement, need: Placement, kind: Kind | None, result: int) -> None:
    steps = convert({"x": have}, {"x": need}, 48, {"x": 4})
    assert steps == (() if kind is None else (Conversion(kind, ("x",), 48, result),))


@pytest.mark.parametrize("have", [A, REPLICATE])
def test_nothing_becomes_a_term_of_a_sum(have: Placement) -> None:
    with pytest.raises(UsageError, match="cannot become a term of a sum"):
        convert({"x": have}, {"x": PARTIAL}, 48, {"x": 4})


def test_axes_of_one_rank_need_nothing() -> None:
    assert convert({"x": PARTIAL}, {"x": REPLICATE}, 48, {"x": 1}) == ()
    assert convert({"x": PARTIAL}, {"x": REPLICATE}, 48, {}) == ()


def test_equal_transitions_are_joined() -> None:
    steps = convert({"x": PARTIAL, "y": PARTIAL}, {"x": REPLICATE, "y": REPLICATE}, 48, {"x": 2, "y": 3})
    assert steps == (Conversion(Kind.ALL_REDUCE, ("x", "y"), 48, 48),)


def test_reductions_come_first_and_gathers_last() -> None:
    have: dict[str, Placement] = {"ep": Shard("expert"), "tp": PARTIAL}
    need: dict[str, Placement] = {"ep": Shard("token"), "tp": Shard("sequence")}
    sizes = {"ep": 4, "tp": 2}
    assert convert(have, need, 48, sizes) == (
        Conversion(Kind.REDUCE_SCATTER, ("tp",), 48, 24),
        Conversion(Kind.ALL_TO_ALL, ("ep",), 24, 24),
    )
    back = convert(need, {"ep": Shard("expert"), "tp": REPLICATE}, 24, sizes)
    assert [step.kind for step in back] == [Kind.ALL_TO_ALL, Kind.ALL_GATHER]
    assert back[-1].result_bytes == 48


def test_a_size_that_does_not_divide_is_refused() -> None:
    with pytest.raises(UsageError, match="50 bytes do not divide among the 4 ranks of x"):
        convert({"x": PARTIAL}, {"x": A}, 50, {"x": 4})


@given(st.sampled_from([A, B, REPLICATE, PARTIAL]), st.sampled_from([A, B, REPLICATE]), st.integers(2, 8))
def test_a_gradient_travels_back_by_the_dual_collective(have: Placement, need: Placement, ranks: int) -> None:
    """All-gather and reduce-scatter are dual, all-to-all is its own dual, an all-reduce's dual is the identity."""
    sizes = {"x": ranks}
    forward = convert({"x": have}, {"x": need}, 48 * ranks, sizes)
    # a consumer of a whole tensor with split weights makes terms of its gradient
    grad: Placement = PARTIAL if need == REPLICATE else need
    size = forward[-1].result_bytes if forward else 48 * ranks
    if need != REPLICATE and have == REPLICATE:
        size = 48
    backward = convert({"x": grad}, gradient_need({"x": have}), size, sizes)
    dual = {
        Kind.ALL_GATHER: [Kind.REDUCE_SCATTER],
        Kind.REDUCE_SCATTER: [Kind.ALL_GATHER],
        Kind.ALL_TO_ALL: [Kind.ALL_TO_ALL],
        Kind.ALL_REDUCE: [Kind.ALL_REDUCE],
    }
    kinds = [step.kind for step in forward]
    if have == REPLICATE and need == REPLICATE:
        assert [step.kind for step in backward] == [Kind.ALL_REDUCE]
    elif have == REPLICATE:
        assert [step.kind for step in backward] == [Kind.ALL_GATHER]
    elif kinds:
        assert [step.kind for step in backward] == dual[kinds[0]]
