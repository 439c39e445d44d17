"""A bound for each flow, as the network file gives it: `flow_cap`."""

import math
from fractions import Fraction
from typing import Any

import pytest
from flow_worlds import both
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chakra.builder import Workload
from chakra.errors import ConfigError
from chakra.replay import simulate
from chakra.replay.config import dump_network, load_network

UNIT = (1 << 30) / 1e9
SYSTEM: dict[str, Any] = {"endpoint-delay": 10, "all-reduce-implementation": ["ring"]}
BLOCKS: dict[str, Any] = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
LINKS: dict[str, Any] = {"npus_count": [4], "links": [[k, "s", 50, 500] for k in range(4)]}


def messages(size: int, pairs: list[tuple[int, int]]) -> Workload:
    workload = Workload(4)
    for rank in range(4):
        builder = workload.builder(rank)
        last = builder.compute(duration_ns=0)
        for tag, (src, dst) in enumerate(pairs):
            if rank == src:
                builder.send(dst, size_bytes=size, tag=tag, after=[last])
            if rank == dst:
                builder.recv(src, size_bytes=size, tag=tag, after=[last])
    return workload


@pytest.mark.parametrize("net", [BLOCKS, LINKS], ids=["blocks", "links"])
@given(size=st.integers(1, 1 << 28), cap=st.floats(0.01, 200))
@settings(max_examples=40, deadline=None)
def test_a_message_alone_has_the_lesser_of_cap_and_link(net: dict[str, Any], size: int, cap: float) -> None:
    result = simulate(messages(size, [(0, 1)]), SYSTEM, {**net, "flow_cap": cap}, backend="flow")
    exact = size / (min(cap, 50) * UNIT)
    # rates are whole numbers of 2^-k bytes per ns: less by a part in a million at most
    assert math.ceil(exact) + 1000 <= int(result.finish_ns.max()) <= math.ceil(exact * (1 + 1e-6)) + 1001


@given(size=st.integers(1, 1 << 53), rate=st.floats(1e-3, 1e4))
@settings(max_examples=60, deadline=None)
def test_a_message_of_t_ns_is_late_by_the_rounding_of_rates_only(size: int, rate: float) -> None:
    """By t^2 / 2^60 + t / (2^40 rate) ns at most: a ns at a second, on links of a MB/s or more."""
    exact = Fraction(size) / Fraction(rate * UNIT)
    assume(exact < 10**15)  # 11 days
    result = simulate(messages(size, [(0, 1)]), SYSTEM, BLOCKS | {"bandwidth": [rate]}, backend="flow")
    late = int(result.finish_ns.max()) - 1000 - math.ceil(exact)
    parts = exact**2 / 2**60 + exact / Fraction(rate * UNIT) / 2**40
    # of a rate that is rounded by a hundredth at most, a little more than the first term says
    assert 0 <= late <= 1 + Fraction(102, 100) * parts


@pytest.mark.parametrize("net", [BLOCKS, LINKS], ids=["blocks", "links"])
@pytest.mark.parametrize("cap", [5.0, 20.0, 30.0, 49.0, 60.0])
def test_what_one_flow_may_not_take_is_left_to_others(net: dict[str, Any], cap: float) -> None:
    """Two flows into a port of 50 GB/s, the second half as long: 25 each, or the cap; then one has min(cap, 50)."""
    size = 1 << 26
    workload = Workload(4)
    for rank, part in ((0, size), (2, size // 2)):
        workload.builder(rank).send(1, size_bytes=part, tag=rank)
    workload.builder(3).compute(duration_ns=1)
    end = workload.builder(1)
    for rank, part in ((0, size), (2, size // 2)):
        end.recv(rank, size_bytes=part, tag=rank)
    result = simulate(workload, SYSTEM, {**net, "flow_cap": cap}, backend="flow", comm_streams=2)
    shared = size / 2 / (min(cap, 25) * UNIT)
    alone = size / 2 / (min(cap, 50) * UNIT)
    assert int(result.finish_ns[0]) == pytest.approx(shared + alone + 1000, abs=3)


@pytest.mark.parametrize("net", [BLOCKS, LINKS], ids=["blocks", "links"])
def test_a_ring_under_a_cap_folds(net: dict[str, Any]) -> None:
    size, cap = 1 << 22, 12.5
    workload = Workload(4)
    for rank in range(4):
        workload.builder(rank).collective("ALL_REDUCE", size_bytes=size)
    folded, _ = both(workload, SYSTEM, {**net, "flow_cap": cap})
    step = math.ceil(size / 4 / (cap * UNIT)) + 1000
    ends = set(folded.finish_ns.tolist())
    assert len(ends) == 1
    assert 0 <= ends.pop() - (10 + 6 * (step + 10)) <= 6  # rates are rounded down
    assert folded.to_dict()["inputs"]["network"]["flow_cap_gibps"] == cap


@pytest.mark.parametrize("net", [BLOCKS, LINKS], ids=["blocks", "links"])
def test_files_keep_it_and_other_backends_warn(net: dict[str, Any], tmp_path: Any) -> None:
    loaded = load_network({**net, "flow_cap": 12.5})
    path = tmp_path / "network.yml"
    path.write_text(dump_network(loaded))
    assert load_network(path).flow_cap_gibps == 12.5
    assert load_network({**net, "flow_cap": 12.5}, compat="astra-sim").flow_cap_gibps is None
    plain = simulate(messages(1 << 20, [(0, 1)]), SYSTEM, net)
    for backend in ("unaware", "aware"):
        bound = simulate(messages(1 << 20, [(0, 1)]), SYSTEM, {**net, "flow_cap": 1}, backend=backend)
        assert any("'flow_cap' has no effect" in text for text in bound.warnings), bound.warnings
        if backend == "unaware":
            assert bound.finish_ns.tolist() == plain.finish_ns.tolist()
    assert not any("flow_cap" in text for text in plain.warnings)


def test_wrong_bounds_are_refused() -> None:
    for wrong in (0, -1, "fast", [50], True):
        with pytest.raises(
            ConfigError, match="'flow_cap' must be one number of GB/s that no flow exceeds, above 0"
        ):
            load_network({**BLOCKS, "flow_cap": wrong})
    with pytest.raises(ConfigError, match=r"flow_cap 1e-15 GB/s a message of .* more than a year"):
        simulate(messages(1 << 30, [(0, 1)]), SYSTEM, {**BLOCKS, "flow_cap": 1e-15}, backend="flow")
