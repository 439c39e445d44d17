"""Folded runs give what unfolded runs give, to the nanosecond."""

import dataclasses
from typing import Any

import pytest
from flow_worlds import both, link_networks
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_strategies import Setting, options_of, settings_of_systems, workloads

from chakra.builder import TraceBuilder, Workload
from chakra.replay import topologies
from chakra.replay.config.model import Network

SYSTEM: dict[str, Any] = {
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["direct"],
    "endpoint-delay": 10,
}


@settings(max_examples=150, deadline=None)
@given(st.data(), settings_of_systems())
def test_random_workloads_on_building_blocks(data: st.DataObject, setting: Setting) -> None:
    traces = data.draw(workloads(setting))
    both(
        traces,
        setting.system,
        setting.network,
        **options_of(setting),
    )


@settings(max_examples=60, deadline=None)
@given(st.data(), link_networks())
def test_random_workloads_on_random_graphs(data: st.DataObject, network: Network) -> None:
    setting = Setting({"npus_count": [network.npus]}, {**SYSTEM, "preferred-dataset-splits": 2}, None)
    memory = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 100}
    both(data.draw(workloads(setting)), setting.system, network, memory=memory)


def regular(kind: str, ecmp: str) -> Network:
    """A network on which many NPUs are alike."""
    speed: dict[str, Any] = {"bandwidth_gibps": 50.0, "latency_ns": 500.0}
    if kind == "fat tree":
        network = topologies.fat_tree([4, 4, 2], oversubscription=2.0, **speed)
    elif kind == "torus":
        network = topologies.torus([4, 4, 2], **speed)
    elif kind == "rail":
        network = topologies.rail_optimised(
            8, 4, spines=2, node_bandwidth_gibps=400.0, node_latency_ns=200.0, **speed
        )
    else:
        network = topologies.dragonfly(groups=4, routers=4, npus_per_router=2, **speed)
    assert network.links is not None
    return dataclasses.replace(network, links=dataclasses.replace(network.links, ecmp=ecmp))


def step(b: TraceBuilder, tensor: list[str], data: list[str], *, n: int) -> None:
    """Collectives of neighbours and of strangers beside messages to the next but three."""
    last = b.compute(duration_micros=5)
    for k in range(2):
        last = b.collective("all_reduce", size_bytes=1 << 20, group=tensor[b.rank // 4], after=[last])
        b.send((b.rank + 4) % n, size_bytes=300_000, tag=k, after=[last])
        last = b.recv((b.rank - 4) % n, size_bytes=300_000, tag=k, after=[last])
        last = b.collective("all_to_all", size_bytes=1 << 18, group=tensor[b.rank // 4], after=[last])
    b.collective("reduce_scatter", size_bytes=1 << 21, group=data[b.rank % 4], after=[last])


@pytest.mark.parametrize("ecmp", ["spray", "destination", "hash", "first"])
@pytest.mark.parametrize(("kind", "most"), [("fat tree", 20), ("torus", 32), ("rail", 20), ("dragonfly", 32)])
def test_regular_networks(kind: str, most: int, ecmp: str) -> None:
    network = regular(kind, ecmp)
    n = network.npus
    workload = Workload(n)
    tensor = [workload.add_group(range(4 * k, 4 * k + 4)) for k in range(n // 4)]
    data = [workload.add_group(range(k, n, 4)) for k in range(4)]
    workload.run(lambda b: step(b, tensor, data, n=n))
    folded, _ = both(workload, {**SYSTEM, "preferred-dataset-splits": 2}, network)
    if ecmp == "spray" and kind in ("fat tree", "rail"):
        assert folded.raw.partition.n_classes <= most


@pytest.mark.parametrize("oversubscription", [1.0, 2.0])
def test_rings_of_neighbours_on_a_tree_are_one_class(oversubscription: float) -> None:
    """The time of a ring all-reduce in its leaf: 2(n - 1) steps of endpoint delay, transfer and two latencies."""
    n, size, beta = 64, 8 << 20, 50 * 2**30 / 1e9
    network = topologies.fat_tree(
        [8, 8], oversubscription=oversubscription, bandwidth_gibps=50.0, latency_ns=500.0
    )
    workload = Workload(n)
    groups = [workload.add_group(range(8 * k, 8 * k + 8)) for k in range(8)]
    workload.run(lambda b: b.collective("all_reduce", size_bytes=size, group=groups[b.rank // 8]))
    folded, _ = both(workload, {**SYSTEM, "preferred-dataset-splits": 1}, network)
    assert folded.raw.partition.n_classes == 1
    closed = 14 * (10 + size / 8 / beta + 1000)
    assert (
        0 <= int(folded.finish_ns[0]) - closed <= 14 * 2 + 10
    )  # a nanosecond a hop, and the last endpoint delay


@pytest.mark.parametrize(
    "algorithm", ["ring", "direct", "halvingDoubling", "doubleBinaryTree", "rabenseifner", "bruck"]
)
@pytest.mark.parametrize("topology", ["Ring", "Switch", "FullyConnected"])
def test_algorithms(algorithm: str, topology: str) -> None:
    network = {"topology": [topology], "npus_count": [8], "bandwidth": [50], "latency": [500]}
    kind = "all-gather" if algorithm == "bruck" else "all-reduce"
    system = {
        f"{kind}-implementation": [algorithm],
        "preferred-dataset-splits": 4,
        "active-chunks-per-dimension": 2,
    }
    workload = Workload(8)
    workload.run(lambda b: b.collective(kind.replace("-", "_"), size_bytes=1 << 20))
    both(workload, system, network)


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_members_of_rooted_collectives_are_not_alike(kind: str) -> None:
    workload = Workload(8)
    groups = [workload.add_group(range(4)), workload.add_group(range(4, 8))]
    workload.run(lambda b: b.collective(kind, size_bytes=1 << 20, group=groups[b.rank // 4]))
    network = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [50], "latency": [500]}
    folded, _ = both(workload, SYSTEM, network)
    assert folded.raw.partition.n_classes == 4


def test_npus_of_other_speed_are_not_alike() -> None:
    workload = Workload(8)
    groups = [workload.add_group(range(4)), workload.add_group(range(4, 8))]

    def slow(b: TraceBuilder) -> None:
        first = b.compute(duration_micros=50)
        b.collective("all_reduce", size_bytes=1 << 20, group=groups[b.rank // 4], after=[first])

    workload.run(slow)
    network = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [50], "latency": [500]}
    folded, _ = both(workload, SYSTEM, network)
    assert folded.raw.partition.n_classes == 1
    folded, _ = both(workload, SYSTEM, network, npu_scale=[1.0] * 7 + [1.5])
    assert folded.raw.partition.n_classes > 1
    assert folded.finish_ns[7] > folded.finish_ns[0]
