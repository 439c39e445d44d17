"""Standard streams, which may be closed."""

import os
import sys

#: characters of a line where no terminal says how many it has
PLAIN_WIDTH = 120


def errors_on_terminal() -> bool:
    """Whether standard error is a terminal, so that a progress bar may be drawn there."""
    return sys.stderr is not None and sys.stderr.isatty()


def output_width() -> int:
    """Characters of a line of standard output: of its terminal, else :data:`PLAIN_WIDTH`."""
    try:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    except (AttributeError, OSError, ValueError):  # closed, a file, or a stream of a test
        return PLAIN_WIDTH
    # a terminal that does not know says 0
    return columns or PLAIN_WIDTH
