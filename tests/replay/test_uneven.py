"""Collectives of unequal shares: what moves between whom is what the members say, on every engine and network."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chakra.builder import TraceBuilder, Workload
from chakra.errors import ChakraError, ConfigError, TraceError, WorkloadError
from chakra.et import CommType, Trace, read_trace, write_trace
from chakra.et.same_collective import Agreed, Differs, Side, agree
from chakra.replay import ReplayResult, simulate
from chakra.replay.collectives.call import Uneven
from chakra.replay.collectives.steps import Do
from chakra.replay.collectives.uneven import chunks_of, even_bytes, pair_bytes, uneven_steps

GB_PER_S = 50 * 2**30 / 1e9
KINDS = ("all_to_all", "all_gather", "reduce_scatter", "gather", "scatter")
ALGORITHMS = ("ring", "direct", "direct2", "halvingDoubling", "bruck", "recursiveDoubling", "rabenseifner")


def machine(algorithm: str, splits: int = 1) -> dict[str, Any]:
    keys = ("all-to-all", "all-gather", "reduce-scatter")
    return {
        **{f"{key}-implementation": [algorithm] for key in keys},
        "endpoint-delay": 10, "preferred-dataset-splits": splits, "local-mem-bw": 1600,
    }  # fmt: skip


def network(n: int, topology: str = "FullyConnected") -> dict[str, Any]:
    return {"topology": [topology], "npus_count": [n], "bandwidth": [50], "latency": [500]}


def sides_of(kind: str, sizes: np.ndarray[Any, Any], rank: int) -> dict[str, Any]:
    """What a rank's node says of a collective: an all-to-all's (n, n) bytes, or the members' shares."""
    if kind == "all_to_all":
        sent, received = sizes[rank].tolist(), sizes[:, rank].tolist()
        return {"size_bytes": sum(sent), "in_split_bytes": sent, "out_split_bytes": received}
    shares = sizes.tolist()
    if kind in ("all_gather", "gather"):
        return {"size_bytes": shares[rank], "out_split_bytes": shares}
    return {"size_bytes": sum(shares), "in_split_bytes": shares}


def traces_of(
    kind: str,
    sizes: np.ndarray[Any, Any],
    groups: list[list[int]] | None = None,
    late: list[int] | None = None,
) -> list[Trace]:
    """One collective on all ranks, or on each of some groups; ranks may come late, by some ns."""
    n = len(sizes) if groups is None else sum(len(group) for group in groups)
    workload = Workload(n)
    names = [workload.add_group(group) for group in groups or ()]
    for rank in range(n):
        group = next((k for k, ranks in enumerate(groups or ()) if rank in ranks), -1)
        place = rank if group < 0 else (groups or [])[group].index(rank)
        builder = workload.builder(rank)
        before = [builder.compute("before", duration_ns=late[rank])] if late else []
        builder.collective(
            kind, group=names[group] if group >= 0 else None, after=before, **sides_of(kind, sizes, place)
        )
    return workload.traces()


def allowed(kind: str, algorithm: str, n: int) -> bool:
    if kind == "all_to_all" and algorithm in ("halvingDoubling", "recursiveDoubling", "rabenseifner"):
        return False
    return algorithm != "halvingDoubling" or n & (n - 1) == 0


def do_of(kind: str) -> Do:
    return {"all_to_all": Do.ALL_TO_ALL, "reduce_scatter": Do.REDUCE_SCATTER}.get(kind, Do.ALL_GATHER)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, np.ndarray[Any, Any]]:
    n = draw(st.integers(2, 8))
    kind = draw(st.sampled_from(KINDS))
    algorithm = draw(st.sampled_from([a for a in ALGORITHMS if allowed(kind, a, n)]))
    size = st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 1 << 20))
    shape = (n, n) if kind == "all_to_all" else (n,)
    values = draw(st.lists(size, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    return kind, algorithm, np.array(values, np.int64).reshape(shape)


def test_the_longest_message_decides_a_direct_all_to_all() -> None:
    """The splits of mixture-of-experts steps: 16 MiB from rank 3 to rank 1, 500 ns away; rank 1 brings in nothing."""
    sizes = np.zeros((4, 4), np.int64)
    sizes[0, 1], sizes[2, :], sizes[3, 1] = 2 << 20, 2 << 20, 16 << 20
    traces = traces_of("all_to_all", sizes)
    short, long = (20 + 500 + int(size / GB_PER_S) for size in (2 << 20, 16 << 20))
    for backend, engine in itertools.product(("unaware", "aware"), ("auto", "messages")):
        result = simulate(traces, machine("direct"), network(4), backend=backend, engine=engine)
        # rank 2 gets something from itself only
        assert result.finish_ns.tolist() == [short, long, 20, short]


@given(
    cases(),
    st.integers(1, 5),
    st.sampled_from(["Ring", "Switch", "FullyConnected"]),
    st.booleans(),
    st.lists(st.integers(0, 30_000), min_size=8, max_size=8),
)
@settings(max_examples=200, deadline=None)
def test_both_engines_agree(
    case: tuple[str, str, np.ndarray[Any, Any]], splits: int, topology: str, rendezvous: bool, late: list[int]
) -> None:
    kind, algorithm, sizes = case
    traces = traces_of(kind, sizes, late=late)
    chosen, every = (
        simulate(
            traces,
            machine(algorithm, splits),
            network(len(sizes), topology),
            engine=engine,
            rendezvous=rendezvous,
        )
        for engine in ("phases", "messages")
    )
    assert chosen.finish_ns.tolist() == every.finish_ns.tolist()
    for mine, theirs in zip(chosen.dimensions, every.dimensions, strict=True):
        if rendezvous:
            break  # requests are messages of their own to the one engine only
        assert mine["bytes_per_npu"] == pytest.approx(theirs["bytes_per_npu"], rel=1e-12)


@given(cases(), st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_what_is_sent_is_what_is_received(case: tuple[str, str, np.ndarray[Any, Any]], splits: int) -> None:
    """The bytes of all links are those of the blocks, times the messages that the algorithm carries a block in."""
    kind, algorithm, sizes = case
    n = len(sizes)
    result = simulate(traces_of(kind, sizes), machine(algorithm, splits), network(n), backend="aware")
    moved = {(row["from"], row["to"]): row["bytes"] for row in result.links if row["bytes"]}
    if len(set(sizes.reshape(-1).tolist())) == 1:
        return  # equal shares are an even collective, with its own rounding
    do = do_of(kind)
    if algorithm.startswith("direct"):
        pairs = pair_bytes(do, sizes)
        wanted = {(int(a), int(b)): int(pairs[a, b]) for a, b in np.argwhere(pairs)}
        assert moved == wanted
        return
    steps = [uneven_steps(algorithm, do, Uneven(part), 1) for part in chunks_of(sizes, splits)]
    assert sum(moved.values()) == sum(int(table.messages[:, 2].sum()) for table in steps if table is not None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_block_reaches_every_member_that_needs_it(kind: str, algorithm: str) -> None:
    """Replay a schedule block by block: an all-gather's messages carry what is there, and in the end all have all."""
    for n in range(2, 9):
        if not allowed(kind, algorithm, n) or algorithm.startswith("direct"):
            continue
        do = do_of(kind)
        rng = np.random.default_rng(n)
        sizes = rng.integers(0, 1000, (n, n) if do is Do.ALL_TO_ALL else n)
        steps = uneven_steps(algorithm, do, Uneven(sizes), 1)
        assert steps is not None
        received = np.zeros(n, np.int64)
        sent = np.zeros(n, np.int64)
        np.add.at(received, steps.messages[:, 1], steps.messages[:, 2])
        np.add.at(sent, steps.messages[:, 0], steps.messages[:, 2])
        net = received - sent
        if do is Do.ALL_TO_ALL:
            assert net.tolist() == (sizes.sum(axis=0) - sizes.sum(axis=1)).tolist()
            assert (received >= sizes.sum(axis=0) - np.diagonal(sizes)).all()
        elif do is Do.ALL_GATHER:
            assert (received >= sizes.sum() - sizes).all()
            if algorithm in ("ring", "halvingDoubling", "bruck"):
                assert received.tolist() == (sizes.sum() - sizes).tolist()
        else:
            assert (sent >= sizes.sum() - sizes).all()
            if algorithm in ("ring", "halvingDoubling", "bruck"):
                assert sent.tolist() == (sizes.sum() - sizes).tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("n", [4, 5])
def test_equal_shares_given_as_lists_are_the_even_collective(kind: str, algorithm: str, n: int) -> None:
    """To the tick, on both backends and engines, of all ranks and of groups."""
    if not allowed(kind, algorithm, n):
        return
    share = 3001
    sizes = np.full((n, n) if kind == "all_to_all" else n, share)
    plain = Workload(2 * n)
    groups = [list(range(n)), list(range(n, 2 * n))]
    names = [plain.add_group(group) for group in groups]
    size = share if kind in ("all_gather", "gather") else n * share
    for rank in range(2 * n):
        plain.builder(rank).collective(kind, size_bytes=size, group=names[rank // n])
    lists = traces_of(kind, sizes, groups)
    net = {"topology": ["Ring", "Switch"], "npus_count": [n, 2], "bandwidth": [50, 20], "latency": [500, 700]}
    for backend, engine in itertools.product(("unaware", "aware", "flow"), ("auto", "messages")):
        given_groups = dict(zip(names, groups, strict=True))
        a, b = (
            simulate(t, machine(algorithm, 3), net, comm_groups=given_groups, backend=backend, engine=engine)
            for t in (plain.traces(), lists)
        )
        assert a.finish_ns.tolist() == b.finish_ns.tolist()
        assert a.dimensions == b.dimensions
        assert a.links == b.links


@given(
    st.integers(2, 6), st.integers(1, 3), st.sampled_from(KINDS), st.sampled_from(["ring", "direct", "bruck"])
)
@settings(max_examples=60, deadline=None)
def test_almost_equal_shares_take_almost_as_long(n: int, splits: int, kind: str, algorithm: str) -> None:
    """A byte more for one member changes the time by what a byte takes: no other rules hold for unequal shares."""
    share = 40_000
    even = np.full((n, n) if kind == "all_to_all" else n, share)
    odd = even.copy()
    odd.reshape(-1)[-1] += 1
    if kind == "all_to_all":
        odd = even.copy()
        odd[0, 1] += 1
    times = [
        int(simulate(traces_of(kind, sizes), machine(algorithm, splits), network(n)).finish_ns.max())
        for sizes in (even, odd)
    ]
    assert abs(times[1] - times[0]) <= 2 * n * splits


@given(cases(), st.sampled_from([1, 2, 3]))
@settings(max_examples=60, deadline=None)
def test_folding_changes_nothing(case: tuple[str, str, np.ndarray[Any, Any]], blocks: int) -> None:
    """Groups that share out alike are simulated once, and nobody in such a group stands for another."""
    kind, algorithm, sizes = case
    n = len(sizes)
    groups = [list(range(k * n, (k + 1) * n)) for k in range(blocks + 1)]
    traces = traces_of(kind, sizes, groups)
    net = {
        "topology": ["Switch", "Switch"], "npus_count": [n, blocks + 1], "bandwidth": [50, 20], "latency": [500, 700]
    }  # fmt: skip
    names = {str(k + 1): group for k, group in enumerate(groups)}
    folded, discrete = (
        simulate(traces, machine(algorithm, 2), net, comm_groups=names, fold=fold) for fold in (True, False)
    )
    assert folded.finish_ns.tolist() == discrete.finish_ns.tolist()
    if len(set(sizes.reshape(-1).tolist())) > 1:
        assert len(folded.raw.program_of) <= n


@given(
    st.permutations(range(16)),
    st.lists(st.integers(1, 1 << 22), min_size=16, max_size=16),
    st.sampled_from(["unaware", "aware"]),
)
@example(list(range(16)), [1 << 20] * 15 + [8 << 20], "unaware")
@example([0, 1, 2, 4, 8, 12, 13, 14, 5, 6, 7, 9, 3, 10, 11, 15], [0, *[1 << 20] * 14, 0], "unaware")
@settings(max_examples=30, deadline=None)
def test_folding_changes_nothing_with_a_library(order: list[int], bytes_of: list[int], backend: str) -> None:
    """Groups of four, wherever their members lie on four machines of four NPUs."""
    groups = [order[k : k + 4] for k in range(0, 16, 4)]
    sizes = np.array(bytes_of).reshape(4, 4)
    traces = traces_of("all_to_all", sizes, groups)
    nccl = machine("direct") | {"collective-library": "nccl", "collective-costs": "hgx-h100"}
    net = {
        "topology": ["Switch", "Switch"], "npus_count": [4, 4], "bandwidth": [419, 46.6], "latency": [936, 1000]
    }  # fmt: skip
    names = {str(k + 1): group for k, group in enumerate(groups)}
    folded, discrete = (
        simulate(traces, nccl, net, comm_groups=names, backend=backend, fold=fold) for fold in (True, False)
    )
    assert folded.finish_ns.tolist() == discrete.finish_ns.tolist()
    assert folded.finish_ns.max() > 0


def test_members_of_one_program_play_different_roles() -> None:
    """A reduce-scatter's nodes are the same on all members; what each keeps is not."""
    sizes = np.array([1 << 20, 0, 0, 4 << 20])
    result = simulate(traces_of("reduce_scatter", sizes), machine("direct"), network(4))
    assert len(set(result.finish_ns.tolist())) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_given_link_by_link(kind: str) -> None:
    """Every member's messages cross its own two links, of what it sends and of what it gets."""
    sizes = (
        np.array([1000, 0, 70_000])
        if kind != "all_to_all"
        else np.array([[5, 9000, 0], [0, 0, 70], [800, 0, 0]])
    )
    result = simulate(traces_of(kind, sizes), machine("direct"), LINKED, backend="aware")
    pairs = pair_bytes(do_of(kind), sizes)
    assert sum(row["bytes"] for row in result.links) == 2 * int(pairs.sum())


#: three NPUs on a switch
LINKED: dict[str, Any] = {"npus_count": [3], "links": [[k, "hub", 50, 100] for k in range(3)]}


def test_a_library_takes_what_the_busiest_port_needs() -> None:
    """As long as the even collective whose ports carry what those of the member with most do, in or out."""
    sizes = np.array([[0, 1 << 20, 0, 0], [0, 0, 0, 3 << 20], [0, 0, 0, 3 << 20], [0, 0, 0, 9 << 20]])
    busiest = 6 << 20
    even = np.full((4, 4), busiest // 3)
    nccl = machine("direct") | {"collective-library": "nccl", "collective-costs": "hgx-h100"}
    times = [
        simulate(traces_of("all_to_all", s), nccl, network(4, "Switch")).finish_ns.tolist()
        for s in (sizes, even)
    ]
    assert times[0] == times[1]
    # where links are shared its messages are those of the pairs, and alone it takes the same time
    links = network(4, "Switch") | {"bandwidth": [419]}
    result = simulate(traces_of("all_to_all", sizes), nccl, links, backend="aware")
    assert result.finish_ns.tolist() == times[0]
    sent = {row["from"]: row["bytes"] for row in result.links if row["from"] >= 0 and row["bytes"]}
    assert sent == {0: 1 << 20, 1: 3 << 20, 2: 3 << 20}


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("shares", ["almost even", "random", "one"])
def test_a_librarys_unequal_shares_travel_as_its_algorithm_moves_them(kind: str, shares: str) -> None:
    """Alone they take the library's time on every network: as messages of all pairs they took four times as long."""
    sizes = np.full(16, 1 << 20)
    if shares == "almost even":
        sizes[3] -= 1
    elif shares == "random":
        sizes = np.random.default_rng(1).integers(0, 1 << 22, 16)
    else:
        sizes[1:] = 0
    nccl = machine("ring") | {"collective-library": "nccl", "collective-costs": "hgx-h100"}
    nodes = {"topology": ["Switch"] * 2, "npus_count": [8, 2], "bandwidth": [419, 46], "latency": [500, 1000]}
    ways: list[dict[str, Any]] = [
        {},
        {"backend": "aware"},
        {"backend": "flow"},
        {"backend": "flow", "fold": False},
    ]
    found = [simulate(traces_of(kind, sizes), nccl, nodes, **way) for way in ways]
    for result in found[1:]:
        assert result.finish_ns.tolist() == found[0].finish_ns.tolist()
        sent = ([row["bytes_per_npu"] for row in run.dimensions] for run in (found[0], result))
        assert next(sent) == next(sent)


@pytest.mark.parametrize("algorithm", ["ring", "direct", "direct2", "bruck"])
@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("sizes", [[[5, 0], [0, 2]], [[0, 0], [1, 2]], [[7, 0, 0, 0], *[[0] * 4] * 3]])
def test_shares_that_stay_where_they_are_move_nothing(
    algorithm: str, splits: int, sizes: list[list[int]]
) -> None:
    """Of a whole all-to-all, or of one of its chunks: an internal error, a division by zero."""
    shares = np.array(sizes)
    sent = int(shares.sum() - np.trace(shares))
    ways: list[dict[str, Any]] = [{}, {"engine": "messages"}, {"backend": "aware"}, {"backend": "flow"}]
    for way in ways:
        result = simulate(
            traces_of("all_to_all", shares), machine(algorithm, splits), network(len(sizes)), **way
        )
        assert (sum(row["bytes_per_npu"] for row in result.dimensions) > 0) is (sent > 0)
        assert bool(result.finish_ns.max() > 0) is (sent > 0)


def test_results_count_what_the_busiest_port_carries() -> None:
    """The bound of a switch's port is met by the transfer alone; rows of unequal shares say so."""
    sizes = np.array([[0, 5 << 20, 1 << 20], [0, 0, 0], [0, 3 << 20, 0]])
    row = simulate(
        traces_of("all_to_all", sizes), machine("direct"), network(3, "Switch"), backend="aware"
    ).collectives[0]
    assert row["uneven"] is True
    assert row["bytes"] == 12 << 20
    assert row["bound_ns"] == pytest.approx((8 << 20) / GB_PER_S)
    # the port begins when the first message has crossed its sender's
    assert row["bound_ns"] < row["transfer_ns"] < row["bound_ns"] + (3 << 20) / GB_PER_S + 2020
    even = simulate(traces_of("all_to_all", np.full((3, 3), 9)), machine("direct"), network(3)).collectives[0]
    assert "uneven" not in even


def test_what_the_busiest_port_carries() -> None:
    """Of an even collective: its own size. Of an uneven one: the most that goes in or out anywhere."""
    for n in (2, 3, 8):
        assert even_bytes(Do.ALL_TO_ALL, np.full((n, n), 12)) == 12 * n
        assert even_bytes(Do.ALL_GATHER, np.full(n, 12)) == 12
        assert even_bytes(Do.REDUCE_SCATTER, np.full(n, 12)) == 12 * n
    assert even_bytes(Do.ALL_TO_ALL, np.array([[9, 2], [7, 9]])) == 14
    assert even_bytes(Do.ALL_GATHER, np.array([0, 10, 20])) == 15


@pytest.mark.parametrize("compat", ["astra-sim", "astra-sim-1.0"])
def test_refused_under_compat(compat: str) -> None:
    sizes = np.array([[0, 1], [2, 3]])
    with pytest.raises(WorkloadError, match="in_split_bytes: ASTRA-sim has no uneven collectives, so compat"):
        simulate(traces_of("all_to_all", sizes), machine("direct"), network(2), compat=compat)
    equal = np.full((2, 2), 1024)
    simulate(traces_of("all_to_all", equal), machine("direct"), network(2), compat=compat)


def test_what_members_say_must_fit() -> None:
    """One message for each way in which it may not."""

    def told(change: Any) -> str:
        workload = Workload(3)
        sizes = np.array([[0, 5, 6], [7, 0, 8], [9, 10, 0]])
        for rank in range(3):
            said = sides_of("all_to_all", sizes, rank)
            change(rank, said)
            names = ("in_split_bytes", "out_split_bytes")
            attrs: dict[str, Any] = {name: said.pop(name) for name in names if name in said}
            workload.builder(rank).collective("all_to_all", attrs=attrs, **said)
        with pytest.raises(ChakraError) as error:
            simulate(workload.traces(), machine("direct"), network(3))
        return str(error.value)

    def unlike(rank: int, said: dict[str, Any]) -> None:
        if rank == 2:
            said["out_split_bytes"] = [6, 9, 0]

    assert "the first sends 8 bytes to the second (in_split_bytes), which receives 9 from it" in told(unlike)

    def short(rank: int, said: dict[str, Any]) -> None:
        if rank == 1:
            said["in_split_bytes"] = [7, 8]

    assert "in_split_bytes has 2 sizes, but the group has 3 members" in told(short)

    def wrong(rank: int, said: dict[str, Any]) -> None:
        if rank == 0:
            said["size_bytes"] = 12

    assert "comm_size is 12, but the sum of in_split_bytes is 11" in told(wrong)


def test_a_bad_list_is_refused_by_name() -> None:
    workload = Workload(2)
    for rank in range(2):
        workload.builder(rank).collective("all_reduce", size_bytes=4, attrs={"in_split_bytes": [2, 2]})
    with pytest.raises(WorkloadError, match="in_split_bytes means nothing in ALL_REDUCE"):
        simulate(workload.traces(), {**machine("ring"), "all-reduce-implementation": ["ring"]}, network(2))
    with pytest.raises(TraceError, match="out_split_bytes means nothing in REDUCE_SCATTER"):
        workload.builder(0).collective("reduce_scatter", size_bytes=4, out_split_bytes=[2, 2])
    with pytest.raises(TraceError, match="in_split_bytes has 1 size for 2 members"):
        workload.builder(0).collective("all_to_all", size_bytes=4, in_split_bytes=[4])
    with pytest.raises(TraceError, match="does not add up to size_bytes 4"):
        workload.builder(0).collective("all_to_all", size_bytes=4, in_split_bytes=[4, 1])


def test_a_gather_needs_no_list() -> None:
    """Each member's size is its share: what conversion accepts, a replay runs."""
    workload = Workload(3)
    for rank, size in enumerate((0, 1 << 20, 3 << 20)):
        workload.builder(rank).collective("gather", size_bytes=size)
    listed = traces_of("gather", np.array([0, 1 << 20, 3 << 20]))
    a, b = (
        simulate(t, machine("direct"), network(3)).finish_ns.tolist() for t in (workload.traces(), listed)
    )
    assert a == b


def test_who_brings_nothing_into_a_broadcast_may_say_so() -> None:
    def run(sizes: list[int]) -> ReplayResult:
        workload = Workload(3)
        for rank, size in enumerate(sizes):
            workload.builder(rank).collective("broadcast", size_bytes=size)
        return simulate(
            workload.traces(), {**machine("ring"), "all-reduce-implementation": ["ring"]}, network(3)
        )

    assert run([1000, 0, 0]).finish_ns.tolist() == run([1000, 1000, 1000]).finish_ns.tolist()
    with pytest.raises(WorkloadError, match="comm_size differs"):
        run([1000, 500, 0])


def test_one_function_decides() -> None:
    """The table of `chakra.et.same_collective`, row by row."""

    def decide(kind: CommType, *sides: tuple[int, Any, Any]) -> Agreed | Differs:
        return agree([Side(kind, *side) for side in sides])

    found = decide(CommType.ALL_TO_ALL, (3, (1, 2), (1, 0)), (4, (0, 4), (2, 4)))
    assert isinstance(found, Agreed)
    assert found.sizes is not None
    assert (found.sizes.tolist(), found.size_bytes) == ([[1, 2], [0, 4]], 4)
    found = decide(CommType.ALL_TO_ALL, (4, None, (2, 3)), (6, (3, 3), None))
    assert isinstance(found, Agreed)
    assert found.sizes is not None
    assert found.sizes.tolist() == [[2, 2], [3, 3]]  # who gives no list shares out evenly
    found = decide(CommType.REDUCE_SCATTER, (3, (1, 2), None), (3, (1, 2), None))
    assert isinstance(found, Agreed)
    assert found.sizes is not None
    assert found.sizes.tolist() == [1, 2]
    found = decide(CommType.SCATTER, (3, (1, 2), None), (0, None, None))
    assert isinstance(found, Agreed)
    assert found.sizes is not None
    assert found.size_bytes == 3
    found = decide(CommType.ALL_GATHER, (1, None, None), (2, None, None))
    assert isinstance(found, Differs)
    assert found.why == "comm_size differs; unequal shares need out_split_bytes"
    found = decide(CommType.ALL_GATHER, (1, None, (1, 3)), (2, None, None))
    assert isinstance(found, Differs)
    assert found.attribute == "comm_size"
    found = decide(CommType.ALL_GATHER, (2, None, (2, 2)), (2, None, None))
    assert isinstance(found, Agreed)
    assert found.sizes is None


def test_programs_part_where_partners_differ() -> None:
    """Two groups whose first members have equal nodes, but whose others share out differently."""
    workload = Workload(4)
    groups = [workload.add_group([0, 1]), workload.add_group([2, 3])]
    for rank in range(4):
        size = 1 << 10 if rank % 2 == 0 else (1 << 20) << rank
        workload.builder(rank).collective("gather", size_bytes=size, group=groups[rank // 2])
    net = {
        "topology": ["Switch", "Switch"],
        "npus_count": [2, 2],
        "bandwidth": [50, 50],
        "latency": [500, 500],
    }
    names = {"1": [0, 1], "2": [2, 3]}
    result = simulate(workload.traces(), machine("direct"), net, comm_groups=names)
    assert 0 < result.finish_ns[0] < result.finish_ns[2]


def test_files_keep_the_sizes(tmp_path: Path) -> None:
    trace = traces_of("all_to_all", np.array([[0, 1], [2, 3]]))[0]
    write_trace(trace, tmp_path / "a.0.et")
    again = read_trace(tmp_path / "a.0.et")
    assert again.splits(0) == ((0, 1), (0, 2))
    assert again.content_hash == trace.content_hash


def test_ring_of_too_many_members_is_refused() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(ConfigError, match="use direct for unequal shares"):
        uneven_steps("ring", Do.ALL_TO_ALL, Uneven(rng.integers(0, 9, (300, 300))), 1)


def test_json_keeps_shares(tmp_path: Path) -> None:
    """There and back byte for byte: what a rank sends, gets and brings in, nothing included."""
    from chakra.cli.commands.jsonize import command

    sent = np.array([[100, 200_000, 300], [0, 0, 0], [500, 60_000, 700]])
    workload = Workload(3)

    def program(b: TraceBuilder) -> None:
        mine, got = sent[b.rank].tolist(), sent[:, b.rank].tolist()
        b.collective("all_to_all", size_bytes=sum(mine), in_split_bytes=mine, out_split_bytes=got)

    workload.run(program)
    workload.write(tmp_path / "w")
    for rank in range(3):
        trace, text, again = (
            tmp_path / f"{name}.{rank}.{end}" for name, end in (("w", "et"), ("j", "json"), ("k", "et"))
        )
        for source, made in ((trace, text), (text, again)):
            done = CliRunner().invoke(command, [str(source), str(made)])
            assert done.exit_code == 0, done.output
        assert again.read_bytes() == trace.read_bytes()
        assert json.dumps(sent[rank].tolist()) in text.read_text()
    ends = [
        simulate(tmp_path / name, machine("direct"), network(3)).finish_ns.tolist() for name in ("w", "k")
    ]
    assert ends[0] == ends[1]
    assert min(ends[0]) > 0


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ([[0, 100, 300], [0, 0, 100], [0, 100, 0]], "2.0 times the mean"),
        ([[0, 50, 50], [200, 0, 40], [200, 40, 0]], "2.1 times the mean"),
        ([[0, 100, 100], [100, 0, 100], [100, 105, 0]], ""),
    ],
    ids=["sends and receives", "receives", "nearly even"],
)
def test_a_note_says_how_much_more_the_busiest_rank_moves(sizes: list[list[int]], told: str) -> None:
    """400 of a mean of 200; 400 received of a mean of 580/3; 205 of a mean of 605/3."""
    result = simulate(traces_of("all_to_all", np.array(sizes)), machine("direct"), network(3))
    notes = [note for note in result.notes if "all-to-alls are unequal" in note]
    assert [told in note for note in notes] == [True] * bool(told)
