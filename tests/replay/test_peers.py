"""Peers of NPUs that have many or few: kept end to end, so that one that talks to all makes no table of all by all."""

import numpy as np
import pytest

from chakra.builder import Workload
from chakra.replay import simulate
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
