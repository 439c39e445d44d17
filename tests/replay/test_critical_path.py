"""The critical path begins where the run begins and has no gap that a node of no time could tear."""

import pytest

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.replay import simulate

SYSTEM = {"all-reduce-implementation": ["ring"]}
NETWORK = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}


def traces(children: int) -> list[Trace]:
    """A message, then a collective of 0 bytes that waits for its slot; `children` nodes of 0 ns follow it."""
    receiver = TraceBuilder(0, 2)
    receiver.recv(1, size_bytes=1 << 20)
    met = receiver.collective("all_reduce", size_bytes=0)
    receiver.compute("tail", duration_ns=9000, after=met)
    sender = TraceBuilder(1, 2)
    sender.send(0, size_bytes=1 << 20)
    met = sender.collective("all_reduce", size_bytes=0)
    for number in range(children):
        sender.compute(f"zero {number}", duration_ns=0, after=met, cpu=True)
    return [receiver.build(), sender.build()]


@pytest.mark.parametrize("children", [0, 1, 3])
@pytest.mark.parametrize("engine", ["phases", "messages"])
def test_nodes_of_no_time_do_not_cut_the_path(children: int, engine: str) -> None:
    path = simulate(traces(children), SYSTEM, NETWORK, engine=engine).records("critical_path")
    assert [(row["npu"], row["name"]) for row in path] == [
        (1, "send"), (1, "all_reduce"), (0, "all_reduce"), (0, "tail")
    ]  # fmt: skip
    assert path[0]["issue_ns"] == 0
    assert path[-1]["finish_ns"] == 29031
