"""`chakra visualize` as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import forked
import numpy as np
import pytest
from viz_traces import make_trace

from chakra.et import Trace, TraceColumns, write_trace
from chakra.viz import DrawOptions, draw, from_trace
from chakra.viz.draw import FORMATS

MAGIC = {
    "pdf": b"%PDF",
    "svg": b"<?xml",
    "png": b"\x89PNG",
    "dot": b"digraph",
    "graphml": b"<?xml",
    "html": b"<!DOCTYPE",
}


def run(*args: str) -> "subprocess.CompletedProcess[str]":
    done = forked.python(["-m", "chakra", *args], Path.cwd())
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


_ENTRY = "import sys; from chakra.cli.main import entry; entry(sys.argv[1:])"


@pytest.fixture
def trace_file(tmp_path: Path, diamond: Trace) -> Path:
    path = tmp_path / "in.et"
    write_trace(diamond, path)
    return path


def big_trace(n: int) -> Trace:
    columns = TraceColumns(n)
    rng = np.random.default_rng(1)
    columns.ids[:] = np.arange(n)
    columns.types[:] = rng.choice([4, 4, 4, 5, 7], n)
    columns.duration_micros[:] = rng.integers(0, 500, n)
    columns.set_names([f"op{i % 31}" for i in range(n)])
    parents = np.maximum(np.arange(1, n) - rng.integers(1, 7, n - 1), 0)
    columns.set_data_deps(np.r_[0, np.arange(n)], parents)
    return columns.build()


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("layout", ["own", "auto"])
def test_every_format_is_written(trace_file: Path, suffix: str, layout: str) -> None:
    out = trace_file.with_name(f"out.{suffix}")
    done = run("visualize", str(trace_file), str(out), "--layout", layout)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes().startswith(MAGIC[suffix])
    assert "wrote" in done.stderr
    assert done.stdout == ""


def test_upstream_flags_and_errors(trace_file: Path) -> None:
    out = trace_file.with_name("o.dot")
    assert (
        run("visualize", "--input_filename", str(trace_file), "--output_filename", str(out)).returncode == 0
    )
    assert out.exists()
    for args, words in (
        ([str(trace_file), str(trace_file.with_name("o.jpg"))], "unknown suffix"),
        ([str(trace_file), str(trace_file.with_name("o.svg")), "--around", "9"], "no node with this id"),
        ([str(trace_file)], "expected one trace and one file"),
        ([str(trace_file.with_name("absent.et")), str(out)], "absent.et"),
        ([str(out), str(trace_file.with_name("o.svg"))], "o.dot"),
    ):
        done = run("visualize", *args)
        assert done.returncode == 2, args
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert not trace_file.with_name("o.svg").exists()


def test_text_formats_and_the_own_layout_need_no_graphviz(trace_file: Path) -> None:
    hide = "import sys; sys.modules['pygraphviz'] = None; sys.modules['graphviz'] = None; " + _ENTRY
    for suffix in FORMATS:
        out = trace_file.with_name(f"plain.{suffix}")
        command = [sys.executable, "-c", hide, "visualize", str(trace_file), str(out), "--layout", "own"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": "/nonexistent"}
        )
        assert done.returncode == 0, done.stderr
        assert out.read_bytes().startswith(MAGIC[suffix])


def test_five_thousand_nodes_are_drawn_in_time_with_a_suggestion(tmp_path: Path) -> None:
    drawing = draw(from_trace(big_trace(5000), "big"), tmp_path / "o.pdf")
    assert drawing.boxes == 5000
    assert any("--fold" in remark for remark in drawing.remarks)


def test_fifty_thousand_nodes_are_refused_with_suggestions_or_folded(tmp_path: Path) -> None:
    path = tmp_path / "big.et"
    write_trace(big_trace(50_000), path)
    out = tmp_path / "o.svg"
    done = run("visualize", str(path), str(out))
    assert done.returncode == 2
    assert "--fold" in done.stderr
    assert not out.exists()
    done = run("visualize", str(path), str(out), "--fold", "--boxes", "100")
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size < 2_000_000


def test_graphviz_that_takes_too_long_is_replaced_or_named(tmp_path: Path) -> None:
    graph = from_trace(make_trace(["a", "b"], [[], [0]]), "two")
    drawing = draw(graph, tmp_path / "o.svg", DrawOptions(budget_s=0.001))
    assert any("did not finish within" in remark for remark in drawing.remarks)
    assert (tmp_path / "o.svg").read_text().startswith("<?xml")
    with pytest.raises(Exception, match="--layout own"):
        draw(graph, tmp_path / "p.svg", DrawOptions(budget_s=0.001, layout="dot"))
    with pytest.raises(Exception, match="at most 5000"):
        draw(from_trace(big_trace(6000)), tmp_path / "p.svg", DrawOptions(layout="dot"))
    assert not (tmp_path / "p.svg").exists()
