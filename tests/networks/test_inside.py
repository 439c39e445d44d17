"""`routing: inside`: which links lie in a machine, and the ways that follow."""

from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import Workload
from chakra.errors import ConfigError
from chakra.replay import simulate
from chakra.replay.config import load_network
from chakra.replay.networks.routes import weights

#: two machines of two NPUs; in each the NPUs meet behind ports of a switch, and all four at one leaf
PORTS: list[list[Any]] = [
    *([npu, f"port{npu}", 400, 10] for npu in range(4)),
    *([f"port{npu}", f"asic{npu // 2}", 400, 10] for npu in range(4)),
    *([npu, "leaf", 50, 500] for npu in range(4)),
]


def network(routing: str) -> dict[str, Any]:
    return {"npus_count": [2, 2], "links": PORTS, "routing": routing}


@pytest.mark.parametrize(("routing", "latency", "rate"), [("inside", 40, 400), ("hops", 1000, 50)])
def test_a_message_stays_in_its_machine_behind_switches_of_several_parts(
    routing: str, latency: int, rate: int
) -> None:
    """NPU, port, switch, port, NPU: four links that nobody else reaches, instead of two over the leaf."""
    workload = Workload(4)
    workload.builder(0).send(1, size_bytes=1 << 20)
    workload.builder(1).recv(0, size_bytes=1 << 20)
    for rank in (2, 3):
        workload.builder(rank).compute(duration_ns=1)
    result = simulate(workload, {}, network(routing), backend="flow")
    assert int(result.finish_ns[1]) == pytest.approx(latency + (1 << 20) / (rate * (1 << 30) / 1e9), abs=1)


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_links_of_a_machine_are_those_of_parts_that_only_it_reaches(data: st.DataObject) -> None:
    """Held against the connected parts of the graph of all switches."""
    each, machines, switches = data.draw(st.tuples(st.integers(2, 3), st.integers(2, 4), st.integers(1, 7)))
    npus = each * machines
    names: list[int | str] = [*range(npus), *(f"s{k}" for k in range(switches))]
    pairs = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda pair: pair[0] != pair[1])
    drawn = data.draw(st.lists(pairs, max_size=20))
    # every NPU reaches every other one over a switch that belongs to no machine
    chosen = {frozenset(map(str, pair)): pair for pair in [*drawn, *((npu, "all") for npu in range(npus))]}
    links = [[a, b, 50, 500] for a, b in chosen.values()]
    net = load_network({"npus_count": [each, machines], "links": links, "routing": "inside"})
    assert net.links is not None
    graph = nx.Graph([(a, b) for a, b in chosen.values()])
    machine: dict[int | str, set[int]] = {npu: {npu // each} for npu in range(npus)}
    inner = graph.subgraph([name for name in graph if isinstance(name, str)])
    for part in nx.connected_components(inner):
        reached = {there // each for here in part for there in graph[here] if isinstance(there, int)}
        machine |= dict.fromkeys(part, reached)
    vertices = [*range(npus), *net.links.vertices]
    expected = [
        len(machine[vertices[x.src]]) == 1 and machine[vertices[x.src]] == machine[vertices[x.dst]]
        for x in net.links.links
    ]
    assert (weights(net) == 1).tolist() == expected


def test_one_logical_dimension_has_no_machines() -> None:
    with pytest.raises(
        ConfigError, match=r"key 'routing' is 'inside', which needs machines: .*'npus_count', such as 8,2"
    ):
        load_network(network("inside") | {"npus_count": [4]})
    assert load_network(network("hops") | {"npus_count": [4]}).links is not None
