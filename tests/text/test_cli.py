"""`chakra convert text` and `chakra convert config` as a user runs them."""

import json
from pathlib import Path

import pytest

from chakra.cli.main import entry
from chakra.et import read_trace

TEXT = "HYBRID_DATA_MODEL\n1\nL -1 1 ALLREDUCE 8 1 NONE 0 1 ALLREDUCE 8 1\n"


def run(*args: object) -> int:
    with pytest.raises(SystemExit) as caught:
        entry([str(arg) for arg in args])
    return int(caught.value.code or 0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "w.txt"
    path.write_text(TEXT)
    return path


def test_text(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            "convert",
            "text",
            "--input",
            source,
            "--output",
            tmp_path / "o",
            "--npus",
            4,
            "--model-parallel",
            2,
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert "HYBRID_DATA_MODEL, 1 layer, 1 pass, 4 NPUs" in out
    assert "ASTRA-sim 1.0 meant ns" in out
    assert "note: the layers' update times are not used" in err
    assert len(list(tmp_path.glob("o.*.et"))) == 4
    assert json.loads((tmp_path / "o.comm_groups.json").read_text()) == {
        "1": [0, 1],
        "2": [2, 3],
        "3": [0, 2],
        "4": [1, 3],
    }


def test_upstreams_spelling(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--input", source, "--output", tmp_path / "o", "--num-npus", 2, "--num-passes", 3]
    assert run("convert", "--log-filename", tmp_path / "x.log", "Text", *args, "--compat", "chakra") == 0
    assert len(read_trace(tmp_path / "o.1.et")) == 15
    assert "known mistakes included" in capsys.readouterr().err


@pytest.mark.parametrize("old", [False, True], ids=["network of today", "network of 1.0"])
def test_network_says_how_many_npus_and_which_dimensions(
    source: Path, tmp_path: Path, old: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    network = tmp_path / "net"
    if old:
        value = {"topologies-per-dim": ["Ring", "Switch"], "units-count": [4, 2], "links-count": [2, 1]}
        network.write_text(json.dumps(value | {"link-latency": [1, 1], "link-bandwidth": [50, 50]}))
    else:
        network.write_text(
            "topology: [ Ring, Switch ]\nnpus_count: [ 4, 2 ]\nbandwidth: [ 50, 50 ]\nlatency: [ 1, 1 ]\n"
        )
    args = ["-i", source, "-o", tmp_path / "o", "-n", network, "--format", "json"]
    assert run("convert", "text", *args) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["npus"], summary["distinct_files"], summary["groups_file"]) == (8, 1, None)
    assert {item["joins"] for item in summary["collectives"]} == {"dimension 0", "dimension 1"}


def test_mistakes_are_one_line_and_exit_code_2(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.write_text(TEXT.replace("ALLREDUCE", "ALLREDUC", 1))
    assert run("convert", "text", "--input", source, "--output", tmp_path / "o", "--npus", 4) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"chakra: error: {source}: line 3: 'ALLREDUC' is not the forward communication")
    assert err.count("\n") == 1
    assert list(tmp_path.glob("o*")) == []
    assert run("convert", "text", "--input", source, "--output", tmp_path / "o", "--npus", "many") == 2
    assert run("convert", "text", "--input", source) == 2
    assert run("convert", "nothing") == 2


def test_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "ring.txt"
    old.write_text("preferred-dataset-splits: 4\nboost-mode: 1\nall-reduce-implementation: ring_ring\n")
    assert run("convert", "config", "--input", old) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["all-reduce-implementation"] == ["ring", "ring"]
    assert "boost-mode was dropped" in err
    assert run("convert", "config", "--input", old, "--output", tmp_path / "ring.json") == 0
    assert (tmp_path / "ring.json").read_text() == out
    assert capsys.readouterr().out == ""


def test_config_that_would_not_load_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "ring.txt"
    old.write_text("preferred-dataset-splits: 0\nall-reduce-implementation: ring\n")
    assert run("convert", "config", "--input", old, "--output", tmp_path / "ring.json") == 2
    assert "preferred-dataset-splits" in capsys.readouterr().err
    assert not (tmp_path / "ring.json").exists()
