"""The example workloads in traces/: made by the script beside them, ending when their README says."""

import importlib.util
import re
from pathlib import Path

import pytest

from chakra.et import read_traces

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "traces"
FINISH_NS = {
    name: int(digits.replace(",", ""))
    for name, digits in re.findall(
        r"(?m)^\| `(\w+)` \|.*\| ([\d,]+) ns \|$", (TRACES / "README.md").read_text()
    )
}


def test_files_are_what_the_script_makes(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_traces", TRACES / "make_traces.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make(tmp_path)
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(made) == 4 * 11
    for path, content in made.items():
        assert (TRACES / path).read_bytes() == content, path


def test_readme_names_every_workload() -> None:
    assert set(FINISH_NS) == {path.name for path in TRACES.iterdir() if path.is_dir() and path.name[0] != "_"}


@pytest.mark.parametrize("compat", [None, "astra-sim"])
@pytest.mark.parametrize("name", sorted(FINISH_NS))
def test_workloads_end_when_the_readme_says(name: str, compat: str | None) -> None:
    from chakra.replay import simulate

    folder = TRACES / name
    result = simulate(
        str(folder / "workload"),
        folder / "system.json",
        folder / "network.yml",
        memory=folder / "memory.json",
        compat=compat,
    )
    assert result.finish_ns.tolist() == [FINISH_NS[name]] * 8


def test_the_ring_all_reduce_has_its_closed_form() -> None:
    """Four splits of d bytes one at a time, each 2 (n - 1) steps of delay, latency and d / n bytes."""
    beta = 50.0 * 2**30 / 1e9
    message = (1 << 20) // 4 // 8
    reduction = 3 * int(message / 50e9 * 1e9)
    step = 10 + int(500.0 + message / beta)
    assert FINISH_NS["allreduce_ring8"] == 4 * (14 * step + 7 * reduction + 10)


def test_tutorial_figures() -> None:
    """What the tutorials' simulator prints for its demos."""
    assert FINISH_NS["allreduce_ring8"] == 117_780
    assert FINISH_NS["three_nodes"] == 405_520
    assert FINISH_NS["mlp_model_parallel"] == 195_350_188


def test_every_rank_shares_one_trace() -> None:
    for name in FINISH_NS:
        traces = read_traces([TRACES / name / f"workload.{rank}.et" for rank in range(8)])
        assert len(set(map(id, traces))) == 1
