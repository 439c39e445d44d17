"""Workloads whose ranks wait for each other for ever: found before a run."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.builder import Workload
from chakra.cli.main import run as chakra
from chakra.errors import StallError
from chakra.replay import simulate
from chakra.replay.checks.run import Finding
from chakra.replay.trial import try_traces

SYSTEM = {"all-reduce-implementation": ["ring"]}
KIB = 1024


def network(npus: int) -> dict[str, object]:
    """One ring."""
    return {"topology": ["Ring"], "npus_count": [npus], "bandwidth": [50.0], "latency": [500.0]}


def found(workload: Workload) -> list[Finding]:
    """All that is told of a workload."""
    traces = workload.traces()
    return try_traces(traces, {name: [ranks] for name, ranks in workload.groups.items()}, len(traces))


def stalls(workload: Workload, comm_streams: int = 1) -> str | None:
    """What a replay says that cannot end."""
    traces = workload.traces()
    try:
        simulate(traces, SYSTEM, network(len(traces)), comm_groups=workload.groups, comm_streams=comm_streams)
    except StallError as error:
        return str(error)
    return None


def ring(npus: int, *, receive_first: int) -> Workload:
    """Every rank sends to the next one and receives from the one before; so many of them receive first."""
    workload = Workload(npus)
    for rank in range(npus):
        builder = workload.builder(rank)
        if rank < receive_first:
            got = builder.recv((rank - 1) % npus, size_bytes=KIB)
            builder.send((rank + 1) % npus, size_bytes=KIB, after=[got])
        else:
            sent = builder.send((rank + 1) % npus, size_bytes=KIB)
            builder.recv((rank - 1) % npus, size_bytes=KIB, after=[sent])
    return workload


def crossed(*, chained: bool) -> Workload:
    """Two ranks that issue the collectives of two groups in opposite orders."""
    workload = Workload(2)
    groups = [workload.add_group([0, 1]), workload.add_group([0, 1])]
    for rank, order in enumerate((groups, groups[::-1])):
        builder = workload.builder(rank)
        first = builder.collective("all_reduce", size_bytes=KIB, group=order[0])
        builder.collective("all_reduce", size_bytes=KIB, group=order[1], after=[first] if chained else [])
    return workload


@pytest.mark.parametrize("npus", [2, 3, 64])
def test_a_ring_of_ranks_that_all_receive_first(npus: int) -> None:
    (finding,) = found(ring(npus, receive_first=npus))
    assert (finding.severity, finding.stall) == ("error", True)
    assert finding.message.startswith(
        f"no replay can end: {npus} of {npus} NPUs cannot finish; NPU 0 receives 1024 bytes"
    )
    assert f"wait cycle: NPU 0 -> {npus - 1} -> " in finding.message
    # a replay says the same, with a time before it
    told = stalls(ring(npus, receive_first=npus))
    assert told is not None
    assert told.removeprefix("the replay stalled at 0 ns: ") == finding.message.removeprefix(
        "no replay can end: "
    )


@pytest.mark.parametrize("npus", [2, 3, 64])
def test_one_rank_that_sends_first_lets_all_go_on(npus: int) -> None:
    workload = ring(npus, receive_first=npus - 1)
    assert found(workload) == []
    assert stalls(workload) is None


def test_chained_collectives_of_two_groups_in_opposite_orders() -> None:
    (finding,) = found(crossed(chained=True))
    assert (finding.severity, finding.stall) == ("error", True)
    assert "wait cycle: NPU 0 -> 1 -> 0" in finding.message
    assert stalls(crossed(chained=True)) is not None
    assert stalls(crossed(chained=True), comm_streams=4) is not None


def test_free_collectives_of_two_groups_in_opposite_orders_need_both_in_flight() -> None:
    """Nothing but the room for one at a time keeps them apart: no error, as a replay may give more."""
    (finding,) = found(crossed(chained=False))
    assert (finding.severity, finding.stall) == ("warning", True)
    assert "with one collective or message in flight at a time" in finding.message
    assert "--comm-streams" in finding.message
    assert stalls(crossed(chained=False)) is not None
    assert stalls(crossed(chained=False), comm_streams=2) is None


def test_an_order_that_dependencies_leave_open_is_no_error() -> None:
    """Of two receives that any message of rank 1 ends, rank 0 answers the later one; times decide which that is."""
    workload = Workload(2)
    zero, one = workload.builder(0), workload.builder(1)
    zero.recv(1, size_bytes=KIB)
    later = zero.recv(1, size_bytes=KIB)
    zero.send(1, size_bytes=KIB, after=[later])
    one.send(0, size_bytes=KIB)
    answer = one.recv(0, size_bytes=KIB)
    one.send(0, size_bytes=KIB, after=[answer])
    (finding,) = found(workload)
    assert (finding.severity, finding.stall) == ("warning", True)
    assert "dependencies do not fix the order" in finding.message


def awaited(**kind: Any) -> Workload:
    """Rank 2 joins a collective when rank 0, which has, has sent it a message."""
    workload = Workload(4)
    for rank in range(4):
        builder = workload.builder(rank)
        first = [builder.recv(0, size_bytes=KIB)] if rank == 2 else []
        joined = builder.collective(**kind, after=first)
        if rank == 0:
            builder.send(2, size_bytes=KIB, after=[joined])
    return workload


@pytest.mark.parametrize("flags", [None, [True, True], [True] * 10])
def test_who_has_ended_a_collective_of_all_has_waited_for_all(flags: list[bool] | None) -> None:
    more = {} if flags is None else {"involved_dim": flags}
    (finding,) = found(awaited(kind="all_reduce", size_bytes=KIB, **more))
    assert finding.severity == "error"
    assert "wait cycle: NPU 0 -> 2 -> 0" in finding.message


@pytest.mark.parametrize("flags", [[True, False], [True], [False, True]])
def test_a_collective_of_some_dimensions_waits_for_their_members_alone(flags: list[bool]) -> None:
    """NPU 2 is in another row of two than NPU 0."""
    workload = awaited(kind="all_reduce", size_bytes=KIB, involved_dim=flags)
    assert found(workload) == []
    grid = {"topology": ["Ring"] * 2, "npus_count": [2, 2], "bandwidth": [50.0] * 2, "latency": [500.0] * 2}
    system = {"all-reduce-implementation": ["ring", "ring"]}
    if flags[0]:
        assert simulate(workload.traces(), system, grid).npus == 4


def test_unequal_shares_wait_for_those_with_whom_they_are_exchanged() -> None:
    """NPUs 0 and 1 exchange data, and so do 2 and 3."""
    workload = Workload(4)
    for rank in range(4):
        builder = workload.builder(rank)
        first = [builder.recv(0, size_bytes=KIB)] if rank == 2 else []
        shares = [KIB if peer // 2 == rank // 2 else 0 for peer in range(4)]
        joined = builder.collective(
            "all_to_all", size_bytes=sum(shares), in_split_bytes=shares, out_split_bytes=shares, after=first
        )
        if rank == 0:
            builder.send(2, size_bytes=KIB, after=[joined])
    assert found(workload) == []
    assert simulate(workload.traces(), {"all-to-all-implementation": ["direct"]}, network(4)).npus == 4


def test_durations_that_no_run_can_add_up() -> None:
    workload = Workload(2)
    for rank in range(2):
        builder = workload.builder(rank)
        first = builder.compute(duration_ns=1 << 61)
        builder.compute(duration_ns=1 << 62, after=[first])
    finding = found(workload)[0]
    assert finding.severity == "error"
    assert "the sum of all durations does not fit 64 bits" in finding.message


def test_the_command_names_the_circle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring(4, receive_first=4).write(tmp_path / "w")
    assert chakra(["validate", str(tmp_path / "w")]) == 2
    shown = capsys.readouterr()
    assert "error: no replay can end: 4 of 4 NPUs cannot finish" in shown.out
    assert shown.err.splitlines()[-1].endswith("1 error in 4 traces")


#: what ranks of a random job do one after the other: collectives of its groups, and messages between two of its ranks
STEPS = st.lists(
    st.tuples(st.sampled_from(["all", "pair", "message"]), st.integers(0, 3), st.integers(0, 3)), max_size=8
)


@given(steps=STEPS, data=st.data())
def test_of_ranks_that_do_one_thing_after_the_other_it_tells_what_a_replay_tells(
    steps: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    """Each rank does its part of the job's steps in an order of its own."""
    npus = 4
    workload = Workload(npus)
    pairs = {
        pair: workload.add_group(list(pair))
        for pair in dict.fromkeys((min(one, other), max(one, other)) for _, one, other in steps)
        if pair[0] != pair[1]
    }
    mine: list[list[tuple[str, int, int]]] = [[] for _ in range(npus)]
    for what, one, other in steps:
        if what == "all":
            for rank in range(npus):
                mine[rank].append(("all", 0, 0))
        elif one != other:
            for rank in (one, other):
                mine[rank].append((what, one, other))
    for rank, parts in enumerate(mine):
        builder = workload.builder(rank)
        last = [builder.compute(duration_ns=10 * rank)]
        for what, one, other in data.draw(st.permutations(parts)):
            if what == "message":
                end = builder.send if rank == one else builder.recv
                last = [end(other if rank == one else one, size_bytes=KIB, after=last)]
            else:
                group = None if what == "all" else pairs[min(one, other), max(one, other)]
                last = [builder.collective("all_reduce", size_bytes=KIB, group=group, after=last)]
    findings = [finding for finding in found(workload) if finding.stall]
    assert [finding.severity for finding in findings] == ["error"] * (stalls(workload) is not None)
