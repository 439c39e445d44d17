"""A library's collectives where messages share links: as long as the library says alone, slower beside others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chakra_example.constant_delay import ConstantDelay

from chakra.builder import TraceBuilder, Workload
from chakra.platforms import cluster, collective_parameters
from chakra.replay import ReplayResult, simulate
from chakra.replay.collectives.library import (
    Algorithm,
    Choice,
    Communicator,
    Protocol,
    library_time,
    link_bytes,
)
from chakra.replay.collectives.library.messages import SEGMENTS, WINDOW, lanes
from chakra.replay.config.model import CollectiveKind as Kind
from chakra.replay.engines.messages import engine

MIB = 1 << 20
H100 = collective_parameters("hgx-h100")
SYSTEM = {"collective-library": "nccl", "collective-costs": "hgx-h100", "endpoint-delay": 10} | {
    f"{kind}-implementation": ["ring"]
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
}


def network(*npus: int) -> dict[str, Any]:
    """NVLink inside a node, a port for each NPU between nodes, as the preset has them."""
    return {
        "topology": ["Switch"] * len(npus), "npus_count": list(npus),
        "bandwidth": [419.095159, 46.566129][: len(npus)], "latency": [936.25, 1000.0][: len(npus)],
    }  # fmt: skip


def strided(npus: int, size: int, stride: int) -> list[list[int]]:
    """All NPUs, in groups of neighbours `stride` apart."""
    grid = np.arange(npus).reshape(-1, size, stride)
    return [grid[i, :, j].tolist() for i in range(len(grid)) for j in range(stride)]


def grouped(workload: Workload, groups: list[list[int]]) -> dict[int, str]:
    """Add groups; the name of each rank's."""
    names = [workload.add_group(ranks) for ranks in groups]
    return {rank: name for ranks, name in zip(groups, names, strict=True) for rank in ranks}


def collectives(
    folder: Path, npus: int, calls: list[tuple[str, int]], groups: list[list[int]] | None = None
) -> Path:
    """Every NPU runs some collectives one after the other, after computing for one, two or three us."""
    workload = Workload(npus)
    of = grouped(workload, groups or [])

    def program(b: TraceBuilder) -> None:
        last: Any = b.compute("f", duration_micros=1 + b.rank % 3)
        for kind, size in calls:
            last = b.collective(kind, size_bytes=size, group=of.get(b.rank), after=last)

    workload.run(program)
    workload.write(folder / "w")
    return folder / "w"


def run(folder: Path, net: Any, system: dict[str, Any] | None = None, **options: Any) -> ReplayResult:
    groups = folder / "w.groups.json"
    return simulate(
        folder / "w", system or SYSTEM, net, comm_groups=groups if groups.exists() else None, **options
    )


def times(result: ReplayResult) -> list[int]:
    return [row["transfer_ns"] for row in result.to_dict()["collectives"]]


def kinds(result: ReplayResult) -> set[tuple[str, int, int]]:
    """Times by kind and size; a folded run lists a class of communicators once."""
    rows = result.to_dict()["collectives"]
    return {(row["kind"], row["bytes"], row["transfer_ns"]) for row in rows}


SIZES = (1, 1000, 64 << 10, 3 * MIB, 200 * MIB)
KINDS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
)


@pytest.mark.parametrize("groups", [None, (8, 1), (4, 8), (8, 4), (3, 1)])
def test_alone_a_collective_takes_the_library_s_time_on_every_network(
    tmp_path: Path, groups: tuple[int, int] | None
) -> None:
    """To the ns: the messages are timed alone, with the same code, and the rest of the time is the delay."""
    npus, net = (32, network(8, 4)) if groups != (3, 1) else (9, network(3, 3))
    rows = strided(npus, *groups) if groups else None
    collectives(tmp_path, npus, [(kind, size) for kind in KINDS for size in SIZES] + [("barrier", 0)], rows)
    free = run(tmp_path, net)
    shared = run(tmp_path, net, backend="aware")
    assert free.raw.engine == "phases"
    assert shared.raw.engine == "messages"
    assert kinds(free) == kinds(shared)
    assert np.array_equal(free.finish_ns, shared.finish_ns)
    assert not any("longer than the library" in note for note in shared.notes)


@pytest.mark.parametrize("algorithm", ["Ring", "Tree", "NVLSTree", "PAT"])
def test_so_does_every_algorithm(tmp_path: Path, algorithm: str) -> None:
    kind = "all_gather" if algorithm == "PAT" else "all_reduce"
    rows = strided(32, 4, 8) if algorithm == "PAT" else None
    collectives(tmp_path, 32, [(kind, size) for size in SIZES], rows)
    machine = {**SYSTEM, "collective-algorithm": algorithm, "node-ports": 4}
    free = run(tmp_path, network(8, 4), machine)
    assert kinds(free) == kinds(run(tmp_path, network(8, 4), machine, backend="aware"))


@pytest.mark.parametrize("stride", [1, 2])
def test_messages_of_every_npu_are_not_needed_for_it(tmp_path: Path, stride: int) -> None:
    """Every message simulated, on a network where none meets another: the same times, without any message."""
    collectives(tmp_path, 32, [(kind, 3 * MIB) for kind in KINDS], strided(32, 4, stride))
    free, single = run(tmp_path, network(8, 4)), run(tmp_path, network(8, 4), engine="messages")
    assert single.raw.engine == "messages"
    assert np.array_equal(free.finish_ns, single.finish_ns)
    assert kinds(free) == kinds(single)


def test_beside_a_memory_server_the_library_s_time_holds(tmp_path: Path) -> None:
    """A server that all share has every message simulated."""
    workload = Workload(8)

    def program(b: TraceBuilder) -> None:
        last = b.load(1000)
        b.collective("all_reduce", size_bytes=3 * MIB, after=last)

    workload.run(program)
    workload.write(tmp_path / "w")
    memory = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 100, "remote-mem-bw": 1}
    result = simulate(tmp_path / "w", SYSTEM, network(8), memory=memory)
    assert result.raw.engine == "messages"
    assert times(result) == [library_time(Kind.ALL_REDUCE, 3 * MIB, Communicator(8, 8), H100).time_ns]


# --- sharing --------------------------------------------------------------------------------------------------------

LATENCY_NS = 1000


GIBPS = 350.0


def two_pairs() -> dict[str, Any]:
    """NPUs 0 and 1 on one switch, 2 and 3 on another, and one link between the switches."""
    ends = [[0, "a"], [1, "a"], [2, "b"], [3, "b"], ["a", "b"]]
    return {"npus_count": [4], "links": ends, "bandwidth": GIBPS, "latency": float(LATENCY_NS)}


def test_two_that_start_together_take_twice_the_link_s_time(tmp_path: Path) -> None:
    """The closed form to the ns. Segments of two pairs of NPUs take turns on the link between the switches.

    An all-reduce of two ranks sends S each way, in k segments of serial time t. Alone that takes three latencies and
    k + 2 segments on its three links; beside the other, the middle link serves 2 k segments, and the last of one leaves
    it one segment before that of the other.
    """
    size, workload = 64 * MIB, Workload(4)
    of = grouped(workload, [[0, 2], [1, 3]])
    workload.run(lambda b: b.collective("all_reduce", size_bytes=size, group=of[b.rank]))
    workload.write(tmp_path / "w")
    result = simulate(
        tmp_path / "w", SYSTEM, two_pairs(), comm_groups=tmp_path / "w.groups.json", backend="aware"
    )
    transfer = size // SEGMENTS / (GIBPS * 2**30 / 1e9)
    serial, total = int(transfer), int(LATENCY_NS + transfer)
    library = library_time(Kind.ALL_REDUCE, size, Communicator(2, 2), H100).time_ns
    delay = library - (3 * total + (SEGMENTS - 1) * serial)
    assert sorted(times(result)) == [
        delay + 3 * total + (2 * SEGMENTS - 2) * serial,
        delay + 3 * total + (2 * SEGMENTS - 1) * serial,
    ]


def test_two_collectives_of_the_same_npus_share_their_links(tmp_path: Path) -> None:
    workload = Workload(8)

    def program(b: TraceBuilder) -> None:
        for _ in range(2):
            b.collective("all_reduce", size_bytes=256 * MIB)

    workload.run(program)
    workload.write(tmp_path / "w")
    machine = {**SYSTEM, "active-chunks-per-dimension": 2}
    one = times(run(tmp_path, network(8), machine, backend="aware"))[0]
    two = times(run(tmp_path, network(8), machine, backend="aware", comm_streams=2))
    crossing = 256 * MIB / (419.095159 * 2**30 / 1e9)
    assert one == library_time(Kind.ALL_REDUCE, 256 * MIB, Communicator(8, 8), H100).time_ns
    # the links carry twice the bytes until the last segment has passed; the other ends a window of segments before
    assert max(two) == pytest.approx(one + crossing, abs=70)
    assert max(two) - WINDOW / SEGMENTS * crossing < min(two) < max(two)


def test_where_the_links_are_slower_than_the_library_they_decide_and_a_note_says_so(tmp_path: Path) -> None:
    collectives(tmp_path, 8, [("all_reduce", 64 * MIB)])
    slow = {**network(8), "bandwidth": [50.0]}
    result = run(tmp_path, slow, backend="aware")
    free = library_time(Kind.ALL_REDUCE, 64 * MIB, Communicator(8, 8), H100).time_ns
    assert times(result)[0] > 2 * free
    assert any("links of this network need longer than the library for 1 of 1" in n for n in result.notes)


def test_with_rendezvous_alone_it_takes_the_library_s_time(tmp_path: Path) -> None:
    collectives(tmp_path, 8, [(kind, size) for kind in KINDS for size in SIZES[1:]])
    free = run(tmp_path, network(8))
    shared = run(tmp_path, network(8), backend="aware", rendezvous=True)
    assert kinds(free) == kinds(shared)


# --- dimensions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dims", "size", "stride"),
    [([True, False, False], 4, 1), ([False, True, False], 2, 4), ([True, True, False], 8, 1),
     ([False, False, True], 4, 8), ([True, False, True], None, None)],
)  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"fold": False}, {"backend": "aware"}])
def test_a_collective_of_some_dimensions_is_that_of_the_groups_which_they_make(
    tmp_path: Path, dims: list[bool], size: int | None, stride: int | None, options: dict[str, Any]
) -> None:
    net = {
        "topology": ["Switch"] * 3, "npus_count": [4, 2, 4], "bandwidth": [400.0, 400.0, 46.566129],
        "latency": [900.0, 900.0, 1000.0],
    }  # fmt: skip
    workload = Workload(32)
    workload.run(lambda b: b.collective("all_reduce", size_bytes=3 * MIB, involved_dim=dims))
    workload.write(tmp_path / "w")
    rows = strided(32, size, stride) if size and stride else None
    if rows is None:
        rows = [[o + 4 * j + 8 * k for k in range(4) for o in range(4)] for j in range(2)]
    (tmp_path / "g").mkdir()
    other = Workload(32)
    of = grouped(other, rows)
    other.run(lambda b: b.collective("all_reduce", size_bytes=3 * MIB, group=of[b.rank]))
    other.write(tmp_path / "g" / "w")
    some, groups = run(tmp_path, net, **options), run(tmp_path / "g", net, **options)
    assert np.array_equal(some.finish_ns, groups.finish_ns)
    assert kinds(some) == kinds(groups)


# --- bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8, 8, 1), (16, 8, 8), (32, 8, 4), (24, 8, 8), (5, 1, 1), (12, 4, 2)])
@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_no_link_carries_more_than_the_library_s_bytes(
    algorithm: Algorithm, shape: tuple[int, int, int]
) -> None:
    """The busiest port inside a node, and the busiest between nodes, carries `link_bytes`, up to a byte a message."""
    ranks, inner, ports = shape
    comm = Communicator(ranks, inner, 50.0 if ranks > inner else 0.0, ports)
    kind = {Algorithm.SEND_RECV: Kind.ALL_TO_ALL, Algorithm.PAT: Kind.ALL_GATHER}.get(
        algorithm, Kind.ALL_REDUCE
    )
    choice, size = Choice(algorithm, Protocol.SIMPLE, 16), 48 * MIB
    found = lanes(kind, size, np.arange(ranks), inner, comm, choice)
    sent = np.zeros((2, ranks))
    came = np.zeros((2, ranks))
    for lane in found:
        outside = (lane.target // inner != lane.source // inner).astype(int)
        np.add.at(sent, (outside, lane.source), lane.size)
        np.add.at(came, (outside, lane.target), lane.size)
    inside, between = link_bytes(kind, size, comm, choice)
    messages = max(len(lane.target) for lane in found)
    chains = algorithm in (Algorithm.TREE, Algorithm.COLLNET_CHAIN, Algorithm.COLLNET_DIRECT)
    if inner > (2 if chains else 1):
        assert sent[0].max() == came[0].max() == pytest.approx(inside, abs=messages)
    for counted in (sent[1].max(), came[1].max()):
        assert counted <= between + messages
    if ranks > inner and algorithm not in (Algorithm.TREE, Algorithm.NVLS_TREE):
        assert sent[1].max() == pytest.approx(between, abs=messages)


# --- other networks -------------------------------------------------------------------------------------------------


def listed(nodes: int, node: int) -> dict[str, Any]:
    """The links of `network(node, nodes)` without their dimensions."""
    (inner, outer), (inside, between) = network(node, nodes)["bandwidth"], network(node, nodes)["latency"]
    rows: list[list[Any]] = []
    for npu in range(nodes * node):
        rows += [[npu, f"n{npu // node}", inner, inside], [npu, f"r{npu % node}", outer, between]]
    return {"npus_count": [nodes * node], "links": rows}


@pytest.mark.parametrize("groups", [(16, 1), (2, 8), (8, 2)])
def test_a_list_of_links_is_as_good_as_dimensions(tmp_path: Path, groups: tuple[int, int]) -> None:
    """Neighbours make nodes, and the rate of a port is found on the routes between them."""
    collectives(tmp_path, 16, [("all_reduce", size) for size in SIZES[1:]], strided(16, *groups))
    blocks = run(tmp_path, network(8, 2))
    for backend in ("unaware", "aware"):
        assert kinds(run(tmp_path, listed(2, 8), backend=backend)) == kinds(blocks)


def test_a_network_that_a_package_simulates_takes_the_messages(tmp_path: Path) -> None:
    collectives(tmp_path, 8, [(kind, 3 * MIB) for kind in KINDS])
    free = run(tmp_path, network(8))
    outside = run(tmp_path, ConstantDelay(8, 500, 1e9))
    assert kinds(free) == kinds(outside)
    assert outside.raw.engine == "messages"


@pytest.mark.parametrize("compat", ["astra-sim"])
def test_under_compat_it_has_no_effect_where_links_are_shared(tmp_path: Path, compat: str) -> None:
    collectives(tmp_path, 8, [("all_reduce", 3 * MIB)])
    bare = {key: value for key, value in SYSTEM.items() if not key.startswith("collective-")}
    with_key = run(tmp_path, network(8), backend="aware", compat=compat)
    assert np.array_equal(
        with_key.finish_ns, run(tmp_path, network(8), bare, backend="aware", compat=compat).finish_ns
    )
    assert any("'nccl' has no effect: compat" in note for note in with_key.notes)


def test_compiled_and_plain_kernels_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collectives(tmp_path, 4, [(kind, MIB) for kind in KINDS], [[0, 2], [1, 3]])
    plain = run(tmp_path, two_pairs(), backend="aware")
    monkeypatch.setattr(engine, "worth_compiling", lambda *args: True)
    jitted = run(tmp_path, two_pairs(), backend="aware")
    assert np.array_equal(plain.raw.finish_ns, jitted.raw.finish_ns)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_rings_of_a_mesh_lie_over_all_its_links(tmp_path: Path, kind: str, nodes: int) -> None:
    """A whole collective of RCCL on MI300X takes the library's time on shared links, too: none of them is overrun."""
    machine, npus = cluster(f"{nodes}x mi300x"), 8 * nodes
    workload = Workload(npus)
    workload.run(lambda b: b.collective(kind, size_bytes=64 << 20))
    workload.write(tmp_path / "w")
    free, *shared = (
        simulate(tmp_path / "w", machine.system(), machine.network(), backend=backend).finish_ns
        for backend in ("unaware", "aware", "flow")
    )
    comm = Communicator(npus, 8, 50.0 if nodes > 1 else 0.0)
    size = (64 << 20) * (npus if kind == "all_gather" else 1)
    expected = library_time(Kind[kind.upper()], size, comm, collective_parameters("mi300x")).time_ns
    assert set(free.tolist()) == {expected}
    assert all(np.array_equal(free, one) for one in shared)


def test_many_messages_that_wait_late_in_a_run_do_not_leave_the_words_of_its_state() -> None:
    """An all-to-all of 16 NPUs, then all-gathers inside machines: each takes what it takes alone, asking first, too."""
    machine = cluster("hgx-h100", 16)

    def time(*kinds: str) -> int:
        workload = Workload(16)
        inside = [workload.add_group(range(first, first + 8)) for first in (0, 8)]

        def step(builder: Any) -> None:
            first: tuple[Any, ...] = ()
            if "all_to_all" in kinds:
                first = (builder.collective("all_to_all", size_bytes=1 << 24),)
            if "all_gather" in kinds:
                own = inside[builder.rank // 8]
                builder.collective("all_gather", size_bytes=1 << 12, group=own, after=first)

        workload.run(step)
        done = simulate(workload, machine.system(), machine.network(), backend="aware", rendezvous=True)
        return int(done.finish_ns.max())

    assert time("all_to_all", "all_gather") == time("all_to_all") + time("all_gather")
