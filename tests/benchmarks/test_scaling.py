"""Work in proportion to input: calls of functions, which are counted, on inputs four times as large; the fit of times."""

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from chakra import jit
from chakra.et import codec

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import scaling
from scaling_inputs import ALONE, JOBS, PLAIN, PROFILES, run

#: sizes of rows that take so many calls for each of them that half as many are enough
SMALLER = {"generate moe --pp": 128}
#: calls may grow by this much where the input grows fourfold: 4 ** 1.1
MOST = 4.6


def calls(arguments: list[str]) -> int:
    """Functions of Python and C that a command calls."""
    count = 0

    def counted(frame: FrameType, event: str, value: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    # no finalizers of what earlier tests left behind
    gc.collect()
    gc.disable()
    sys.setprofile(counted)
    try:
        run(arguments)
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


ROWS = [
    *((command, shape) for command in ("validate", "replay --nodes", "timeline") for shape in PLAIN),
    *((command, shape) for command in ("link", "convert pytorch") for shape in PROFILES),
    *((command, shape) for command in ("visualize --fold operator", "visualize --around") for shape in ALONE),
    *(("convert text", shape) for shape in ("layers", "numbered")),
    *(("rescale", shape) for shape in ("collectives", "groups")),
    *((command, shape) for command in ("convert pytorch --dir", "calibrate of a job") for shape in JOBS),
    *((command, "") for command in ("check-config", "calibrate", "report of runs", "topology import")),
    *((command, "") for command in scaling.NUMBERS if "--npus" not in command and "layers" not in command),
]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run as plain Python, whatever this process or the cache has: which of them are compiled moves the count."""
    monkeypatch.setattr(jit, "_is_loaded", lambda module_name: False)
    monkeypatch.setattr(jit, "is_cached", lambda module_name: False)
    # of traces, those of all tests so far count
    monkeypatch.setattr(codec, "_loaded", set())
    monkeypatch.setattr(codec, "_slow_nodes", [0])


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(("command", "shape"), ROWS)
def test_calls_grow_with_the_input(command: str, shape: str, tmp_path: Path) -> None:
    made: Callable[[Path, int], list[str]] = next(
        row.made for row in scaling.rows(command) if (row.command, row.shape) == (command, shape)
    )
    size = 512 if shape in PROFILES else SMALLER.get(command, 256)
    tiny, small, large = (made(tmp_path / f"n{n}", n) for n in (min(16, size // 16), size, 4 * size))
    # what the first run of a size loads or compiles is not of its input; its files are there from then on
    for arguments in (tiny, small, large):
        run(arguments)
    fixed = calls(tiny)
    few, many = calls(small) - fixed, calls(large) - fixed
    assert many <= MOST * max(few, fixed // 4)


def test_the_exponent_of_a_law_is_found() -> None:
    assert scaling.exponent([(n, 3e-6 * n**1.5) for n in (10, 20, 40, 80)]) == pytest.approx(1.5)
