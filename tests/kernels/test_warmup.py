"""The warm-up reaches every compiled function that the program calls, and leaves the bounds as they were."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

import chakra
from chakra import jit
from chakra.cli.commands import warmup

#: modules that choose between compiled and plain code, and what they choose by
CHOOSERS = (
    "chakra.replay.engines.phases.engine",
    "chakra.replay.engines.phases.durations",
    "chakra.replay.engines.messages.engine",
    "chakra.et.codec",
    "chakra.et.graph",
    "chakra.timeline.lanes",
    "chakra.timeline.perfetto",
    "chakra.viz.graph.levels",
    "chakra.converters.pytorch.match.attach",
    "chakra.replay.networks.flow.link_paths",
)
BOUNDS = (
    "COMPILE_FROM",
    "COLD_THRESHOLD",
    "KERNEL_THRESHOLD",
    "NUMBA_THRESHOLD",
    "LOADED_THRESHOLD",
    "WARM_THRESHOLD",
    "COMPILE_ABOVE",
    "_BIG_FILE_BYTES",
    "_PLAIN",
)


def test_every_chooser_is_known() -> None:
    """No module compiles kernels behind the back of the warm-up."""
    root = Path(chakra.__file__).resolve().parents[1]
    found = set()
    for folder, package in (
        ("chakra", "chakra"),
        *((name, f"chakra.{name}") for name in ("replay", "converters")),
    ):
        for path in (root / folder).rglob("*.py"):
            if re.search(
                r"^ *from chakra\.jit import .*\bcompiled\b", path.read_text(encoding="utf-8"), re.MULTILINE
            ):
                found.add(".".join((package, *path.relative_to(root / folder).with_suffix("").parts)))
    # it shares the kernels of `attach`
    assert found == {*CHOOSERS, "chakra.converters.pytorch.match.pair"}


def bounds() -> dict[tuple[str, str], object]:
    """Every bound of every module that has it."""
    found = {
        (name, key): getattr(importlib.import_module(name), key, None) for name in CHOOSERS for key in BOUNDS
    }
    assert all(any(found[name, key] is not None for key in BOUNDS) for name in CHOOSERS)
    return found


def test_every_entry_point_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """With plain Python in place of compiled code: the same calls, none of the seconds."""
    called: set[str] = set()
    known: set[str] = set()

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def entry(*args: Any) -> Any:
            called.add(name)
            return function(*args)

        return entry

    def plain(module_name: str, *, boundscheck: bool) -> SimpleNamespace:
        module = vars(importlib.import_module(module_name))
        names = module.get("ENTRY_POINTS") or [
            name
            for name, value in module.items()
            if isinstance(value, FunctionType) and value.__module__ == module_name
        ]
        known.update(f"{module_name}.{name}" for name in names)
        return SimpleNamespace(**{name: noted(f"{module_name}.{name}", module[name]) for name in names})

    monkeypatch.setattr(jit, "_compiled", plain)
    monkeypatch.setattr(jit, "before_compiling", None)
    monkeypatch.setattr("chakra.et.codec._loaded", set())
    before = bounds()
    for _, part in warmup.PARTS:
        part()
    assert bounds() == before
    assert called == known
    assert {name.rpartition(".")[0] for name in known} >= {
        "chakra.et._decode_kernel",
        "chakra.et._encode_kernel",
        "chakra.et._graph_kernel",
        "chakra.timeline._lanes_kernel",
        "chakra.timeline._perfetto_kernel",
        "chakra.viz.graph._levels_kernel",
        "chakra.replay.engines.kernels.phases",
        "chakra.replay.engines.kernels.phases_algorithms",
        "chakra.replay.engines.kernels.messages",
        "chakra.converters.pytorch.match.sweeps",
        "chakra.replay.networks.flow.search",
    }
