"""A small machine and workload on disk, and the command line as a function."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from chakra.schemas import et_def_pb2 as pb2
from chakra.schemas.protolib import encode_message

RING8 = "topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["ring"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 50,
}


def all_reduce(node_id: int, size: int = 1 << 20, **attributes: str) -> pb2.Node:
    """An all-reduce node."""
    node = pb2.Node(id=node_id, name=f"AR{node_id}", type=pb2.COMM_COLL_NODE)
    node.attr.add(name="is_cpu_op", bool_val=False)
    node.attr.add(name="comm_type", int64_val=pb2.ALL_REDUCE)
    node.attr.add(name="comm_size", int64_val=size)
    for name, value in attributes.items():
        node.attr.add(name=name, string_val=value)
    return node


def compute(node_id: int, micros: int, *deps: int) -> pb2.Node:
    """A GPU compute node."""
    node = pb2.Node(
        id=node_id, name=f"C{node_id}", type=pb2.COMP_NODE, duration_micros=micros, data_deps=deps
    )
    node.attr.add(name="is_cpu_op", bool_val=False)
    return node


def write_et(path: Path, *nodes: pb2.Node) -> None:
    """Write one trace."""
    with open(path, "wb") as file:
        encode_message(file, pb2.GlobalMetadata(version="0.0.4"))
        for node in nodes:
            encode_message(file, node)


@pytest.fixture
def ring8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, made the current one, with the tutorial's ring of 8 and its 1 MiB all-reduce (117,780 ns)."""
    for rank in range(8):
        write_et(tmp_path / f"w.{rank}.et", all_reduce(0))
    (tmp_path / "network.yml").write_text(RING8)
    (tmp_path / "system.json").write_text(json.dumps(SYSTEM))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def et() -> SimpleNamespace:
    """Functions that make nodes and trace files."""
    return SimpleNamespace(all_reduce=all_reduce, compute=compute, write=write_et, system=SYSTEM, pb2=pb2)


class Outcome:
    """Exit code and the two streams of a command that ran in this process."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


@pytest.fixture
def chakra(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run the command in this process, through its console entry point, on a page of a width that does not change."""
    from chakra.cli.main import entry

    monkeypatch.setenv("COLUMNS", "120")

    def run(*args: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            entry(list(args))
        out, err = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), out, err)

    return run
