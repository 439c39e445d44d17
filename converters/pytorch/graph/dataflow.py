"""Order of device operations by the tensors they read and write instead of by stream (option ``--deps tensors``).

Stream order forbids overlap that another machine may allow. The host trace says which storage every operator reads
and writes; a device operation then depends on the last device operations that wrote what its operator reads. Ids of
storages are reused after they are freed: the last writer counts, so unrelated uses are not joined.
"""

from itertools import pairwise

import msgspec
import numpy as np

from chakra.arrays import I64
from chakra.converters.pytorch.read.host import HostTrace


def _storages(value: object, out: set[int]) -> None:
    """Collect storage ids of tensor values (six fields: id, storage, offset, elements, bytes each, device)."""
    if not isinstance(value, list):
        return
    if len(value) == 6 and isinstance(value[5], str) and isinstance(value[1], int):
        if value[3]:
            out.add(value[1])
        return
    for item in value:
        _storages(item, out)


class _Storages:
    """Storage ids of inputs or outputs by code; every distinct text is parsed once."""

    def __init__(self, host: HostTrace) -> None:
        self.texts = host.io.texts
        self.known: dict[int, tuple[int, ...]] = {}

    def of(self, code: int) -> tuple[int, ...]:
        """Storage ids behind a code."""
        if code not in self.known:
            found: set[int] = set()
            try:
                _storages(msgspec.json.decode(self.texts[code].split("\x00", 1)[0]), found)
            except (msgspec.DecodeError, RecursionError):
                found = set()
            self.known[code] = tuple(sorted(found))
        return self.known[code]


def tensor_edges(host: HostTrace, host_row: I64, device: I64) -> tuple[I64, I64]:
    """Edges (source, target) between device nodes by data flow.

    Parameters
    ----------
    host_row
        Host trace row of the operator that launched each device node; -1 where none did.
    device
        Draft index of each device node, in order of start.
    """
    nodes = host.nodes
    storages = _Storages(host)
    launched: dict[int, list[int]] = {}
    for row, node in zip(host_row.tolist(), device.tolist(), strict=True):
        if row >= 0:
            launched.setdefault(row, []).append(node)
    writer: dict[int, int] = {}
    edges: list[tuple[int, int]] = []
    for row in sorted(launched):
        own = launched[row]
        reads = storages.of(int(nodes.inputs[row]))
        # What an operator launches runs one after the other; the first one reads, the last one writes.
        edges += [(writer[s], own[0]) for s in reads if s in writer]
        edges += list(pairwise(own))
        for s in (*storages.of(int(nodes.outputs[row])), *_written_inputs(host, row, reads)):
            writer[s] = own[-1]
    table = np.array(sorted(set(edges)), np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _written_inputs(host: HostTrace, row: int, reads: tuple[int, ...]) -> tuple[int, ...]:
    """Inputs that an operator without outputs writes (collectives, in-place annotations): all of them."""
    return reads if host.io.texts[int(host.nodes.outputs[row])].startswith("[]\x00") else ()
