"""Packages with entry points, on the path of a command that runs in a process of its own."""

import importlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from chakra.cli.main import entry
from chakra.replay import plugins
from chakra.replay.collectives import registry

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "plugin"


def place(site: Path, name: str, points: dict[str, dict[str, str]], files: dict[str, str]) -> None:
    """What an installation of a package leaves: its modules, and a dist-info with entry points."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in given.items()) for group, given in points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder that stands for site-packages, with the example package of the guide."""
    folder = tmp_path / "site"
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    files = {
        str(path.relative_to(EXAMPLE)): path.read_text() for path in (EXAMPLE / "chakra_example").glob("*.py")
    }
    place(folder, project["name"], project["entry-points"], files)
    return folder


@pytest.fixture
def command(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., SimpleNamespace]]:
    """Run `chakra` with the folder on the path; the ring of eight's trace is beside."""
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(site)
    before = set(sys.modules)

    def run(*arguments: str) -> SimpleNamespace:
        forget()
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            entry(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return SimpleNamespace(code=int(stop.value.code or 0), out=out, err=err)

    yield run
    forget()
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(site) in str(sys.modules[name].__file__):
            del sys.modules[name]


def forget() -> None:
    """Packages may have come or gone."""
    importlib.invalidate_caches()
    for cached in (plugins.offered, registry.find, registry.steps):
        cached.cache_clear()


@pytest.fixture
def replay(command: Callable[..., SimpleNamespace], tmp_path: Path) -> Callable[..., SimpleNamespace]:
    """Replay an all-reduce of 1 MiB with an algorithm on a network file's text."""

    def run(algorithm: str, network: str, *more: str) -> SimpleNamespace:
        (tmp_path / "s.json").write_text(
            f'{{"all-reduce-implementation": ["{algorithm}"], "preferred-dataset-splits": 4}}'
        )
        (tmp_path / "n.yml").write_text(network)
        return command(
            "replay", "-w", "traces/allreduce_ring8/workload", "-s", "s.json", "-n", "n.yml", *more
        )

    return run


def cycles(out: str) -> list[int]:
    """Finish times of all NPUs."""
    return [int(n) for n in re.findall(r"finished, (\d+) cycles", out)]
