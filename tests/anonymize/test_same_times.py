"""Anonymous workloads replay to the same times, node by node: oracle corpus, generated jobs, recordings."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle_cases import Case, cases

from chakra.anonymize import anonymize
from chakra.cli.main import run
from chakra.errors import ChakraError
from chakra.replay import ReplayResult, simulate

CORPUS = Path(__file__).parents[1] / "data" / "oracle"
EXAMPLES = Path(__file__).parents[2] / "traces"


def same(before: ReplayResult, after: ReplayResult) -> None:
    assert after.finish_ns.tolist() == before.finish_ns.tolist()
    assert after.exposed_comm_ns.tolist() == before.exposed_comm_ns.tolist()
    for npu in range(len(before.finish_ns)):
        for mine, other in zip(after.node_ticks(npu), before.node_ticks(npu), strict=True):
            assert np.array_equal(mine, other)


def check(case: Case, compat: str | None) -> bool:
    """Whether the case runs; its anonymous copy must do the same."""
    with case.laid_out():
        groups = "comm_groups.json" if Path("comm_groups.json").exists() else None
        rest: dict[str, Any] = {"backend": case.backend, "compat": compat, **case.options()}
        try:
            before = simulate(
                "workload", "system.json", "network.yml", memory="memory.json", comm_groups=groups, **rest
            )
        except ChakraError as error:
            anonymize("workload", "anon", groups=groups)
            new = "anon.json" if groups else None
            with pytest.raises(type(error)):
                simulate("anon", "system.json", "network.yml", memory="memory.json", comm_groups=new, **rest)
            return False
        anonymize("workload", "anon", groups=groups, memory="memory.json")
        after = simulate(
            "anon",
            "system.json",
            "network.yml",
            memory="anon.memory.json",
            comm_groups="anon.json" if groups else None,
            **rest,
        )
    same(before, after)
    assert after.peak_memory_bytes.tolist() == before.peak_memory_bytes.tolist()
    return True


@pytest.mark.parametrize("case", cases(CORPUS), ids=lambda case: case.name)
def test_case(case: Case) -> None:
    check(case, None)
    check(case, "astra-sim")


@pytest.mark.shared
@pytest.mark.slow
def test_whole_corpus(shared: Path) -> None:
    """The cases that `test_case` does not have."""
    here = {case.name for case in cases(CORPUS)}
    others = [case for case in cases(shared / "oracle" / "corpus") if case.name not in here]
    assert len(others) > len(here) > 0
    ran = [check(case, None) for case in others if case.family in "abcdefg"]
    assert sum(ran) > 0.9 * len(ran)


@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.iterdir() if p.is_dir()))
def test_example(tmp_path: Path, name: str) -> None:
    folder = EXAMPLES / name
    files = [str(folder / file) for file in ("system.json", "network.yml")]
    groups = folder / "comm_groups.json"
    anonymize(str(folder / "workload"), str(tmp_path / "w"), groups=str(groups) if groups.exists() else None)
    memory = str(folder / "memory.json")
    before = simulate(
        str(folder / "workload"), *files, comm_groups=str(groups) if groups.exists() else None, memory=memory
    )
    after = simulate(
        str(tmp_path / "w"),
        *files,
        comm_groups=str(tmp_path / "w.json") if groups.exists() else None,
        memory=memory,
    )
    same(before, after)


@pytest.mark.parametrize("plain", [False, True])
def test_generated_training_step(tmp_path: Path, plain: bool) -> None:
    model = [
        "--layers",
        "2",
        "--hidden",
        "64",
        "--heads",
        "4",
        "--vocabulary",
        "128",
        "--seq",
        "32",
        "--tensors",
    ]
    place = ["--tp", "2", "--dp", "2", "--pp", "2", "-o", str(tmp_path / "job")]
    assert run(["generate", "transformer", *model, *place, *(["--files"] if plain else [])]) == 0
    network = {
        "topology": ["Ring", "Switch"],
        "npus_count": [4, 2],
        "bandwidth": [50, 25],
        "latency": [500, 900],
    }
    system = {"all-reduce-implementation": ["ring", "ring"]}
    anonymize(str(tmp_path / "job"), str(tmp_path / "out"))
    groups = tmp_path / "job.comm_groups.json"
    before = simulate(str(tmp_path / "job"), system, network, comm_groups=str(groups) if plain else None)
    after = simulate(
        str(tmp_path / "out"),
        system,
        network,
        comm_groups=str(tmp_path / "out.comm_groups.json") if plain else None,
    )
    same(before, after)
    if not plain:
        assert json.loads((tmp_path / "out.workload.json").read_text())["about"] == {}


@pytest.mark.shared
@pytest.mark.parametrize("job", ["gloo4", "h200"])
def test_recorded_job(tmp_path: Path, shared: Path, job: str) -> None:
    folder = shared / "data" / ("pairs" if job == "gloo4" else "h200")
    name = "gloo4" if job == "gloo4" else "ddp"
    assert run(["convert", "pytorch", "--dir", str(folder), "--job", name, "-o", str(tmp_path / "job")]) == 0
    npus = len(list(tmp_path.glob("job.*.et")))
    network = {"topology": ["Switch"], "npus_count": [npus], "bandwidth": [25], "latency": [900]}
    groups = {"before": tmp_path / "job.comm_groups.json", "after": tmp_path / "out.comm_groups.json"}
    anonymize(str(tmp_path / "job"), str(tmp_path / "out"))
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    rings = {f"{kind}-implementation": ["ring"] for kind in kinds}
    for system in (rings, {**rings, "replay-only": 1}):
        before = simulate(str(tmp_path / "job"), system, network, comm_groups=str(groups["before"]))
        after = simulate(str(tmp_path / "out"), system, network, comm_groups=str(groups["after"]))
        same(before, after)
        said = [
            [note for note in result.notes if not note.startswith("ranks ")] for result in (before, after)
        ]
        assert said[0] == said[1]
        assert any(note.startswith("uncertain") for note in said[1]) == (system is rings)
