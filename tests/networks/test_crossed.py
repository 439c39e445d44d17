"""What messages cross on networks given link by link: values by hand, and laws."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import TraceBuilder, Workload
from chakra.errors import ConfigError
from chakra.replay import ReplayResult, simulate
from chakra.replay.config import load_network
from chakra.replay.networks.blocks import block_links
from chakra.replay.networks.first_links import LOOKED_AT, FirstLinks
from chakra.replay.results.formatting import essential, format_text
from chakra.replay.topologies import fat_tree, torus, with_faults
from chakra.report.document import run_of
from chakra.report.tables import dimensions

MIB = 1 << 20
#: shares of groups of up to 16 are whole
SIZE = 720_720
#: bytes per ns of a GB/s of 2^30 B/s
GIB = (1 << 30) / 1e9
RINGS = {f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-to-all")}
DIRECT = {"all-to-all-implementation": ["direct"]}
BACKENDS = ("unaware", "aware", "flow")


def replay(
    network: Any, kind: str, algorithm: list[str], size: int = MIB, npus: int = 0, backend: str = "flow"
) -> ReplayResult:
    builder = TraceBuilder()
    builder.collective(kind, size_bytes=size)
    system = {f"{kind.replace('_', '-')}-implementation": algorithm}
    loaded = load_network(network) if isinstance(network, dict) else network
    return simulate([builder.build()] * (npus or loaded.npus), system, loaded, backend=backend)


def machines(count: int = 2, each: int = 4, **more: Any) -> dict[str, Any]:
    """Machines with a switch inside, 450 GB/s, and a port of 50 GB/s of each NPU."""
    n = count * each
    links: list[list[Any]] = [[npu, f"inside{npu // each}", 450, 100] for npu in range(n)]
    links += [[npu, "leaf", 50, 500] for npu in range(n)]
    return {
        "npus_count": [each, count],
        "links": links,
        "routing": "inside",
        "npus_forward": False,
        **more,
    }


def full_mesh(n: list[int], gibps: float = 10) -> dict[str, Any]:
    npus = int(np.prod(n))
    return {"npus_count": n, "links": [[a, b, gibps, 100] for a in range(npus) for b in range(a)]}


def star(n: int, slow: dict[int, float], gibps: float = 100) -> dict[str, Any]:
    return {"npus_count": [n], "links": [[k, "s", slow.get(k, gibps), 100] for k in range(n)]}


def column(result: ReplayResult, key: str) -> list[float]:
    return [row[key] for row in result.dimensions]


# -- values by hand --------------------------------------------------------------------------------------------------


def test_links_to_npus_that_differ_in_more_than_one_dimension_count() -> None:
    """Each of four sends a quarter to each other one over a link of its own: 3/4 MiB over three links of 10 GB/s."""
    result = replay(full_mesh([2, 2]), "all_to_all", ["oneDirect"])
    assert result.collectives[0]["bound_ns"] == pytest.approx(MIB / 4 / (10 * GIB))
    assert result.collectives[0]["bound_ns"] == pytest.approx(24_414.06, abs=0.01)
    # one of the three leads along dimension 0; the diagonal is of dimension 1
    assert column(result, "bandwidth_gibps") == [10, 20]
    assert column(result, "bytes_per_npu") == [MIB / 4, MIB / 2]
    span = int(result.finish_ns.max())
    assert column(result, "utilisation") == pytest.approx([MIB / 4 / (10 * GIB * span)] * 2)


def test_the_bound_of_a_group_is_its_members() -> None:
    workload = Workload(4)
    groups = [workload.add_group([0, 1]), workload.add_group([2, 3])]
    for rank in range(4):
        workload.builder(rank).collective("all_reduce", size_bytes=MIB, group=groups[rank // 2])
    for backend in BACKENDS:
        rows = simulate(workload, RINGS, star(4, {3: 1.0}), backend=backend).collectives
        bounds = sorted(row["bound_ns"] for row in rows)
        assert bounds == pytest.approx([MIB / (100 * GIB), MIB / GIB])
        assert bounds[0] == pytest.approx(9_765.6, abs=0.1)


def test_a_dimension_is_busy_by_all_that_all_can_send() -> None:
    """Two of four exchange 1 MiB; the others, one of them slow, nothing."""
    workload = Workload(4)
    group = workload.add_group([0, 1])
    for rank in range(4):
        if rank < 2:
            workload.builder(rank).collective("all_reduce", size_bytes=MIB, group=group)
        else:
            workload.builder(rank).compute(duration_ns=10)
    result = simulate(workload, RINGS, star(4, {3: 1.0}), backend="flow")
    span = int(result.finish_ns.max())
    assert column(result, "utilisation") == pytest.approx([2 * MIB / (301 * GIB * span)])
    assert column(result, "bandwidth_gibps") == [1]


@pytest.mark.parametrize(("npus", "slow"), [(200, 173), (1500, 1234)])
def test_the_slowest_npu_of_a_large_dimension_is_found(npus: int, slow: int) -> None:
    network = load_network(star(npus, {slow: 1.0}))
    found = FirstLinks(network, network.links)  # type: ignore[arg-type]
    assert found.directions.npu_gibps.min() == 1
    assert found.directions.all_gibps.tolist() == [100 * (npus - 1) + 1]
    assert [one.sent_gibps.min() for one in found.within([np.arange(slow), np.arange(slow + 1)])] == [100, 1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_message_belongs_to_the_highest_dimension_of_a_list_of_links(backend: str) -> None:
    """From place 0 of one machine to place 1 of another: over its port, and no link inside a machine."""
    workload = Workload(8)
    for rank in range(8):
        builder = workload.builder(rank)
        builder.compute(duration_ns=10)
        if rank == 0:
            builder.send(5, size_bytes=MIB)
        if rank == 5:
            builder.recv(0, size_bytes=MIB)
    result = simulate(workload, {}, machines(), backend=backend)
    assert column(result, "bytes_per_npu") == [0, MIB / 8]
    assert column(result, "bandwidth_gibps") == [450, 50]
    assert column(result, "latency_ns") == [200, 1000]
    blocks = {
        "topology": ["Switch", "Switch"], "npus_count": [4, 2], "bandwidth": [450, 50], "latency": [100, 500]
    }  # fmt: skip
    assert column(simulate(workload, {}, blocks, backend=backend), "bytes_per_npu") == [MIB / 8, MIB / 8]


def test_a_torus_of_links_has_the_figures_of_rings() -> None:
    """4 x 4, an all-reduce along each dimension: 3/2 MiB, then 3/8 MiB, over two links of 50 GB/s each."""
    rings = load_network(
        {"topology": ["Ring", "Ring"], "npus_count": [4, 4], "bandwidth": [50, 50], "latency": [500, 500]}
    )
    made = torus([4, 4], bandwidth_gibps=50, latency_ns=500)
    results = [replay(network, "all_reduce", ["ring", "ring"]) for network in (made, rings)]
    spans = {int(result.finish_ns.max()) for result in results}
    assert len(spans) == 1
    for result in results:
        assert column(result, "bytes_per_npu") == [3 * MIB / 2, 3 * MIB / 2]
        assert column(result, "utilisation") == pytest.approx(
            [3 * MIB / 2 / (100 * GIB * spans.copy().pop())] * 2
        )
        assert result.collectives[0]["bound_ns"] == pytest.approx(15 / 8 * MIB / (200 * GIB))
    assert column(results[0], "bandwidth_gibps") == [100, 100]
    # ways of 1, 2 and 1 links
    assert column(results[0], "latency_ns") == pytest.approx([2000 / 3] * 2)


def test_a_fat_tree_of_half_the_bandwidth_up() -> None:
    """Two leaves of four NPUs, 50 GB/s each, and 100 GB/s between them: all go out over one port."""
    network = fat_tree([4, 2], [1, 1], bandwidth_gibps=50, latency_ns=500, oversubscription=2)
    result = replay(network, "all_to_all", ["direct"])
    assert column(result, "bandwidth_gibps") == [50]
    # three others at 2 links, four at 4
    assert column(result, "latency_ns") == pytest.approx([(3 * 1000 + 4 * 2000) / 7])
    row = result.collectives[0]
    # half of what the four of a leaf send goes up; a port alone takes 7/8 of that
    assert row["bound_ns"] == pytest.approx(4 * MIB / 2 / (100 * GIB))
    assert row["transfer_ns"] >= row["bound_ns"]
    span = int(result.finish_ns.max())
    assert column(result, "utilisation") == pytest.approx([7 / 8 * MIB / (50 * GIB * span)])


def test_links_of_a_port_that_others_use() -> None:
    """Machines of four, of which one has the port: all send to other machines over it."""
    links: list[list[Any]] = [[npu, f"inside{npu // 4}", 450, 100] for npu in range(8)]
    network = load_network({"npus_count": [4, 2], "links": [*links, [0, 4, 50, 500]]})
    found = FirstLinks(network, network.links).directions  # type: ignore[arg-type]
    assert found.npu_gibps.min(axis=0).tolist() == [450, 50]
    assert found.npu_gibps[1].tolist() == [450, 450]
    assert found.all_gibps.tolist() == [8 * 450, 2 * 50]


def test_given_routes_take_the_place_of_shortest_ways() -> None:
    """A ring of four whose NPU 0 sends everything the long way round, by 3."""
    links = [[k, (k + 1) % 4, 10.0 + k, 100] for k in range(4)]
    routes = [[0, 3, 2, 1], [0, 3, 2]]
    network = load_network({"npus_count": [4], "links": links, "routes": routes})
    found = FirstLinks(network, network.links)  # type: ignore[arg-type]
    within = [one.sent_gibps for one in found.within([np.arange(4), np.array([0, 1])])]
    # link 3 joins NPUs 3 and 0; NPU 1 has the links 0 and 1, NPU 2 has 1 and 2, NPU 3 has 2 and 3
    assert within[0].tolist() == [13, 21, 23, 25]
    assert within[1].tolist() == [13, 10]
    assert found.directions.npu_gibps[:, 0].tolist() == [13, 21, 23, 25]
    # 0 to the others takes 3, 2 and 1 links; 1, 2 and 3 take 1, 2 and 1
    assert found.directions.latency_ns.tolist() == pytest.approx([(6 + 4 + 4 + 4) * 100 / 12])


@pytest.mark.parametrize("backend", BACKENDS)
def test_building_blocks_with_slow_links_count_these(backend: str) -> None:
    """A ring of four at 10 GB/s, the link between 0 and 1 at a tenth; an all-gather of 1 MiB of each."""
    ring = load_network({"topology": ["Ring"], "npus_count": [4], "bandwidth": [10], "latency": [100]})
    slow = with_faults(ring, slow={"0-1": 0.1})
    result = replay(slow, "all_gather", ["ring"], MIB, backend=backend)
    span = int(result.finish_ns.max())
    assert column(result, "bytes_per_npu") == [3 * MIB]
    # eight links, of which two at 1 GB/s
    assert column(result, "utilisation") == pytest.approx([12 * MIB / (62 * GIB * span)])
    assert column(result, "bandwidth_gibps") == [10]
    assert [row["unequal"] for row in result.dimensions] == [
        [{"bandwidth_gibps": 10, "count": 6}, {"bandwidth_gibps": 1, "count": 2}]
    ]
    text = format_text(result.to_dict())
    assert "Ring of 4 NPUs, 10 GB/s (of 2^30 B/s) on 6 links, 1 on 2 links, 100 ns per hop" in text
    # all together send 12 MiB, and NPU 0 gets 3 over 11 GB/s
    assert result.collectives[0]["bound_ns"] == pytest.approx(3 * MIB / (11 * GIB))
    assert column(replay(ring, "all_gather", ["ring"], backend=backend), "utilisation")[0] > 0


def test_bandwidths_are_told_with_how_many_npus_have_them() -> None:
    """A line named the least as if all had it."""
    for slow, told in (
        ({3: 1.0}, "100 GB/s (of 2^30 B/s) out of 7 NPUs, 1 out of 1 NPU, "),
        ({}, "100 GB/s (of 2^30 B/s) out of an NPU, "),
        ({k: 10.0 + k for k in range(8)}, "10 to 17 GB/s (of 2^30 B/s) out of 8 NPUs (8 different ones), "),
    ):
        result = replay(star(8, slow), "all_reduce", ["ring"])
        text = format_text(result.to_dict())
        assert f"dim 0: Links of 8 NPUs, {told}200 ns a way" in text
        # console and documents say the same
        assert format_text(essential(result, summary=True)) == text
    assert "  10 to 17  " in text


@pytest.mark.parametrize("backend", BACKENDS)
def test_links_that_carry_more_than_they_can_are_explained(backend: str) -> None:
    """All 8 of a ring send 1/8 MiB to all others at once, 7 MiB over 16 links: too much where none are shared."""
    ring = load_network({"topology": ["Ring"], "npus_count": [8], "bandwidth": [10], "latency": [100]})
    result = replay(ring, "all_to_all", ["oneDirect"], backend=backend)
    span = int(result.finish_ns.max())
    [share] = column(result, "utilisation")
    assert share == pytest.approx(8 * 7 / 8 * MIB / (16 * 10 * GIB * span))
    assert (share > 1) is (backend == "unaware")
    told = "busy above 100 %: on backend unaware messages never wait for each other"
    assert (told in format_text(result.to_dict())) is (share > 1)
    assert (told in dimensions(run_of(result.to_dict(), "a")).remark) is (share > 1)


def test_a_failed_link_is_none_of_a_dimension() -> None:
    mesh = load_network(
        {"topology": ["FullyConnected"], "npus_count": [4], "bandwidth": [10], "latency": [100]}
    )
    result = replay(with_faults(mesh, fail=["0-1"]), "all_to_all", ["direct"])
    span = int(result.finish_ns.max())
    assert column(result, "utilisation") == pytest.approx([3 * MIB / (100 * GIB * span)])
    # 0 and 1 have two links left, for 3/4 MiB
    assert result.collectives[0]["bound_ns"] == pytest.approx(3 / 4 * MIB / (20 * GIB))


def test_a_collective_of_some_dimensions_is_rated_by_who_exchanges_data() -> None:
    """An all-gather of 1 MiB along dimension 0 of 4 x 2: three blocks over a port of 450 GB/s."""
    builder = TraceBuilder()
    builder.collective("all_gather", size_bytes=MIB, involved_dim=[True, False])
    blocks = {
        "topology": ["Switch", "Switch"], "npus_count": [4, 2], "bandwidth": [450, 50], "latency": [100, 500]
    }  # fmt: skip
    for network in (machines(), blocks):
        result = simulate(
            [builder.build()] * 8, {"all-gather-implementation": ["ring", "ring"]}, network, backend="flow"
        )
        row = result.collectives[0]
        assert row["bound_ns"] == pytest.approx(3 * MIB / (450 * GIB))
        assert row["algbw_gbps"] == pytest.approx(4 * MIB / row["transfer_ns"])
        assert row["busbw_gbps"] == pytest.approx(3 * MIB / row["transfer_ns"])


@pytest.mark.parametrize(
    ("topology", "members", "share"),
    [
        # shares of the bytes over links out of a member
        ("FullyConnected", [0, 3], 1 / 2),
        ("FullyConnected", [0, 3, 5], 2 / 3 / 2),
        ("Ring", [0, 1], 1 / 2),
        ("Switch", [0, 3, 5], 2 / 3),
        # two members send to the other two over the two links that join the halves of the ring
        ("Ring", [0, 2, 4, 6], 2 * 2 / 4 / 2),
    ],
)
def test_members_of_a_group_send_over_the_links_that_lead_to_the_others(
    topology: str, members: list[int], share: float
) -> None:
    workload = Workload(8)
    group = workload.add_group(members)
    for rank in range(8):
        if rank in members:
            workload.builder(rank).collective("all_to_all", size_bytes=MIB, group=group)
        else:
            workload.builder(rank).compute(duration_ns=10)
    blocks = load_network({"topology": [topology], "npus_count": [8], "bandwidth": [10], "latency": [100]})
    for network in (blocks, with_faults(blocks, slow={"6-7" if topology != "Switch" else "6-sw0.0": 2.0})):
        row = simulate(workload, DIRECT, network, backend="flow").collectives[0]
        assert row["bound_ns"] == pytest.approx(share * MIB / (10 * GIB))
        assert row["bound_ns"] <= row["transfer_ns"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_links_charge_a_message_once_in_every_mode(backend: str) -> None:
    """No correction of the dimensions that a message crosses (C5) counts where these are names."""
    result = replay(machines(), "all_to_all", ["oneDirect"], backend=backend)
    assert "C5" not in result.corrections


def test_the_summary_says_what_the_document_says() -> None:
    result = replay(machines(), "all_reduce", ["ring", "ring"])
    text = str(result)
    assert "dim 0: Links of 4 NPUs, 450 GB/s (of 2^30 B/s) out of an NPU, 200 ns a way" in text
    assert "dim 1: Links of 2 NPUs, 50 GB/s (of 2^30 B/s) out of an NPU, 1,000 ns a way" in text
    dims = result.to_dict()["inputs"]["network"]["dims"]
    assert [(dim["bandwidth_gibps"], dim["latency_ns"]) for dim in dims] == [(450, 200), (50, 1000)]


@pytest.mark.parametrize("gibps", [1e91, 1e300])
def test_bandwidths_beyond_all_quantities_are_refused(gibps: float) -> None:
    ring = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [gibps], "latency": [1]}
    for network in (star(4, {}, gibps), ring):
        with pytest.raises(ConfigError, match=r"'bandwidth'.* must be at most 1e\+90"):
            load_network(network)
    with pytest.raises(ConfigError, match="at most"):
        torus([2, 2], bandwidth_gibps=gibps, latency_ns=1)


def test_figures_of_the_largest_bandwidth_are_finite() -> None:
    result = replay(star(4, {}, 1e90), "all_reduce", ["ring"])
    assert column(result, "bandwidth_gibps") == [1e90]
    assert np.isfinite(column(result, "utilisation")).all()
    assert 0 < result.collectives[0]["bound_ns"] < 1


@pytest.mark.parametrize("members", [[0, 1, 2], [1, 2, 3]])
@pytest.mark.parametrize("listed", [True, False])
def test_npus_that_flows_cannot_tell_apart_are_booked_where_each_sends(
    members: list[int], listed: bool
) -> None:
    """A ring of three on 2 x 2, all of whose ways are alike: one is folded to stand for three that send elsewhere."""
    workload = Workload(4)
    group = workload.add_group(members)
    for rank in range(4):
        workload.builder(rank).compute(duration_ns=1)
        if rank in members:
            workload.builder(rank).collective("all_reduce", size_bytes=SIZE, group=group)
    network = full_mesh([2, 2])
    if not listed:
        network = {
            "topology": ["FullyConnected"] * 2, "npus_count": [2, 2], "bandwidth": [10, 10], "latency": [100, 100]
        }  # fmt: skip
    each = SIZE * 4 // 3 // 4
    for backend in BACKENDS:
        found = column(simulate(workload, RINGS, network, backend=backend), "bytes_per_npu")
        # of the three messages' ends one pair differs in dimension 0 alone, one in 1 alone, one in both
        assert found == ([each, 2 * each] if listed else [2 * each, 2 * each]), backend


# -- laws ------------------------------------------------------------------------------------------------------------

ALGORITHMS = {
    "all_reduce": ["ring", "direct", "pipelinedTree", "oneRing", "oneDirect"],
    "all_gather": ["ring", "direct", "oneRing", "oneDirect"],
    "reduce_scatter": ["ring", "direct", "oneRing", "oneDirect"],
    "all_to_all": ["ring", "direct", "oneRing", "oneDirect"],
}


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    """Networks of links of 4 to 12 NPUs in two dimensions; some links are slower."""
    counts = [draw(st.integers(2, 4)), draw(st.integers(2, 3))]
    n = counts[0] * counts[1]
    form = draw(st.sampled_from(["machines", "mesh", "torus", "tree", "ring"]))
    if form == "machines":
        links = machines(counts[1], counts[0])["links"]
    elif form == "mesh":
        links = full_mesh(counts)["links"]
    elif form == "torus":
        made = torus(counts, bandwidth_gibps=50, latency_ns=100)
        assert made.links is not None
        links = [[x.src, x.dst, 50, 100] for x in made.links.links if x.src < x.dst]
    elif form == "tree":
        links = [[npu, f"leaf{npu % 2}", 50, 100] for npu in range(n)]
        links += [[f"leaf{leaf}", f"spine{spine}", 30, 100] for leaf in range(2) for spine in range(2)]
    else:
        links = [[npu, (npu + 1) % n, 20, 100] for npu in range(n)]
    slow = draw(st.dictionaries(st.integers(0, len(links) - 1), st.sampled_from([1, 7, 33]), max_size=3))
    rows = [[a, b, slow.get(i, speed), ns] for i, (a, b, speed, ns) in enumerate(links)]
    routing = draw(st.sampled_from(["hops", "latency", "inside"]))
    return {"npus_count": counts, "links": rows, "routing": routing}


@st.composite
def calls(draw: st.DrawFn, npus: int) -> Workload:
    """A collective of all or of a group, and messages between some NPUs."""
    kind = draw(st.sampled_from(sorted(ALGORITHMS)))
    members = draw(
        st.one_of(
            st.just(list(range(npus))),
            st.lists(st.integers(0, npus - 1), min_size=2, max_size=npus, unique=True).map(sorted),
        )
    )
    workload = Workload(npus)
    group = None if len(members) == npus else workload.add_group(members)
    sends = draw(
        st.lists(
            st.tuples(st.integers(0, npus - 1), st.integers(1, npus - 1), st.integers(1, SIZE)), max_size=4
        )
    )
    for rank in range(npus):
        builder = workload.builder(rank)
        builder.compute(duration_ns=1)
        for tag, (src, step, size) in enumerate(sends):
            if src == rank:
                builder.send((src + step) % npus, size_bytes=size, tag=tag)
            if (src + step) % npus == rank:
                builder.recv(src, size_bytes=size, tag=tag)
        if rank in members:
            builder.collective(kind, size_bytes=SIZE, group=group)
    return workload


def system_of(data: st.DataObject) -> dict[str, Any]:
    chosen = {kind: data.draw(st.sampled_from(names)) for kind, names in ALGORITHMS.items()}
    return {
        f"{kind.replace('_', '-')}-implementation": [name] if name.startswith("one") else [name, name]
        for kind, name in chosen.items()
    }


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_figures_of_links_keep_their_laws(data: st.DataObject) -> None:
    """No dimension is busy for more than all the time, no collective faster than its bound; all backends book all once.

    Members that are early may have sent before the last one starts.
    """
    network = data.draw(shapes())
    n = int(np.prod(network["npus_count"]))
    workload, system = data.draw(calls(n)), system_of(data)
    runs = {backend: simulate(workload, system, network, backend=backend) for backend in BACKENDS}
    booked = [column(result, "bytes_per_npu") for result in runs.values()]
    assert booked[0] == booked[1] == booked[2]
    for backend in ("aware", "flow"):
        assert max(column(runs[backend], "utilisation")) <= 1 + 1e-9
        for row in runs[backend].collectives:
            assert row["bound_ns"] <= row["end_ns"] - row["start_ns"] + n
    if all(len(names) == 1 for names in system.values()):
        single = simulate(workload, system, {**star(n, {}), "npus_count": [n]})
        assert sum(booked[0]) == pytest.approx(sum(column(single, "bytes_per_npu")))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_building_blocks_and_their_links_have_the_same_figures(data: st.DataObject) -> None:
    """As they are; with a link that is as fast as before; and as a list of links."""
    counts = [data.draw(st.integers(2, 4)), data.draw(st.integers(2, 3))]
    topology = [data.draw(st.sampled_from(["Ring", "FullyConnected", "Switch"])) for _ in counts]
    blocks = load_network(
        {"topology": topology, "npus_count": counts, "bandwidth": [30, 20], "latency": [100, 200]}
    )
    workload, system = data.draw(calls(blocks.npus)), system_of(data)
    made = block_links(blocks)
    names = [*map(str, range(blocks.npus)), *made.vertices]
    same = with_faults(blocks, slow={f"{names[made.links[0].src]}-{names[made.links[0].dst]}": 1.0})
    listed = {
        "npus_count": counts,
        "links": [
            {"from": a, "to": b, "bandwidth": x.bandwidth_gibps, "latency": x.latency_ns, "directed": True}
            for x in made.links
            for a, b in [[int(name) if name.isdigit() else name for name in (names[x.src], names[x.dst])]]
        ],
    }
    first, second, third = (simulate(workload, system, net, backend="flow") for net in (blocks, same, listed))
    for key in ("bytes_per_npu", "bandwidth_gibps", "latency_ns"):
        assert column(first, key) == column(second, key)
    span = first.finish_ns.max(), second.finish_ns.max()
    assert [share * span[0] for share in column(first, "utilisation")] == pytest.approx(
        [share * span[1] for share in column(second, "utilisation")]
    )
    for result in (first, second):
        assert max(column(result, "utilisation")) <= 1 + 1e-9
        for row in result.collectives:
            assert row["bound_ns"] <= row["end_ns"] - row["start_ns"] + blocks.npus
    if all(row["members"] == blocks.npus for row in first.collectives):
        for one, two, three in zip(first.collectives, second.collectives, third.collectives, strict=True):
            assert one["bound_ns"] == pytest.approx(two["bound_ns"]) == pytest.approx(three["bound_ns"])
    # a message that crosses both is of the last alone where dimensions are names
    assert column(third, "bytes_per_npu")[1] == column(first, "bytes_per_npu")[1]
    assert column(third, "bytes_per_npu")[0] <= column(first, "bytes_per_npu")[0]


def test_large_networks_are_searched_by_kinds() -> None:
    """What is found of a few NPUs of each kind is what is found of all: machines at a tree of switches."""
    network = load_network(
        {
            **machines(160, 4),
            "links": [
                *([npu, f"inside{npu // 4}", 450, 100] for npu in range(640)),
                *([npu, f"leaf{npu // 32}", 50.0 - npu % 7, 500] for npu in range(640)),
                *([f"leaf{leaf}", f"spine{spine}", 400, 500] for leaf in range(20) for spine in range(4)),
            ],
        }
    )
    assert network.links is not None
    assert network.npus * len(network.links.links) > LOOKED_AT
    found = FirstLinks(network, network.links)
    speeds = np.array([50.0 - npu % 7 for npu in range(640)])
    assert found.directions.npu_gibps[:, 0].tolist() == [450] * 640
    assert found.directions.npu_gibps[:, 1].tolist() == speeds.tolist()
    # of 159 other machines 7 are at the same leaf
    assert found.directions.latency_ns.tolist() == pytest.approx([200, (7 * 1000 + 152 * 2000) / 159])
    row = np.arange(3, 640, 4)
    assert found.within([row, np.arange(8, 12)])[0].sent_gibps.tolist() == speeds[row].tolist()
    assert found.within([np.arange(640)])[0].sent_gibps.tolist() == (speeds + 450).tolist()


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_only_rounding_is_below_the_bound(data: st.DataObject) -> None:
    """A packet has whole bytes, less than one below its share; on `aware` it takes whole ns on each link, rounded down.

    On flows an end is the first whole ns at which nothing is left, so that bytes are all that rounding takes away.
    """
    n, size = data.draw(st.integers(2, 8)), data.draw(st.integers(1, 1 << 21))
    kind = data.draw(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]))
    algorithm = data.draw(st.sampled_from(["ring", "direct"]))
    chunks, gibps = data.draw(st.sampled_from([1, 4])), data.draw(st.sampled_from([1, 50, 400]))
    workload = Workload(n)
    workload.run(lambda b: b.collective(kind, size_bytes=size), uniform=True)
    system = {f"{kind.replace('_', '-')}-implementation": [algorithm], "preferred-dataset-splits": chunks}
    topology = data.draw(st.sampled_from(["Ring", "FullyConnected", "Switch"]))
    network = {"topology": [topology], "npus_count": [n], "bandwidth": [gibps], "latency": [0]}
    packets = chunks * {
        "all_reduce": 2 * (n - 1),
        "all_to_all": n * (n - 1) // 2 if algorithm == "ring" else n - 1,
    }.get(kind, n - 1)
    for backend, ns_of_packet in (("flow", 0), ("aware", max(n // 2, 2))):
        [row] = simulate(workload, {"endpoint-delay": 0, **system}, network, backend=backend).collectives
        assert row["transfer_ns"] >= row["bound_ns"] - packets * (1 / (gibps * GIB) + ns_of_packet)
