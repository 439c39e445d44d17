"""What the engine's loop adds to the rules: several dimensions, links, room, progress, barriers, blocked queues."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_worlds import FIFTY, KINDS, network, run_collective, system

from chakra.builder import TraceBuilder
from chakra.errors import WorkloadError
from chakra.replay import ReplayResult, simulate
from chakra.replay.engines.kernels.layout import C_MARGIN
from chakra.replay.engines.messages import engine as message_engine
from chakra.replay.engines.messages import tables as message_tables

AR, RS, AG, A2A = KINDS


@pytest.mark.parametrize("backend", ["unaware", "aware"])
@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling"])
def test_a_graph_of_a_ring_is_the_ring(backend: str, algorithm: str) -> None:
    """Route tables give what the building block computes, link by link."""
    block, graph = (
        run_collective("Ring", algorithm, AR, 300_000, range(0, 800, 100), 3, backend=backend, **more)
        for more in ({}, {"slow_links": {"0-1": 1.0}})  # a network of single links, none of which is slower
    )
    assert graph.finish_ns.tolist() == block.finish_ns.tolist()
    for name in ("bytes", "busy_ns", "queued_ns") if backend == "aware" else ():
        assert sorted(r[name] for r in graph.raw.links) == sorted(r[name] for r in block.raw.links)


def send_and_receive(net: Any, src: int, dst: int, size: int, **options: Any) -> ReplayResult:
    """One message between two NPUs, the others idle."""
    traces = []
    for npu in range(int(np.prod(net["npus_count"]))):
        builder = TraceBuilder(rank=npu)
        if npu == src:
            builder.send(dst, size_bytes=size, tag=1)
        elif npu == dst:
            builder.recv(src, size_bytes=size, tag=1)
        else:
            builder.compute(duration_ns=1)
        traces.append(builder.build())
    return simulate(traces, system("ring"), net, engine="messages", **options)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 47), st.integers(1, 47), st.integers(1, 1 << 20))
def test_a_message_crosses_dimension_after_dimension(src: int, step: int, size: int) -> None:
    """Store and forward per link on the aware backend; per dimension, the lowest, or the highest on the other."""
    net = {
        "topology": ["Ring", "Switch", "FullyConnected"],
        "npus_count": [4, 3, 4],
        "bandwidth": [50.0, 20.0, 10.0],
        "latency": [300.5, 500.0, 700.0],
    }
    dst = (src + step) % 48
    aware, parts, old = 0, [], 0
    stride = 1
    for topology, n, gibps, latency in zip(*net.values(), strict=True):
        a, b = src // stride % n, dst // stride % n
        stride *= n
        if a == b:
            continue
        around, rate = abs(a - b), gibps * (1 << 30) / 1_000_000_000
        hops = {"Ring": min(around, n - around), "Switch": 2}.get(topology, 1)
        aware += hops * int(latency + size / rate)
        parts.append(int(hops * latency + size / rate))
        old = int(int(hops * latency) + size / rate)
    assert send_and_receive(net, src, dst, size, backend="aware").finish_ns[dst] == aware
    assert send_and_receive(net, src, dst, size).finish_ns[dst] == sum(parts)
    assert send_and_receive(net, src, dst, size, compat="astra-sim").finish_ns[dst] == parts[0]
    assert old in {parts[-1], parts[-1] - 1}


def test_a_ring_of_two_has_one_link_per_direction() -> None:
    """Both directions carry their own message at the same time."""
    links = run_collective("Ring", "direct", AR, 1 << 20, [0, 0], 4, backend="aware").raw.links
    assert [(row["from"], row["to"], row["queued_ns"]) for row in links] == [(0, 1, 0), (1, 0, 0)]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["Ring", "Switch", "FullyConnected"]),
    st.integers(2, 6),
    st.integers(1, 5),
    st.sampled_from(KINDS),
)
def test_links_carry_what_is_sent(topology: str, n: int, count: int, kind: str) -> None:
    """A link is busy for its messages' transfer times."""
    result = run_collective(topology, "direct", kind, 60_000 * count, [0] * n, count, backend="aware")
    size = 60_000 if kind == AG else 60_000 // n
    for row in result.raw.links:
        assert row["bytes"] % size == 0
        assert row["busy_ns"] == row["bytes"] // size * int(size / FIFTY)
        assert row["busy_ns"] <= result.finish_ns.max()


def test_room_grows_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose block was too small at first gives the same result."""

    def run() -> ReplayResult:
        return run_collective(
            "Switch",
            "direct",
            A2A,
            6 << 16,
            range(0, 120, 10),
            6,
            backend="aware",
            keys={"active_chunks_per_dimension": 6},
        )

    large = run()
    grown = []
    real = message_tables.with_room

    def with_little_room(m: np.ndarray, room: int) -> np.ndarray:
        grown.append(room)
        return real(m, int(m[C_MARGIN]) + 200)

    monkeypatch.setattr(message_tables, "with_room", with_little_room)
    monkeypatch.setattr(message_engine, "with_room", with_little_room)
    small = run()
    assert len(grown) > 3
    assert small.finish_ns.tolist() == large.finish_ns.tolist()
    assert small.raw.events == large.raw.events


def test_progress_is_told_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Going back to the caller every few events does not change the result."""
    whole = run_collective("Ring", "ring", AR, 1 << 20, [0, 5, 0, 0], 4, backend="aware")
    monkeypatch.setattr(message_engine, "PLAIN_STEP", 7)
    seen: list[tuple[int, int]] = []

    def tell(done: int, now: int) -> bool:
        seen.append((now, done))
        return True

    result = run_collective("Ring", "ring", AR, 1 << 20, [0, 5, 0, 0], 4, backend="aware", progress=tell)
    assert seen == sorted(seen)
    assert len(seen) > 10
    assert result.finish_ns.tolist() == whole.finish_ns.tolist()


def test_progress_counts_nodes_and_not_npus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of ten nodes on each of two NPUs: at the end of the chain's first half, ten nodes of twenty are done."""
    traces = []
    for npu in range(2):
        builder = TraceBuilder(rank=npu, npus=2)
        last = None
        for _ in range(10):
            last = builder.compute("work", duration_micros=1, after=[] if last is None else [last])
        traces.append(builder.build())
    monkeypatch.setattr(message_engine, "PLAIN_STEP", 1)
    seen: dict[int, int] = {}

    def tell(done: int, now: int) -> bool:
        seen[now] = done
        return True

    simulate(traces, system("ring"), network("Ring", 2), engine="messages", fold=False, progress=tell)
    assert {now: done for now, done in seen.items() if now in (1_000, 5_000, 9_000)} == {
        1_000: 2,
        5_000: 10,
        9_000: 18,
    }


def test_different_collectives_at_one_place_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members must issue the same collective at the same position, even if no check has seen it before the run."""
    monkeypatch.setattr("chakra.replay.prepare.check_run", lambda *_, **__: None)
    traces = []
    for npu in range(2):
        builder = TraceBuilder(rank=npu)
        builder.collective(AR if npu else AG, size_bytes=1000)
        traces.append(builder.build())
    for engine in ("messages", "phases"):
        with pytest.raises(WorkloadError):
            simulate(traces, system("ring"), network("Ring", 2), engine=engine)


@pytest.mark.parametrize("engine", ["messages", "phases"])
def test_a_barrier_ends_with_its_last_member(engine: str) -> None:
    """A collective that moves nothing ends for all when the last one has issued it."""
    traces = []
    for start in (5, 70, 30):
        builder = TraceBuilder()
        first = builder.compute(duration_ns=start)
        builder.collective(AR, size_bytes=0, after=[first])
        traces.append(builder.build())
    result = simulate(traces, system("ring"), network("Ring", 3), engine=engine)
    assert result.finish_ns.tolist() == [70, 70, 70]
    assert result.raw.instance_ready_ns.tolist() == [70]


def test_several_streams_run_collectives_side_by_side() -> None:
    """With two places for communication, two collectives on separate dimensions take the time of one."""
    builder = TraceBuilder()
    for dim in range(2):
        builder.collective(AR, size_bytes=1 << 20, involved_dim=[dim == 0, dim == 1])
    net = {"topology": ["Ring"] * 2, "npus_count": [2, 2], "bandwidth": [50] * 2, "latency": [500] * 2}
    one, two = (
        simulate(
            [builder.build()] * 4, system(["ring", "ring"]), net, engine="messages", comm_streams=streams
        ).finish_ns[0]
        for streams in (1, 2)
    )
    assert one == 2 * two


def test_blocked_queues_are_relieved() -> None:
    """Unequal starts of a 3-D all-reduce with one queue can lock up; by default every run ends (C13)."""
    made = system(["ring"] * 3, 8, collective_optimization="localBWAware")
    net = {"topology": ["Ring"] * 3, "npus_count": [2] * 3, "bandwidth": [5] * 3, "latency": [100] * 3}
    locked = 0
    for seed in range(40):
        traces = []
        for start in np.random.default_rng(seed).integers(0, 40_000, 8).tolist():
            builder = TraceBuilder()
            first = builder.compute(duration_ns=max(start, 1))
            builder.collective(AR, size_bytes=1 << 17, after=[first])
            traces.append(builder.build())
        result = simulate(traces, made, net, engine="messages")
        assert (result.finish_ns > 0).all()
        locked += any("C13" in note for note in result.raw.notes)
    assert locked > 0


@pytest.mark.parametrize(("engine", "name"), [("phases", "PhaseTables"), ("messages", "MessageTables")])
def test_a_run_gives_its_memory_back(engine: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No circle of references keeps the tables of a run until the collector looks for circles."""
    module = __import__(f"chakra.replay.engines.{engine}.tables", fromlist=[name])
    known: list[weakref.ref[Any]] = []
    made = getattr(module, name).__init__

    def remember(self: Any, *arguments: Any) -> None:
        known.append(weakref.ref(self))
        made(self, *arguments)

    monkeypatch.setattr(getattr(module, name), "__init__", remember)
    builder = TraceBuilder()
    builder.collective(AR, size_bytes=1 << 20)
    gc.disable()
    try:
        simulate([builder.build()] * 4, system("ring"), network("Ring", 4), engine=engine)
        assert [reference() for reference in known] == [None]
    finally:
        gc.enable()


def test_relief_waits_for_the_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of phases whose queues block is done again with its messages, if they are not too many (C13)."""
    made = system(["ring"] * 3, 4, collective_optimization="localBWAware")
    net = {"topology": ["Ring"] * 3, "npus_count": [2] * 3, "bandwidth": [50] * 3, "latency": [500] * 3}
    late, early = TraceBuilder(), TraceBuilder()
    late.collective(AR, size_bytes=1 << 20, after=[late.compute(duration_micros=5)])
    early.collective(AR, size_bytes=1 << 20)
    traces = [late.build()] + [early.build()] * 7
    auto, phases, messages = (
        simulate(traces, made, net, engine=engine) for engine in ("auto", "phases", "messages")
    )
    assert phases.raw.relieved > 0
    assert phases.raw.engine == "phases"
    assert auto.raw.engine == "messages"
    assert "until the last message has arrived (C13)" in auto.raw.notes[0]
    assert auto.finish_ns.tolist() == messages.finish_ns.tolist()
    assert auto.corrections["C13"] == 1
    monkeypatch.setattr("chakra.replay.engines.choice.AGAIN_UP_TO", 0)
    stands = simulate(traces, made, net)
    assert stands.raw.engine == "phases"
    assert stands.finish_ns.tolist() == phases.finish_ns.tolist()
    assert "each queue started one more (C13)" in stands.raw.notes[0]
