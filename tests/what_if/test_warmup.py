"""`chakra warmup` takes the compiled way and leaves the bounds as they were."""

import importlib
import sys

import pytest

from chakra.cli import warmup

MODULES = ("chakra.replay.phase_engine", "chakra.replay.message_engine", "chakra.et.codec", "chakra.et.graph")


def test_every_part_asks_for_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """With plain Python in the compiler's place: which kernels are asked for, without the time to compile them."""
    asked: set[str] = set()

    def plain(module: str, *, boundscheck: bool = False) -> object:
        asked.add(module)
        return importlib.import_module(module)

    monkeypatch.setattr("chakra.kernels.compiled", plain)
    for name in MODULES[:2]:
        monkeypatch.setattr(f"{name}.compiled", plain)
    monkeypatch.setattr("chakra.et.codec._loaded", set())
    before = {name: dict(vars(sys.modules[name])) for name in MODULES}
    for _, part in warmup.PARTS:
        part()
    assert asked >= {
        "chakra.replay.kernels.phases",
        "chakra.replay.kernels.messages",
        "chakra.et._decode_kernel",
        "chakra.et._encode_kernel",
        "chakra.et._graph_kernel",
    }
    bounds = ("COMPILE_FROM", "KERNEL_THRESHOLD", "NUMBA_THRESHOLD", "LOADED_THRESHOLD", "WARM_THRESHOLD")
    for name in MODULES:
        now = vars(sys.modules[name])
        assert all(now[key] == before[name][key] for key in bounds if key in now)
