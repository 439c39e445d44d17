"""Progress bars on standard error while that is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from chakra.io.streams import errors_on_terminal


@contextmanager
def progress_bar(what: str, total: int, *, elapsed: bool = False) -> Iterator[Callable[..., None] | None]:
    """A bar of `total` steps with a text before it, gone at the end; None where nobody would see it.

    What is yielded moves the bar: ``completed=`` or ``advance=`` steps, ``description=`` another text. With `elapsed`
    the bar shows the time so far instead of the time to go.
    """
    if not errors_on_terminal():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns: Any = Progress.get_default_columns()
    if elapsed:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda **change: bar.update(task, **change)
