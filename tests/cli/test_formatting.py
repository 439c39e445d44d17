"""A result document as text, CSV and JSON."""

import csv
import io
import json
from typing import Any

import pytest

from chakra.replay.results.formatting import format_csv, format_json, format_text

ROW = {"kind": "ALL_REDUCE", "algorithm": "ring", "group": "", "members": 2, "bytes": 1048576, "count": 1}


def document(**changes: Any) -> dict[str, Any]:
    """A small, complete document."""
    return {
        "schema": "chakra.replay.result/1",
        "version": "0.1.0",
        "backend": "unaware",
        "compat": None,
        "npus": 2,
        "partial": False,
        "finish_ns": [900, 1_500_000],
        "exposed_comm_ns": [900, 1_000_000],
        "corrections": {"C1": 2, "C2": 0},
        "warnings": [],
        "inputs": {
            "network": {
                "dims": [{"topology": "Ring", "npus": 2, "bandwidth_gibps": 50.0, "latency_ns": 500.0}],
            }
        },
        "account": {
            "compute_ns": [0, 500_000],
            "cpu_ns": [0, 0],
            "transfer_ns": [900, 750_000],
            "waiting_ns": [0, 250_000],
            "memory_ns": [0, 0],
            "idle_ns": [0, 0],
        },
        "collectives": [
            {
                **ROW,
                "start_ns": 0,
                "ready_ns": 100,
                "end_ns": 900,
                "algbw_gbps": 1.5,
                "busbw_gbps": 1.5,
                "bound_ns": 400.0,
            },
            {
                **ROW,
                "start_ns": 0,
                "ready_ns": 0,
                "end_ns": 300,
                "algbw_gbps": 3.5,
                "busbw_gbps": 3.5,
                "bound_ns": 400.0,
            },
        ],
        "dimensions": [
            {
                "dim": 0,
                "topology": "Ring",
                "npus": 2,
                "bandwidth_gibps": 50.0,
                "latency_ns": 500.0,
                "bytes_per_npu": 1048576,
                "utilisation": 0.125,
            }
        ],
        **changes,
    }


def test_text_has_lines_units_and_parts() -> None:
    text = format_text(document())
    assert text.startswith(
        "sys[0] finished, 900 cycles, exposed communication 900 cycles.\n"
        "sys[1] finished, 1500000 cycles, exposed communication 1000000 cycles.\n\n"
        "finished after    1,500,000 ns (1.500 ms): NPU 1 last, NPU 0 first at 900 ns; 1 cycle = 1 ns\n"
    )
    assert "dim 0: Ring of 2 NPUs, 50 GB/s (of 2^30 B/s) per link and direction, 500 ns per hop" in text
    assert (
        "GPU compute 500,000 ns (33.3 %), transfer 750,000 ns (50.0 %), waiting for peers 250,000 ns (16.7 %)"
        in text
    )
    assert "C1 2x" in text
    assert "C2" not in text
    (row,) = [line for line in text.splitlines() if line.startswith("ALL_REDUCE")]
    assert row.split() == [
        "ALL_REDUCE",
        "ring",
        "2",
        "1,048,576",
        "2",
        "550",
        "2.05",
        "2.05",
        "400",
    ]  # 1,100 ns in all
    assert "12.5" in text


def test_a_time_that_beats_the_bound_is_marked() -> None:
    rows = document()["collectives"]
    text = format_text(document(collectives=rows[1:]))
    assert "400*" in text
    assert "* faster than the bandwidth of its links allows" in text


def test_a_library_s_time_that_beats_the_bound_says_that_it_is_the_fit() -> None:
    ran = {"library_algorithm": "NVLS", "library_protocol": "Simple", "library_channels": 16}
    text = format_text(document(collectives=[{**document()["collectives"][1], **ran}]))
    assert "400*" in text
    assert "the time is that of the library's costs, which are fitted to measurements" in text
    assert "do not share" not in text


def test_means_are_of_all_collectives_that_a_row_stands_for() -> None:
    """Of 6,592 that take 120 ms in all, the row that is kept shows the longest, 1.171 ms."""
    row = {**document()["collectives"][0], "ready_ns": 0, "end_ns": 1_171_000, "count": 6592}
    row |= {"total_ns": 130_000_000, "total_transfer_ns": 118_656_000, "bound_ns": 400.0}
    (line,) = [line for line in format_text(document(collectives=[row])).splitlines() if "ALL_RED" in line]
    assert line.split()[4:6] == ["6,592", "18,000"]


@pytest.mark.parametrize("backend", ["aware", "flow"])
def test_rounding_below_the_bound_is_no_mark_where_links_are_shared(backend: str) -> None:
    text = format_text(document(collectives=document()["collectives"][1:], backend=backend))
    assert "*" not in text
    assert "faster than" not in text


def test_wrapped_and_missing_figures() -> None:
    """ASTRA-sim's exposed time is unsigned; an NPU that did not finish has no line."""
    text = format_text(document(finish_ns=[900, -1], exposed_comm_ns=[-1, 0], partial=True, account={}))
    assert "sys[0] finished, 900 cycles, exposed communication 18446744073709551615 cycles." in text
    assert "sys[1]" not in text
    assert "partial" in text


def test_a_long_table_is_cut() -> None:
    rows = [{**document()["collectives"][0], "bytes": size} for size in range(1, 31)]
    text = format_text(document(collectives=rows))
    assert "... and 10 more (--format json has all)" in text
    assert text.count("ALL_REDUCE") == 20


def test_nothing_but_the_lines() -> None:
    assert format_text(document(), summary=False).count("\n") == 2


def test_a_minimal_document_prints() -> None:
    minimal = {"finish_ns": [0], "exposed_comm_ns": [0]}
    assert "finished after    0 ns: the only NPU; " in format_text(minimal)
    assert format_csv(minimal) == "npu,finish_ns,exposed_comm_ns\n0,0,0\n"


def test_json_is_strict_and_keeps_everything() -> None:
    whole = document()
    assert json.loads(format_json(whole)) == whole
    with pytest.raises(ValueError, match=r"not JSON compliant|Out of range"):
        format_json({"x": float("nan")})


def test_csv_rows() -> None:
    rows = list(csv.DictReader(io.StringIO(format_csv(document()))))
    assert rows[1] == {
        "npu": "1",
        "finish_ns": "1500000",
        "exposed_comm_ns": "1000000",
        "compute_ns": "500000",
        "cpu_ns": "0",
        "transfer_ns": "750000",
        "waiting_ns": "250000",
        "memory_ns": "0",
        "idle_ns": "0",
    }
    nodes = [
        {
            "npu": 1,
            "ids": [4],
            "names": ['a,"b"'],
            "kinds": ["COMP"],
            "engines": ["gpu"],
            "issue_ns": [0],
            "finish_ns": [5],
        }
    ]
    (row,) = csv.DictReader(io.StringIO(format_csv(document(nodes=nodes))))
    assert row["name"] == 'a,"b"'
    assert (row["npu"], row["node"], row["finish_ns"]) == ("1", "4", "5")
