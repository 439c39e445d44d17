"""Every command once, in a process of its own, in two folders with other hash seeds and time zones."""

from pathlib import Path

import pytest
from scenes import SCENES, Ran, prepare, run, words


def _all(folder: Path, **variables: str) -> dict[str, Ran]:
    prepare(folder)
    found = {}
    for name, scene in SCENES.items():
        done = run(words(scene), folder, **variables)
        kept = {file: (folder / file).read_bytes() for file in scene.writes if (folder / file).exists()}
        found[name] = Ran(done.returncode, done.stdout, done.stderr, folder, kept)
    return found


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Results in one folder."""
    return _all(tmp_path_factory.mktemp("one"), PYTHONHASHSEED="1", TZ="UTC")


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Results in another folder, on a machine that hashes and tells the time otherwise."""
    folder = tmp_path_factory.mktemp("another") / "place"
    return _all(folder, PYTHONHASHSEED="2", TZ="Asia/Kathmandu", LANG="C", COLUMNS="200")
