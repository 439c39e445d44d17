"""Books of bytes: the same from both engines and in closed form, and as many bytes as the algorithms send."""

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_strategies import Setting, collective_traces, run, settings_of_systems, workloads

from chakra.builder import TraceBuilder, Workload
from chakra.replay import ReplayResult, simulate


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_both_engines_book_the_same_bytes(data: st.DataObject) -> None:
    setting = data.draw(settings_of_systems())
    traces = data.draw(workloads(setting))
    chosen, every = run(setting, traces), run(setting, traces, engine="messages")
    for mine, theirs in zip(chosen.dimensions, every.dimensions, strict=True):
        assert mine["bytes_per_npu"] == pytest.approx(theirs["bytes_per_npu"], rel=1e-12)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_sent_does_not_depend_on_congestion(data: st.DataObject) -> None:
    """Which collectives there were, how often, by which algorithm, and bytes by dimension: times alone differ."""
    setting = data.draw(settings_of_systems())
    traces = data.draw(workloads(setting))
    free, shared = (run(setting, traces, backend=backend) for backend in ("unaware", "aware"))
    told = ("kind", "group", "members", "size_bytes", "count", "algorithm")
    books = []
    for result in (free, shared):
        totals: dict[tuple[str, ...], int] = {}
        for row in result.collectives:
            key = tuple(str(row.get(name)) for name in told if name != "count")
            totals[key] = totals.get(key, 0) + row["count"]
        books.append(totals)
    assert books[0] == books[1]
    for mine, theirs in zip(free.dimensions, shared.dimensions, strict=True):
        assert mine["bytes_per_npu"] == pytest.approx(theirs["bytes_per_npu"], rel=1e-12)
    for result in (free, shared):
        assert np.sum(list(result.account.values()), axis=0).tolist() == result.finish_ns.tolist()


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_links_do_not_depend_on_the_engine(data: st.DataObject) -> None:
    setting = data.draw(settings_of_systems())
    kind = data.draw(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]))
    single = {**setting.system, "active-chunks-per-dimension": 1}
    alone = Setting(setting.network, single, setting.memory)
    traces = collective_traces(alone, kind, data.draw(st.integers(64, 100_000)))
    chosen = run(alone, traces, backend="aware")
    every = run(alone, traces, backend="aware", engine="messages")
    assert chosen.finish_ns.tolist() == every.finish_ns.tolist()
    assert chosen.links == every.links
    assert chosen.links


@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_a_group_across_nodes_is_booked_where_it_sends(backend: str) -> None:
    """Eight pairs {k, k + 8} on two nodes of eight: nothing inside the nodes, 64 MiB an NPU between them."""
    workload = Workload(16)
    pairs = [workload.add_group([k, k + 8]) for k in range(8)]
    for rank in range(16):
        workload.builder(rank).collective("all_reduce", size_bytes=1 << 26, group=pairs[rank % 8])
    network = {
        "topology": ["Switch", "Switch"], "npus_count": [8, 2], "bandwidth": [300, 25], "latency": [500, 2000]
    }  # fmt: skip
    result = simulate(workload, {"all-reduce-implementation": ["ring", "ring"]}, network, backend=backend)
    assert [row["bytes_per_npu"] for row in result.dimensions] == [0, 1 << 26]


@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_a_flat_ring_is_booked_on_the_dimensions_that_it_crosses(backend: str) -> None:
    """oneRing on 4 x 2: all 8 edges of the ring cross dimension 0, two of them dimension 1 as well."""
    builder = TraceBuilder()
    builder.collective("all_reduce", size_bytes=1 << 20)
    network = {
        "topology": ["Ring", "Ring"],
        "npus_count": [4, 2],
        "bandwidth": [50, 50],
        "latency": [500, 500],
    }
    result = simulate(
        [builder.build()] * 8, {"all-reduce-implementation": ["oneRing"]}, network, backend=backend
    )
    edge = 14 * (1 << 17)
    assert [row["bytes_per_npu"] * 8 for row in result.dimensions] == [8 * edge, 2 * edge]


@pytest.mark.parametrize("late_ns", [0, 1])
@pytest.mark.parametrize("options", [{}, {"fold": False}, {"engine": "messages"}])
def test_links_hold_what_a_ring_sends(late_ns: int, options: dict[str, Any]) -> None:
    traces = []
    for rank in range(4):
        builder = TraceBuilder(rank, 4)
        start = builder.compute("w", duration_ns=10 + late_ns * (rank == 3))
        builder.collective("all_reduce", size_bytes=1 << 20, after=start)
        traces.append(builder.build())
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    system = {"all-reduce-implementation": ["ring"]}
    links = simulate(traces, system, network, backend="aware", **options).records("links")
    assert [(row["from"], row["to"], row["bytes"]) for row in links] == [
        (rank, (rank + 1) % 4, 6 << 18) for rank in range(4)
    ]


@pytest.mark.parametrize(
    "name", ["bruck", "rabenseifner", "recursiveDoubling", "pipelinedTree", "binomialTree"]
)
@pytest.mark.parametrize("size", [3, 4, 5])
def test_tables_of_steps_of_groups_are_booked_message_by_message(name: str, size: int) -> None:
    """A group that crosses both dimensions: the books of both engines agree, to what integer division leaves."""
    ranks = [0, 3, 5, 6, 7][:size]
    traces = []
    for rank in range(8):
        builder = TraceBuilder(rank, 8)
        builder.compute("w", duration_ns=1)
        if rank in ranks:
            builder.collective("all_reduce", size_bytes=100_003, group="g")
        traces.append(builder.build())
    network = {
        "topology": ["Ring", "Switch"],
        "npus_count": [4, 2],
        "bandwidth": [50, 20],
        "latency": [5, 50],
    }
    system = {"all-reduce-implementation": [name]}
    chosen, every = (
        simulate(traces, system, network, comm_groups={"g": ranks}, engine=engine).dimensions
        for engine in ("phases", "messages")
    )
    for mine, theirs in zip(chosen, every, strict=True):
        assert mine["bytes_per_npu"] == pytest.approx(theirs["bytes_per_npu"], abs=1)
        assert theirs["bytes_per_npu"] > 0


LIBRARY = {"collective-library": "nccl", "collective-costs": "hgx-h100"}
GROUPS: dict[str, list[list[int]]] = {
    "all": [list(range(16))],
    "nodes": [list(range(8)), list(range(8, 16))],
    "rails": [[k, k + 8] for k in range(8)],
    "quarters": [[k, k + 4, k + 8, k + 12] for k in range(4)],
}


def library_run(
    kind: str,
    groups: list[list[int]],
    size: int,
    backend: str,
    *,
    engine: Literal["auto", "messages"] = "auto",
    **more: Any,
) -> ReplayResult:
    workload = Workload(16)
    for members in groups:
        group = workload.add_group(members)
        for rank in members:
            workload.builder(rank).collective(kind, size_bytes=size, group=group)
    network = {
        "topology": ["Switch", "Switch"], "npus_count": [8, 2], "bandwidth": [400, 46], "latency": [500, 2000]
    }  # fmt: skip
    return simulate(workload, {**LIBRARY, **more}, network, backend=backend, engine=engine)


@pytest.mark.parametrize("groups", list(GROUPS))
@pytest.mark.parametrize("size", [1 << 12, 12_345, 1 << 24])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_a_librarys_bytes_are_booked_alike_on_every_backend(kind: str, size: int, groups: str) -> None:
    """An all-to-all was booked as a ring's on `unaware`, in one dimension on `flow`, and nowhere with
    `engine="messages"`.
    """
    found = [
        [row["bytes_per_npu"] for row in library_run(kind, GROUPS[groups], size, backend).dimensions]
        for backend in ("unaware", "aware", "flow")
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-3, abs=16)
    assert found[1] == found[2]
    every = library_run(kind, GROUPS[groups], size, "unaware", engine="messages").dimensions
    assert [row["bytes_per_npu"] for row in every] == found[0]


@pytest.mark.parametrize("groups", list(GROUPS))
def test_an_all_to_all_sends_its_blocks_where_its_members_are(groups: str) -> None:
    """Every pair of members exchanges size / n; a block crosses each dimension in which its ends differ."""
    size = 1 << 24
    wanted = [0.0, 0.0]
    for members in GROUPS[groups]:
        block = size / len(members)
        for a in members:
            wanted[0] += sum(block for b in members if a % 8 != b % 8) / 16
            wanted[1] += sum(block for b in members if a // 8 != b // 8) / 16
    for backend in ("unaware", "aware", "flow"):
        found = library_run("all_to_all", GROUPS[groups], size, backend).dimensions
        assert [row["bytes_per_npu"] for row in found] == pytest.approx(wanted, rel=1e-6), backend


@pytest.mark.parametrize("algorithm", ["oneDirect", "oneRing"])
def test_flows_cross_every_dimension_in_which_their_ends_differ(algorithm: str) -> None:
    builder = TraceBuilder()
    builder.collective("all_to_all", size_bytes=1 << 20)
    network = {
        "topology": ["Switch", "Switch"], "npus_count": [4, 2], "bandwidth": [50, 50], "latency": [500, 500]
    }  # fmt: skip
    runs = [
        simulate([builder.build()] * 8, {"all-to-all-implementation": [algorithm]}, network, backend=backend)
        for backend in ("unaware", "flow")
    ]
    mine, theirs = ([row["bytes_per_npu"] for row in run.dimensions] for run in runs)
    assert mine == theirs
    assert min(mine) > 0


@pytest.mark.parametrize(
    ("kind", "groups", "size", "forced", "ran"),
    [
        ("all_reduce", "nodes", 1 << 26, {}, "NVLS"),
        ("all_reduce", "all", 1 << 26, {}, "NVLSTree"),
        (
            "all_reduce",
            "all",
            1 << 26,
            {"collective-algorithm": "Tree", "collective-protocol": "LL128"},
            "Tree",
        ),
        ("all_gather", "nodes", 1 << 20, {"collective-channels": 2}, "Ring"),
        ("all_to_all", "all", 1 << 20, {}, "SendRecv"),
    ],
)
@pytest.mark.parametrize("backend", ["unaware", "flow"])
def test_rows_say_what_the_library_ran(
    kind: str, groups: str, size: int, forced: dict[str, Any], ran: str, backend: str
) -> None:
    rows = library_run(kind, GROUPS[groups], size, backend, **forced).collectives
    assert {row["library_algorithm"] for row in rows} == {ran}
    assert {row["library_protocol"] for row in rows} <= {forced.get("collective-protocol")} or not forced.get(
        "collective-protocol"
    )
    for row in rows:
        assert row["library_protocol"] in ("LL", "LL128", "Simple")
        assert 1 <= row["library_channels"] <= forced.get("collective-channels", 64)


def test_rows_of_plain_algorithms_and_barriers_name_no_library() -> None:
    builder = TraceBuilder()
    builder.collective("all_reduce", size_bytes=1 << 20)
    ring = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    plain = simulate([builder.build()] * 4, {"all-reduce-implementation": ["ring"]}, ring)
    assert plain.collectives
    assert all("library_algorithm" not in row for row in plain.collectives)
    barrier = Workload(8)
    barrier.run(lambda b: b.collective("barrier", size_bytes=0))
    network = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [400], "latency": [500]}
    assert all("library_algorithm" not in row for row in simulate(barrier, LIBRARY, network).collectives)


def fat_tree(groups: bool) -> tuple[ReplayResult, ReplayResult]:
    """Eight machines of eight, 450 GB/s inside and 50 GB/s out of each NPU: given link by link, and as dimensions."""
    workload = Workload(64)
    pairs = [workload.add_group([k, k + 8]) for k in range(8)]
    for rank in range(64):
        if not groups:
            workload.builder(rank).collective("all_reduce", size_bytes=1 << 26)
        elif rank < 16:
            workload.builder(rank).collective("all_reduce", size_bytes=1 << 26, group=pairs[rank % 8])
        else:
            workload.builder(rank).compute(duration_micros=1)
    fast, slow = 450e9 / (1 << 30), 50e9 / (1 << 30)
    links = [[rank, f"nvlink{rank // 8}", fast, 100.0] for rank in range(64)]
    links += [[rank, "leaf", slow, 500.0] for rank in range(64)]
    listed = {"npus_count": [8, 8], "links": links, "routing": "latency"}
    dims = {
        "topology": ["Switch", "Switch"], "npus_count": [8, 8], "bandwidth": [fast, slow], "latency": [200.0, 1000.0],
    }  # fmt: skip
    system = {"all-reduce-implementation": ["ring", "ring"]}
    one, other = (simulate(workload, system, network, backend="flow") for network in (listed, dims))
    return one, other


@pytest.mark.parametrize("groups", [False, True])
def test_a_list_of_links_says_what_messages_cross(groups: bool) -> None:
    """Not the sum of a NVLink and a NIC: all is as of the same machine given as dimensions."""
    listed, dims = fat_tree(groups)
    for mine, theirs in zip(listed.dimensions, dims.dimensions, strict=True):
        for key in ("bandwidth_gibps", "bytes_per_npu"):
            assert mine[key] == pytest.approx(theirs[key])
        # two links of a way, one hop over a switch
        assert mine["latency_ns"] == theirs["latency_ns"]
    mine, theirs = listed.collectives[0], dims.collectives[0]
    assert mine["bound_ns"] == pytest.approx(theirs["bound_ns"])
    # the eight ports of a machine, or one of them
    rate = 50 if groups else 8 * 50
    parts = 2 if groups else 8
    assert mine["bound_ns"] == pytest.approx(2 * (parts - 1) / parts * (1 << 26) / rate)
    if groups:
        assert mine["transfer_ns"] >= mine["bound_ns"]
        span = int(listed.finish_ns.max())
        assert listed.dimensions[0]["utilisation"] == 0
        assert listed.dimensions[1]["utilisation"] == pytest.approx(16 / 64 * (1 << 26) / 50 / span, rel=1e-6)


def test_egress_of_lists_of_links_counts_every_link_that_routes_begin_with() -> None:
    """A ring of links has two ways out of an NPU, a full mesh one to each other NPU, a star one."""
    shapes: dict[str, tuple[list[list[Any]], float]] = {
        "ring": ([[k, (k + 1) % 5, 10.0, 100.0] for k in range(5)], 20.0),
        "mesh": ([[a, b, 10.0, 100.0] for a in range(5) for b in range(a)], 40.0),
        "star": ([[k, "s", 10.0, 100.0] for k in range(5)], 10.0),
        "slow": ([[k, "s", 10.0 if k else 4.0, 100.0] for k in range(5)], 4.0),
    }
    builder = TraceBuilder()
    builder.collective("all_reduce", size_bytes=1 << 20)
    for links, least in shapes.values():
        result = simulate(
            [builder.build()] * 5,
            {"all-reduce-implementation": ["ring"]},
            {"npus_count": [5], "links": links},
            backend="aware",
        )
        assert result.dimensions[0]["bandwidth_gibps"] == pytest.approx(least)
