"""`chakra warmup` takes the compiled way and leaves the bounds as they were."""

import importlib
import sys

import pytest

from chakra.cli.commands import warmup

MODULES = (
    "chakra.replay.engines.phases.engine",
    "chakra.replay.engines.messages.engine",
    "chakra.et.codec",
    "chakra.et.graph",
    "chakra.timeline.lanes",
    "chakra.timeline.perfetto",
    "chakra.viz.layout.layers",
    "chakra.converters.pytorch.match.attach",
)
#: those that keep a name of their own for the function that compiles
OWN_NAME = (*MODULES[:2], *MODULES[4:])


def test_every_part_asks_for_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """With plain Python in the compiler's place: which kernels are asked for, without the time to compile them."""
    asked: set[str] = set()

    def plain(module: str, *, boundscheck: bool = False) -> object:
        asked.add(module)
        return importlib.import_module(module)

    monkeypatch.setattr("chakra.jit.compiled", plain)
    for name in OWN_NAME:
        monkeypatch.setattr(f"{name}.compiled", plain)
    monkeypatch.setattr("chakra.et.codec._loaded", set())
    before = {name: dict(vars(importlib.import_module(name))) for name in MODULES}
    for _, part in warmup.PARTS:
        part()
    assert asked >= {
        "chakra.replay.engines.kernels.phases",
        "chakra.replay.engines.kernels.messages",
        "chakra.et._decode_kernel",
        "chakra.et._encode_kernel",
        "chakra.et._graph_kernel",
        "chakra.timeline._lanes_kernel",
        "chakra.timeline._perfetto_kernel",
        "chakra.viz.graph._levels_kernel",
        "chakra.converters.pytorch.match.sweeps",
    }
    bounds = (
        "COMPILE_FROM",
        "KERNEL_THRESHOLD",
        "NUMBA_THRESHOLD",
        "LOADED_THRESHOLD",
        "WARM_THRESHOLD",
        "_PLAIN",
        "COMPILE_ABOVE",
    )
    for name in MODULES:
        now = vars(sys.modules[name])
        assert all(now[key] == before[name][key] for key in bounds if key in now)
