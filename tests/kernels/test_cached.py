"""What counts as compiled before: the code of this file, as numba has it."""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chakra import jit

CACHED = (jit.kernel_sources, jit._source, jit._compiled, jit._compiled_twin)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a kernel module, with a cache of its own."""
    monkeypatch.setenv("CHAKRA_CACHE_DIR", str(tmp_path / "cache"))
    package = tmp_path / "some_kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "adding.py").write_text("ALLOCATES = False\n\n\ndef add(a, b):\n    return a + b\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield package / "adding.py"
    for name in [name for name in sys.modules if name.startswith("some_kernels")]:
        del sys.modules[name]


def restarted() -> None:
    """As a new process sees it."""
    for function in CACHED:
        function.cache_clear()
    sys.modules.pop("some_kernels.adding__compiled", None)


def test_code_of_another_file_is_not_in_the_cache(kernel: Path) -> None:
    name = "some_kernels.adding"
    restarted()
    assert not jit.is_cached(name)
    assert jit.compiled(name).add(2, 3) == 5
    assert jit.is_cached(name)
    restarted()
    assert jit.is_cached(name)
    # the same text, installed again
    os.utime(kernel, (1, 1))
    restarted()
    assert not jit.is_cached(name)
    restarted()


def test_ctrl_c_while_code_is_made_is_not_lost(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM hands its code to a function of Python, in which what a handler raises is ignored."""
    from numba.core.codegen import JitEngine

    finalize = JitEngine.finalize_object
    call_back = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))

    def interrupted(engine: Any) -> None:
        call_back()
        finalize(engine)

    restarted()
    monkeypatch.setattr(JitEngine, "finalize_object", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jit.compiled("some_kernels.adding").add(2, 3)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    restarted()
