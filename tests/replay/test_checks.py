"""Checks before a run, explanations of stalls, groups that traces define, and repeated traces."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chakra.builder import TraceBuilder, Workload
from chakra.cli.main import run as chakra
from chakra.errors import ChakraError, ConfigError, StallError, TraceError, WorkloadError
from chakra.et import Trace, write_trace
from chakra.replay import ReplayResult, simulate
from chakra.replay.checks.run import check_run, check_workload
from chakra.replay.config.model import Memory, System
from chakra.replay.options import RunOptions
from chakra.replay.workload.communicators import resolve_groups
from chakra.replay.workload.compile import compile_workload
from chakra.replay.workload.process_groups import definitions, metadata_groups
from chakra.schemas.et_def_pb2 import GlobalMetadata, Node
from chakra.schemas.protolib import encode_message

SYSTEM = {
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
}
MIB = 1 << 20


def network(npus: int) -> dict[str, Any]:
    """One ring."""
    return {"topology": ["Ring"], "npus_count": [npus], "bandwidth": [50.0], "latency": [500.0]}


def made(add: Callable[[TraceBuilder], object], rank: int = 0) -> Trace:
    """A trace of what `add` puts into it."""
    builder = TraceBuilder(rank)
    add(builder)
    return builder.build()


def run(traces: list[Trace], **more: Any) -> ReplayResult:
    """Replay on a ring."""
    return simulate(traces, SYSTEM, network(len(traces)), **more)


def reduce_of(*sizes: int, group: str | None = None) -> Trace:
    """A chain of all-reduces."""

    def add(b: TraceBuilder) -> None:
        last: list[Any] = []
        for size in sizes:
            last = [b.collective("all_reduce", size_bytes=size, after=last, group=group)]

    return made(add)


def work() -> Trace:
    """One microsecond of compute."""
    return made(lambda b: b.compute(duration_micros=1))


def messages(traces: list[Trace], groups: Mapping[str, Sequence[int]] | None = None) -> list[tuple[str, str]]:
    """Findings as (severity, message)."""
    return [(f.severity, f.message) for f in check_workload(traces, groups or {}, len(traces))]


# -- collectives -------------------------------------------------------------------------------------------------


def test_a_good_workload_has_no_findings() -> None:
    assert messages([reduce_of(MIB, 64)] * 4) == []


def test_a_scatter_may_give_the_root_the_whole_buffer_and_the_others_their_share() -> None:
    traces = []
    for rank, size in enumerate((16384, 4096, 4096, 4096)):
        builder = TraceBuilder(rank=rank)
        builder.collective("SCATTER", size_bytes=size)
        traces.append(builder.build())
    assert messages(traces) == []


def test_a_rank_without_its_collective() -> None:
    traces = [reduce_of(MIB)] * 3 + [work()]
    (severity, text), *rest = messages(traces)
    assert (severity, rest) == ("error", [])
    assert "rank 3 runs no collective" in text
    with pytest.raises(StallError, match="rank 3 runs no collective") as error:
        run(traces)
    assert error.value.exit_code == 3


@pytest.mark.parametrize("compat", [None, "astra-sim"])
def test_sizes_kinds_and_dimensions_that_differ(compat: str | None) -> None:
    with pytest.raises(WorkloadError, match="comm_size differs") as error:
        run([reduce_of(MIB), reduce_of(MIB), reduce_of(MIB + 1)], compat=compat)
    assert "on rank 2" in str(error.value)
    other = made(lambda b: b.collective("all_gather", size_bytes=MIB))
    with pytest.raises(WorkloadError, match="comm_type differs"):
        run([reduce_of(MIB), other], compat=compat)


def test_order_that_differs() -> None:
    traces = [reduce_of(MIB, 64), reduce_of(64, MIB)]
    (severity, text), *rest = messages(traces)
    assert (severity, rest) == ("error", [])
    assert "the order differs" in text
    both = r"rank 1 runs ALL_REDUCE of 64 bytes .* another member issued .* rank 0 .*1048576 bytes, rank 1 .*64 bytes"
    for engine in ("phases", "messages"):
        with pytest.raises(WorkloadError, match=both):
            run(traces, engine=engine)


def two_branches(host_micros: int, device_micros: int) -> Trace:
    """A large all-reduce behind the host, and a small one behind the accelerator, which run side by side."""

    def build(b: TraceBuilder) -> None:
        for micros, size, cpu in ((host_micros, MIB, True), (device_micros, 64, False)):
            b.collective("all_reduce", size_bytes=size, after=b.compute(duration_micros=micros, cpu=cpu))

    return made(build)


def test_order_that_times_decide() -> None:
    """By node id both ranks run the large one first, by times only one does; the option that goes by node id is named."""
    traces = [two_branches(10, 20), two_branches(20, 10)]
    remedy = r"another member issued .* by node id all members run the same ones, .*--comm-streams 2"
    for engine in ("phases", "messages"):
        with pytest.raises(WorkloadError, match=remedy):
            run(traces, engine=engine)
        assert run(traces, engine=engine, comm_streams=2).finish_ns.min() > 20_000


def dimensions(*flags: bool) -> Trace:
    """One all-reduce in the dimensions that the flags name; none given: no attribute."""
    return made(lambda b: b.collective("all_reduce", size_bytes=MIB, involved_dim=list(flags) or None))


def test_the_same_dimensions_in_other_words() -> None:
    """No attribute, all dimensions, more than there are; and trailing dimensions that take no part."""
    net = {"topology": ["Ring"] * 2, "npus_count": [2, 2], "bandwidth": [50.0] * 2, "latency": [500.0] * 2}
    sys = {**SYSTEM, "all-reduce-implementation": ["ring", "ring"]}
    every = [
        dimensions(),
        dimensions(True, True),
        dimensions(True, True, False),
        dimensions(True, True, True),
    ]
    wanted = simulate([dimensions()] * 4, sys, net).finish_ns
    assert np.array_equal(simulate(every, sys, net).finish_ns, wanted)
    assert messages([dimensions(), dimensions(True)]) == []
    first = simulate([dimensions(True, False)] * 4, sys, net).finish_ns
    assert np.array_equal(
        simulate([dimensions(True), dimensions(True, False)] * 2, sys, net).finish_ns, first
    )
    assert (first < wanted).all()
    with pytest.raises(WorkloadError, match="involved_dim differs"):
        simulate([dimensions(), dimensions(), dimensions(True), dimensions()], sys, net)


def test_a_collective_without_dimensions_is_named() -> None:
    with pytest.raises(WorkloadError, match=r"<memory>: node 0 .*involves none of the network's dimensions"):
        run([dimensions(False, True)] * 2)


def test_a_group_that_nobody_defines_is_named_with_its_node() -> None:
    long = "dp" * 500
    with pytest.raises(
        WorkloadError, match=r"<memory>: node 0: process group 'dpdp.*\.\.\.' is not defined"
    ) as error:
        run([reduce_of(MIB, group=long)] * 2)
    assert len(str(error.value)) < 250


def test_order_that_dependencies_leave_open_is_a_warning() -> None:
    def free(first: int, second: int) -> Trace:
        def add(b: TraceBuilder) -> None:
            b.collective("all_reduce", size_bytes=first)
            b.collective("all_reduce", size_bytes=second)

        return made(add)

    (severity, text), *rest = messages([free(MIB, 64), free(64, MIB)])
    assert (severity, rest) == ("warning", [])
    assert "dependencies do not fix it" in text


def test_groups_are_judged_one_by_one() -> None:
    groups = {"a": (0, 1), "b": (2, 3)}
    good = [reduce_of(64, group="a")] * 2 + [reduce_of(99, group="b")] * 2
    assert messages(good, groups) == []
    bad = [*good[:3], reduce_of(98, group="b")]
    (_, text), *rest = messages(bad, groups)
    assert not rest
    assert "'b'" in text
    unknown = messages(good, {"a": (0, 1)})
    assert len(unknown) == 1
    assert "'b' is not defined" in unknown[0][1]


# -- messages ----------------------------------------------------------------------------------------------------


def pair(send: dict[str, Any], recv: dict[str, Any]) -> list[Trace]:
    """Rank 0 sends to 1."""
    return [made(lambda b: b.send(1, **send)), made(lambda b: b.recv(0, **recv), 1)]


@pytest.mark.parametrize(
    ("recv", "field"),
    [
        ({"size_bytes": 65, "tag": 1}, "comm_size differs"),
        ({"size_bytes": 64, "tag": 2}, "comm_tag differs"),
        ({"size_bytes": 65, "tag": 2}, "comm_tag and comm_size differ"),
    ],
)
def test_the_field_that_differs_is_named(recv: dict[str, int], field: str) -> None:
    traces = pair({"size_bytes": 64, "tag": 1}, recv)
    (severity, text), *rest = messages(traces)
    assert (severity, rest) == ("error", [])
    assert field in text
    for compat in (None, "astra-sim"):
        with pytest.raises(StallError, match=field):
            run(traces, compat=compat)


def test_messages_between_other_ranks() -> None:
    idle = work()
    with pytest.raises(StallError, match="which never sends it"):
        run([idle, made(lambda b: b.recv(0, size_bytes=8), 1)])
    with pytest.raises(StallError, match="which never receives"):
        run([made(lambda b: b.send(1, size_bytes=8)), idle])
    sender = made(lambda b: b.send(1, size_bytes=8))
    with pytest.raises(StallError, match="comm_src differs"):
        run([sender, made(lambda b: b.recv(2, size_bytes=8), 1), idle])


def test_all_problems_at_once() -> None:
    def many(b: TraceBuilder) -> None:
        for tag in range(30):
            b.send(1, size_bytes=8, tag=tag)

    findings = messages([made(many), work()])
    assert len(findings) == 21
    assert "10 more" in findings[-1][1]
    with pytest.raises(StallError, match=r"and 27 more problems") as error:
        run([made(many), work()])
    assert "\n" not in str(error.value)


def test_peers_that_cannot_be() -> None:
    with pytest.raises(WorkloadError, match="rank 5, but the system has ranks 0 to 1"):
        run([made(lambda b: b.send(5, size_bytes=8)), work()])
    # a trace of rank 0 that is given for rank 1, too: there it talks to itself
    shared = made(lambda b: b.send(1, size_bytes=8))
    with pytest.raises(WorkloadError, match="its own rank 1"):
        run([shared, shared])
    with pytest.raises(WorkloadError, match="comm_src of a send is 0, but the trace is rank 1's"):
        run([work(), made(lambda b: b.send(2, size_bytes=8)), made(lambda b: b.recv(1, size_bytes=8), 2)])


# -- stalls ------------------------------------------------------------------------------------------------------


def test_a_wait_cycle_of_messages() -> None:
    def crossed(b: TraceBuilder) -> None:
        other = 1 - b.rank
        first = b.send(other, size_bytes=MIB, tag=7)
        b.recv(other, size_bytes=MIB, tag=7, after=[first])

    traces = [made(crossed, rank) for rank in range(2)]
    assert (run(traces).finish_ns > 0).all()
    with pytest.raises(StallError) as error:
        run(traces, rendezvous=True)
    text = str(error.value)
    assert "wait cycle: NPU 0 -> 1 -> 0" in text
    assert "tag 7" in text
    assert f"{MIB} bytes" in text
    assert "node 0 'send'" in text
    assert "\n" not in text


def test_a_wait_cycle_of_groups() -> None:
    groups = {"x": [0, 1], "y": [1, 2], "z": [0, 2]}
    order = {0: "xz", 1: "yx", 2: "zy"}

    def chain(b: TraceBuilder) -> None:
        last: list[Any] = []
        for name in order[b.rank]:
            last = [b.collective("all_reduce", size_bytes=64, group=name, after=last)]

    with pytest.raises(StallError) as error:
        run([made(chain, rank) for rank in range(3)], comm_groups=groups)
    text = str(error.value)
    assert "process group 'x'" in text
    assert "wait cycle: NPU 0 -> 1 -> 2 -> 0" in text


def test_many_blocked_npus_are_summed_up() -> None:
    n = 12

    def ring(b: TraceBuilder) -> None:
        first = b.recv((b.rank - 1) % n, size_bytes=8)
        b.send((b.rank + 1) % n, size_bytes=8, after=[first])

    with pytest.raises(StallError) as error:
        run([made(ring, rank) for rank in range(n)])
    text = str(error.value)
    assert "12 of 12 NPUs cannot finish" in text
    assert "7 more NPUs are blocked" in text
    assert "(12 NPUs) -> 0" in text


# -- ranks, units ------------------------------------------------------------------------------------------------


def test_a_file_under_another_ranks_name(tmp_path: Path) -> None:
    for rank in range(2):
        builder = TraceBuilder(rank)
        builder.collective("all_reduce", size_bytes=64)
        write_trace(builder.build(write_rank=True), tmp_path / f"w.{rank}.et")
    assert simulate(tmp_path / "w", SYSTEM, network(2)).npus == 2
    (tmp_path / "w.1.et").write_bytes((tmp_path / "w.0.et").read_bytes())
    with pytest.raises(WorkloadError, match=r"the trace of rank 0 .* is given for rank 1"):
        simulate(tmp_path / "w", SYSTEM, network(2))
    one = str(tmp_path / "w.0.et")
    assert simulate([one, one], SYSTEM, network(2)).npus == 2  # on purpose


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.et"
    with path.open("wb") as file:
        encode_message(file, GlobalMetadata(version="1"))
        encode_message(file, Node(id=0, type=4, ctrl_deps=[1]))  # type: ignore[arg-type]
        encode_message(file, Node(id=1, type=4, data_deps=[0]))  # type: ignore[arg-type]
    with pytest.raises(TraceError, match="cycle"):
        simulate([path, path], SYSTEM, network(2))


def test_units_that_look_wrong() -> None:
    def strange(b: TraceBuilder) -> None:
        b.compute(duration_micros=4 * 10**9)
        b.collective("all_reduce", size_bytes=2 << 40)
        b.collective("all_reduce", size_bytes=0)

    texts = [text for severity, text in messages([made(strange)] * 2) if severity == "warning"]
    assert len(texts) == 3
    assert any("more than an hour" in text for text in texts)
    assert any("more than 1 TiB" in text for text in texts)
    assert any("0 bytes" in text for text in texts)
    # files of several ranks that are alike in it have one warning, with the ranks
    several = [text for _, text in messages([made(strange) for _ in range(6)]) if "hour" in text]
    assert len(several) == 1
    assert "(and alike of ranks 0-5): node 0 takes" in several[0]
    others = [made(strange), made(lambda b: b.compute(duration_micros=1)), made(strange)]
    assert any("(and alike of ranks 0, 2): node 0 takes" in text for _, text in messages(others))
    empty = messages([made(lambda b: b.compute(duration_micros=0))])
    assert "compute takes no time" in empty[0][1]


def test_a_run_without_traffic_warns() -> None:
    warnings = run([reduce_of(0)] * 2).warnings
    assert any("0 bytes" in text for text in warnings)
    assert any("no communication node moves any bytes" in text for text in warnings)


# -- cost --------------------------------------------------------------------------------------------------------


def cost(trace: Trace, npus: int, *, relative: bool = False) -> float:
    """Seconds of the check at the start of a run, the best of a few."""
    options = RunOptions()
    compiled = compile_workload(
        [trace], np.zeros(npus, np.int64), System(), Memory(), options, relative=relative
    )
    membership = resolve_groups(compiled, {})
    times = []
    for _ in range(7):
        start = time.perf_counter()
        check_run(compiled, membership, options, named_by_rank=True)
        times.append(time.perf_counter() - start)
    return min(times)


def test_checks_cost_little_for_many_equal_npus() -> None:
    def large(b: TraceBuilder) -> None:
        last: list[Any] = []
        for i in range(5000):
            last = [
                b.collective("all_reduce", size_bytes=64 + i % 9, after=last)
                if i % 4 == 0
                else b.compute(duration_micros=1, after=last)
            ]

    def shift(b: TraceBuilder) -> None:
        for tag in range(2000):
            b.send(1, size_bytes=64, tag=tag)
            b.recv(3, size_bytes=64, tag=tag)

    assert cost(reduce_of(MIB), 1024) < 0.01  # measured: 0.15 ms
    assert cost(made(large), 64) < 0.05
    assert cost(made(shift), 4, relative=True) < 0.05


# -- process groups in METADATA ----------------------------------------------------------------------------------


def test_groups_of_metadata_nodes() -> None:
    def grouped(b: TraceBuilder) -> None:
        b.metadata(groups={"5": [0, 1], "tp": [2, 3]})
        b.collective("all_reduce", size_bytes=MIB, group="5" if b.rank < 2 else "tp")

    traces = [made(grouped, rank) for rank in range(4)]
    result = run(traces)
    given = run(traces, comm_groups={"5": [0, 1], "tp": [2, 3]})
    assert result.finish_ns.tolist() == given.finish_ns.tolist()
    assert result.corrections["C15"] == 4
    # a group file overrides
    with pytest.raises(WorkloadError, match="not a member"):
        run(traces, comm_groups={"5": [2, 3], "tp": [0, 1]})


def test_no_ranks_means_all_and_names_may_repeat() -> None:
    def grouped(b: TraceBuilder) -> None:
        b.metadata(groups={"all": [], "mine": [b.rank // 2 * 2, b.rank // 2 * 2 + 1]})
        first = b.collective("all_reduce", size_bytes=64, group="mine")
        b.collective("all_reduce", size_bytes=64, group="all", after=[first])

    assert (run([made(grouped, rank) for rank in range(4)]).finish_ns > 0).all()


def test_contradictions_and_bad_definitions() -> None:
    first = made(lambda b: b.metadata(groups={"g": [0, 1]}))
    second = made(lambda b: b.metadata(groups={"g": [1, 2]}))
    with pytest.raises(WorkloadError, match="defines it with"):
        metadata_groups([first, second])
    for text in ('[\'[{"pg_name": 3}', '[\'[{"pg_name": "a", "ranks": "x"}]\']', "['[{\"pg_name\": null}]']"):
        with pytest.raises(WorkloadError, match=r"w\.et: node 0"):
            definitions(text, "w.et: node 0")
    assert definitions("", "w") == []
    assert definitions("[1, 2]", "w") == []
    assert definitions('[\'[{"pg_name": "a", "ranks": [1, 0]}]\']', "w") == [("a", (1, 0))]
    assert definitions('["[{\\"pg_name\\": 7, \\"ranks\\": []}]"]', "w") == [("7", ())]


# -- repeated traces ---------------------------------------------------------------------------------------------


def test_repeated_traces_are_shifted() -> None:
    def step(b: TraceBuilder) -> None:
        other = 1 - b.rank
        sent = b.send(other, size_bytes=4096)
        got = b.recv(other, size_bytes=4096)
        part = b.collective("all_reduce", size_bytes=MIB, group="p", after=[sent, got])
        b.collective("all_reduce", size_bytes=MIB, after=[part])

    def whole(b: TraceBuilder) -> None:
        other = b.rank ^ 1
        sent = b.send(other, size_bytes=4096)
        got = b.recv(other, size_bytes=4096)
        part = b.collective("all_reduce", size_bytes=MIB, group=f"p{b.rank // 2}", after=[sent, got])
        b.collective("all_reduce", size_bytes=MIB, after=[part])

    two = [made(step, rank) for rank in range(2)]
    result = simulate(two, SYSTEM, network(6), comm_groups={"p": [0, 1]}, replicate=True)
    by_hand = run(
        [made(whole, rank) for rank in range(6)], comm_groups={f"p{k}": [2 * k, 2 * k + 1] for k in range(3)}
    )
    assert result.finish_ns.tolist() == by_hand.finish_ns.tolist()
    assert any("2 traces repeated over 6 NPUs" in text for text in result.warnings)


def test_repeating_needs_a_multiple_and_no_gap(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="multiple"):
        simulate([work()] * 4, SYSTEM, network(6), replicate=True)
    for rank in (0, 1, 3):
        write_trace(work(), tmp_path / f"w.{rank}.et")
    with pytest.raises(WorkloadError, match="rank 2 has no file"):
        simulate(tmp_path / "w", SYSTEM, network(8), replicate=True)
    with pytest.raises(WorkloadError, match="no file for 5 of 8 ranks: 2, 4, 5, 6, 7"):
        simulate(tmp_path / "w", SYSTEM, network(8))
    (tmp_path / "w.3.et").unlink()
    result = simulate(tmp_path / "w", SYSTEM, network(8), replicate=True)
    assert result.finish_ns.tolist() == [1000] * 8


@pytest.mark.parametrize("name", ["w", "w.workload.json"])
def test_a_generated_workload_is_repeated(tmp_path: Path, name: str) -> None:
    """Two ranks of a manifest over six NPUs take as long as by themselves: each pair is a replica of its own."""
    words = "generate transformer --model gpt2-small --layers 2 --npus 2 --tp 2 -q -o"
    assert chakra([*words.split(), str(tmp_path / "w")]) == 0
    system = {**SYSTEM, "roofline-enabled": True, "peak-perf": 900, "local-mem-bw": 3000}
    two = simulate(tmp_path / name, system, network(2))
    machine = {
        "topology": ["Ring", "Switch"],
        "npus_count": [2, 3],
        "bandwidth": [50.0, 5.0],
        "latency": [500.0, 500.0],
    }
    six = simulate(tmp_path / name, system, machine, replicate=True)
    assert six.finish_ns.tolist() == [int(two.finish_ns[0])] * 6
    assert any("2 traces repeated over 6 NPUs" in text for text in six.warnings)


def test_repeating_all_ranks_changes_nothing() -> None:
    traces = [reduce_of(MIB)] * 4
    assert run(traces, replicate=True).finish_ns.tolist() == run(traces).finish_ns.tolist()
    assert run(traces, replicate=True).warnings == []


def test_group_members_outside_the_system() -> None:
    with pytest.raises((WorkloadError, ConfigError), match="rank"):
        run([reduce_of(64, group="a")] * 2, comm_groups={"a": [0, 7]})


def test_every_error_is_one_line() -> None:
    for traces in ([reduce_of(1), work()], pair({"size_bytes": 1}, {"size_bytes": 2})):
        with pytest.raises(ChakraError) as error:
            run(traces)
        assert "\n" not in str(error.value)


def test_many_groups_are_compared_once_each() -> None:
    """Work grows with the groups, not with their square: 4,000 groups of two ranks, counted in look-ups."""
    workload = Workload(2)
    names = [workload.add_group([0, 1]) for _ in range(4000)]
    for rank in range(2):
        for name in names:
            workload.builder(rank).collective("all_reduce", size_bytes=8, group=name)
    calls = 0
    plain = np.nonzero

    def counted(*args: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        return plain(*args, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "nonzero", counted)
        patch.setattr(np, "flatnonzero", lambda a: counted(np.ravel(a))[0])
        assert check_workload(workload.traces(), workload.groups, 2) == []
    assert 0 < calls < 200
