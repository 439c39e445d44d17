"""Use of links over time: what the kernel sums, and what a result says of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import TraceBuilder, Workload
from chakra.replay import ReplayResult, simulate, topologies
from chakra.replay.config.model import bytes_per_ns
from chakra.replay.engines.kernels import layout as L  # noqa: N812
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.link_use import WHOLE, add_use
from chakra.replay.engines.messages import use

RINGS = {f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather", "reduce-scatter")}
BLOCKS = {"topology": ["Ring", "Switch"], "npus_count": [4, 3], "bandwidth": [100, 50], "latency": [300, 500]}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3000), st.integers(0, 700), st.integers(0, WHOLE)), min_size=1, max_size=12
    )
)
def test_intervals_hold_what_was_added(parts: list[tuple[int, int, int]]) -> None:
    """Against a count for each ns, whatever the order of the parts; intervals are as short as they can be."""
    intervals, at = 16, L.C_SIZE
    m = [0] * (at + 1 + intervals)
    m[L.C_USE_N] = intervals
    every = np.zeros(4096, np.int64)
    for start, length, share in parts:
        add_use(State(m, [0.0]), at, start, start + length, share)
        every[start : start + length] += share
    ends = [start + length for start, length, _ in parts if length]
    width = 1 << m[at]
    assert width == 1 or width * intervals < 2 * max(ends)
    assert width * intervals >= max(ends, default=0)
    expected = np.add.reduceat(every, np.arange(0, 4096, width))[:intervals]
    found = np.array(m[at + 1 :])
    assert found[: len(expected)].tolist() == expected.tolist()
    assert not found[len(expected) :].any()


@pytest.mark.parametrize("engine", ["python", "compiled"])
@pytest.mark.parametrize("backend", ["aware", "flow"])
def test_the_use_in_runs_of_years_fits_64_bits(
    backend: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty messages of a week over one link, then a small one over another."""
    monkeypatch.setattr(
        "chakra.replay.engines.messages.engine.worth_compiling", lambda *_: engine == "compiled"
    )
    week = 7 * 24 * 3600 * 10**9
    size = int(week * bytes_per_ns(2))
    workload = Workload(3)
    last: list[Any] = []
    for tag in range(30):
        last = [workload.builder(0).send(1, size_bytes=size, tag=tag, after=last)]
        workload.builder(1).recv(0, size_bytes=size, tag=tag)
    workload.builder(0).send(2, size_bytes=1000, tag=99, after=last)
    workload.builder(2).recv(0, size_bytes=1000, tag=99)
    net = {"topology": ["FullyConnected"], "npus_count": [3], "bandwidth": [2], "latency": [0]}
    found = simulate(workload, {}, net, backend=backend)
    assert 30 * week <= found.finish_ns.max() <= 30.01 * week
    (busy, rest) = found.link_use["links"]
    assert (busy["from"], busy["to"], rest["to"]) == (0, 1, 2)
    assert min(busy["share"]) > 0.99
    assert max(busy["share"]) <= 1.0
    assert set(rest["share"]) == {0.0}


def grouped(npus: int, groups: list[range], size: int) -> Workload:
    """All-reduce, computing, all-gather in each group; the other NPUs do nothing."""
    workload = Workload(npus)
    names = {npu: name for g in groups for name in [workload.add_group(list(g))] for npu in g}

    def program(b: TraceBuilder) -> None:
        if b.rank not in names:
            b.compute(duration_ns=1)
            return
        first = b.collective("all_reduce", size_bytes=size, group=names[b.rank])
        then = b.compute(duration_ns=20_000, after=[first])
        b.collective("all_gather", size_bytes=size, group=names[b.rank], after=[then])

    workload.run(program)
    return workload


def spans(result: ReplayResult) -> Any:
    """Length of each interval, the last one up to the end."""
    use_ = result.link_use
    length, n = use_["interval_ns"], len(use_["mean"])
    out = np.full(n, float(length))
    if result.finish_ns.max() > length * (n - 1):
        out[-1] = result.finish_ns.max() - length * (n - 1)
    return out


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["aware", "flow"]),
    st.sampled_from(["blocks", "tree", "torus", "sprayed"]),
    st.lists(st.integers(2, 5), min_size=1, max_size=2),
    st.integers(20_000, 3_000_000),
)
def test_use_over_time_adds_up_to_the_bytes(backend: str, kind: str, sizes: list[int], size: int) -> None:
    """All of a link's use is its bytes by its bandwidth; no interval holds more than the whole of it."""
    speed: dict[str, Any] = {"bandwidth_gibps": 40.0, "latency_ns": 250.0}
    tree = topologies.fat_tree([4, 3], oversubscription=2.0, **speed)
    assert tree.links is not None
    network: Any = {
        "blocks": BLOCKS,
        "tree": tree,
        "torus": topologies.torus([4, 3], **speed),
        "sprayed": replace(tree, links=replace(tree.links, ecmp="spray")),
    }[kind]
    if kind == "sprayed":
        backend = "flow"
    groups = [range(k, k + 2 * n, 2) for k, n in enumerate(sizes)]
    result = simulate(grouped(12, groups, size), RINGS, network, backend=backend, engine="messages")
    found, at = result.link_use, spans(result)
    rows = {(row["dim"], row["from"], row["to"]): row for row in result.links}
    assert 0 < len(found["links"]) <= 12
    assert min(link["alike"] for link in found["links"]) >= 1
    for link in found["links"]:
        row = rows[link["dim"], link["from"], link["to"]]
        whole = row["bytes"] / bytes_per_ns(row["bandwidth_gibps"])
        # whole ns of each message on aware, whole ns of each end on flow; four digits of each share
        assert np.dot(link["share"], at) == pytest.approx(whole, rel=2e-3, abs=200)
        assert max(link["share"]) <= 1.0001
    most = [float(np.dot(link["share"], at)) for link in found["links"]]
    assert most == pytest.approx(sorted(most, reverse=True), rel=1e-2, abs=200)
    every = sum(row["bytes"] / bytes_per_ns(row["bandwidth_gibps"]) for row in rows.values()) / len(rows)
    assert np.dot(found["mean"], at) == pytest.approx(every, rel=2e-3, abs=200)


def test_two_messages_by_hand() -> None:
    """A link of 1 byte a ns sends from 0 to 1,024 ns and, after computing, from 3,072 to 4,096: intervals of 32 ns."""
    traces = []
    for npu in range(2):
        b = TraceBuilder(rank=npu)
        call = b.send if npu == 0 else b.recv
        first = call(1 - npu, size_bytes=1024, tag=1)
        then = b.compute(duration_ns=2048 if npu == 0 else 1, after=[first])
        call(1 - npu, size_bytes=1024, tag=2, after=[then])
        traces.append(b.build())
    network = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [1e9 / 2**30], "latency": [0]}
    for backend in ("aware", "flow"):
        result = simulate(traces, {}, network, backend=backend, engine="messages")
        assert result.finish_ns.tolist() == [4096, 4096]
        found = result.link_use
        assert found["interval_ns"] == 32
        (link,) = found["links"]
        assert (link["from"], link["to"], link["alike"]) == (0, 1, 1)
        assert link["share"] == found["mean"] == [1.0] * 32 + [0.0] * 64 + [1.0] * 32


def test_folded_flows_use_links_alike() -> None:
    """Classes of links stand for all of them."""
    tree = topologies.fat_tree([4, 4], oversubscription=2.0, bandwidth_gibps=50.0, latency_ns=500.0)
    assert tree.links is not None
    network = replace(tree, links=replace(tree.links, ecmp="spray"))
    groups = [range(k, 16, 4) for k in range(4)]
    folded, each = (
        simulate(grouped(16, groups, 1 << 20), RINGS, network, backend="flow", fold=fold)
        for fold in (True, False)
    )
    assert folded.raw.partition.n_classes < each.raw.partition.n_classes
    assert folded.link_use == each.link_use
    assert sum(link["alike"] for link in folded.link_use["links"]) == len(folded.links)


def test_links_beyond_the_table_keep_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer intervals for more links, and none where even the least do not fit; times are the same."""
    results = []
    for words in (1 << 20, 48 * 40, 48 * 16):  # 48 links
        monkeypatch.setattr(use, "MOST_WORDS", words)
        results.append(
            simulate(
                grouped(12, [range(12)], 1 << 20),
                RINGS,
                BLOCKS | {"topology": ["Ring", "Ring"]},
                backend="flow",
                fold=False,
            )
        )
    assert len({tuple(result.finish_ns.tolist()) for result in results}) == 1
    most, fewer, none = (result.link_use for result in results)
    assert 64 <= len(most["mean"]) <= 128
    assert 16 <= len(fewer["mean"]) <= 32
    assert none == {}


def test_closed_forms_and_networks_without_links_have_none() -> None:
    """Where no message was simulated on a link, nothing is said."""
    work = Workload(12)
    work.run(lambda b: b.collective("all_reduce", size_bytes=1 << 20))
    system = {"all-reduce-implementation": ["ring", "ring"]}
    closed = simulate(work, system, BLOCKS, backend="aware")
    assert closed.links
    assert closed.link_use == {}
    assert simulate(work, system, BLOCKS).link_use == {}
    every = simulate(work, system, BLOCKS, backend="aware", engine="messages")
    assert every.link_use
    assert {row["bandwidth_gibps"] for row in every.links} == {100.0, 50.0}
    assert sorted(map(str, every.links)) == sorted(map(str, closed.links))


@pytest.mark.parametrize("backend", ["aware", "flow"])
def test_a_run_that_was_ended_counts_up_to_its_end(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What flows have moved up to the end of a partial run is in."""
    from chakra.replay.engines.messages import engine

    monkeypatch.setattr(engine, "PLAIN_STEP", 60)
    result = simulate(
        grouped(12, [range(0, 12, 2)], 1 << 22),
        RINGS,
        BLOCKS,
        backend=backend,
        engine="messages",
        progress=lambda done, now: now < 100_000,
    )
    assert result.partial
    found = result.link_use
    assert found["links"]
    assert 0 < max(found["links"][0]["share"]) <= 1.0001
