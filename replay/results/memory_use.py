"""Memory over time, from the tensors that nodes name in their `inputs` and `outputs` attributes.

A tensor lives from its first use (the issue of the node that writes it, or of its first reader if none does) to the end
of its last user. This is how ASTRA-sim's local-memory tracker figures a trace in which every tensor is written before
it is read; what it does with others could not be established, so `peak_mem` is compared with it only for such traces.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64
from chakra.io.digits import is_whole
from chakra.replay.engines.outcome import RawRun
from chakra.replay.workload.model import Program


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes in use after each instant, and the peak."""

    time_ns: I64
    bytes: I64

    @property
    def peak_bytes(self) -> int:
        """Most bytes in use at once."""
        return int(self.bytes.max(initial=0))


def pairs(values: object) -> Sequence[tuple[str, int]]:
    """(name, bytes) pairs of a flat list of text."""
    if not isinstance(values, list | tuple):
        return ()
    return [
        (str(values[i]), int(values[i + 1]))
        for i in range(0, len(values) - 1, 2)
        if is_whole(str(values[i + 1]), 19)
    ]


def memory_use(raw: RawRun, program: Program, actor: int) -> MemoryUse:
    """Memory over time of one actor."""
    where = raw.nodes(actor)
    issue, finish = raw.issue_ns[where], raw.finish_ns[where]
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    size: dict[str, int] = {}
    for k in np.argsort(issue, kind="stable").tolist():
        if issue[k] < 0:
            continue
        node = int(program.order[k])
        for attribute in ("inputs", "outputs"):
            for name, n_bytes in pairs(program.trace.attr(node, attribute)):
                first.setdefault(name, int(issue[k]))
                last[name] = max(last.get(name, 0), int(finish[k]))
                size[name] = n_bytes
    if not first:
        return MemoryUse(np.zeros(1, np.int64), np.zeros(1, np.int64))
    time = np.array([*first.values(), *(last[name] for name in first)], np.int64)
    step = np.array([*(size[name] for name in first), *(-size[name] for name in first)], np.int64)
    order = np.lexsort((step, time))  # at one instant, what is freed goes first
    edges, at = np.unique(time[order], return_index=True)
    total = np.cumsum(step[order])
    return MemoryUse(edges, total[np.append(at[1:], len(total)) - 1])
