"""What the fuzzer found stays mended, and every reader keeps its promise on random changes of good files.

The promise (`readers.check`): a result, or a ChakraError of one printable line that names the file.
"""

import random
import time
from pathlib import Path

import mutations
import pytest
import readers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seeds import beside, seeds

from chakra.errors import ChakraError

HERE = Path(__file__).resolve().parent
FOUND = [(path.parent.name, path.name) for path in sorted((HERE / "found").glob("*/*"))]
NAMES = sorted(readers.READERS)


@pytest.mark.parametrize(("name", "file"), FOUND)
def test_found_inputs_are_mended(tmp_path: Path, name: str, file: str) -> None:
    beside(name, tmp_path)
    data = (HERE / "found" / name / file).read_bytes()
    start = time.process_time()
    readers.check(readers.READERS[name], data, tmp_path)
    assert time.process_time() - start < 5 * readers.SECONDS  # late imports count here


@pytest.mark.parametrize("name", NAMES)
def test_a_good_file_is_read(tmp_path: Path, name: str) -> None:
    """At least one seed of every harness is read: else the harness would test refusals only."""
    beside(name, tmp_path)
    messages = [readers.check(readers.READERS[name], data, tmp_path) for data in seeds(name)]
    assert None in messages, messages


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(number=st.integers(0, 2**32), steps=st.integers(1, 4))
def test_changed_files_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, number: int, steps: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"fuzz-{name}"
    folder.mkdir(exist_ok=True)
    beside(name, folder)
    rng = random.Random(number)
    reader = readers.READERS[name]
    data = rng.choice(_seeds(name))
    for _ in range(steps):
        data = mutations.mutated(reader.form, data, rng)
    readers.check(reader, data, folder)


_KNOWN: dict[str, list[bytes]] = {}


def _seeds(name: str) -> list[bytes]:
    if name not in _KNOWN:
        _KNOWN[name] = seeds(name)
    return _KNOWN[name]


def test_a_broken_promise_is_seen(tmp_path: Path) -> None:
    """The check itself: other exceptions, nameless and long messages are findings."""

    def fails(error: Exception) -> readers.Reader:
        def run(path: Path) -> None:
            raise error

        return readers.Reader("x", "bytes", ".x", run)

    with pytest.raises(KeyError):
        readers.check(fails(KeyError("input.x")), b"", tmp_path)
    for message in ("somewhere", ""):
        with pytest.raises(readers.PropertyError):
            readers.check(fails(ChakraError(message)), b"", tmp_path)
    assert readers.check(fails(ChakraError("input.x: wrong\n\x1b[31m")), b"", tmp_path) == (
        "input.x: wrong\\n\\x1b[31m"
    )
