"""Packages with entry points, on the path of a command that runs in a process of its own."""

import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from plugin_site import EXAMPLE, ROOT, forget, place

from chakra.cli.main import entry


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
