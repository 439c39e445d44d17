"""How often Python looks for garbage in cycles."""

import contextlib
import gc
from collections.abc import Iterator

#: objects made, less those given up, from which the youngest are looked at; how many such looks until older ones are
THRESHOLDS = (50_000, 20, 50)
#: the same while kernels are compiled: nearly all that numba makes, it keeps
WHILE_COMPILING = (100_000, 1_000, 1_000)


def collect_rarely() -> None:
    """Look for cycles rarely, in a process that runs a command and ends.

    Commands build large documents of objects that live until the end. Python looks at them again and again, which took
    up to a third of the time of a check of 16,384 links, and more the larger the input. Little here is in cycles: what
    is, waits a while longer.
    """
    gc.set_threshold(*THRESHOLDS)


@contextlib.contextmanager
def collecting_little() -> Iterator[None]:
    """Look at the youngest objects only, now and then, while kernels are compiled in this process."""
    before = gc.get_threshold()
    gc.set_threshold(*WHILE_COMPILING)
    try:
        yield
    finally:
        gc.set_threshold(*before)
