"""On a terminal one line says that kernels are compiled; elsewhere, when quiet, or from the cache, none does."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import rich_click as click

from chakra import jit as kernels
from chakra.cli.support import compiling

KERNEL = "chakra.timeline._lanes_kernel"


def uncached(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """An empty cache, and a process that has compiled nothing."""
    monkeypatch.setenv("CHAKRA_CACHE_DIR", str(folder))
    monkeypatch.setattr(kernels, "_told", False)
    monkeypatch.setattr(kernels, "_compiled", lambda *_, **__: None)  # seconds of compiler
    monkeypatch.delitem(sys.modules, f"{KERNEL}__compiled", raising=False)


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a process that has compiled nothing; returns the folder of the kernel's code."""
    uncached(monkeypatch, tmp_path)
    monkeypatch.setattr(kernels, "before_compiling", None)
    compiling.tell_of_compiling()
    return Path(kernels.cache_folder(kernels.kernel_sources(KERNEL)[0]))


def lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool, **context: object
) -> list[str]:
    """What two requests for a compiled kernel print."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    running = SimpleNamespace(params={}, info_name="replay") if not context else SimpleNamespace(**context)
    monkeypatch.setattr(click, "get_current_context", lambda silent: running)
    kernels.compiled(KERNEL)
    kernels.compiled(KERNEL)
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


@pytest.mark.usefixtures("cold")
def test_a_terminal_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for a process, however many kernels there are."""
    assert lines(monkeypatch, capsys, True) == [f"chakra: {kernels.COMPILING}"]


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


@pytest.mark.parametrize(("session", "told"), [("prompt", True), ("notebook", True), ("program", False)])
def test_a_session_in_python_is_told(
    session: str,
    told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Who calls `simulate` at a prompt or in a notebook waits as well; a program's output stays its own."""
    uncached(monkeypatch, tmp_path)
    monkeypatch.setattr(kernels, "before_compiling", kernels._tell_a_session)
    if session == "prompt":
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    shell = SimpleNamespace(get_ipython=lambda: session == "notebook" or None)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    kernels.compiled(KERNEL)
    kernels.compiled(KERNEL)
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"chakra: {kernels.COMPILING}\n" if told else "")


def test_a_study_says_that_workers_may_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uncached(monkeypatch, tmp_path)
    compiling.tell_of_workers()
    assert "wait for kernels to be compiled" in capsys.readouterr().err
    folder = Path(kernels.cache_folder(kernels.kernel_sources(compiling.REPLAYS[0])[0]))
    (folder / "any.nbi").touch()
    compiling.tell_of_workers()
    assert capsys.readouterr().err == ""
