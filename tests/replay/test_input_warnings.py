"""What a run would leave out is said: dimensions that no algorithm serves, operations that nothing gives a time."""

import pytest

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.replay import ReplayResult, simulate
from chakra.replay.options import InputWarning

GRID = {
    "topology": ["Ring", "Switch", "FullyConnected"],
    "npus_count": [4, 2, 2],
    "bandwidth": [50.0, 25.0, 25.0],
    "latency": [500.0, 500.0, 500.0],
}


def trace(*, involved: list[bool] | None = None, group: str | None = None, ops: int | None = None) -> Trace:
    builder = TraceBuilder()
    if ops is None:
        builder.collective("all_reduce", size_bytes=1 << 20, involved_dim=involved, group=group)
    else:
        builder.compute(num_ops=ops, tensor_bytes=1000)
    return builder.build()


def run(of: Trace, **system: object) -> ReplayResult:
    groups = {"7": list(range(8))}
    return simulate([of] * 16, {"preferred-dataset-splits": 2, **system}, GRID, comm_groups=groups)


def contradictions(result: ReplayResult) -> list[str]:
    return [warning for warning in result.warnings if isinstance(warning, InputWarning)]


@pytest.mark.parametrize(
    ("names", "which", "whole"),
    [
        (["ring"], "dimensions 1 (Switch of 2), 2 (FullyConnected of 2) carry", '"ring", "halvingDoubling", "direct"'),
        (["ring", "direct"], "dimension 2 (FullyConnected of 2) carries", '"ring", "direct", "direct"'),
    ],
)  # fmt: skip
def test_a_list_shorter_than_the_dimensions(names: list[str], which: str, whole: str) -> None:
    """It keeps its meaning; the dimensions that carry nothing are named, with a list that serves all."""
    result = run(trace(), **{"all-reduce-implementation": names})
    (warning,) = contradictions(result)
    assert f"names {len(names)} algorithm" in warning
    assert f"{which} nothing of it" in warning
    assert f"a list for all of them is [{whole}]" in warning
    idle = result.dimensions[len(names) :]
    assert [row["bytes_per_npu"] for row in idle] == [0] * len(idle)
    served = run(trace(), **{"all-reduce-implementation": [word.strip('"') for word in whole.split(", ")]})
    assert contradictions(served) == []
    assert all(row["bytes_per_npu"] for row in served.dimensions)


@pytest.mark.parametrize(
    "of", [trace(involved=[True, False, False]), trace(group="7"), trace(ops=None, involved=[True])]
)
def test_no_warning_where_nothing_is_left_out(of: Trace) -> None:
    """Of the first dimension alone, of a group (one ring of its own), or by an algorithm that spans all NPUs."""
    replicated = simulate(
        [of] * 16 if "7" not in of.pg_table else [*[of] * 8, *[trace(ops=5)] * 8],
        {"all-reduce-implementation": ["ring"], "roofline-enabled": 1, "peak-perf": 1, "local-mem-bw": 1},
        GRID,
        comm_groups={"7": list(range(8))},
    )
    assert contradictions(replicated) == []
    assert contradictions(run(trace(), **{"all-reduce-implementation": ["oneRing"]})) == []


def test_operations_without_a_time() -> None:
    result = run(trace(ops=10**9))
    (warning,) = contradictions(result)
    assert "node 0: 16 compute nodes with operations and no duration take 0 ns" in warning
    assert int(result.finish_ns.max()) == 0
    timed = run(trace(ops=10**9), **{"roofline-enabled": 1, "peak-perf": 1, "local-mem-bw": 100})
    assert contradictions(timed) == []
    assert int(timed.finish_ns.max()) == 1_000_000
