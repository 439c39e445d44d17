"""A library's collectives where a link is slow or gone: groups that do not use it take their healthy time, to the ns."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from library_worlds import SYSTEM, job, machines, strided

from chakra.platforms import collective_parameters
from chakra.platforms.fabric import Shape
from chakra.replay import ReplayResult, simulate
from chakra.replay.collectives.library import Communicator, library_time
from chakra.replay.config import CollectiveKind, load_network
from chakra.replay.config.model import Network
from chakra.replay.topologies import with_faults

MIB = 1 << 20
NPUS, NODE, SLOW_NPU = 32, 8, 5
INNER, OUTER = strided(NPUS, NODE, 1), strided(NPUS, NPUS // NODE, NODE)
#: GB/s of 10^9 B/s of a port between machines, and of one inside
NIC_GBPS, INSIDE_GBPS = 46.566129 * 1.073741824, 419.095159 * 1.073741824
H100 = collective_parameters("hgx-h100")


def blocks() -> Network:
    """Four machines of eight as building blocks."""
    return load_network(
        {
            "topology": ["Switch", "Switch"],
            "npus_count": [8, 4],
            "bandwidth": [419.095159, 46.566129],
            "latency": [936.25, 1000.0],
        }
    )


WORLDS: dict[str, Callable[[], Network]] = {
    "blocks": blocks,
    "one leaf": lambda: machines(4, 64, Shape.FAT_TREE, spray=False),
    "leaves": lambda: machines(4, 16, Shape.FAT_TREE, spray=False),
    "rails": lambda: machines(4, 8, Shape.RAIL_ONLY, spray=False),
}
#: messages that take all equal ways at once are for flows
SPRAYED: dict[str, Callable[[], Network]] = {"sprayed": lambda: machines(4, 16, Shape.FAT_TREE)}


def link_of(network: Network, *, inside: bool) -> str:
    """The link of an NPU to its machine's switch, or to the network between machines."""
    if network.links is None:
        return f"{SLOW_NPU}-sw0.0" if inside else f"{SLOW_NPU}-sw1.{SLOW_NPU}"
    ends = {x.dst: x.bandwidth_gibps for x in network.links.links if x.src == SLOW_NPU}
    found = max(ends, key=ends.__getitem__) if inside else min(ends, key=ends.__getitem__)
    return f"{SLOW_NPU}-{network.links.vertices[found - network.npus]}"


def run(network: Network, kind: str, groups: list[list[int]], **options: Any) -> ReplayResult:
    """Two collectives of every group, one after the other."""
    calls = [(kind, 16 * MIB, groups), ("all_reduce", 4 * MIB, groups)]
    return simulate(job(NPUS, calls), SYSTEM, network, **options)


def times(result: ReplayResult) -> dict[tuple[str, str], dict[str, Any]]:
    """Row of each collective, by kind and group."""
    return {(row["kind"], row["group"]): row for row in result.records("collectives")}


@pytest.mark.parametrize(
    ("world", "backend"),
    [
        ("leaves", "unaware"),  # where links are shared, groups that share uplinks feel each other, too
        ("sprayed", "flow"),
        *itertools.product(("blocks", "one leaf", "rails"), ("unaware", "aware", "flow")),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_groups_that_do_not_use_a_slow_link_take_their_healthy_time(
    world: str, backend: str, inside: bool
) -> None:
    network = (WORLDS | SPRAYED)[world]()
    groups = INNER if inside else OUTER
    slow = {link_of(network, inside=inside): 0.1}
    healthy = times(run(network, "all_gather", groups, backend=backend))
    faulty = times(run(network, "all_gather", groups, backend=backend, slow_links=slow))
    assert healthy.keys() == faulty.keys()
    assert len(healthy) == 2 * len(groups)
    # groups are named in their order, from 1 on
    touched = str(1 + next(i for i, members in enumerate(groups) if SLOW_NPU in members))
    for key, row in faulty.items():
        if key[1] == touched:
            assert row["transfer_ns"] >= row["bound_ns"]
            assert row["transfer_ns"] > healthy[key]["transfer_ns"]
        else:
            for what in ("transfer_ns", "bound_ns"):
                assert row[what] == healthy[key][what]
    # a link that the groups do not use changes nothing for anybody
    other = {link_of(network, inside=not inside): 0.1}
    assert times(run(network, "all_gather", groups, backend=backend, slow_links=other)) == healthy


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("engine", ["phases", "messages"])
def test_a_slow_port_is_the_port_that_its_group_is_priced_with(world: str, fold: bool, engine: str) -> None:
    network = WORLDS[world]()
    slow = {link_of(network, inside=False): 0.1}
    found = times(run(network, "all_gather", OUTER, slow_links=slow, fold=fold, engine=engine))
    for place in range(NODE):
        rate = NIC_GBPS * (0.1 if place == SLOW_NPU else 1.0)
        comm = Communicator(4, 1, rate, 1)
        right = library_time(CollectiveKind.ALL_GATHER, 4 * 16 * MIB, comm, H100).time_ns
        row = found["ALL_GATHER", str(1 + place)]
        assert row["transfer_ns"] == pytest.approx(right, abs=2)
        # three of four parts come over the port
        assert row["bound_ns"] == pytest.approx(3 * 16 * MIB / rate)


@pytest.mark.parametrize("world", WORLDS)
def test_a_slow_link_inside_a_machine_takes_what_its_bytes_need(world: str) -> None:
    network = WORLDS[world]()
    slow = {link_of(network, inside=True): 0.1}
    row = times(run(network, "all_gather", INNER, slow_links=slow))["ALL_GATHER", "1"]
    parts = {"Ring": 7, "NVLS": 8}[row["library_algorithm"]]
    assert row["transfer_ns"] == pytest.approx(parts * 16 * MIB / (0.1 * INSIDE_GBPS), abs=2)


@pytest.mark.parametrize("kind", ["reduce_scatter", "all_gather"])
def test_a_port_that_others_take_over_is_no_faster_than_it_was(kind: str) -> None:
    """Over NVLink its messages reach the ports of seven others, over which sprayed ones spread."""
    network = machines(2, 16, Shape.RAIL_ONLY)
    pair = [SLOW_NPU, SLOW_NPU + NODE]
    calls: list[tuple[str, int, list[list[int]] | None]] = [(kind, MIB, [pair])]
    failed = [f"{SLOW_NPU}-rail{SLOW_NPU}"]
    healthy, around = (
        times(simulate(job(2 * NODE, calls), SYSTEM, network, backend="flow", fail_links=some))
        for some in ([], failed)
    )
    for key, row in around.items():
        assert row["transfer_ns"] >= healthy[key]["transfer_ns"] - 2


def test_networks_that_name_a_slow_link_in_their_file_price_its_group_alone() -> None:
    network = WORLDS["rails"]()
    slow = with_faults(network, slow={link_of(network, inside=False): 0.1})
    assert slow.links is not None
    healthy, found = times(run(network, "all_gather", OUTER)), times(run(slow, "all_gather", OUTER))
    differ = {group for kind, group in healthy if healthy[kind, group] != found[kind, group]}
    assert differ == {str(1 + SLOW_NPU)}


@pytest.mark.parametrize(("backend", "noted"), [("unaware", True), ("flow", False)])
def test_a_way_around_a_failed_link_is_said_to_share_nothing(backend: str, noted: bool) -> None:
    result = run(blocks(), "all_gather", OUTER, backend=backend, fail_links=[f"{SLOW_NPU}-sw1.{SLOW_NPU}"])
    assert any("failed links" in note and "flow and aware" in note for note in result.notes) == noted


def test_results_say_which_links_have_failed_or_are_slow() -> None:
    faults: dict[str, Any] = {"fail_links": ["3-sw1.3"], "slow_links": {"0-sw1.0": 0.1, "1-sw0.0": 0.5}}
    result = run(blocks(), "all_gather", OUTER, **faults)
    told = result.to_dict()["inputs"]["network"]
    assert (told["failed_links"], told["slow_links"]) == (["3-sw1.3"], {"0-sw1.0": 0.1, "1-sw0.0": 0.5})
    note = "links failed: 3-sw1.3; slow: 0-sw1.0 (0.1 times its bandwidth), 1-sw0.0 (0.5 times its bandwidth)"
    assert note in result.notes
    healthy = run(blocks(), "all_gather", OUTER)
    assert not {"failed_links", "slow_links"} & healthy.to_dict()["inputs"]["network"].keys()
    assert not any(note.startswith("links ") for note in healthy.notes)
