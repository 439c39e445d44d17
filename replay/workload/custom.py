"""Custom collective algorithms: traces of sends, receives and compute, one per member.

Sources: replay semantics, section 4.6; D20 for the order of members.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from chakra.arrays import I64
from chakra.errors import ConfigError, WorkloadError
from chakra.et import ABSENT, NodeType, Trace, read_traces
from chakra.io.digits import whole_number
from chakra.io.readable import counted, nouns, ranges_text
from chakra.replay.config.model import CollectiveKind, System
from chakra.replay.workload.bindings import children_in_order
from chakra.replay.workload.model import Op


@dataclass(frozen=True, slots=True)
class CustomProgram:
    """One member's part of a custom algorithm; arrays per node in ascending id."""

    op: I64
    duration_ns: I64
    child_start: I64
    child: I64
    #: per point-to-point node: position of the partner, bytes, tag
    partner: I64
    p2p_bytes: I64
    p2p_tag: I64


def load_per_node(path: str, system: System) -> dict[int, str]:
    """Map node id -> prefix of a per-node file (YAML).

    Raises
    ------
    ConfigError
        If the file is not a map from node ids to prefixes.
    """
    from chakra.io.yaml import read_entries

    where = path if os.path.isabs(path) else os.path.join(os.path.dirname(system.source), path)
    if not os.path.exists(where) and os.path.exists(path):
        where = path
    document = read_entries(where)
    if not isinstance(document, Mapping):
        raise ConfigError(f"{where}: expected a map from node id to the prefix of an algorithm's traces")
    out: dict[int, str] = {}
    for key, entry in document.items():
        value = entry.value
        if not re.fullmatch(r"[0-9]{1,20}", str(key)) or not isinstance(value, str):
            raise ConfigError(f"{where}: {key!r}: expected a node id and the prefix of an algorithm's traces")
        out[whole_number(str(key))] = value
    return out


def prefix_of(
    kind: CollectiveKind, node_id: int | None, system: System, per_node: Mapping[int, str]
) -> str | None:
    """Prefix of the custom algorithm of a collective; a node's own beats the kind's."""
    if node_id is not None and node_id in per_node:
        return per_node[node_id]
    return system.custom.get(kind)


def resolve_prefix(prefix: str, system: System) -> str:
    """Prefix as given if its first file is there, else relative to the system file."""
    beside = os.path.join(os.path.dirname(system.source), prefix)
    for candidate in (prefix, beside):
        if os.path.exists(f"{candidate}.0.et") or os.path.exists(f"{candidate}.0.et.gz"):
            return candidate
    return prefix


def position_file(base: str, position: int) -> str | None:
    """The file of a position, if it is there."""
    for suffix in (".et", ".et.gz"):
        if os.path.exists(f"{base}.{position}{suffix}"):
            return f"{base}.{position}{suffix}"
    return None


def load_algorithm(prefix: str, members: int, system: System, *, astra: bool) -> list[CustomProgram]:
    """Programs of an algorithm for `members` NPUs, by position.

    Raises
    ------
    ConfigError
        For missing files, of which all are named, and for more files than there are members: what is left of an
        algorithm without its last positions is none. ASTRA-sim never looks at those.
    WorkloadError
        For nodes that a custom algorithm cannot have.
    """
    base = resolve_prefix(prefix, system)
    paths, missing = [], []
    for position in range(members):
        path = position_file(base, position)
        if path is None:
            missing.append(position)
        else:
            paths.append(path)
    if not astra and not missing and (more := position_file(base, members)):
        raise ConfigError(
            f"{system.source}: custom algorithm {prefix!r} is for more positions than the "
            f"{counted(members, 'member')} of the "
            f"group that runs it: there is {more}"
        )
    if missing:
        raise ConfigError(
            f"{system.source}: custom algorithm {prefix!r} has no file for "
            f"{nouns(len(missing), 'position')} {ranges_text(missing)} of {members}, such as "
            f"{base}.{missing[0]}.et"
        )
    return [custom_program(trace, members, astra=astra) for trace in read_traces(paths)]


@dataclass(frozen=True)
class CustomAlgorithms:
    """Custom algorithms of a run, each read once for a number of members."""

    system: System
    #: read and ordered as ASTRA-sim does
    astra: bool
    _read: dict[tuple[str, int], list[CustomProgram]] = field(default_factory=dict)

    def of(self, prefix: str, members: int) -> list[CustomProgram]:
        """Programs by position; errors are those of `load_algorithm`."""
        key = (prefix, members)
        if key not in self._read:
            self._read[key] = load_algorithm(prefix, members, self.system, astra=self.astra)
        return self._read[key]


def custom_program(trace: Trace, members: int, *, astra: bool) -> CustomProgram:
    """Prepare one member's trace."""
    order = trace.order_by_id()
    types = trace.types[order]
    allowed = np.isin(types, (NodeType.COMP, NodeType.COMM_SEND, NodeType.COMM_RECV))
    if not allowed.all():
        node = int(trace.ids[order[np.flatnonzero(~allowed)[0]]])
        raise WorkloadError(
            f"{trace.source}: node {node}: a custom algorithm has COMP, SEND and RECV nodes only"
        )
    op = np.full(len(order), Op.TIMER, np.int64)
    send = types == NodeType.COMM_SEND
    op[send] = Op.SEND
    op[types == NodeType.COMM_RECV] = Op.RECV
    duration = trace.duration_micros[order] * 1000
    if astra:
        duration = np.maximum(duration, 1)
    else:
        exact = trace.duration_ns[order]
        duration = np.where(exact != ABSENT, exact, duration)
    p2p = np.flatnonzero(op != Op.TIMER)
    partner = np.where(send, trace.comm_dst[order], trace.comm_src[order])[p2p]
    size, tag = trace.comm_size[order][p2p], trace.comm_tag[order][p2p]
    bad = np.flatnonzero((partner < 0) | (partner >= members) | (size < 0) | (tag == ABSENT))
    if len(bad):
        node = int(trace.ids[order[p2p[bad[0]]]])
        raise WorkloadError(
            f"{trace.source}: node {node}: a message needs its partner's position (0 to {members - 1}), "
            "comm_size and comm_tag"
        )
    start, child, _ = children_in_order(trace, order)
    return CustomProgram(op, duration, start, child.astype(np.int64), partner, size, tag)
