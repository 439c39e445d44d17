"""Point-to-point messages of a run: values by hand, the same on every backend, and as many bytes as nodes send."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import Workload
from chakra.replay import ReplayResult, simulate

MIB = 1 << 20
BACKENDS = ("unaware", "aware", "flow")
NETWORK = {
    "topology": ["Switch", "Switch"], "npus_count": [2, 2], "bandwidth": [100, 10], "latency": [100, 500]
}  # fmt: skip


def sends(npus: int, messages: list[tuple[int, int, int, int]], **options: Any) -> ReplayResult:
    """Messages (from, to, bytes, us that the sender computes before), each with a tag of its own."""
    workload = Workload(npus)
    for tag, (src, dst, size, late_micros) in enumerate(messages):
        begun = workload.builder(src).compute(duration_micros=late_micros)
        workload.builder(src).send(dst, size_bytes=size, tag=tag, after=begun)
        workload.builder(dst).recv(src, size_bytes=size, tag=tag)
    for rank in range(npus):
        workload.builder(rank).compute(duration_ns=1)
    return simulate(workload, {}, options.pop("network", NETWORK), **options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_messages_are_told_by_the_dimensions_that_they_cross(backend: str) -> None:
    """A way over a switch has two links; the receives start at 0, one of their senders 50 us later."""
    result = sends(
        4, [(0, 1, MIB, 0), (0, 2, 2 * MIB, 50), (3, 1, 3 * MIB, 0), (1, 2, 4 * MIB, 0)], backend=backend
    )
    rows = {tuple(row["dims"]): row for row in result.records("messages")}
    assert {dims: (row["count"], row["bytes"]) for dims, row in rows.items()} == {
        (0,): (1, MIB),
        (1,): (2, 5 * MIB),
        (0, 1): (1, 4 * MIB),
    }
    gib = (1 << 30) / 1e9
    if backend == "unaware":
        assert rows[0,]["longest_ns"] == pytest.approx(MIB / (100 * gib) + 200, abs=2)
        times = [2 * MIB / (10 * gib) + 1000, 3 * MIB / (10 * gib) + 1000]
        assert rows[1,]["longest_ns"] == pytest.approx(times[1], abs=2)
        assert rows[1,]["transfer_ns"] == pytest.approx(sum(times), abs=4)
    assert (rows[0,]["waiting_ns"], rows[1,]["waiting_ns"]) == (0, 50_000)


def test_a_receive_that_is_late_waits_for_nothing() -> None:
    workload = Workload(2)
    workload.builder(0).send(1, size_bytes=MIB)
    workload.builder(1).recv(0, size_bytes=MIB, after=workload.builder(1).compute(duration_micros=1000))
    network = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
    [row] = simulate(workload, {}, network).messages
    assert (row["count"], row["waiting_ns"]) == (1, 0)
    assert "messages across" in str(simulate(workload, {}, network))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_messages_hold_what_nodes_send(data: st.DataObject) -> None:
    """Counts and bytes of all rows are those of the send nodes, and the books of dimensions hold what rows cross."""
    listed = data.draw(st.booleans())
    network: dict[str, Any] = NETWORK
    if listed:
        links = [[a, b, 20, 100] for a in range(4) for b in range(a)]
        network = {"npus_count": [2, 2], "links": links}
    npu = st.integers(0, 3)
    messages = data.draw(
        st.lists(
            st.tuples(npu, st.integers(1, 3), st.integers(1, MIB), st.integers(0, 9)), min_size=1, max_size=8
        )
    )
    messages = [(src, (src + step) % 4, size, late) for src, step, size, late in messages]
    wanted = np.zeros((2, 4), np.int64)
    for src, dst, size, _ in messages:
        inner, outer = src % 2 != dst % 2, src // 2 != dst // 2
        kind = 2 * outer + (inner and not (listed and outer))
        wanted[:, kind] += [1, size]
    for backend in BACKENDS:
        for options in ({}, {"fold": False}):
            result = sends(4, messages, backend=backend, network=network, **options)
            found = np.zeros((2, 4), np.int64)
            for row in result.records("messages"):
                found[:, sum(1 << dim for dim in row["dims"])] += [row["count"], row["bytes"]]
                assert 0 <= row["longest_ns"] <= row["transfer_ns"] <= row["count"] * result.finish_ns.max()
            assert found.tolist() == wanted.tolist()
            crossed = [found[1, 1] + found[1, 3], found[1, 2] + found[1, 3]]
            assert [4 * row["bytes_per_npu"] for row in result.dimensions] == crossed


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
@pytest.mark.parametrize("npus", [12, 24])
def test_a_message_lets_both_its_ends_issue(npus: int, algorithm: str) -> None:
    """Sender and receiver each open a collective in one event: the engine has room for both."""
    workload = Workload(npus)
    pairs = [workload.add_group([i, i + npus // 2]) for i in range(npus // 2)]
    for rank in range(npus):
        builder = workload.builder(rank)
        builder.send((rank + 1) % npus, size_bytes=999)
        got = builder.recv((rank - 1) % npus, size_bytes=999)
        builder.collective("ALL_REDUCE", size_bytes=999, group=pairs[rank % (npus // 2)], after=got)
    system = {
        "endpoint-delay": 1,
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": [algorithm] * 3,
    }
    network = {
        "topology": ["Switch", "Ring", "Switch"],
        "npus_count": [2, npus // 4, 2],
        "bandwidth": [10.0] * 3,
        "latency": [0.0] * 3,
    }
    chosen, every = (simulate(workload, system, network, engine=engine) for engine in ("auto", "messages"))
    assert chosen.raw.engine == "phases"
    assert chosen.finish_ns.tolist() == every.finish_ns.tolist()
