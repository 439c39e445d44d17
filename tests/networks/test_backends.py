"""Two backends on one workload: who ends when on which, and which collective makes the difference."""

from typing import Any

import pytest
from network_runs import random_workload, system

from chakra.builder import TraceBuilder, Workload
from chakra.errors import ChakraError, UsageError
from chakra.replay import compare_backends, simulate
from chakra.replay.engines.messages import engine

N, SIZE = 8, 1 << 20
NETWORK: dict[str, Any] = {"topology": ["Switch"], "npus_count": [N], "bandwidth": [50], "latency": [500]}


def test_the_difference_is_that_of_the_collective_that_queues() -> None:
    """A ring's messages share no link; direct ones to a port do: (n - 2) messages longer (collective-costs.md)."""
    workload = Workload(N)

    def program(b: TraceBuilder) -> None:
        first = b.collective("all_gather", size_bytes=SIZE)
        b.collective("all_to_all", size_bytes=N * SIZE, after=first)

    workload.run(program)
    described = system(**{"all-to-all-implementation": ["direct"], "preferred-dataset-splits": 1})
    network = NETWORK | {"topology": ["FullyConnected"]}
    found = compare_backends(workload, described, network, first="unaware", second="aware")
    assert found.backends == ("unaware", "aware")
    assert found.difference_ns.tolist() == [0] * N  # a link for each pair: nothing waits

    found = compare_backends(workload, described, NETWORK, first="unaware", second="aware")
    rate = 50 * (1 << 30) / 1e9
    ring, direct = (
        next(c for c in found.collectives if c.kind == kind) for kind in ("ALL_GATHER", "ALL_TO_ALL")
    )
    # through a Switch: stored and forwarded once more a message; and behind those that came before at the port down
    assert ring.difference_ns == (N - 1) * (2 * (500 + int(SIZE / rate)) - (1000 + int(SIZE / rate)))
    assert direct.difference_ns > (N - 2) * int(SIZE / rate)
    assert found.collectives[0] == max(found.collectives, key=lambda c: abs(c.difference_ns))
    assert set(found.difference_ns.tolist()) == {ring.difference_ns + direct.difference_ns}
    assert found.step_ns[1] - found.step_ns[0] == ring.difference_ns + direct.difference_ns


@pytest.mark.parametrize("seed", range(4))
def test_both_results_are_those_of_single_runs(seed: int) -> None:
    """Every NPU and every collective of groups is there, once."""
    workload = random_workload(N, seed)
    found = compare_backends(workload, system(), NETWORK, first="aware", second="flow")
    runs = [simulate(workload, system(), NETWORK, backend=name) for name in ("aware", "flow")]
    assert found.finish_ns.tolist() == [run.finish_ns.tolist() for run in runs]
    assert found.step_ns == tuple(int(run.finish_ns.max()) for run in runs)
    for k, result in enumerate(found.results):
        times = sorted(row["end_ns"] - row["ready_ns"] for row in result.collectives)
        assert times == sorted(item.time_ns[k] for item in found.collectives)
        assert times
    differences = [abs(item.difference_ns) for item in found.collectives]
    assert differences == sorted(differences, reverse=True)


def test_equal_collectives_are_told_apart_by_their_order() -> None:
    workload = Workload(4)

    def program(b: TraceBuilder) -> None:
        before: Any = ()
        for _ in range(3):
            before = b.collective("all_reduce", size_bytes=SIZE, after=before)

    workload.run(program)
    network = NETWORK | {"npus_count": [4]}
    found = compare_backends(workload, system(), network, first="aware", second="flow")
    rows = sorted(found.collectives, key=lambda item: item.place)
    assert [item.place for item in rows] == [0, 1, 2]
    assert [item.ready_ns[0] for item in rows] == sorted({item.ready_ns[0] for item in rows})


def test_what_cannot_be_compared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = random_workload(4, 0)
    network = NETWORK | {"npus_count": [4]}
    with pytest.raises(UsageError, match="'flow' is given twice"):
        compare_backends(workload, system(), network, first="flow", second="flow")
    with pytest.raises(ChakraError, match="'flo' is not one of"):
        compare_backends(workload, system(), network, first="flo", second="flow")
    with pytest.raises(UsageError, match="backend: here they are first, 'aware', and second, 'flow'"):
        compare_backends(workload, system(), network, first="aware", second="flow", backend="flow")
    monkeypatch.setattr(engine, "PLAIN_STEP", 1)
    with pytest.raises(UsageError, match="ended before its end"):
        compare_backends(
            random_workload(N, 0),
            system(),
            NETWORK,
            first="aware",
            second="flow",
            progress=lambda *_: False,
        )
