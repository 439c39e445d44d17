"""Collectives with unequal shares: taken over from what ranks record, matched as a replay matches them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from mini_job import MiniJob, collective

from chakra.cli.commands.convert_pytorch import command as convert
from chakra.cli.commands.link import command as link
from chakra.converters.pytorch.job import Inputs, Settings
from chakra.converters.pytorch.ranks import JobResult, convert_job
from chakra.converters.pytorch.read.split_sizes import rows_of, split_bytes
from chakra.errors import ThresholdError
from chakra.et import Trace, read_trace
from chakra.replay import simulate
from chakra.replay.checks.run import check_workload

#: elements that each rank sends to each, of a mixture of experts' step; rank 1 brings in nothing
ROUTED = [[0, 1 << 20, 0, 0], [0, 0, 0, 0], [1 << 20] * 4, [0, 8 << 20, 0, 0]]


def ranks(folder: Path, name: str, said: list[dict[str, Any]]) -> list[Inputs]:
    """Ranks of one collective each, with what each one's record says of it."""
    out = []
    for rank, one in enumerate(said):
        job = MiniJob()
        job.header["distributedInfo"] = {"rank": rank, "world_size": len(said)}
        collective(job, name, 0, 1, **one)
        host, device = job.write(folder, f"job.rank{rank}")
        out.append(Inputs(host, device, rank=rank))
    return out


def converted(folder: Path, name: str, said: list[dict[str, Any]]) -> tuple[JobResult, list[Trace]]:
    result = convert_job(ranks(folder, name, said), folder / "job", Settings(), jobs=1)
    return result, [read_trace(outcome.output) for outcome in result.outcomes]


def said_by(trace: Trace) -> tuple[int, Any, Any]:
    """comm_size and split sizes of a trace's only collective."""
    node = int(np.flatnonzero(trace.types == 7)[0])
    return int(trace.comm_size[node]), *trace.splits(node)


def routed(rank: int, row: int = 1) -> dict[str, Any]:
    """A record of an all-to-all in which rows of some elements are routed."""
    sent, received = ROUTED[rank], [other[rank] for other in ROUTED]
    return {
        "elements": sum(sent), "out": sum(received),
        "splits": ([n // row for n in sent], [n // row for n in received]),
    }  # fmt: skip


@pytest.mark.parametrize("row", [1, 4096])
def test_split_sizes_of_an_all_to_all_are_taken_over(row: int, tmp_path: Path) -> None:
    """In bytes, whatever a row has; replayed, the longest message decides; conversion and validation agree."""
    result, traces = converted(tmp_path, "all_to_allv", [routed(rank, row) for rank in range(4)])
    assert result.mismatches == []
    table = 4 * np.array(ROUTED)
    for rank, trace in enumerate(traces):
        size, sent, received = said_by(trace)
        assert size == table[rank].sum()
        equal = len(set(table[rank].tolist())) == 1
        assert sent == (None if equal else tuple(table[rank].tolist()))
        assert received == tuple(table[:, rank].tolist())
    assert [f for f in check_workload(traces, {}, 4) if f.severity == "error"] == []
    system = {"all-to-all-implementation": ["direct"], "endpoint-delay": 10, "preferred-dataset-splits": 1}
    network = {"topology": ["FullyConnected"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    spans = simulate(traces, system, network).collectives
    assert [row["transfer_ns"] for row in spans] == [20 + 500 + int((32 << 20) / (50 * 2**30 / 1e9))]


@pytest.mark.parametrize(
    ("name", "said", "wanted"),
    [
        (
            "_allgather_base",
            [{"elements": 100, "out": 400}, {"elements": 300, "out": 400}],
            (None, (400, 1200)),
        ),
        ("allgather", [{"elements": 0, "out": 7}, {"elements": 7, "out": 7}], (None, (0, 28))),
        ("reduce_scatter", [{"elements": 9, "out": 2}, {"elements": 9, "out": 7}], ((8, 28), None)),
        ("scatter", [{"elements": 9, "out": 2}, {"elements": 7, "out": 7}], ((8, 28), None)),
        ("_allgather_base", [{"elements": 50, "out": 100}] * 2, (None, None)),
        ("reduce_scatter", [{"elements": 8, "out": 4}] * 2, (None, None)),
        ("all_to_all", [{"elements": 8, "out": 8}] * 2, (None, None)),
    ],
)
def test_shares_that_only_all_ranks_know(
    name: str, said: list[dict[str, Any]], wanted: tuple[Any, Any], tmp_path: Path
) -> None:
    result, traces = converted(tmp_path, name, said)
    assert result.mismatches == []
    assert [said_by(trace)[1:] for trace in traces] == [wanted, wanted]
    assert [f for f in check_workload(traces, {}, 2) if f.severity == "error"] == []


def test_what_conversion_refuses_a_replay_refuses(tmp_path: Path) -> None:
    """A rank that receives another number than its partner sends: exit code 4 with --strict, an error of validate."""
    said = [routed(rank) for rank in range(4)]
    said[1] = {**said[1], "splits": (said[1]["splits"][0], [1, 0, 1, 8]), "out": 10}
    result, traces = converted(tmp_path, "all_to_allv", said)
    assert "which receives 4 from it (out_split_bytes)" in result.mismatches[0]
    errors = [f.message for f in check_workload(traces, {}, 4) if f.severity == "error"]
    assert len(errors) == 1
    assert errors[0].endswith(result.mismatches[0].rsplit(": ", 1)[1])
    given = ranks(tmp_path, "all_to_allv", said)
    with pytest.raises(ThresholdError, match="which receives 4 from it"):
        convert_job(given, tmp_path / "job", Settings(strict=True), jobs=1)


@pytest.mark.parametrize("name", ["all_to_allv", "_allgather_base"])
def test_unequal_sizes_without_shares_are_said(name: str, tmp_path: Path) -> None:
    result, _ = converted(tmp_path, name, [{"elements": 100}, {"elements": 300}])
    assert len(result.mismatches) == 1
    assert "of 400 bytes on rank 0" in result.mismatches[0]
    assert "comm_size differs; unequal shares need" in result.mismatches[0]


def test_a_root_may_have_more(tmp_path: Path) -> None:
    """Scatter and gather: the root has a buffer of its own."""
    assert converted(tmp_path, "scatter", [{"elements": 400}, {"elements": 100}])[0].mismatches == []
    assert converted(tmp_path, "gather", [{"elements": 400}, {"elements": 100}])[0].mismatches == []


def test_split_sizes_as_they_are_written() -> None:
    """Lists and texts; texts of long lists are cut, and say nothing."""
    assert rows_of([1, 2]) == rows_of("[1, 2]") == (1, 2)
    assert rows_of("[1, 2, ...]") == rows_of([]) == rows_of(None) == rows_of([1, "x"]) == ()
    assert split_bytes((1, 3), 16) == (4, 12)
    assert split_bytes((2, 2), 16) is None  # equal shares need no list
    assert split_bytes((1, 2), 16) is None  # not whole rows
    assert split_bytes((0, 0), 0) is None


def test_linking_first_keeps_split_sizes(tmp_path: Path) -> None:
    """The same file whether the pair is converted at once or by way of a linked file."""
    given = ranks(tmp_path, "all_to_allv", [routed(rank) for rank in range(4)])[3]
    pair = ["--host", str(given.host), "--device", str(given.device)]
    for command, arguments in (
        (convert, [*pair, "--output", str(tmp_path / "at_once.et")]),
        (link, [*pair, "--output", str(tmp_path / "linked.json")]),
        (convert, ["--input", str(tmp_path / "linked.json"), "--output", str(tmp_path / "linked.et")]),
    ):
        result = CliRunner().invoke(command, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    wanted = (4 * sum(ROUTED[3]), *(tuple(4 * n for n in split) for split in routed(3)["splits"]))
    assert said_by(read_trace(tmp_path / "at_once.et")) == wanted
    assert said_by(read_trace(tmp_path / "linked.et")) == wanted


@pytest.mark.parametrize("splits", ['"In split size"', '"in_split_size"', "positions"])
def test_anonymous_recordings_keep_split_sizes(splits: str, tmp_path: Path) -> None:
    """Whichever of the places they stand in: arguments of device events, attributes, or inputs of the record."""
    from chakra.cli.main import run

    folder = tmp_path / "in"
    folder.mkdir()
    for given in ranks(folder, "all_to_allv", [routed(rank) for rank in range(4)]):
        assert given.host is not None
        assert given.device is not None
        host, device = (json.loads(Path(path).read_text()) for path in (given.host, given.device))
        record = next(node for node in host["nodes"] if node["name"] == "record_param_comms")
        sent, received = record["inputs"]["values"][5:7]
        if splits != "positions":
            record["inputs"]["values"][5:7] = [], []
        if splits == '"in_split_size"':
            record["attrs"] += [
                {"name": f"{side}_split_size", "type": "string", "value": str(rows)}
                for side, rows in (("in", sent), ("out", received))
            ]
        if splits == '"In split size"':
            kernel = next(event for event in device["traceEvents"] if event["cat"] == "kernel")
            kernel["args"] |= {
                "Collective name": "all_to_allv", "dtype": "Float", "In msg nelems": sum(sent),
                "Out msg nelems": sum(received), "In split size": str(sent), "Out split size": str(received),
            }  # fmt: skip
        Path(given.host).write_text(json.dumps(host))
        Path(given.device).write_text(json.dumps(device))
    assert run(["anonymize", str(folder), str(tmp_path / "out"), "-q"]) == 0
    for rank, place in enumerate((tmp_path / "in", tmp_path / "out") * 2):
        assert run(["convert", "pytorch", "--dir", str(place), "-o", str(place / "job")]) == 0
        sent, received = (tuple(4 * n for n in split) for split in routed(rank)["splits"])
        found = said_by(read_trace(place / f"job.{rank}.et"))
        assert found == (sum(sent), None if len(set(sent)) == 1 else sent, received)


def test_anonymous_traces_keep_split_sizes(tmp_path: Path) -> None:
    from chakra.anonymize import anonymize

    _, traces = converted(tmp_path, "all_to_allv", [routed(rank) for rank in range(4)])
    anonymize(str(tmp_path / "job"), str(tmp_path / "out"))
    again = [read_trace(tmp_path / f"out.{rank}.et") for rank in range(4)]
    assert [said_by(trace) for trace in again] == [said_by(trace) for trace in traces]


@pytest.mark.shared
@pytest.mark.parametrize(("case", "longest"), [("d", 16 << 20), ("e", 2 * 26)])
def test_a_reported_job(case: str, longest: int, shared: Path, tmp_path: Path) -> None:
    """Recorded splits of four ranks, found matching, validated and replayed: 500 ns and the longest message."""
    from chakra.cli.main import run

    report = shared / "reports" / "uneven-alltoall"
    assert (
        run(["convert", "pytorch", "--dir", str(report / case), "-o", str(tmp_path / "job"), "--strict"]) == 0
    )
    assert run(["validate", str(tmp_path / "job")]) == 0
    result = simulate(str(tmp_path / "job"), str(report / "s.json"), str(report / "n.yml"))
    assert [row["transfer_ns"] for row in result.collectives] == [
        20 + 500 + int(longest / (50 * 2**30 / 1e9))
    ]
