"""`simulate` takes a workload as files, as traces, or straight from the builder, and finds the same times."""

from pathlib import Path

import pytest

from chakra.builder import TraceBuilder, Workload
from chakra.errors import WorkloadError
from chakra.et import write_trace
from chakra.replay import simulate

SYSTEM = {"all-reduce-implementation": ["ring"]}
NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}


@pytest.fixture
def work() -> Workload:
    """Two pairs, of which the second computes longer before it reduces within its group."""
    work = Workload(4)
    pairs = [work.add_group(ranks) for ranks in ((0, 1), (2, 3))]

    def program(b: TraceBuilder) -> None:
        first = b.compute(duration_micros=5 + 10 * (b.rank // 2))
        b.collective("all-reduce", size_bytes=1 << 20, group=pairs[b.rank // 2], after=first)

    work.run(program)
    return work


def test_a_builder_workload_runs_with_its_groups(work: Workload, tmp_path: Path) -> None:
    """As it would from its files and its group file."""
    direct = simulate(work, SYSTEM, NETWORK).finish_ns
    assert direct[2] - direct[0] == 10_000
    written = work.write(tmp_path / "work")
    groups = next(path for path in written if path.endswith(".json"))
    again = simulate(str(tmp_path / "work"), SYSTEM, NETWORK, comm_groups=groups).finish_ns
    assert direct.tolist() == again.tolist()
    given = {name: list(ranks) for name, ranks in work.groups.items()}
    traces = simulate(work.traces(), SYSTEM, NETWORK, comm_groups=given).finish_ns
    assert direct.tolist() == traces.tolist()


def test_a_builder_workload_of_another_size_is_refused(work: Workload) -> None:
    """The network says how many NPUs there are."""
    eight = NETWORK | {"npus_count": [8]}
    with pytest.raises(WorkloadError, match="the workload is for 4 NPUs, but the network has 8"):
        simulate(work, SYSTEM, eight)


def test_a_builder_workload_can_be_repeated(work: Workload) -> None:
    """On eight NPUs the second four do what the first four do."""
    eight = NETWORK | {"npus_count": [8], "topology": ["Switch"]}
    four = NETWORK | {"topology": ["Switch"]}
    once = simulate(work, SYSTEM, four).finish_ns.tolist()
    assert simulate(work, SYSTEM, eight, replicate=True).finish_ns.tolist() == once * 2


def test_traces_that_the_network_has_no_npus_for_are_named(tmp_path: Path) -> None:
    """Fewer NPUs than traces is a network of another job more often than a wish."""
    builder = TraceBuilder()
    builder.compute(duration_ns=5)
    for rank in range(6):
        write_trace(builder.build(), tmp_path / f"job.{rank}.et")
    warnings = simulate(tmp_path / "job", {}, NETWORK).warnings
    assert [text for text in warnings if "2 more ranks (4, 5) are not used: the network has 4 NPUs" in text]
    (tmp_path / "job.4.et").unlink()
    (tmp_path / "job.5.et").unlink()
    assert not [text for text in simulate(tmp_path / "job", {}, NETWORK).warnings if "not used" in text]
