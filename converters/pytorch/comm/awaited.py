"""Which communication PyTorch's own record of a wait names: by process group, sequence number, and whether it is a
transfer, all of which stand in the host trace (inputs of type ``Tuple[Int,Bool]`` and ``Tuple[String,String]``).
"""

from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.converters.pytorch.match.attach import Attachment
from chakra.converters.pytorch.match.pair import Pairing
from chakra.converters.pytorch.read.device import DeviceTrace
from chakra.converters.pytorch.read.host import HostTrace

Key = tuple[str, int, bool]


def awaited_works(
    host: HostTrace | None, pairing: Pairing | None, device: DeviceTrace, attachment: Attachment, comm: I64
) -> dict[int, list[int]]:
    """Communications (rows of device operations, by launch) that each recorded wait (row of an operator) names.

    Several only where numbers repeat; the latest that was launched before the wait is meant.
    """
    if host is None or pairing is None or not host.comm:
        return {}
    by_key: dict[Key, list[int]] = {}
    launched = comm[attachment.call[comm] >= 0]
    launches = device.calls.start[attachment.call[launched]]
    for row in launched[np.argsort(launches, kind="stable")].tolist():
        key = _key_above(int(attachment.op[row]), host, pairing, attachment.parent)
        if key is not None:
            by_key.setdefault(key, []).append(row)
    out: dict[int, list[int]] = {}
    for row, said in host.comm.items():
        op = int(pairing.op[row])
        if op >= 0 and _name(said) == "wait":
            key = _key(said)
            if key in by_key:
                out[op] = by_key[key]
    return out


def _key_above(op: int, host: HostTrace, pairing: Pairing, parent: I64) -> Key | None:
    """Key of the nearest record at or above an operator."""
    while op >= 0:
        said = host.comm.get(int(pairing.node[op]))
        key = _key(said) if said is not None else None
        if key is not None:
            return key
        op = int(parent[op])
    return None


def _name(said: dict[str, object]) -> str:
    if said.get("collective_name"):
        return str(said["collective_name"])
    return next((str(value) for value, kind in _inputs(said) if kind == "String"), "")


def _inputs(said: dict[str, object]) -> list[tuple[Any, Any]]:
    """Values of a record and their types; none where the file has no lists there."""
    values, types = said.get("inputs"), said.get("types")
    return (
        list(zip(values, types, strict=False)) if isinstance(values, list) and isinstance(types, list) else []
    )


def _key(said: dict[str, object]) -> Key | None:
    """Group, number, and whether it is a transfer; None where the record does not say all of it."""
    number = group = None
    for value, kind in _inputs(said):
        if not isinstance(value, list) or len(value) != 2:
            continue
        if kind == "Tuple[Int,Bool]" and isinstance(value[0], int):
            number = (value[0], bool(value[1]))
        elif kind == "Tuple[String,String]":
            group = str(value[0])
    return None if number is None or group is None else (group, *number)
