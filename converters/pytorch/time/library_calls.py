"""Calls that a communication library makes around a launch of its own.

NCCL orders its streams among each other with event records and stream waits of its own, inside PyTorch's record of the
collective. They say nothing about the caller's streams. The last record behind a launch is the one that
marks the end of the communication: what waits on it waits for that communication.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, Bool, followed
from chakra.converters.pytorch.match.attach import Attachment
from chakra.converters.pytorch.match.region import nearest_active
from chakra.converters.pytorch.read.device import COMMUNICATION, DeviceTrace

#: PyTorch's record of a call of a process group
RECORD = "record_param_comms"


@dataclass(slots=True)
class LibraryCalls:
    """What the calls around launches of communication are; rows are those of the device trace's calls and operations."""

    #: calls inside the record of a communication, behind its launch: not the caller's
    inner: Bool
    #: event record -> communication that ends there
    ends: dict[int, int]
    #: outermost record of a communication around each call, -1 for others
    scope: I64


def library_calls(device: DeviceTrace, attachment: Attachment, comm: I64, records: I64) -> LibraryCalls:
    """Tell a communication library's own calls from the caller's.

    Parameters
    ----------
    comm
        Device operations that are communication.
    records
        Calls that record events.
    """
    calls = device.calls
    scope = _outermost(device, attachment)[attachment.call_op] if len(device.ops.name) else attachment.call_op
    scope = np.where(attachment.call_op >= 0, scope, -1)
    launched = np.full(len(device.ops.name), -1, np.int64)
    last: dict[int, int] = {}
    rows = comm[attachment.call[comm] >= 0]
    for row in rows[np.argsort(calls.start[attachment.call[rows]], kind="stable")].tolist():
        call = int(attachment.call[row])
        where = int(scope[call])
        if where >= 0:
            launched[where] = max(int(launched[where]), int(calls.start[call]))
            last[where] = row
    behind = np.where(scope >= 0, launched[scope], 1 << 62) if len(launched) else np.full(len(scope), 1 << 62)
    inner = (scope >= 0) & (behind >= 0) & (calls.start > behind)
    ends: dict[int, int] = {}
    for call in records[inner[records]].tolist():  # in order of time: the last one of each record stays
        ends[int(scope[call])] = call
    named = {call: last[where] for where, call in ends.items()}
    inner[list(named)] = False
    return LibraryCalls(inner, named, scope)


def _outermost(device: DeviceTrace, attachment: Attachment) -> I64:
    """Outermost record of a communication (or its annotation) at or above every operator, -1 where none."""
    texts = device.names.texts
    marks = tuple(mark for mark in COMMUNICATION if mark != "c10d::")
    codes = [code for code, text in enumerate(texts) if text == RECORD or text.startswith(marks)]
    own: Bool = np.isin(device.ops.name, codes)
    places = np.arange(len(own))
    above = nearest_active(own, attachment.parent)[attachment.parent]
    return followed(np.where(above >= 0, above, np.where(own, places, -1)))


class Works:
    """Which communication a call waits for that PyTorch recorded as a wait (``record_param_comms`` named ``wait``)."""

    def __init__(self, scope: I64, known: dict[int, list[int]], launch: list[int]) -> None:
        self.scope, self.known, self.launch = scope, known, launch

    def of(self, call: int, begin: int) -> int:
        """The communication (device row) that a wait names, launched before it; -1 where none is named."""
        rows = self.known.get(int(self.scope[call]), [])
        at = bisect_right(rows, begin, key=lambda row: self.launch[row])
        return rows[at - 1] if at else -1
