"""Every command in two folders with other hash seeds and time zones: in a new process, and in a fork of a warm one.

So each command is started once as a user starts it, and what forks give is compared with it.
"""

import fcntl
import os
import pickle
import shutil
from pathlib import Path

import pytest
from scenes import SCENES, Ran, prepare, run, run_warm, words

#: folders and what their processes find in the environment
PLACES = {
    "one": {"PYTHONHASHSEED": "1", "TZ": "UTC"},
    "another": {"PYTHONHASHSEED": "2", "TZ": "Asia/Kathmandu", "LANG": "C", "COLUMNS": "200"},
}


def _all(folder: Path, place: str) -> dict[str, Ran]:
    prepare(folder)
    start = run if place == "one" else run_warm
    found = {}
    for name, scene in SCENES.items():
        done = start(words(scene), folder, **PLACES[place])
        kept = {file: (folder / file).read_bytes() for file in scene.writes if (folder / file).exists()}
        found[name] = Ran(done.returncode, done.stdout, done.stderr, folder, kept)
    return found


def _ran(place: Path, name: str, *, wait: bool) -> bool:
    """Have a folder's commands run once in all of pytest's worker processes; False: another one is at it."""
    kept = place / f"scenes-{name}.pickle"
    with (place / f"scenes-{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if not kept.exists():
            kept.write_bytes(pickle.dumps(_all(place / f"scenes-{name}", name)))
    return True


def _found(factory: pytest.TempPathFactory, name: str) -> dict[str, Ran]:
    """Results in a folder. While another worker makes them, this one sees to those of the other folder."""
    place = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # of all workers of this run
    if not _ran(place, name, wait=False):
        for other in PLACES:
            _ran(place, other, wait=False)
        _ran(place, name, wait=True)
    found: dict[str, Ran] = pickle.loads((place / f"scenes-{name}.pickle").read_bytes())
    return found


@pytest.fixture
def here(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a module's `inputs`, as the working folder."""
    folder = tmp_path / "here"
    shutil.copytree(inputs, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Results in one folder."""
    return _found(tmp_path_factory, "one")


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Results in another folder, on a machine that hashes and tells the time otherwise."""
    return _found(tmp_path_factory, "another")
