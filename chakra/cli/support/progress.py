"""How far a command is, on standard error: a bar where that is a terminal, else a line now and then; nothing if quiet."""

import sys
import threading
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from chakra.cli.support.quiet import is_quiet
from chakra.io.streams import errors_on_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: seconds of work before the first line where there is no terminal; the next ones come after twice the time each ...
FIRST_LINE_S = 10.0
#: ... and at least so often
LONGEST_PAUSE_S = 300.0


class _Lines:
    """Lines of a command whose standard error is a file: what was told last, and for how long it has been running.

    A thread of its own writes them, so that one is written while a step lasts.
    """

    def __init__(self) -> None:
        self.text = ""
        self._stream = sys.stderr
        self._begun = time.monotonic()
        self._ended = threading.Event()
        threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        wait = FIRST_LINE_S
        while not self._ended.wait(wait):
            so_far = time.monotonic() - self._begun
            wait = min(so_far, LONGEST_PAUSE_S)
            if not self.text:
                continue
            try:
                print(f"{self.text}, {so_far:.0f} s so far", file=self._stream, flush=True)
            except (OSError, ValueError):  # the file is full, or closed
                return

    def end(self) -> None:
        """Write no more."""
        self._ended.set()


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """How far a command is; false where the command is quiet, and then showing does nothing.

    Parameters
    ----------
    what
        Text before the bar.
    total
        Steps; None where their number is not known (yet).
    elapsed
        Whether the time so far is shown instead of the time to go.
    counts
        Whether the bar says how many steps of how many are done, and stays when it is.
    after_s
        Seconds of work from which on the bar is shown.

    Attributes
    ----------
    on_terminal
        Whether it is a bar, and not a line now and then.
    """

    def __init__(
        self,
        what: str = "",
        total: int | None = None,
        *,
        elapsed: bool = False,
        counts: bool = False,
        after_s: float = 0.0,
    ) -> None:
        self._seen = sys.stderr is not None and not is_quiet()
        self.on_terminal = self._seen and errors_on_terminal()
        self._what, self._total = what, total
        self._elapsed, self._counts, self._after_s = elapsed, counts, after_s
        self._begun = time.monotonic()
        self._shown: tuple[Progress, TaskID] | None = None
        self._completed = 0
        self._lines: _Lines | None = None

    def __bool__(self) -> bool:
        return self._seen

    def __enter__(self) -> "ProgressBar":
        self.show()
        return self

    def show(
        self,
        *,
        completed: int | None = None,
        advance: int | None = None,
        what: str | None = None,
        total: int | None = None,
    ) -> None:
        """Move the bar to or by a number of steps, and change its text or its length."""
        if not self._seen:
            return
        if not self.on_terminal:
            self._what, self._total = what or self._what, self._total if total is None else total
            self._completed = (self._completed if completed is None else completed) + (advance or 0)
            self._tell()
            return
        if time.monotonic() - self._begun < self._after_s:
            return
        if self._shown is None:
            self._shown = self._start()
        bar, task = self._shown
        bar.update(task, completed=completed, advance=advance, description=what, total=total)

    def _tell(self) -> None:
        """What the next line says."""
        self._lines = self._lines or _Lines()
        steps = "" if self._total is None else f"{self._completed:,} of {self._total:,}"
        self._lines.text = ": ".join(filter(None, (self._what, steps)))

    def _start(self) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns: list[ProgressColumn] = [TextColumn("{task.description}")]
        if self._total is None and not self._counts:
            columns.insert(0, SpinnerColumn())
        else:
            columns.append(BarColumn())
            if self._counts:
                columns.append(MofNCompleteColumn())
            columns.append(TimeElapsedColumn() if self._elapsed else TimeRemainingColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=not self._counts)
        bar.start()
        return bar, bar.add_task(self._what, total=self._total)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not None:
            self._shown[0].stop()
        if self._lines is not None:
            self._lines.end()
