"""Collectives that switches carry out: bytes of every link, times, groups, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest
from collective_runs import ENDPOINT, GIBPS, LATENCY, message_ns, network, one, system
from flow_worlds import both
from hypothesis import given, settings
from hypothesis import strategies as st
from in_network_worlds import rows_of_dimension, switched_settings
from replay_strategies import collective_traces, options_of, run, workloads

from chakra.builder import TraceBuilder, Workload
from chakra.errors import ConfigError
from chakra.replay import simulate
from chakra.replay.collectives.in_network import port_bytes
from chakra.replay.collectives.steps import Do
from chakra.replay.config import dump_network, load_network
from chakra.replay.config.model import Switches

KINDS = ("ALL_REDUCE", "REDUCE_SCATTER", "ALL_GATHER")


def able(npus: list[int], can: str = "reduces", **more: Any) -> dict[str, Any]:
    """Switch dimensions whose switches can do something."""
    return {**network(["Switch"] * len(npus), npus, **more), "switches": [can] * len(npus)}


@pytest.mark.parametrize("backend", ["unaware", "aware"])
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_both_engines_agree_to_the_nanosecond_and_the_byte(backend: str, data: st.DataObject) -> None:
    """The phases of classes, and every NPU with every message: random systems, groups, stragglers, other algorithms."""
    setting = data.draw(switched_settings())
    traces = data.draw(workloads(setting))
    chosen = run(setting, traces, backend=backend)
    every = run(setting, traces, engine="messages", backend=backend)
    assert chosen.links == every.links
    for npu in range(setting.npus):
        # the order of what is issued at one ns is that of messages, which only one engine has
        mine, theirs = (
            sorted(zip(*(column.tolist() for column in result.node_ticks(npu)), strict=True))
            for result in (chosen, every)
        )
        assert mine == theirs
    if setting.rendezvous:
        return  # requests of other algorithms are bytes only where they are messages
    for one_dim, same in zip(chosen.dimensions, every.dimensions, strict=True):
        assert one_dim["bytes_per_npu"] == pytest.approx(same["bytes_per_npu"], rel=1e-12)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_closed_forms_of_links_are_those_of_messages(data: st.DataObject) -> None:
    """One collective of all NPUs, one chunk at a time: time, and bytes, busy and waiting time of every link."""
    setting = data.draw(switched_settings())
    alone = replace(setting, system={**setting.system, "active-chunks-per-dimension": 1}, groups={}, queues=1)
    kind = data.draw(st.sampled_from(KINDS)).lower()
    traces = collective_traces(alone, kind, data.draw(st.integers(64, 100_000)))
    chosen = run(alone, traces, backend="aware")
    every = run(alone, traces, backend="aware", engine="messages")
    assert chosen.finish_ns.tolist() == every.finish_ns.tolist()
    assert chosen.links == every.links
    assert chosen.links


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["auto", "messages"])
def test_a_switch_that_stores(kind: str, engine: str) -> None:
    """Aware: what goes up is all there before what comes down leaves, and each link carries its bytes once."""
    n, splits, size = 5, 3, 3_000_000
    result = simulate(
        [one(kind, size)] * n, system(["inNetwork"], splits), able([n]), backend="aware", engine=engine
    )
    up, down = port_bytes(Do[kind], size // splits, n)
    each = 2 * ENDPOINT + message_ns(up) + message_ns(down)
    assert result.finish_ns.tolist() == [splits * each] * n
    links = {(row["from"], row["to"]): row["bytes"] for row in result.links}
    wanted = {(npu, -1): splits * up for npu in range(n)} | {(-1, npu): splits * down for npu in range(n)}
    assert links == wanted


def test_results_leave_a_switch_when_it_has_all() -> None:
    """A message to somebody else holds one member's link up: all members wait for what comes behind it."""
    workload, big, size = Workload(4), 1 << 22, 1 << 20
    group = workload.add_group([0, 2, 3])
    for rank in range(4):
        builder = workload.builder(rank)
        if rank == 0:
            builder.send(1, size_bytes=big, tag=1)
        if rank == 1:
            builder.recv(0, size_bytes=big, tag=1)
        else:
            builder.collective("REDUCE_SCATTER", size_bytes=size, group=group)
    result = simulate(workload, system(["inNetwork"]), able([4]), backend="aware", comm_streams=2)
    released = message_ns(big) - LATENCY
    ends = released + message_ns(size) + message_ns(-(-size // 3)) + ENDPOINT
    assert result.collectives[0]["end_ns"] == ends


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_flows_of_classes_are_those_of_all_npus(data: st.DataObject) -> None:
    """Folded and not: equal ends of all nodes, bytes and links, for random systems, groups and workloads."""
    setting = data.draw(switched_settings())
    both(
        data.draw(workloads(setting)),
        setting.system,
        setting.network,
        **options_of(setting),
    )


@given(st.sampled_from(KINDS), st.integers(2, 9), st.integers(1, 1 << 26), st.integers(0, 2000))
@settings(max_examples=60, deadline=None)
def test_flows_take_the_time_of_the_closed_form(kind: str, n: int, size: int, latency: int) -> None:
    """Flows that nobody disturbs: the time of unaware up to the rounding of one tick, every link its bytes."""
    net = able([n], latency=[latency])
    folded, _ = both([one(kind, size)] * n, system(["inNetwork"]), net)
    free = simulate([one(kind, size)] * n, system(["inNetwork"]), net)
    assert 0 <= int(folded.finish_ns.max()) - int(free.finish_ns.max()) <= 1
    assert len(set(folded.finish_ns.tolist())) == 1
    assert folded.raw.partition.n_classes == 1
    up, down = port_bytes(Do[kind], size, n)
    links = {(row["from"], row["to"]): row["bytes"] for row in folded.links}
    assert links == {(npu, -1): up for npu in range(n)} | {(-1, npu): down for npu in range(n)}
    assert folded.dimensions[0]["bytes_per_npu"] == free.dimensions[0]["bytes_per_npu"] == up


def test_flows_of_others_share_the_links_to_a_switch() -> None:
    """A message of the same size goes up beside one member's part: at half the rate both, and all wait for it."""
    workload, size = Workload(4), 1 << 26
    group = workload.add_group([0, 2, 3])
    for rank in range(4):
        builder = workload.builder(rank)
        if rank == 0:
            builder.send(1, size_bytes=size, tag=1)
        if rank == 1:
            builder.recv(0, size_bytes=size, tag=1)
        else:
            builder.collective("ALL_REDUCE", size_bytes=size, group=group)
    result = simulate(workload, system(["inNetwork"]), able([4]), backend="flow", comm_streams=2)
    shared = 2 * size / (GIBPS * (1 << 30) / 1e9) - ENDPOINT  # the message had the link for itself before
    assert result.collectives[0]["end_ns"] == pytest.approx(
        shared + 3 * ENDPOINT + 2 * LATENCY, abs=2 * ENDPOINT
    )
    up = next(row for row in result.links if (row["from"], row["to"]) == (0, -1))
    assert up["bytes"] == 2 * size


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimization", ["baseline", "localBWAware"])
def test_dimensions_add_up(kind: str, optimization: str) -> None:
    """Two dimensions, one chunk: the sum of the phases' closed forms, and what enters each is what the last left."""
    shape, size = [4, 3], 12_000_000
    result = simulate(
        [one(kind, size)] * 12,
        system(["inNetwork"] * 2, collective_optimization=optimization),
        able(shape),
    )
    phases: list[tuple[int, Do, int]] = [(0, Do.ALL_REDUCE, size), (1, Do.ALL_REDUCE, size)]
    if kind == "REDUCE_SCATTER":
        phases = [(0, Do.REDUCE_SCATTER, size), (1, Do.REDUCE_SCATTER, size // 4)]
    elif kind == "ALL_GATHER":
        phases = [(1, Do.ALL_GATHER, size), (0, Do.ALL_GATHER, 3 * size)]
    elif optimization == "localBWAware":
        phases = [(0, Do.REDUCE_SCATTER, size), (1, Do.ALL_REDUCE, size // 4), (0, Do.ALL_GATHER, size // 4)]
    time, sent = 0, [0, 0]
    for dim, do, entering in phases:
        up, down = port_bytes(do, entering, shape[dim])
        time += 2 * ENDPOINT + message_ns(max(up, down), 2)
        sent[dim] += up
    assert result.finish_ns.tolist() == [time] * 12
    assert [dim["switches"] for dim in result.to_dict()["inputs"]["network"]["dims"]] == ["reduces"] * 2
    assert [row["bytes_per_npu"] for row in result.dimensions] == sent


@given(st.sampled_from(list(Do)[:3]), st.integers(0, 1 << 40), st.integers(2, 4096))
def test_ports_carry_every_byte_of_the_collective(do: Do, size: int, n: int) -> None:
    """What members bring in and what they must hold at the end: no byte less, and a rounded up block at most more."""
    up, down = port_bytes(do, size, n)
    assert up == size
    result = {Do.ALL_REDUCE: size * n, Do.REDUCE_SCATTER: size, Do.ALL_GATHER: size * n * n}[do]
    assert result <= down * n < result + n


def test_all_wait_for_the_last_one() -> None:
    traces = []
    for rank in range(4):
        builder = TraceBuilder(rank)
        last = builder.compute(duration_ns=10_000 * rank)
        builder.collective("ALL_REDUCE", size_bytes=1 << 20, after=[last])
        traces.append(builder.build())
    for engine in ("auto", "messages"):
        result = simulate(traces, system(["inNetwork"]), able([4]), engine=engine)
        assert result.finish_ns.tolist() == [30_000 + 2 * ENDPOINT + message_ns(1 << 20, 2)] * 4


@pytest.mark.parametrize("engine", ["auto", "messages"])
def test_groups_use_the_switch_that_joins_them(engine: str) -> None:
    """Groups of equal size along both dimensions: each takes the time of its own dimension's links."""
    shape, speeds, latencies, size = [4, 4], [200.0, 25.0], [100.0, 900.0], 1 << 22
    workload = Workload(16)
    groups = [[workload.add_group(row) for row in rows_of_dimension(shape, dim)] for dim in (0, 1)]
    for rank in range(16):
        builder = workload.builder(rank)
        last = builder.collective("ALL_REDUCE", size_bytes=size, group=groups[0][rank // 4])
        builder.collective("ALL_REDUCE", size_bytes=size, group=groups[1][rank % 4], after=[last])
    result = simulate(
        workload, system(["inNetwork"]), able(shape, gibps=speeds, latency=latencies), engine=engine
    )
    near, far = (
        2 * ENDPOINT + int(2 * late + size / (gibps * (1 << 30) / 1e9))
        for gibps, late in zip(speeds, latencies, strict=True)
    )
    assert result.finish_ns.tolist() == [near + far] * 16
    assert [row["bytes_per_npu"] for row in result.dimensions] == [size, size]


def test_the_bound_is_that_of_a_switch() -> None:
    """Each NPU sends its data once: `ring` must send 2(n - 1)/n of them, and does not go below its bound either."""
    size = 1 << 26
    for n in (2, 3, 8):
        for name, factor in (("inNetwork", 1.0), ("ring", 2 * (n - 1) / n)):
            result = simulate([one("ALL_REDUCE", size)] * n, system([name]), able([n]))
            row = result.collectives[0]
            assert row["bound_ns"] == pytest.approx(factor * size / (GIBPS * (1 << 30) / 1e9))
            assert row["bound_ns"] <= row["transfer_ns"]
            assert row["algorithm"] == name


def test_barriers_move_nothing() -> None:
    for engine in ("auto", "messages"):
        result = simulate([one("BARRIER", 0)] * 4, system(["inNetwork"]), able([4]), engine=engine)
        assert result.finish_ns.tolist() == [2 * ENDPOINT + 2 * LATENCY] * 4
        assert result.dimensions[0]["bytes_per_npu"] == 0


def test_multicast_is_enough_for_an_all_gather_only() -> None:
    traces = {kind: [one(kind, 4096)] * 4 for kind in KINDS}
    assert simulate(traces["ALL_GATHER"], system(["inNetwork"]), able([4], "multicasts")).finish_ns.max()
    for kind in KINDS[:2]:
        with pytest.raises(ConfigError, match=rf"needs switches that reduce for {kind}.*'multicasts'"):
            simulate(traces[kind], system(["inNetwork"]), able([4], "multicasts"))
    with pytest.raises(
        ConfigError, match=r"needs switches that multicast for ALL_GATHER.*'plain'.*\(multicasts\)"
    ):
        simulate(traces["ALL_GATHER"], system(["inNetwork"]), network(["Switch"], [4]))


def refused(words: str, kind: str = "ALL_REDUCE", npus: int = 4, **more: Any) -> None:
    made = {"system": system(["inNetwork"]), "network": able([npus]), **more}
    traces = made.pop("traces", [one(kind, 4096)] * npus)
    with pytest.raises(ConfigError, match=words) as told:
        simulate(traces, made.pop("system"), made.pop("network"), **made)
    assert "\n" not in str(told.value)


def test_what_no_switch_can_do_is_refused() -> None:
    refused(r"'inNetwork' cannot run ALL_TO_ALL", "ALL_TO_ALL")
    for topology in ("Ring", "FullyConnected"):
        refused(
            f"dimension 0 of <network> is a {topology}, which has no switches",
            network=network([topology], [4]),
        )
    bus = {**system(["inNetwork"]), "model-shared-bus": 1, "L": 1, "o": 1, "g": 1, "G": 0.1}
    refused("not modelled together with the shared memory bus", system=bus)
    greedy = {**system(["inNetwork"] * 2), "inter-dimension-scheduling": "themis"}
    refused("weighs dimensions by what NPUs send", system=greedy, network=able([2, 2]))
    star = {"npus_count": [4], "links": [[k, "s", 50, 500] for k in range(4)], "switches": "reduces"}
    for backend in ("unaware", "aware"):
        refused("given link by link.*--backend flow", network=star, backend=backend)
    refused("those of <network> are 'plain'", network={**star, "switches": "plain"}, backend="flow")
    refused("which is not an algorithm", compat="astra-sim")
    refused("which is not an algorithm", system=system(["oneInNetwork"]))


def test_unequal_shares_are_refused() -> None:
    workload = Workload(2)
    for rank in range(2):
        workload.builder(rank).collective(
            "ALL_GATHER", size_bytes=(1 << 20) * (rank + 1), out_split_bytes=[1 << 20, 2 << 20]
        )
    refused("cannot run an ALL_GATHER of unequal shares", npus=2, traces=workload)


def test_a_group_that_no_switch_joins_is_refused_by_name() -> None:
    workload = Workload(4)
    groups = [workload.add_group([0, 3]), workload.add_group([1, 2])]
    for rank in range(4):
        group = groups[rank in (1, 2)]
        workload.builder(rank).collective("ALL_REDUCE", size_bytes=4096, group=group)
    refused(r"ranks 0, 3\)?: no switch joins its members", traces=workload, network=able([2, 2]))
    result = simulate(workload, system(["inNetwork", "inNetwork"]), able([2, 2]))
    assert result.collectives[0]["algorithm"] == "oneRing"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["reduces", "plain"], "'switches' has 2 entries, but 'topology' has 1"),
        ([], "'switches' has 0 entries"),
        (["sharp"], "'switches' entry 0 must be one of plain, multicasts, reduces"),
        ("reduces", "'switches' must be a list"),
    ],
)
def test_what_switches_do_is_one_word_for_each_dimension(said: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_network({**network(["Switch"], [4]), "switches": said})


def test_only_a_switch_has_switches() -> None:
    with pytest.raises(ConfigError, match="says 'reduces' of dimension 1, a Ring, which has no switches"):
        load_network({**network(["Switch", "Ring"], [4, 2]), "switches": ["plain", "reduces"]})


def test_network_files_keep_what_switches_do(tmp_path: Any) -> None:
    loaded = load_network({**network(["Switch", "Ring"], [4, 2]), "switches": ["multicasts", "plain"]})
    assert [dim.switches for dim in loaded.dims] == [Switches.MULTICASTS, Switches.PLAIN]
    path = tmp_path / "network.yml"
    path.write_text(dump_network(loaded))
    assert load_network(path).dims == loaded.dims
    assert "switches" not in dump_network(load_network(network(["Switch"], [4])))
    ignored = load_network({**network(["Ring"], [4]), "switches": ["reduces"]}, compat="astra-sim")
    assert ignored.dims[0].switches is Switches.PLAIN
