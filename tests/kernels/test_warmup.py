"""The warm-up reaches every compiled function that the program calls."""

import importlib
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from chakra import jit
from chakra.cli.commands import warmup


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
    for _, part in warmup.PARTS:
        part()
    assert called == known
    assert {name.rpartition(".")[0] for name in known} >= {
        "chakra.et._decode_kernel",
        "chakra.et._encode_kernel",
        "chakra.et._graph_kernel",
        "chakra.timeline._lanes_kernel",
        "chakra.timeline._perfetto_kernel",
        "chakra.converters.pytorch.match.sweeps",
    }
