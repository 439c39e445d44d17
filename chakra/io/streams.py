"""Standard streams, which may be closed."""

import sys


def errors_on_terminal() -> bool:
    """Whether standard error is a terminal, so that a progress bar may be drawn there."""
    return sys.stderr is not None and sys.stderr.isatty()
