"""How far off a recorded job may be elsewhere: the parts that are known, added up."""

from typing import Any

import pytest
from recorded_traces import saying

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.et.idle_nodes import TURN
from chakra.platforms.cluster import cluster
from chakra.replay import simulate


def recorded(explained: int | None, rank: int, **said: int) -> Trace:
    """100 us of computing and an all-reduce, of which so many us of 100 are explained; `said`: more of that kind."""
    builder = TraceBuilder(rank=rank, npus=2)
    first = builder.compute("gemm", duration_micros=100)
    builder.collective("all_reduce", size_bytes=1 << 24, after=first)
    trace = builder.build()
    if explained is None:
        return trace
    micros = {"measured_span_ns": 100, "explained_span_ns": explained} | said
    return saying(trace, {name: 1000 * value for name, value in micros.items()})


def uncertain(
    explained: tuple[int | None, int | None], said: dict[str, int] | None = None, **options: Any
) -> list[str]:
    traces = [recorded(share, rank, **(said or {})) for rank, share in enumerate(explained)]
    machine = cluster("hgx-h100", 2)
    result = simulate(traces, machine.system(), machine.network(), **options)
    return [note for note in result.notes if note.startswith("uncertain")]


def test_generated_workloads_are_not_uncertain_in_this_way() -> None:
    assert uncertain((None, None)) == []


def test_parts_add_up() -> None:
    """The larger unexplained share counts, of all but exposed communication; the library's error counts of that."""
    [note] = uncertain((99, 90))
    assert "10.0 % of the recorded span is fitted waits; collectives' times are" in note
    [less] = uncertain((99, 99))
    assert "1.0 % of the recorded span" in less
    assert milliseconds(note) - milliseconds(less) == pytest.approx(0.09 * 0.1, abs=0.0015)


def milliseconds(note: str) -> float:
    return float(note.split("about ")[1].split(" ms")[0])


def test_turns_of_other_ranks_and_the_cost_of_recording_are_parts() -> None:
    """8 of 100 us are other ranks' turns, which elsewhere are none; of 50 us taken off 18 % may be wrong."""
    [plain] = uncertain((99, 99))
    [shared] = uncertain((99, 99), {"alone_span_ns": 91})
    [cheaper] = uncertain((99, 99), {"recording_cost_ns": 50})
    assert "8.0 % of it is turns of ranks that share a GPU" in shared
    assert "the 0.050 ms that were taken off as the cost of recording are 18 % off on average" in cheaper
    assert milliseconds(shared) - milliseconds(plain) == pytest.approx(0.08 * 0.1, abs=0.0015)
    assert milliseconds(cheaper) - milliseconds(plain) == pytest.approx(0.18 * 0.05, abs=0.0015)


def test_times_by_peak_have_no_known_error() -> None:
    [note] = uncertain((99, 99), accelerator="b200", recorded_on="h200")
    assert "products" not in note
    assert "; how far times by peak, 100 % of the kernels', are off is not known; what" in note
    [plain] = uncertain((99, 99))
    assert " or more" not in plain


def test_what_is_known_to_be_off_by_nothing_is_not_told() -> None:
    """A recording without collectives in which no wait was fitted, as of the device alone."""
    builder = TraceBuilder()
    builder.compute("gemm", duration_micros=100)
    spans = {"measured_span_ns": 100_000, "explained_span_ns": 100_000}
    machine = (
        cluster("hgx-h100").system(),
        {"topology": ["Switch"], "npus_count": [1], "bandwidth": [1], "latency": [1]},
    )

    def notes(**options: Any) -> list[str]:
        found = simulate([saying(builder.build(), spans)], *machine, **options).notes
        return [note for note in found if "uncertain" in note or "not known" in note]

    assert notes() == []
    [unknown] = notes(accelerator="b200", recorded_on="h200")
    assert unknown.startswith(
        "uncertain: how far times by peak, 100 % of the kernels', are off is not known, nor is what"
    )


def test_the_recorded_accelerator_itself_adds_nothing() -> None:
    assert uncertain((99, 99), accelerator="h200", recorded_on="h200") == uncertain((99, 99))


def test_turns_on_a_shared_accelerator_are_left_out_where_each_npu_has_one() -> None:
    """A recording replays with them; a machine has an accelerator for each NPU, which a note says."""
    builder = TraceBuilder(rank=0, npus=1)
    turn = builder.compute(TURN, duration_micros=40)
    builder.compute("gemm", duration_micros=100, after=turn)
    trace = builder.build()
    machine = cluster("hgx-h100", 1)
    result = simulate([trace], machine.system(), machine.network())
    recorded_so = simulate([trace], {"replay-only": True}, machine.network())
    assert int(result.finish_ns.max()) == 100_000
    assert int(recorded_so.finish_ns.max()) == 140_000
    [note] = [note for note in result.notes if "shared an accelerator" in note]
    assert "up to 0.040 ms of a rank's wait for the others' turns are left out" in note
    assert not any("shared an accelerator" in note for note in recorded_so.notes)
