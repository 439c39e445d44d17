"""The progress bar of every command: on standard error, where that is a terminal and the command is not quiet."""

import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from chakra.cli.support.quiet import is_quiet
from chakra.io.streams import errors_on_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """How far a command is; false where nobody would see it, and then showing does nothing.

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
        self._seen = errors_on_terminal() and not is_quiet()
        self._what, self._total = what, total
        self._elapsed, self._counts, self._after_s = elapsed, counts, after_s
        self._begun = time.monotonic()
        self._shown: tuple[Progress, TaskID] | None = None

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
        if not self._seen or time.monotonic() - self._begun < self._after_s:
            return
        if self._shown is None:
            self._shown = self._start()
        bar, task = self._shown
        bar.update(task, completed=completed, advance=advance, description=what, total=total)

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
