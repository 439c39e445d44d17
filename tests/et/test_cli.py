"""`chakra info`, `chakra jsonize` and `chakra generate collective`, as a user runs them."""

import json
from pathlib import Path

import pytest

from chakra.builder import TraceBuilder
from chakra.cli.main import entry
from chakra.cli.support.sizes import parse_size
from chakra.errors import UsageError
from chakra.et import read_trace, read_traces, write_trace


def chakra(*arguments: object, code: int = 0) -> None:
    with pytest.raises(SystemExit) as left:
        entry([str(argument) for argument in arguments])
    assert (left.value.code or 0) == code


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    b = TraceBuilder(npus=4)
    a = b.compute("a", duration_micros=2, num_ops=7)
    c = b.compute("c", duration_ns=500, cpu=True, after=a)
    b.collective("all_reduce", size_bytes=64, after=c)
    b.collective("all_reduce", size_bytes=32, group="3", after=c)
    b.send(1, size_bytes=10, after=a)
    b.load(11, ctrl=a)
    write_trace(b.build(), tmp_path / "t.et")
    return tmp_path / "t.et"


def test_info_as_text(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chakra("info", trace_file, "--path")
    out = capsys.readouterr().out
    for line in (
        "nodes: 6 (1 MEM_LOAD, 2 COMP, 1 COMM_SEND, 2 COMM_COLL; 1 on the CPU)",
        "dependencies: 4 data, 1 control; 1 first (waits for none), 4 last (none waits for them)",
        "compute: 2000 ns on the accelerator, 500 ns on the CPU",
        "collective: 1 x ALL_REDUCE, all ranks, 64 bytes",
        "collective: 1 x ALL_REDUCE, group '3', 32 bytes",
        "COMM_SEND: 1 node, 10 bytes",
        "MEM_LOAD: 1 node, 11 bytes",
        "critical path: 2500 ns over 2 nodes",
        "1  COMP  500 ns  c",
    ):
        assert f"  {line}" in out


def test_info_as_json(trace_file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    copy = tmp_path / "copy.et"
    copy.write_bytes(trace_file.read_bytes())
    chakra("info", trace_file, copy, "--format", "json")
    document = json.loads(capsys.readouterr().out)
    (trace,) = document["traces"]
    assert trace["files"] == [str(trace_file), str(copy)]
    assert trace["nodes_by_type"] == {"MEM_LOAD": 1, "COMP": 2, "COMM_SEND": 1, "COMM_COLL": 2}
    assert trace["critical_path"] == {"length_ns": 2500, "problem": "", "node_count": 2}
    assert [(row["group"], row["bytes"]) for row in trace["collectives"]] == [("", 64), ("3", 32)]


def test_info_of_a_prefix(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = trace_file.with_name("w")
    for name in ("w.0.et", "w.10.et", "w.2.et.gz"):
        write_trace(read_trace(trace_file), prefix.with_name(name))
    chakra("info", prefix, "--format", "json")
    traces = json.loads(capsys.readouterr().out)["traces"]
    files = [Path(path).name for trace in traces for path in trace["files"]]
    assert sorted(files) == ["w.0.et", "w.10.et", "w.2.et.gz"]
    chakra("info", prefix.with_name("x"), code=2)
    assert "x.<rank>.et" in capsys.readouterr().err


def test_info_refuses_other_files_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.json").write_text('{"traceEvents": []}')
    chakra("info", tmp_path / "k.json", code=2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "Kineto trace" in captured.err


def test_jsonize_and_back(trace_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chakra("jsonize", trace_file)
    assert len(json.loads(capsys.readouterr().out)["nodes"]) == 6
    chakra("jsonize", trace_file, tmp_path / "t.json")
    chakra("jsonize", "--input_filename", tmp_path / "t.json", "--output_filename", tmp_path / "u.et.gz")
    assert read_trace(tmp_path / "u.et.gz").content_hash == read_trace(trace_file).content_hash
    chakra("jsonize", tmp_path / "t.json", code=2)
    assert "name an OUTPUT" in capsys.readouterr().err
    chakra("jsonize", trace_file, trace_file, code=2)
    chakra("jsonize", code=2)
    assert read_trace(trace_file).n_nodes == 6


def test_jsonize_leaves_nothing_behind_on_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.json").write_text('{"schema": "chakra.et.json/1", "nodes": [{"id": 1}, {"id": "x"}]}')
    chakra("jsonize", tmp_path / "t.json", tmp_path / "t.et", code=2)
    assert "nodes[1]" in capsys.readouterr().err
    (tmp_path / "cut.et").write_bytes(b"\x07\n\x051.0.0\x09\x08")
    chakra("jsonize", tmp_path / "cut.et", tmp_path / "cut.json", code=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.et", "t.json"]


def test_generate_collective(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = tmp_path / "w"
    chakra(
        *("generate", "collective", "--kind", "AllGather", "--size", "64KiB", "--npus", 8),
        *("--count", 2, "--compute-us", 0.5, "--group-size", 4, "-o", prefix),
    )
    assert capsys.readouterr().out == ""
    traces = read_traces([f"{prefix}.{rank}.et" for rank in range(8)])
    assert traces[0] is traces[3]
    assert traces[0] is not traces[4]
    assert traces[4].comm_size.tolist()[1::2] == [65536, 65536]
    assert traces[4].durations_ns().tolist() == [500, 0, 500, 0]
    assert traces[4].pg_table == ("2",)
    assert json.loads((tmp_path / "w.groups.json").read_text()) == {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--kind", "allgater", "--size", "1", "--npus", "2"), "unknown collective 'allgater'"),
        (("--size", "-1", "--npus", "2"), "not a size"),
        (("--size", "1", "--npus", "0"), "npus"),
        (("--size", "1", "--npus", "4", "--group-size", "3"), "does not divide"),
    ],
)
def test_generate_refuses(
    options: tuple[str, ...], wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chakra("generate", "collective", *options, "-o", tmp_path / "w", code=2)
    assert wanted in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", 0),
        ("1k", 1024),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("1.5MiB", 1572864),
        ("2GB", 2 * 10**9),
        ("3T", 3 << 40),
    ],
)
def test_sizes(text: str, wanted: int) -> None:
    assert parse_size(text) == wanted


@pytest.mark.parametrize("text", ["", "x", "1 XB", "1.3", "0.3kB1", "-5", "1e6", "1iB"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)


def test_small_traces_never_import_numba(trace_file: Path) -> None:
    """Loading the kernels would cost half a second."""
    import subprocess
    import sys

    code = (
        "import sys\n"
        "from chakra.cli.main import run\n"
        f"assert run(['info', {str(trace_file)!r}]) == 0\n"
        f"assert run(['jsonize', {str(trace_file)!r}]) == 0\n"
        f"command = ['generate', 'collective', '--size', '1', '--npus', '4', '-o', {str(trace_file)!r}]\n"
        "assert run(command) == 0\n"
        "assert 'numba' not in sys.modules and 'networkx' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
