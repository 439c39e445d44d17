"""On a terminal one line says that kernels are compiled; elsewhere, when quiet, or from the cache, none does."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from chakra import kernels
from chakra.cli import compiling

KERNEL = "chakra.timeline._lanes_kernel"


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a process that has compiled nothing; returns the folder of the kernel's code."""
    monkeypatch.setenv("CHAKRA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels, "_told", False)
    monkeypatch.setattr(kernels, "before_compiling", None)
    monkeypatch.setattr(kernels, "_compiled", lambda *_, **__: None)  # seconds of compiler
    monkeypatch.delitem(sys.modules, f"{KERNEL}__compiled", raising=False)
    compiling.tell_of_compiling()
    return Path(kernels.cache_folder(kernels.kernel_sources(KERNEL)[0]))


def lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool, **context: object
) -> list[str]:
    """What two requests for a compiled kernel print."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    running = SimpleNamespace(params={}, info_name="replay") if not context else SimpleNamespace(**context)
    monkeypatch.setattr(compiling.click, "get_current_context", lambda silent: running)
    kernels.compiled(KERNEL)
    kernels.compiled(KERNEL)
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


@pytest.mark.usefixtures("cold")
def test_a_terminal_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for a process, however many kernels there are."""
    assert lines(monkeypatch, capsys, True) == [f"chakra: {compiling.TEXT}"]


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize(
    ("terminal", "context"),
    [
        (False, {}),
        (True, {"params": {"quiet": True}, "info_name": "replay"}),
        (True, {"params": {}, "info_name": "warmup"}),
    ],
)
def test_nobody_else_is(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    terminal: bool,
    context: dict[str, object],
) -> None:
    """Not in a pipe, not with --quiet, and not where compiling is what was asked for."""
    assert lines(monkeypatch, capsys, terminal, **context) == []


def test_cached_code_needs_no_word(
    cold: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the kernel's code in the cache there is nothing to wait for."""
    (cold / "any.nbi").touch()
    assert lines(monkeypatch, capsys, True) == []
