"""Peers of NPUs that have many or few: kept end to end, so that one that talks to all makes no table of all by all."""

from typing import Literal

import numpy as np
import pytest

from chakra.builder import Workload
from chakra.replay import simulate
from chakra.replay.symmetry import classes, flow_classes
from chakra.replay.symmetry.classes import list_codes

NPUS = 12
NETWORK = {"topology": ["Switch"], "npus_count": [NPUS], "bandwidth": [50], "latency": [500]}


def star() -> Workload:
    """All NPUs but the first send it a message, and the last one sends to its neighbour, too."""
    workload = Workload(NPUS)
    for rank in range(1, NPUS):
        workload.builder(rank).send(0, size_bytes=1 << 20)
        workload.builder(0).recv(rank, size_bytes=1 << 20)
    workload.builder(NPUS - 1).send(1, size_bytes=64)
    workload.builder(1).recv(NPUS - 1, size_bytes=64)
    return workload


def test_lists_of_unequal_length_have_equal_numbers_where_they_are_equal() -> None:
    rng = np.random.default_rng(3)
    lists = [tuple(rng.integers(0, 3, rng.integers(0, 5)).tolist()) for _ in range(300)]
    start = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    codes = list_codes(np.array([value for one in lists for value in one], np.int64), start).tolist()
    assert len(set(codes)) == len(set(lists)) == len(set(zip(codes, lists, strict=True)))


def test_an_npu_that_talks_to_all_costs_its_own_peers_only() -> None:
    peers = simulate(star().traces(), {}, NETWORK).workload.peers
    assert len(peers.flat) == 2 * (NPUS - 1) + 2
    assert peers.of(0).tolist() == list(range(1, NPUS))
    assert [peers.of(rank).tolist() for rank in (1, 2, NPUS - 1)] == [[0, NPUS - 1], [0], [0, 1]]
    assert peers.owners().tolist() == [*[0] * (NPUS - 1), 1, 1, *range(2, NPUS - 1), NPUS - 1, NPUS - 1]


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("engine", ["phases", "messages"])
def test_a_star_ends_when_its_last_message_has_crossed(fold: bool, engine: str) -> None:
    """Messages share no links: 1 MiB at 50 GB/s of 2^30 over two hops of 500 ns takes 19,531 + 1,000 ns."""
    run = simulate(star().traces(), {}, NETWORK, fold=fold, engine=engine)
    assert run.finish_ns[0] == 20_531


# 1,000 bytes at 50 GB/s of 2^30 take 18.6 ns, of which building blocks count whole ones, over two hops of 500 ns
@pytest.mark.parametrize(("backend", "message_ns"), [("unaware", 1018), ("flow", 1019)])
def test_long_rows_of_npus_run_unfolded_and_end_at_the_same_time(
    backend: Literal["unaware", "flow"], message_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two equal rows that hand a message on, classes split at the ends only, one at each in a round."""
    length = 24
    workload = Workload(2 * length)
    for rank in range(2 * length):
        builder, place = workload.builder(rank), rank % length
        last = [builder.recv(rank - 1, size_bytes=1000, tag=0)] if place else []
        last = [builder.compute(duration_micros=1, after=last)]
        if place + 1 < length:
            builder.send(rank + 1, size_bytes=1000, tag=0, after=last)
    network = {**NETWORK, "npus_count": [2 * length]}
    runs = [simulate(workload.traces(), {}, network, backend=backend)]
    for module in (classes, flow_classes):
        monkeypatch.setattr(module, "MOST_ROUNDS", 5)
    runs.append(simulate(workload.traces(), {}, network, backend=backend))
    assert [run.raw.partition.n_classes for run in runs] == [length, 2 * length]
    for run in runs:
        assert run.finish_ns.tolist()[:length] == run.finish_ns.tolist()[length:]
        assert int(run.finish_ns[length - 1]) == length * 1000 + (length - 1) * message_ns
