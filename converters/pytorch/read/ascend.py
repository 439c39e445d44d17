"""Device events of Ascend's profiler (``trace_view.json``): they have no category.

A task of an NPU has ``Task Type`` and ``Stream Id`` among its arguments; what launched it is the beginning of the arrow
that ends where the task begins (``async_npu``), whose number is the task's ``connection_id`` in most files.
"""

from typing import Any

from chakra.arrays import I64
from chakra.converters.pytorch.read.columns import to_integer
from chakra.converters.pytorch.read.decimals import nanoseconds

FLOW = "async_npu"


class Arrows:
    """Arrows from the host to the device, and the tasks at which they may end."""

    def __init__(self) -> None:
        #: number of an arrow -> row in which it begins, and when (ns)
        self.begins: dict[int, tuple[tuple[str, str], int]] = {}
        #: where an arrow ends (row and ns) -> its number
        self._ends: dict[tuple[str, str, int], int] = {}
        #: of every task: place in the table of device operations, number that it gives, where it begins
        self._tasks: list[tuple[int, int, tuple[str, str, int]]] = []

    def add(self, events: list[Any]) -> None:
        """Note the ends of arrows among events."""
        times = nanoseconds([bytes(event.ts).strip(b'"') for event in events]).tolist()
        for event, time in zip(events, times, strict=True):
            number = to_integer(event.id, -1)
            if number < 0 or time < 0:
                continue
            if event.ph == "s":
                self.begins[number] = ((str(event.pid), str(event.tid)), time)
            else:
                self._ends[str(event.pid), str(event.tid), time] = number

    def add_tasks(self, first: int, events: list[Any], args: list[Any], start: I64) -> None:
        """Note the tasks among device operations that stand from place ``first`` on in their table."""
        for i, (event, said, time) in enumerate(zip(events, args, start.tolist(), strict=True)):
            if said.task_type is not None:
                where = (str(event.pid), str(event.tid), time)
                self._tasks.append((first + i, to_integer(said.connection, 0), where))

    def connect(self, correlation: I64) -> None:
        """Give every task the number of its arrow: the one that it names, else the one that ends where it begins."""
        for place, number, where in self._tasks:
            correlation[place] = number if number in self.begins else self._ends.get(where, 0)


def is_task(event: Any) -> bool:
    """Whether an event without category is a task of an NPU."""
    args = event.args
    return args is not None and args.task_type is not None and args.stream_id is not None
