"""Rank order and groups."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.errors import UsageError
from chakra.generate.parallel import AXES, ParallelConfig, RankLayout

SIZE = st.integers(1, 4)
ORDER = st.sampled_from(["-".join(order) for order in permutations(AXES)])


@given(SIZE, SIZE, SIZE, SIZE, ORDER, st.data())
def test_groups_partition_the_ranks(
    tp: int, cp: int, dp: int, pp: int, order: str, data: st.DataObject
) -> None:
    ep = data.draw(st.sampled_from([n for n in range(1, cp * dp + 1) if cp * dp % n == 0]))
    config = ParallelConfig(tp=tp, cp=cp, ep=ep, dp=dp, pp=pp, order=order)
    layout = RankLayout(config)
    for axes in (["tp"], ["dp"], ["cp"], ["pp"], ["dp", "cp"], ["tp", "cp"], ["ep"], ["edp"], ["tp", "ep"]):
        table = layout.table(axes)
        assert table.shape[1] == config.size(axes)
        assert sorted(table.reshape(-1).tolist()) == list(range(config.world))
        view = ("tp", "ep", "edp", "pp") if {"ep", "edp"} & set(axes) else ("tp", "cp", "dp", "pp")
        for axis in set(view) - set(axes):
            coordinate = layout.coordinates[axis][table]
            assert (coordinate == coordinate[:, :1]).all()


def test_megatron_order() -> None:
    """tp fastest, then cp, dp, pp: tp groups are runs, pp groups the widest strides."""
    layout = RankLayout(ParallelConfig(tp=2, cp=2, dp=2, pp=2))
    assert layout.table(["tp"]).tolist()[0] == [0, 1]
    assert layout.table(["cp"]).tolist()[0] == [0, 2]
    assert layout.table(["dp"]).tolist()[0] == [0, 4]
    assert layout.table(["pp"]).tolist()[0] == [0, 8]
    assert layout.table(["dp", "cp"]).tolist()[0] == [0, 2, 4, 6]


def test_experts_cut_the_data_parallel_plane() -> None:
    layout = RankLayout(ParallelConfig(tp=2, dp=4, ep=2))
    assert layout.table(["ep"]).tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert layout.table(["edp"]).tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    distant = RankLayout(ParallelConfig(tp=2, dp=4, ep=2, order="tp-cp-dp-ep-pp"))
    assert distant.table(["ep"]).tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_stage_of_every_rank() -> None:
    assert RankLayout(ParallelConfig(tp=2, pp=2)).stage_of().tolist() == [0, 0, 1, 1]
    fast = ParallelConfig(tp=2, pp=2, order="pp-tp-cp-ep-dp")
    assert RankLayout(fast).stage_of().tolist() == [0, 1, 0, 1]
    assert RankLayout(fast).table(["tp"]).dtype == np.int32


@pytest.mark.parametrize(("options", "message"), [
    ({"tp": 0}, "tp must be at least 1, not 0"),
    ({"order": "tp-dp-pp"}, "must name each of tp, cp, ep, dp, pp once"),
    ({"order": "tp-tp-cp-dp-pp"}, "must name each of"),
    ({"vp": 2}, r"virtual stages \(vp=2\) need a pipeline"),
])  # fmt: skip
def test_wrong_degrees_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ParallelConfig(**options)  # type: ignore[arg-type]
