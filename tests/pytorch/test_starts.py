"""Ranks that were recorded apart start apart, in every mode and on both engines."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chakra.builder import TraceBuilder
from chakra.converters.pytorch.job import Inputs, Settings
from chakra.converters.pytorch.ranks import convert_job
from chakra.errors import UsageError
from chakra.et import Trace, TraceColumns, read_trace
from chakra.replay import simulate
from chakra.schemas.et_def_pb2 import AttributeProto

DATA = Path(__file__).parents[1] / "data" / "pytorch" / "rank_start"
RING = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
SYSTEM = {"endpoint-delay": 10, **{f"{kind}-implementation": ["ring"] for kind in RING}}
TWO = {"topology": ["Switch"], "npus_count": [2], "bandwidth": [5], "latency": [500]}
LATE_NS = 5_000_000


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    """Rank 0 waited 5 ms for rank 1, which began that much later; behind that both all-reduce 1 MiB."""
    prefix = tmp_path_factory.mktemp("late") / "job"
    inputs = [Inputs(device=DATA / f"job.rank{rank}.kineto.json") for rank in (0, 1)]
    convert_job(inputs, prefix, Settings(), jobs=1)
    return [read_trace(f"{prefix}.{rank}.et") for rank in (0, 1)]


@pytest.mark.parametrize("engine", ["phases", "messages"])
def test_ranks_start_as_far_apart_as_recorded(traces: list[Trace], engine: str) -> None:
    """Aligned, both take 1.257 ms; recorded, the late one ends 5 ms later and the first waits for it."""
    together = simulate(traces, SYSTEM, TWO, start="aligned", engine=engine)
    assert together.finish_ns.tolist() == [1_257_342] * 2
    apart = simulate(traces, SYSTEM, TWO, engine=engine)
    assert apart.finish_ns[1] == 1_257_342 + LATE_NS
    assert apart.finish_ns[0] > LATE_NS
    assert apart.account["idle_ns"][1] == LATE_NS
    assert "5.000 ms apart" in apart.notes[0]
    assert "5.000 ms apart" in together.notes[0]


def test_the_record_itself_starts_apart_where_asked_for(traces: list[Trace]) -> None:
    """By recorded durations both ranks end together, as they did: the collective ended on both at once."""
    result = simulate(traces, {"replay-only": True}, TWO, start="recorded")
    assert result.finish_ns.tolist() == [6_260_000] * 2
    aligned = simulate(traces, {"replay-only": True}, TWO)
    assert aligned.finish_ns.tolist() == [6_260_000, 1_260_000]
    assert aligned.notes == []


def test_astra_sim_knows_no_starts(traces: list[Trace]) -> None:
    """Its mode gives its number: all ranks begin at 0."""
    astra = simulate(traces, SYSTEM, TWO, compat="astra-sim")
    assert astra.finish_ns[0] == astra.finish_ns[1]
    assert astra.notes == []


def recorded_at(begin_ns: int, span_ns: int) -> Trace:
    """A node of 1 us, recorded from a time on."""
    columns = TraceColumns(1)
    columns.ids, columns.types = np.array([0], np.uint64), np.array([4], np.uint8)
    columns.duration_micros = np.array([1])
    for name, value in (("base_time_ns", begin_ns), ("measured_span_ns", span_ns)):
        columns.metadata.attr.append(AttributeProto(name=name, int64_val=value))
    return columns.build()


@pytest.mark.parametrize(
    ("begins", "finish", "note"),
    [
        ((10**18, 10**18 + 500), [1000, 1500], "as recorded"),
        ((10**18, 10**18), [1000, 1000], None),
        ((10**18, 10**18 + 10**9), [1000, 1000], "do not overlap"),
        ((0, 500), [1000, 1000], None),  # no clock that both share
    ],
)
def test_only_recordings_of_one_time_are_apart(
    begins: tuple[int, int], finish: list[int], note: str | None
) -> None:
    """Windows that do not overlap are of two runs or two clocks; without a clock nobody knows."""
    result = simulate([recorded_at(begin, 1000) for begin in begins], SYSTEM, TWO)
    assert result.finish_ns.tolist() == finish
    assert len(result.notes) == (0 if note is None else 1)
    assert all(note in text for text in result.notes if note is not None)


def test_a_start_is_a_word() -> None:
    """Anything else is refused."""
    builder = TraceBuilder()
    builder.compute("f", duration_micros=1)
    options: dict[str, Any] = {"start": "late"}
    with pytest.raises(UsageError, match="start"):
        simulate([builder.build()] * 2, SYSTEM, TWO, **options)
