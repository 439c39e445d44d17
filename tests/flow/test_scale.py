"""Flows on networks of single links that are larger than the message engine's tables of routes."""

from typing import Any

import pytest

from chakra.builder import Workload
from chakra.errors import ConfigError, UsageError
from chakra.replay import simulate, topologies
from chakra.replay.config import Network

SYSTEM = {
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["direct"],
    "endpoint-delay": 10,
}
SPEED: dict[str, Any] = {"bandwidth_gibps": 50.0, "latency_ns": 500.0}


@pytest.fixture(scope="module")
def tree() -> Network:
    return topologies.fat_tree([32, 32, 12], oversubscription=2.0, **SPEED)


def test_rings_in_leaves_of_twelve_thousand_npus_take_the_time_of_one(tree: Network) -> None:
    assert tree.npus == 12_288
    workload = Workload(tree.npus)
    groups = [workload.add_group(range(k, k + 32)) for k in range(0, tree.npus, 32)]
    workload.run(lambda b: b.collective("all_reduce", size_bytes=32 << 20, group=groups[b.rank // 32]))
    result = simulate(workload, {**SYSTEM, "preferred-dataset-splits": 1}, tree, backend="flow")
    assert result.raw.partition.n_classes == 1
    closed = 62 * (10 + (1 << 20) / (50 * 2**30 / 1e9) + 1000)
    assert set(result.finish_ns.tolist()) == {int(result.finish_ns[0])}
    assert 0 <= int(result.finish_ns[0]) - closed <= 62 * 2 + 10


@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_others_refuse_it_where_every_message_counts_and_say_which_takes_it(
    tree: Network, backend: str
) -> None:
    workload = Workload(tree.npus)
    workload.run(lambda b: b.collective("all_reduce", size_bytes=1 << 20), uniform=True)
    line = r"12288 NPUs; a network of single links has at most 8192 unless the backend is flow \(--backend flow\)$"
    with pytest.raises(ConfigError, match=line):
        simulate(workload, SYSTEM, tree, backend=backend)


def test_npus_that_do_alike_are_taken_without_contention(tree: Network) -> None:
    """No message needs a table of routes."""
    workload = Workload(tree.npus)
    workload.run(lambda b: b.compute(duration_micros=1), uniform=True)
    assert set(simulate(workload, SYSTEM, tree).finish_ns.tolist()) == {1000}


def test_more_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^131,073 NPUs; a network given link by link has at most 131,072"):
        topologies.torus([131_073], **SPEED)


def test_flows_refuse_more_than_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chakra.replay.networks.flow.link_paths.MAX_LINKED_NPUS", 7)
    network = topologies.torus([8], **SPEED)
    workload = Workload(8)
    workload.run(lambda b: b.collective("all_reduce", size_bytes=1 << 20), uniform=True)
    with pytest.raises(
        ConfigError, match="8 NPUs; a network of single links has at most 7, larger ones are described by"
    ):
        simulate(workload, SYSTEM, network, backend="flow")
