"""Communication of CPU back ends (gloo): annotations of the host are the collectives and messages."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.converters.pytorch.comm.operations import (
    COLLECTIVES,
    POINT_TO_POINT,
    Comm,
    ProcessGroups,
    comm_of,
    normalise,
)
from chakra.converters.pytorch.read.columns import to_integer
from chakra.converters.pytorch.read.device import DeviceTrace
from chakra.converters.pytorch.read.host import HostTrace, tensor_bytes
from chakra.et.families import CPU_BACK_ENDS

#: how annotations begin
_BACK_ENDS = tuple(f"{name}:" for name in CPU_BACK_ENDS)


def cpu_operations(texts: Sequence[str]) -> dict[int, str]:
    """What annotations of CPU back ends do (``all_reduce`` of ``gloo:all_reduce``), by the code of their name."""
    words = {
        code: text.split(":", 1)[1].split() for code, text in enumerate(texts) if text.startswith(_BACK_ENDS)
    }
    return {code: said[0] for code, said in words.items() if said}


def communicates(kind: str) -> bool:
    """Whether an operation, as `normalise` names it, is a message or a collective."""
    return kind in POINT_TO_POINT or kind in COLLECTIVES


def cpu_communication(
    host: HostTrace, device: DeviceTrace, et_row: I64, op_row: I64, groups: ProcessGroups, rank: int
) -> tuple[dict[int, Comm], dict[int, int]]:
    """Communication of CPU back ends: annotations ``gloo:<op>`` among the host nodes.

    The group is an opaque object in these traces, so the default group (all ranks) is taken. The second
    result says for each node which host row issued it (``c10d::...``).
    """
    texts = device.names.texts
    named = cpu_operations(texts)
    if not named:
        return {}, {}
    nodes = host.nodes
    c10d = np.array(sorted(r for r in host.comm if texts[int(nodes.name[r])].startswith("c10d::")), np.int64)
    out: dict[int, Comm] = {}
    issued: dict[int, int] = {}
    for i in np.flatnonzero(op_row >= 0).tolist():
        row = int(et_row[i])
        if row < 0 or int(device.ops.name[op_row[i]]) not in named:
            continue
        name = named[int(device.ops.name[op_row[i]])]
        kind = normalise(name)
        at = int(np.searchsorted(c10d, row)) - 1
        call = host.comm[int(c10d[at])] if at >= 0 else {}
        if at >= 0:
            issued[i] = int(c10d[at])
        size = tensor_bytes(host.comm.get(row, {}).get("inputs")) if kind != "barrier" else 0
        if not size and kind == "scatter":
            size = tensor_bytes(call.get("inputs"))
        if not communicates(kind):
            continue
        out[i] = comm = comm_of(kind, size, "0", name, known=size > 0)
        if kind in POINT_TO_POINT:
            comm.peer = _peer_argument(call)
            if comm.peer >= 0:
                members = groups.members("0")
                comm.peer = members[comm.peer] if comm.peer < len(members) else comm.peer
    return out, issued


def _peer_argument(call: dict[str, Any]) -> int:
    """First integer argument behind the process group of ``c10d::send`` or ``c10d::recv_``."""
    for value, kind in zip(call.get("inputs", []), call.get("types", []), strict=False):
        if kind == "Int":
            return to_integer(value, -1)
    return -1
