"""Collectives of some dimensions of the network (`involved_dim`) are those of a network of these dimensions alone."""

import math

import pytest

from chakra.builder import TraceBuilder
from chakra.replay import ReplayResult, simulate

KINDS = (
    "ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "BROADCAST", "REDUCE", "SCATTER", "GATHER",
    "REDUCE_SCATTER_BLOCK", "BARRIER",
)  # fmt: skip
BUS = {"model-shared-bus": 1, "L": 1, "o": 2, "g": 3, "G": 0.1}


def run(kind: str, dims: list[int], involved: list[bool] | None, backend: str, bus: bool) -> ReplayResult:
    """A collective of 120,000 bytes on dimensions of 2, 3 and 4 NPUs, some of which the network has."""
    npus = [2, 3, 4]
    network = {
        "topology": [["FullyConnected", "Switch", "Ring"][k] for k in dims],
        "npus_count": [npus[k] for k in dims],
        "bandwidth": [[50, 20, 5][k] for k in dims],
        "latency": [[10, 20, 30][k] for k in dims],
    }
    system = {
        f"{name}-implementation": ["ring"] * len(dims)
        for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    } | {"endpoint-delay": 1, "preferred-dataset-splits": 2}
    members = math.prod(npus[k] for k in dims)
    rank = TraceBuilder(0, members)
    rank.collective(kind, size_bytes=0 if kind == "BARRIER" else 120_000, involved_dim=involved)
    return simulate([rank.build()] * members, system | (BUS if bus else {}), network, backend=backend)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("backend", "bus"), [("unaware", False), ("unaware", True), ("aware", False), ("flow", False)]
)
@pytest.mark.parametrize("some", [[0], [2], [0, 1], [1, 2]])
def test_dimensions_that_take_no_part_do_not_count(
    kind: str, some: list[int], backend: str, bus: bool
) -> None:
    """A scatter moved 1/24 of its bytes to each member, also where 2, 4, 6 or 12 share them."""
    part = run(kind, [0, 1, 2], [k in some for k in range(3)], backend, bus)
    alone = run(kind, some, None, backend, bus)
    assert set(part.finish_ns.tolist()) == set(alone.finish_ns.tolist())
    figures = ("bytes", "algbw_gbps", "busbw_gbps", "bound_ns")
    (row,), (other,) = part.collectives, alone.collectives
    assert [row[name] for name in figures] == [other[name] for name in figures]
    assert row["exchanging"] == other["members"]
    if backend != "unaware" and kind != "BARRIER":
        assert row["transfer_ns"] >= int(row["bound_ns"])
