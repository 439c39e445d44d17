"""How far a replay is, on standard error; and Ctrl-C, which ends it with what it has."""

import signal
import threading
from contextlib import AbstractContextManager
from types import TracebackType

from chakra.cli.support.progress import ProgressBar
from chakra.io.readable import counted_text


class Running(AbstractContextManager["Running"]):
    """How far a run is, shown from its first second on; and Ctrl-C.

    Before the first step there is nothing to show: Ctrl-C ends the program. Then the first one ends the run at the next
    step, with a partial result, and the second the program.
    """

    def __init__(self) -> None:
        self._bar = ProgressBar(
            "reading and checking the workload (a first run compiles kernels)", after_s=1.0
        )
        self._begun = self._interrupted = False
        self._handler = signal.getsignal(signal.SIGINT)

    def __enter__(self) -> "Running":
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._interrupt)
        self._bar.show()
        return self

    def _interrupt(self, *_: object) -> None:
        """Note the first Ctrl-C of a run that has begun; others are as usual."""
        if self._interrupted or not self._begun:
            raise KeyboardInterrupt
        self._interrupted = True

    def __call__(self, nodes: int, now_ns: int) -> bool:
        """Show how far the run is; False asks it to end."""
        self._begun = True
        self._bar.show(what=f"{counted_text(nodes, 'node')} done, simulated time {now_ns:,} ns")
        return not self._interrupted

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._handler)
