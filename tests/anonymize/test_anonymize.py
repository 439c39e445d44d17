"""Anonymous traces replay alike and carry no text out."""

import json
from pathlib import Path

import pytest

from chakra.builder import TraceBuilder, Workload
from chakra.cli.main import run
from chakra.et import read_trace
from chakra.replay import simulate

NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
SYSTEM = {"all-reduce-implementation": ["ring"]}
SECRET = "falcon"


def write(folder: Path) -> str:
    work = Workload(4)
    name = work.add_group([0, 1], f"{SECRET}-tp")

    def program(b: TraceBuilder) -> None:
        attrs = {"op_schema": f"{SECRET}::op", "file": f"/home/{SECRET}.py", "inputs": [f"{SECRET}.w", "64"]}
        first = b.compute(f"{SECRET}_mlp", duration_micros=7 + b.rank, attrs=attrs)
        if b.rank < 2:
            b.collective("all-reduce", size_bytes=1 << 16, group=name, after=first)
        b.collective("all-reduce", size_bytes=1 << 12, name=f"{SECRET}.all", after=first)

    work.run(program)
    work.write(str(folder / "run"))
    (folder / "g.json").write_text(json.dumps({name: [0, 1]}))
    return str(folder / "run")


def test_finish_times_stay_and_texts_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix, groups, out = write(tmp_path), tmp_path / "g.json", tmp_path / "out"
    assert run(["anonymize", prefix, str(out), "-g", str(groups)]) == 0
    assert "kept " in capsys.readouterr().out
    for rank in range(4):
        assert SECRET.encode() in Path(f"{prefix}.{rank}.et").read_bytes()
        assert SECRET.encode() not in Path(f"{out}.{rank}.et").read_bytes()
    assert SECRET not in Path(f"{out}.json").read_text()
    before = simulate(prefix, SYSTEM, NETWORK, comm_groups=groups)
    after = simulate(str(out), SYSTEM, NETWORK, comm_groups=f"{out}.json")
    assert after.finish_ns.tolist() == before.finish_ns.tolist()
    assert after.exposed_comm_ns.tolist() == before.exposed_comm_ns.tolist()
    assert after.peak_memory_bytes.tolist() == before.peak_memory_bytes.tolist()
    names = [read_trace(f"{out}.{rank}.et").name_table[0] for rank in range(4)]
    assert len(set(names)) == 1


def test_input_is_never_overwritten(tmp_path: Path) -> None:
    prefix = write(tmp_path)
    before = Path(f"{prefix}.0.et").read_bytes()
    assert run(["anonymize", prefix, prefix]) == 2
    assert run(["anonymize", str(tmp_path / "none"), str(tmp_path / "x")]) == 2
    assert Path(f"{prefix}.0.et").read_bytes() == before
