"""How far off a recorded job may be elsewhere: the parts that are known, added up."""

from typing import Any

import numpy as np
import pytest

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.et.read import decode_trace
from chakra.platforms.cluster import cluster
from chakra.replay import simulate
from chakra.rescale.edit import Edits, edited
from chakra.schemas.protolib import encode_varint


def recorded(explained: int | None, rank: int) -> Trace:
    """100 us of computing and an all-reduce, of which so many us of 100 are explained."""
    builder = TraceBuilder(rank=rank, npus=2)
    first = builder.compute("gemm", duration_micros=100)
    builder.collective("all_reduce", size_bytes=1 << 24, after=first)
    trace = builder.build()
    if explained is None:
        return trace
    records = edited(trace, Edits()).records
    metadata = trace.metadata
    metadata.attr.add(name="measured_span_ns", int64_val=100_000)
    metadata.attr.add(name="explained_span_ns", int64_val=explained * 1000)
    head = metadata.SerializeToString()
    body = records.data[records.meta_end :].tobytes()
    return decode_trace(np.frombuffer(encode_varint(len(head)) + head + body, np.uint8), "<memory>")


def uncertain(explained: tuple[int | None, int | None], **options: Any) -> list[str]:
    traces = [recorded(share, rank) for rank, share in enumerate(explained)]
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
    times = [float(text.split("about ")[1].split(" ms")[0]) for text in (note, less)]
    assert times[0] - times[1] == pytest.approx(0.09 * 0.1, abs=0.0015)


def test_another_accelerator_adds_its_errors() -> None:
    [note] = uncertain((99, 99), accelerator="b200", recorded_on="h200")
    assert "products of the two accelerators 14 % together" in note
