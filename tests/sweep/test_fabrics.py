"""The worked study of fabrics, shipped for 4,096 GPUs, at a smaller size."""

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from chakra.sweep import load_study, run_point, study_from

STUDY = Path(__file__).resolve().parents[2] / "docs" / "studies" / "fabrics_4096_h100.yml"
PAGE = STUDY.parents[1] / "reference" / "fabrics.md"


def small(folder: Path) -> dict[str, Any]:
    """The study with 64 GPUs, four layers, switches of 16 ports, and 2 x 2 x 2 machines in a torus: three links each."""
    document: dict[str, Any] = YAML(typ="safe").load(STUDY.read_text(encoding="utf-8"))
    document["workload"] |= {"npus": 64, "layers": 4, "pp": 2, "global-batch": 16}
    platforms: list[str] = document["parameters"]["platform"]
    # too long for 4,096
    platforms.append("docs/studies/fabrics/torus_8x8x8_rings.yml")
    for at, words in enumerate(platforms):
        if words.endswith(".yml"):
            text = (STUDY.parents[2] / words).read_text(encoding="utf-8")
            for old, new in (("Ring\n    npus: 8", "Ring\n    npus: 2"), ("8.333333", "16.666667")):
                assert text.count(old) == 3
                text = text.replace(old, new)
            path = folder / Path(words).name
            path.write_text(text, encoding="utf-8")
            platforms[at] = str(path)
        else:
            platforms[at] = words.replace("of 64 ports", "of 16 ports")
    return document


def fabric(words: str) -> str:
    """What of a platform's words tells it from the others."""
    return Path(words).stem if words.endswith(".yml") else words.partition("400G ")[2].replace(" sprayed", "")


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """Metrics by fabric."""
    study = study_from(small(tmp_path_factory.mktemp("fabrics")), "small.yml")
    found = {}
    for point in study.points():
        done = run_point(study.merged(point))
        assert done["status"] == "ok", (point, done)
        found[fabric(point["platform"])] = done["metrics"]
    return found


def test_the_shipped_study_compares_fabrics_of_equal_bandwidth() -> None:
    """4,096 GPUs, and 50 GB/s of 10^9 B/s a GPU between machines, on every fabric."""
    from chakra.platforms import cluster

    study = load_study(STUDY)
    for point in study.points():
        words = str(point["platform"])
        path = STUDY.parents[2] / words
        machine = cluster(str(path) if words.endswith(".yml") else words, 4096)
        rings = [dim for dim in machine.dims if dim.topology.value == "Ring"]
        outside = rings or machine.dims[1:]
        assert sum(dim.bandwidth.value * (2 if rings else 1) for dim in outside) == pytest.approx(50)


def test_no_fabric_beats_the_one_whose_switches_never_wait(metrics: dict[str, dict[str, float]]) -> None:
    best = metrics["fat tree of 16 ports"]
    assert metrics["fat tree of 16 ports oversubscribed 7"]["step_ms"] > 1.02 * best["step_ms"]
    for torus in ("torus_8x8x8_nccl", "torus_8x8x8_rings"):
        assert metrics[torus]["step_ms"] > best["step_ms"]


def test_messages_stay_on_their_rail(metrics: dict[str, dict[str, float]]) -> None:
    """So spines above rails, and how many there are, hardly matter."""
    step = metrics["rail-only of 512 ports"]["step_ms"]
    for words in ("rails of 16 ports", "rails of 16 ports oversubscribed 7"):
        assert metrics[words]["step_ms"] == pytest.approx(step, rel=0.02)


def test_fabrics_change_nothing_but_communication(metrics: dict[str, dict[str, float]]) -> None:
    for found in metrics.values():
        assert found["npus"] == 64
        rest = {name: found[name] for name in ("memory_gb", "cost_per_hour")}
        assert rest == {name: metrics["fat tree of 16 ports"][name] for name in rest}
        assert 0 < found["exposed_ms"] < found["step_ms"]
        assert found["cost_per_step"] == pytest.approx(found["cost_per_hour"] * found["step_ms"] / 3.6e6)


def test_the_page_shows_these_figures_and_these_fabrics(metrics: dict[str, dict[str, float]]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("| 64 GPUs |")[2].partition("\n\n")[0]
    shown = re.findall(r"^\| [^|]+ \| ([\d.,]+) \| ([\d.,]+) \| ([\d.]+) % \|$", table, re.MULTILINE)
    assert shown == [
        (f"{found['step_ms']:,.1f}", f"{found['exposed_ms']:,.1f}", f"{100 * found['mfu']:.1f}")
        for found in metrics.values()
    ]
    listed = YAML(typ="safe").load(text.partition("```yaml\n")[2].partition("```")[0])
    shipped = YAML(typ="safe").load(STUDY.read_text(encoding="utf-8"))
    assert listed == {name: shipped[name] for name in listed}
