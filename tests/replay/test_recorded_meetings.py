"""Waits for peers inside collectives that take their recorded times (replay-only)."""

import json
from pathlib import Path

import pytest
from recorded_traces import saying

from chakra.builder import TraceBuilder
from chakra.compare import read_source
from chakra.compare.spans import Kind, account
from chakra.et import Trace
from chakra.replay import ReplayResult, simulate
from chakra.replay.results.formatting import essential, format_summary
from chakra.report import read_run
from chakra.report.tables import headline, waiting_verdict

RING = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
#: a day of 2026, in ns since 1970
CLOCK = 1_790_000_000_000_000_000


def recorded(works_us: int, meets_us: list[int], rank: int = 0, ranks: int = 0, begins_us: int = 0) -> Trace:
    """A rank that computes and then meets the others in collectives, as long as recorded."""
    said = {}
    if ranks:
        span = 1000 * (works_us + sum(meets_us))
        said = {
            "base_time_ns": CLOCK + 1000 * begins_us,
            "measured_span_ns": span,
            "explained_span_ns": span,
            "recorded_ranks": ranks,
        }
    builder = TraceBuilder(rank)
    last = builder.compute("work", duration_micros=works_us)
    for meets in meets_us:
        last = builder.collective("all_reduce", size_bytes=1024, duration_micros=meets, after=[last])
    return saying(builder.build(), said)


def replayed(*traces: Trace, **network: object) -> ReplayResult:
    """The traces by their recorded times."""
    return simulate(list(traces), {"replay-only": True}, RING | network)


def parts_us(result: ReplayResult, npu: int) -> dict[str, int]:
    """Time account of an NPU, in us; only what is there."""
    return {name: int(times[npu]) // 1000 for name, times in result.account.items() if times[npu]}


def test_a_recorded_collective_waits_until_its_last_member_starts() -> None:
    """NPU 1 comes 15 us after NPU 0; the second collective begins together."""
    result = replayed(recorded(5, [30, 10]), recorded(20, [15, 10]))
    assert parts_us(result, 0) == {"compute_ns": 5, "waiting_ns": 15, "transfer_ns": 25}
    assert parts_us(result, 1) == {"compute_ns": 20, "transfer_ns": 25}
    assert not result.waits_in_transfer
    assert "waits_in_transfer" not in result.to_dict()


def test_ranks_of_a_recording_meet_on_the_clock_that_they_share() -> None:
    """Rank 1 begins 8 us after rank 0: its collective starts at 8 + 20 us of that clock, rank 0's at 5."""
    result = replayed(recorded(5, [38], 0, 2), recorded(20, [15], 1, 2, begins_us=8))
    assert parts_us(result, 0) == {"compute_ns": 5, "waiting_ns": 23, "transfer_ns": 15}
    assert parts_us(result, 1) == {"compute_ns": 20, "transfer_ns": 15}


@pytest.mark.parametrize(
    "traces",
    [
        pytest.param((recorded(5, [30], 0, 4), recorded(20, [15], 1, 4)), id="two of four ranks"),
        pytest.param((recorded(5, [30, 1]), recorded(20, [15])), id="another number of collectives"),
        pytest.param((recorded(5, [30]), recorded(20, [])), id="a member without collectives"),
    ],
)
def test_where_members_are_missing_the_transfer_says_that_it_holds_waits(
    traces: tuple[Trace, ...], tmp_path: Path
) -> None:
    """No part is called transfer that is not known to move data."""
    result = replayed(*traces)
    assert result.waits_in_transfer
    assert not result.account["waiting_ns"].any()
    assert "communication, waiting included" in format_summary(essential(result, summary=True))
    (tmp_path / "run.json").write_text(json.dumps(result.to_dict(nodes=True)))
    run = read_run(tmp_path / "run.json")
    assert "Communication, waiting included" in dict(headline(run))
    assert "waiting for peers included" in waiting_verdict(run)
    assert read_source(tmp_path / "run.json").notes


def test_a_comparison_reads_the_waits_of_a_replayed_record(tmp_path: Path) -> None:
    """The same parts as the account's, by node."""
    result = replayed(recorded(5, [30, 10]), recorded(20, [15, 10]))
    (tmp_path / "run.json").write_text(json.dumps(result.to_dict(nodes=True)))
    source = read_source(tmp_path / "run.json")
    assert account(source.ranks[0]) == {
        (Kind.COMPUTE, "other"): 5_000,
        (Kind.PEERS, "all-reduce"): 15_000,
        (Kind.TRANSFER, "all-reduce"): 25_000,
    }
    assert not source.notes


def test_equal_ranks_with_other_partners_wait_for_their_own() -> None:
    """NPUs 0 and 1 do the same, and meet NPUs 2 and 3, which come 10 and 40 us later."""

    def member(group: str, works: int, meets: int) -> Trace:
        builder = TraceBuilder()
        work = builder.compute("work", duration_micros=works)
        builder.collective("all_reduce", size_bytes=1024, group=group, duration_micros=meets, after=[work])
        return builder.build()

    traces = [member("10", 5, 50), member("20", 5, 50), member("10", 15, 40), member("20", 45, 10)]
    groups = {"10": [0, 2], "20": [1, 3]}
    result = simulate(traces, {"replay-only": True}, RING | {"npus_count": [4]}, comm_groups=groups)
    assert (result.account["waiting_ns"] // 1000).tolist() == [10, 40, 0, 0]
    assert (result.account["transfer_ns"] // 1000).tolist() == [40, 10, 40, 10]
