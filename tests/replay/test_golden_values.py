"""Closed forms and golden values of single collectives on 8 NPUs (replay semantics, section 4.7, no contention)."""

import pytest

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.replay import simulate

KINDS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
GOLDEN = {
    ("Ring", "ring"): (117780, 86420, 151016, 125480),
    ("Ring", "direct"): (24860, 18380, 27608, 10520),
    ("Ring", "direct1"): (130200, 80840, 169016, 49400),
    ("Ring", "halvingDoubling"): (86028, 54824, 150872, None),
    ("Switch", "ring"): (145780, 100420, 165016, 181480),
    ("Switch", "direct"): (20860, 14380, 23608, 6520),
    ("Switch", "direct1"): (122200, 76840, 165016, 45400),
    ("Switch", "halvingDoubling"): (82028, 52824, 148872, None),
    ("FullyConnected", "ring"): (117780, 86420, 151016, 125480),
    ("FullyConnected", "direct"): (16860, 12380, 21608, 4520),
    ("FullyConnected", "direct1"): (94200, 62840, 151016, 31400),
    ("FullyConnected", "halvingDoubling"): (70028, 46824, 142872, None),
}
#: first and last NPU to finish
TREES = {"Ring": (394164, 443792), "Switch": (389164, 438292), "FullyConnected": (380164, 427792)}
ROWS = [
    (topology, algorithm, kind, value)
    for (topology, algorithm), values in GOLDEN.items()
    for kind, value in zip(KINDS, values, strict=True)
    if value is not None
]
RATE = 50 * (1 << 30) / 1e9


def system(algorithm: str) -> dict[str, object]:
    """The system of the golden values."""
    names = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
    return {
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 4,
        "local-mem-bw": 50,
        **{f"{name}-implementation": [algorithm] for name in names},
    }


def network(topology: str, npus: int = 8) -> dict[str, object]:
    """One dimension of 50 GB/s and 500 ns."""
    return {"topology": [topology], "npus_count": [npus], "bandwidth": [50.0], "latency": [500.0]}


def one(kind: str, size: int = 1 << 20) -> Trace:
    """A trace of one collective."""
    builder = TraceBuilder()
    builder.collective(kind, size_bytes=size)
    return builder.build()


@pytest.mark.parametrize(("topology", "algorithm", "kind", "value"), ROWS)
@pytest.mark.parametrize("compat", [None, "astra-sim"])
def test_golden_values(topology: str, algorithm: str, kind: str, value: int, compat: str | None) -> None:
    result = simulate([one(kind)] * 8, system(algorithm), network(topology), compat=compat)
    assert result.finish_ns.tolist() == [value] * 8
    assert result.exposed_comm_ns.tolist() == [value] * 8


@pytest.mark.parametrize("topology", TREES)
def test_golden_values_of_trees(topology: str) -> None:
    result = simulate([one("all_reduce")] * 8, system("doubleBinaryTree"), network(topology))
    assert (int(result.finish_ns.min()), int(result.finish_ns.max())) == TREES[topology]


@pytest.mark.parametrize("npus", [2, 3, 8, 64, 1024])
@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("active", [1, 3])
def test_closed_form_of_rings(npus: int, splits: int, active: int) -> None:
    chunk = npus * 4096
    config = {**system("ring"), "preferred-dataset-splits": splits, "active-chunks-per-dimension": active}
    result = simulate([one("all_reduce", chunk * splits)] * npus, config, network("Ring", npus))
    hop = int(500 + 4096 / RATE)
    tau = 10 + 2 * (npus - 1) * (hop + 10) + (npus - 1) * 3 * int(4096 / 50)
    assert result.finish_ns.tolist() == [tau * -(-splits // active)] * npus


def test_a_thousand_equal_npus_are_one_class() -> None:
    result = simulate([one("all_reduce", 1 << 26)] * 1024, system("ring"), network("Ring", 1024))
    assert result.raw.partition.n_classes == 1
    assert result.raw.events < 100
