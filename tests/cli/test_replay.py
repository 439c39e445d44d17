"""`chakra replay`: ASTRA-sim's flags, the forms of the output, the log, and what goes wrong."""

import csv
import importlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from astra_flags import LONG

from chakra.errors import ChakraError

Chakra = Callable[..., Any]
SHORT = ("-w", "w", "-s", "system.json", "-n", "network.yml")
LINES = [f"sys[{rank}] finished, 117780 cycles, exposed communication 117780 cycles." for rank in range(8)]


def test_short_options_print_astra_sims_lines_and_a_summary(chakra: Chakra, ring8: Path) -> None:
    """The tutorial's figure; the summary states the unit."""
    outcome = chakra("replay", *SHORT)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[:8] == LINES
    assert lines[9].startswith("finished after    117,780 ns (117.780 us): all 8 NPUs at the same time")
    assert not (ring8 / "log").exists()


def test_the_prefix_is_an_argument_too(chakra: Chakra, ring8: Path) -> None:
    short, plain = chakra("replay", *SHORT), chakra("replay", "w", *SHORT[2:])
    assert (plain.code, plain.err, plain.out) == (short.code, short.err, short.out)


@pytest.mark.parametrize("separate", [False, True])
def test_astra_sims_own_flags(chakra: Chakra, ring8: Path, separate: bool) -> None:
    """Replay semantics, section 1.1: a run script works by swapping the program's name, with `=` or with a blank."""
    (ring8 / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    args = [part for flag in LONG for part in flag.split("=")] if separate else list(LONG)
    outcome = chakra("replay", *args)
    assert outcome.code == 0
    assert outcome.out.splitlines()[:8] == LINES
    assert (ring8 / "logs" / "log.log").exists()


@pytest.mark.parametrize(
    ("flag", "on"),
    [
        ("--rendezvous-protocol", True),
        ("--rendezvous-protocol=true", True),
        ("--rendezvous-protocol=True", True),
        ("--rendezvous-protocol=1", True),
        ("--rendezvous-protocol=false", False),
        ("--rendezvous-protocol=0", False),
    ],
)
def test_boolean_flags(
    chakra: Chakra, ring8: Path, monkeypatch: pytest.MonkeyPatch, flag: str, on: bool
) -> None:
    options = passed_to_simulate(monkeypatch, chakra, flag)
    assert options["rendezvous"] is on


def passed_to_simulate(monkeypatch: pytest.MonkeyPatch, chakra: Chakra, *flags: str) -> dict[str, Any]:
    """The keyword arguments that the command hands to `simulate`."""
    package = importlib.import_module("chakra.replay")
    seen: dict[str, Any] = {}

    class SeenError(ChakraError):
        pass

    def watch(**options: Any) -> Any:
        seen.update(options)
        raise SeenError("seen")

    monkeypatch.setattr(package, "simulate", watch)
    outcome = chakra("replay", *SHORT, *flags)
    assert outcome.err == "chakra: error: seen\n"
    return seen


def test_every_option_reaches_simulate(chakra: Chakra, ring8: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ring8 / "scale").write_text("0-2 1.5  # slow\n7 = 2\n")
    flags = (
        "--backend=aware -m m.json -g g.json --compat astra-sim --num-queues-per-dim 3 --injection-scale 0.5 "
        "--comm-scale 2 --compute-scale 3 --rendezvous --comm-streams 4 --npu-scale scale --replicate "
        "--start aligned --host-speed 1.25 --accelerator-speed 2 --kernel-speed matmul=2 --accelerator b200 "
        "--recorded-on h200 "
        "--ideal --measured times.csv --collective-algorithm nvlstree --collective-protocol LL128 "
        "--collective-channels 8"
    )
    seen = passed_to_simulate(monkeypatch, chakra, *flags.split())
    scale = seen.pop("npu_scale")
    assert scale.tolist() == [1.5, 1.5, 1.5, 1, 1, 1, 1, 2]
    assert seen.pop("progress")(10, 1000) is True  # goes on until Ctrl-C
    assert seen == {
        "workload": "w",
        "system": "system.json",
        "network": "network.yml",
        "memory": "m.json",
        "comm_groups": "g.json",
        "backend": "aware",
        "compat": "astra-sim",
        "queues_per_dim": 3,
        "injection_scale": 0.5,
        "comm_scale": 2.0,
        "compute_scale": 3.0,
        "rendezvous": True,
        "comm_streams": 4,
        "start": "aligned",
        "host_speed": 1.25,
        "ideal": True,
        "measured": ("times.csv",),
        "collective_algorithm": "NVLSTree",
        "collective_protocol": "LL128",
        "collective_channels": 8,
        "accelerator_speed": 2.0,
        "kernel_speeds": {"matmul": 2.0},
        "accelerator": "b200",
        "recorded_on": "h200",
        "replicate": True,
    }


def test_json_is_one_strict_document(chakra: Chakra, ring8: Path) -> None:
    outcome = chakra("replay", *SHORT, "--format=json")
    document = json.loads(outcome.out, parse_constant=pytest.fail)
    assert document["schema"] == "chakra.replay.result/1"
    assert document["finish_ns"] == [117780] * 8
    assert document["exposed_comm_ns"] == [117780] * 8
    assert document["partial"] is False
    assert document["corrections"] == {}
    assert "nodes" not in document
    again = json.loads(chakra("replay", *SHORT, "--format=json", "--nodes").out)
    assert [entry["npu"] for entry in again["nodes"]] == list(range(8))
    assert again["nodes"][3]["ids"] == [0]
    assert again["nodes"][3]["finish_ns"] == [117780]


def test_csv(chakra: Chakra, ring8: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(chakra("replay", *SHORT, "--format=csv").out)))
    assert [(row["npu"], row["finish_ns"], row["exposed_comm_ns"]) for row in rows] == [
        (str(rank), "117780", "117780") for rank in range(8)
    ]
    rows = list(csv.DictReader(io.StringIO(chakra("replay", *SHORT, "--format=csv", "--nodes").out)))
    assert len(rows) == 8
    assert (rows[5]["npu"], rows[5]["node"], rows[5]["issue_ns"], rows[5]["finish_ns"]) == (
        "5",
        "0",
        "0",
        "117780",
    )


def test_nodes_need_a_form_that_holds_them(chakra: Chakra, ring8: Path) -> None:
    outcome = chakra("replay", *SHORT, "--nodes")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--nodes needs --format json, csv or parquet" in outcome.err


def test_output_goes_to_a_file(chakra: Chakra, ring8: Path) -> None:
    """Whole or not at all; a missing folder is made."""
    outcome = chakra("replay", *SHORT, "--format=json", "-o", "new/out.json")
    assert (outcome.code, outcome.out) == (0, "")
    assert json.loads((ring8 / "new/out.json").read_text())["npus"] == 8
    (ring8 / "w.3.et").write_bytes(b"\xff")
    assert chakra("replay", *SHORT, "-o", "second.txt").code == 2
    assert not (ring8 / "second.txt").exists()
    assert "is a folder" in chakra("replay", *SHORT, "-o", ".").err


def test_quiet_leaves_the_data(chakra: Chakra, ring8: Path) -> None:
    outcome = chakra("replay", *SHORT, "-q")
    assert outcome.out.splitlines() == LINES
    assert outcome.err == ""


def test_the_same_run_prints_the_same(chakra: Chakra, ring8: Path) -> None:
    first = chakra("replay", *SHORT, "--format=json").out
    assert chakra("replay", *SHORT, "--format=json").out == first


def test_log_lines(chakra: Chakra, ring8: Path, et: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """With trace-enabled every node's issue and callback by time, then the finish (replay semantics, section 1.6)."""
    for rank in range(8):
        et.write(ring8 / f"w.{rank}.et", et.compute(3, 2), et.all_reduce(4), et.compute(5, 1, 3, 4))
    (ring8 / "system.json").write_text(json.dumps({**et.system, "trace-enabled": 1}))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert chakra("replay", *SHORT, "--compat", "astra-sim").code == 0
    lines = (ring8 / "log" / "log.log").read_text().splitlines()
    stamp = "[1970-01-01 00:00:00.000] "
    assert all(line.startswith(stamp) for line in lines)
    of_rank_2 = [line.removeprefix(stamp) for line in lines if "sys->id=2," in line]
    assert of_rank_2 == [
        "[workload] [debug] issue,sys->id=2, tick=0, node->id=3, node->name=C3, node->type=4",
        "[workload] [debug] issue,sys->id=2, tick=0, node->id=4, node->name=AR4, node->type=7",
        "[workload] [debug] callback,sys->id=2, tick=2000, node->id=3, node->name=C3, node->type=4",
        "[workload] [debug] callback,sys->id=2, tick=117780, node->id=4, node->name=AR4, node->type=7",
        "[workload] [debug] issue,sys->id=2, tick=117780, node->id=5, node->name=C5, node->type=4",
        "[workload] [debug] callback,sys->id=2, tick=118780, node->id=5, node->name=C5, node->type=4",
    ]
    ticks = [int(match[1]) for line in lines if (match := re.search(r"tick=(\d+)", line))]
    assert ticks == sorted(ticks)
    assert len(ticks) == 48
    finish = "[workload] [info] sys[2] finished, 118780 cycles, exposed communication 115780 cycles."
    assert stamp + finish in lines
    assert (ring8 / "log" / "err.log").read_text() == ""


def test_a_default_log_that_cannot_be_written_is_only_a_warning(
    chakra: Chakra, ring8: Path, et: SimpleNamespace
) -> None:
    (ring8 / "system.json").write_text(json.dumps({**et.system, "trace-enabled": 1}))
    (ring8 / "log").write_text("in the way")
    outcome = chakra("replay", *SHORT)
    assert outcome.code == 0
    assert "warning: trace-enabled is on, but log folder log" in outcome.err
    outcome = chakra("replay", *SHORT, "--logging-folder=log")
    assert outcome.code == 2


def test_strict_turns_warnings_into_exit_4(chakra: Chakra, ring8: Path, et: SimpleNamespace) -> None:
    """A run that moves no byte is plausible-looking and empty."""
    for rank in range(8):
        et.write(ring8 / f"w.{rank}.et", et.all_reduce(0, size=0))
    outcome = chakra("replay", *SHORT)
    assert outcome.code == 0
    assert "chakra replay: warning: " in outcome.err
    assert chakra("replay", *SHORT, "--strict").code == 4


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            ("network.yml", "topology: [ Ring ]\n"),
            2,
            "chakra: error: network.yml: key 'npus_count' is missing",
        ),
        (("system.json", "{"), 2, "chakra: error: system.json:1:2: not valid JSON"),
        (("w.3.et", None), 2, "no file for 1 of 8 ranks: 3"),
        (("w.3.et", "junk"), 2, "w.3.et"),
    ],
)
def test_wrong_input_is_one_line(
    chakra: Chakra, ring8: Path, change: tuple[str, str | None], code: int, message: str
) -> None:
    name, text = change
    (ring8 / name).unlink()
    if text is not None:
        (ring8 / name).write_text(text)
    outcome = chakra("replay", *SHORT)
    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_stall_has_its_own_exit_code(chakra: Chakra, ring8: Path, et: SimpleNamespace) -> None:
    et.write(ring8 / "w.5.et", et.compute(0, 1))
    outcome = chakra("replay", *SHORT)
    assert outcome.code == 3
    assert "5" in outcome.err


def test_logging_configuration_must_exist(chakra: Chakra, ring8: Path) -> None:
    outcome = chakra("replay", *SHORT, "--logging-configuration=log.toml")
    assert (outcome.code, "log.toml: no such file" in outcome.err) == (2, True)


def test_explain_engine(chakra: Chakra, ring8: Path) -> None:
    outcome = chakra("replay", *SHORT, "--explain-engine")
    assert "8 simulated as 1 class" in outcome.err
    assert outcome.code == 0


def test_parquet_holds_the_rows_of_csv(chakra: Chakra, ring8: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the parquet extra is not installed")
    plain = chakra("replay", *SHORT, "--format", "csv", "--nodes")
    chakra("replay", *SHORT, "--format", "parquet", "--nodes", "--output", "out.parquet")
    rows = parquet.read_table("out.parquet").to_pylist()
    lines = [",".join(str(value) for value in row.values()) for row in rows]
    assert lines == plain.out.splitlines()[1:]


def test_parquet_needs_a_file(chakra: Chakra, ring8: Path) -> None:
    outcome = chakra("replay", *SHORT, "--format", "parquet")
    assert outcome.code == 2
    assert "--output" in outcome.err


def test_what_astra_sim_would_write_and_we_do_not_is_said(chakra: Chakra, ring8: Path) -> None:
    """Log sinks and the file of the memory account: one warning line each, and exit code 4 with --strict."""
    (ring8 / "sinks.toml").write_text("")
    values = json.loads((ring8 / "system.json").read_text()) | {"track-local-mem": 1}
    (ring8 / "system.json").write_text(json.dumps(values))
    outcome = chakra("replay", *SHORT, "--logging-configuration", "sinks.toml")
    assert outcome.code == 0
    assert outcome.err.count("\n") == 2
    assert "the sinks of sinks.toml are not set up" in outcome.err
    assert "local_mem_trace.<npu>.json is not written" in outcome.err
    assert chakra("replay", *SHORT, "--strict").code == 4
    assert chakra("replay", *SHORT, "-q").err == ""


def clean(text: str) -> list[str]:
    """Lines without their three brackets, as ASTRA-sim's own regression script cuts them off."""
    return [re.sub(r"^(\[[^]]+\] ){3}", "", line) for line in text.splitlines()]


def test_the_output_of_astra_sims_regression_test(chakra: Chakra, ring8: Path) -> None:
    """What its `rt_template` compares: a line for each ring of NPU 0, then finish and statistics of each NPU."""
    rings = {f"{kind}-implementation": ["ring"] for kind in ("all-gather", "reduce-scatter", "all-to-all")}
    system = json.loads((ring8 / "system.json").read_text())
    (ring8 / "system.json").write_text(json.dumps(system | rings))
    outcome = chakra("replay", *SHORT, "--backend=aware", "--compat=astra-sim", "--format=astra-sim")
    assert (outcome.code, outcome.err) == (0, "")
    ring = (
        "ring of node 0, id: 0 dimension: local total nodes in ring: 8 index in ring: 0 offset: 1 "
        "total nodes in ring: 8"
    )
    expected = [ring] * 4
    for rank, line in enumerate(LINES):
        expected += [
            line,
            f"sys[{rank}]. Post statistics processing start.",
            f"sys[{rank}]. Post statistics processing end.",
            f"sys[{rank}], Wall time: 117780",
            f"sys[{rank}], Comm time: 117780",
        ]
    assert clean(outcome.out) == [*expected, "Exiting"]
    assert re.match(r"\[\d{4}-\d\d-\d\d [0-9:.]{12}\] \[workload\] \[info\] sys", outcome.out.splitlines()[4])


def test_rings_of_groups_and_dimensions_in_astra_sims_output(
    chakra: Chakra, ring8: Path, et: SimpleNamespace
) -> None:
    """Groups say their ring at the first collective of a kind; trees have no ring, `one...` has one of all NPUs."""
    (ring8 / "network.yml").write_text(
        "topology: [Ring, Switch]\nnpus_count: [4, 2]\nbandwidth: [50, 25]\nlatency: [500, 500]\n"
    )
    names = {
        "all-reduce": ["ring", "doubleBinaryTree"],
        "all-gather": ["direct", "ring"],
        "all-to-all": ["oneRing"],
    }
    system = {**et.system, **{f"{kind}-implementation": algorithms for kind, algorithms in names.items()}}
    (ring8 / "system.json").write_text(json.dumps(system))
    (ring8 / "groups.json").write_text('{"1": [0, 2]}')
    for rank in range(8):
        nodes = [et.compute(1, 3 + rank)]
        if rank in (0, 2):
            nodes += [et.all_reduce(2, pg_name="1"), et.all_reduce(3, pg_name="1")]
        et.write(ring8 / f"w.{rank}.et", *nodes)
    outcome = chakra("replay", *SHORT, "-g", "groups.json", "--compat=astra-sim", "--format=astra-sim")
    assert outcome.code == 0, outcome.err
    lines = clean(outcome.out)
    ring = (
        "ring of node 0, id: 0 dimension: local total nodes in ring: {0} index in ring: 0 offset: {1} "
        "total nodes in ring: {0}"
    )
    assert lines[:5] == [ring.format(*sizes) for sizes in ((4, 1), (4, 1), (4, 1), (2, 4), (8, 1))]
    custom = (
        "custom ring, id: {}, dimension: local total nodes in ring: 2 index in ring: {} total nodes in ring 2"
    )
    assert lines[5:7] == [custom.format(0, 0), custom.format(2, 1)]
    finished = [int(line[4 : line.index("]")]) for line in lines if " finished, " in line]
    assert finished == [1, 3, 4, 5, 6, 7, 0, 2]


def test_many_npus_are_counted_and_listed_when_asked_for(
    chakra: Chakra, ring8: Path, et: SimpleNamespace
) -> None:
    (ring8 / "network.yml").write_text(
        "topology: [Ring]\nnpus_count: [17]\nbandwidth: [50]\nlatency: [500]\n"
    )
    for rank in range(17):
        et.write(ring8 / f"w.{rank}.et", et.compute(1, 3))
    short = chakra("replay", *SHORT).out
    assert short.startswith("finished after    3,000 ns (3.000 us): all 17 NPUs")
    every = chakra("replay", *SHORT, "--per-npu").out
    assert every.endswith(short)
    assert every.count(" finished, 3000 cycles") == 17
    assert chakra("replay", *SHORT, "--quiet").out.count(" finished, 3000 cycles") == 17
    outcome = chakra("replay", *SHORT, "--per-npu", "--format", "json")
    assert (outcome.code, outcome.out) == (2, "")
