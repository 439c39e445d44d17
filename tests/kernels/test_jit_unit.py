"""Kernels are compiled as units with this numba, and as numba does it where it is not as expected."""

import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numba  # type: ignore[import-untyped,unused-ignore]
import numpy as np
import pytest

from chakra import jit, jit_unit

KERNEL = """
import numpy as np

ENTRY_POINTS = ("total", "largest")


def square(value: int) -> int:
    return value * value


def shifted(values, k: int, by: int) -> int:
    return square(values[k] - by)


def total(values) -> int:
    result = 0
    for k in range(len(values)):
        result += shifted(values, k, 3) + shifted(values, k, k)
    return result


def largest(values) -> int:
    result = total(values)
    for k in range(len(values)):
        if square(values[k]) > result:
            result = square(values[k])
    return result
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kernel module of parts and two entry points, one of which calls the other; nothing of it is cached."""
    name = f"unit_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CHAKRA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(jit, "before_compiling", None)
    return name


def expected(values: list[int]) -> int:
    return sum((v - 3) ** 2 + (v - k) ** 2 for k, v in enumerate(values))


def check(kernels: Any) -> None:
    values = [1, -5, 70]
    assert kernels.total(np.array(values)) == expected(values)
    assert kernels.largest(np.array(values)) == max(expected(values), 70**2)


def test_this_numba_compiles_units(module: str) -> None:
    """The classes that are derived from are as expected in the numba at hand, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jit_unit.pipelines.cache_clear()
        made = jit_unit.pipelines()
        assert made is not None
        jit_unit.try_out(made)
        kernels = jit.compiled(module)
        check(kernels)
    twin = vars(sys.modules[f"{module}__compiled"])
    # A part has no code that could be called: it must not be handed out.
    assert set(vars(kernels)) == {"total", "largest"}
    assert [len(twin[name].signatures) for name in ("square", "shifted")] == [1, 1]
    assert {
        path.name.split(".")[1].split("-")[0] for path in Path(jit.cache_folder(b"")).parent.rglob("*.nbi")
    } == {
        "total",
        "largest",
    }


def test_units_come_back_from_the_cache(module: str) -> None:
    check(jit.compiled(module))
    jit._compiled.cache_clear()
    jit._compiled_twin.cache_clear()
    again = jit.compiled(module)
    check(again)
    assert sum(again.largest.stats.cache_hits.values()) == 1
    assert sum(again.largest.stats.cache_misses.values()) == 0
    twin = vars(sys.modules[f"{module}__compiled"])
    assert twin["square"].signatures == []


def test_an_index_past_the_end_is_found_inside_a_unit(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text(KERNEL.replace("values[k] - by", "values[k + 1] - by"))
    jit._source.cache_clear()
    with pytest.raises(IndexError):
        jit.compiled(module, boundscheck=True).total(np.array([1, 2]))


def test_an_unknown_numba_compiles_by_itself(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same results, slower, and a message that names the version."""
    monkeypatch.setattr(jit_unit, "_make", lambda: ModuleType("numba").JITCodeLibrary)
    jit_unit.pipelines.cache_clear()
    try:
        with pytest.warns(
            RuntimeWarning, match=f"numba {numba.__version__} is not as expected.*JITCodeLibrary"
        ):
            kernels = jit.compiled(module)
        check(kernels)
    finally:
        jit_unit.pipelines.cache_clear()


def test_a_newer_numba_is_tried_out_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    monkeypatch.setattr(jit_unit, "TRIED", (0, 1))
    monkeypatch.setattr(jit_unit, "try_out", tried.append)
    jit_unit.pipelines.cache_clear()
    try:
        made = jit_unit.pipelines()
        assert tried == [made]
    finally:
        jit_unit.pipelines.cache_clear()


def test_a_wrong_result_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = jit_unit.pipelines()
    assert made is not None
    monkeypatch.setattr(jit_unit, "_example_part", lambda value: value)
    with pytest.raises(RuntimeError, match="10 instead of 30"):
        jit_unit.try_out(made)


def test_asking_for_cached_code_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAKRA_CACHE_DIR", str(tmp_path / "cache"))
    assert not jit.is_cached("chakra.replay.engines.kernels.phases")
    assert not (tmp_path / "cache").exists()
