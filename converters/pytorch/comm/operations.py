"""What communication operations are: kind, bytes, group, peer (rule R-COMM of the conversion).

In order of trust: the host trace's ``record_param_comms`` (attributes, then positions, then tensors), the
same operator in the device trace, the device event's own metadata, the annotation around the launch
(``nccl:all_reduce``), and last the kernel's name.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from chakra.arrays import I64, Bool, distinct, ranges, rows_by
from chakra.converters.pytorch.match.attach import Attachment
from chakra.converters.pytorch.match.pair import Pairing
from chakra.converters.pytorch.read.columns import to_integer
from chakra.converters.pytorch.read.device import KERNEL, CommArgs, DeviceTrace
from chakra.converters.pytorch.read.host import HostTrace, tensor_bytes
from chakra.converters.pytorch.read.kernel_names import (
    DEFAULT,
    LIBRARY,
    KernelNames,
    looks_like_communication,
)
from chakra.converters.pytorch.read.split_sizes import EQUAL, Rows, Shares, rows_of, split_bytes
from chakra.et import CommType, NodeType
from chakra.io.readable import counted, verb

POINT_TO_POINT: dict[str, int] = {"send": NodeType.COMM_SEND, "recv": NodeType.COMM_RECV}
COLLECTIVES: dict[str, int] = {
    "allreduce": CommType.ALL_REDUCE,
    "allreducesparse": CommType.ALL_REDUCE,
    "allgather": CommType.ALL_GATHER,
    "allgatherinto": CommType.ALL_GATHER,
    "reducescatter": CommType.REDUCE_SCATTER,
    "alltoall": CommType.ALL_TO_ALL,
    "broadcast": CommType.BROADCAST,
    "reduce": CommType.REDUCE,
    "gather": CommType.GATHER,
    "scatter": CommType.SCATTER,
    "barrier": CommType.BARRIER,
}
#: Records that move nothing themselves.
NOT_COMMUNICATION = frozenset(("wait", "init", "", "start", "end", "startcoalescing", "endcoalescing"))
DTYPE_BYTES = {
    "float": 4, "half": 2, "bfloat16": 2, "double": 8, "long": 8, "int": 4, "short": 2, "byte": 1, "char": 1,
    "bool": 1, "complexfloat": 8, "complexdouble": 16, "float32": 4, "float16": 2, "float64": 8, "int64": 8,
    "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "unsigned char": 1, "signed char": 1, "long int": 8,
    "c10::half": 2, "c10::bfloat16": 2, "c10::complex<float>": 8, "c10::complex<double>": 16,
}  # fmt: skip
_ANNOTATION = re.compile(r"^(?:nccl|gloo|mpi|ucc|xccl|hccl|ccl):\s*(\w+)")


def normalise(name: str) -> str:
    """Collective name without the marks of its variants: ``_allgather_base`` -> ``allgather``."""
    text = name.lower()
    for part in ("_coalesced", "_base", "_into_tensor", "_tensor"):
        text = text.replace(part, "")
    text = text.replace("_", "")
    return text[:-1] if text.endswith("v") and text[:-1] in COLLECTIVES else text


def dtype_bytes(name: str) -> int:
    """Bytes per element of a dtype as the profiler writes it; 0 when unknown."""
    text = name.strip().lower()
    if text.startswith(("float8", "c10::float8")):
        return 1
    return DTYPE_BYTES.get(text, 0)


@dataclass(slots=True)
class Comm:
    """What a communication node does. Sizes in bytes; ranks are global; -1 or empty where unknown."""

    kind: int
    comm_type: int
    size: int
    group: str
    peer: int = -1
    label: str = ""
    dtype: str = ""
    seq: int = -1
    known_size: bool = True
    shares: Shares = EQUAL


@dataclass(slots=True)
class ProcessGroups:
    """Process groups by the name that the traces use. ``ranks`` is empty where a group's members are
    unknown.
    """

    ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    world: int = 0
    #: recorded number of members, of the groups that communication names
    sizes: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, name: str, ranks: tuple[int, ...]) -> None:
        """Note a group's members; the first longest list wins."""
        if len(ranks) > len(self.ranks.get(name, ())) or name not in self.ranks:
            self.ranks[name] = ranks

    def members(self, name: str) -> tuple[int, ...]:
        """Members of a group; all ranks where the traces do not say."""
        return self.ranks.get(name) or tuple(range(self.world))


@dataclass(slots=True)
class Records:
    """Communication per device operation (row): one entry, or several for a batch that one kernel carries."""

    members: dict[int, list[Comm]]
    warnings: list[str]
    #: kernels that look like communication and stay computing: name and number
    suspects: dict[str, int] = field(default_factory=dict)

    def expand(self, rows: I64) -> tuple[I64, I64]:
        """Device rows with a batch's row repeated, and the number of each within its batch."""
        counts = np.array([len(self.members.get(int(r), (None,))) for r in rows], np.int64)
        return np.repeat(rows, counts), ranges(np.zeros_like(counts), counts)


def groups_of(host: HostTrace | None, device: DeviceTrace) -> ProcessGroups:
    """Process groups that either trace names."""
    groups = ProcessGroups(world=device.world_size or 0)
    info = device.header.get("distributedInfo")
    config = info.get("pg_config") if isinstance(info, dict) else None
    items: list[Any] = list(config) if isinstance(config, list) else []
    items += host.groups if host is not None else []
    for item in items:
        if not isinstance(item, dict):
            continue
        size = to_integer(item.get("pg_size", item.get("group_size")), 0)
        groups.world = max(groups.world, size)
    for item in items:
        if not isinstance(item, dict) or item.get("pg_name") is None:
            continue
        ranks = item.get("ranks")
        size = to_integer(item.get("pg_size", item.get("group_size")), 0)
        members = tuple(to_integer(r, -1) for r in ranks) if isinstance(ranks, list) and ranks else ()
        if members and (min(members) < 0 or len(set(members)) < len(members)):
            text = f"{device.source}: process group {str(item['pg_name'])!r} has members that cannot be: {members}"
            groups.warnings += [text] * (text not in groups.warnings)
            members = ()
        if not members and (size == groups.world or not size):
            members = tuple(range(groups.world))
        groups.add(str(item["pg_name"]), members)
    said: set[tuple[str, str, str]] = set()  # most calls of a group say the same of it
    for args in device.comm:
        if args.group is None:
            continue
        what = (str(args.group), str(args.group_ranks), f"{args.start} {args.stride} {args.group_size}")
        if what not in said:
            said.add(what)
            groups.add(str(args.group), _ranks_of(args))
    return groups


def _ranks_of(args: CommArgs) -> tuple[int, ...]:
    text = str(args.group_ranks or "")
    if text and "..." not in text:
        found = tuple(int(n) for n in re.findall(r"[0-9]+", text))
        if found:
            return found
    start, stride, size = (to_integer(v, -1) for v in (args.start, args.stride, args.group_size))
    if start >= 0 and stride > 0 and size > 0:
        return tuple(range(start, start + stride * size, stride))
    return ()


@dataclass(slots=True)
class _Record:
    """What one record says, whichever trace it is from."""

    name: str = ""
    group: str = ""
    rank: int = -1
    size: int = -1
    group_size: int = 0
    dtype: str = ""
    peer: int = -1
    seq: int = -1
    source: str = ""
    shares: Shares | None = None
    coalesced: bool = False
    """The event closes a batch, or nothing but the kernel's name is known."""


def _host_record(attrs: dict[str, Any]) -> _Record:
    """Read a record_param_comms node: attributes first, then positions, then tensors."""
    values, types = attrs.get("inputs", []), attrs.get("types", [])
    record = _Record(source="host trace")
    position = next((i for i, t in enumerate(types) if t == "String"), -1)
    record.name = str(
        attrs.get("collective_name") or (values[position] if 0 <= position < len(values) else "")
    )
    if position >= 1:
        record.rank = to_integer(values[position - 1], -1)
        group = values[position - 2] if position >= 2 else None
        sequence = values[position - 3] if position >= 3 else None
        # Before the pair (name, description) there was the address of the group's object: no name.
        record.group = str(group[0]) if isinstance(group, list) and group else ""
        record.seq = to_integer(sequence[0] if isinstance(sequence, list) and sequence else sequence, -1)
        if len(values) >= position + 6:
            record.group_size = to_integer(values[position + 5], 0)
    record.group = str(attrs.get("pg_name", record.group))
    record.group_size = to_integer(attrs.get("pg_size"), record.group_size)
    record.dtype = str(attrs.get("dtype", ""))
    own = values[0] if values and types and "Tensor" in str(types[0]) else None
    incoming, outgoing, known = tensor_bytes(own), tensor_bytes(attrs.get("outputs")), False
    width = dtype_bytes(record.dtype)
    if width and attrs.get("in_msg_nelems") is not None:
        incoming = to_integer(attrs["in_msg_nelems"], 0) * width
        outgoing = to_integer(attrs.get("out_msg_nelems"), 0) * width
        known = True
    behind = values[position + 1 : position + 3] if position >= 0 else []
    in_rows, out_rows = (
        rows_of(attrs.get(name) or value)
        for name, value in zip(("in_split_size", "out_split_size"), [*behind, None, None], strict=False)
    )
    if own is not None and (in_rows or out_rows):  # the record of an all-to-all whose buffer may be empty
        known = True
    _set_sizes(record, incoming, outgoing, in_rows, out_rows, known=known)
    return record


def _set_sizes(
    record: _Record, incoming: int, outgoing: int, in_rows: Rows, out_rows: Rows, *, known: bool
) -> None:
    """Set the bytes that count and the shares; `known` says that no bytes mean none."""
    kind = normalise(record.name)
    record.size = _relevant(kind, incoming, outgoing, known=known)
    if kind == "alltoall":
        given = outgoing if known and outgoing else -1
        rows = sum(in_rows)
        if given < 0 < rows and incoming % rows == 0:
            given = incoming // rows * sum(out_rows)
        record.shares = Shares(split_bytes(in_rows, incoming), split_bytes(out_rows, given), given)
    elif known:
        record.shares = Shares(out_size=outgoing)


def _relevant(kind: str, incoming: int, outgoing: int, *, known: bool) -> int:
    """Bytes that count: what the rank brings in; what it gets for recv, and for scatter where it brings nothing.

    Where `known`, a rank that brings nothing in brings 0 in; else nothing was recorded, and what it gets must do.
    """
    if kind == "barrier":
        return 0
    if kind == "recv":
        return outgoing or incoming
    if kind in ("alltoall", "allgather", "allgatherinto", "gather") and known:
        return incoming
    return incoming or outgoing


def _args_record(args: CommArgs, source: str) -> _Record:
    record = _Record(
        name=str(args.collective or ""),
        group=str(args.group) if args.group is not None else "",
        rank=to_integer(args.rank, -1),
        dtype=str(args.dtype or ""),
        seq=to_integer(args.seq, -1),
        group_size=to_integer(args.group_size, 0),
        source=source,
    )
    width = dtype_bytes(record.dtype)
    if width and args.in_elements is not None:
        incoming = to_integer(args.in_elements, 0) * width
        outgoing = to_integer(args.out_elements, 0) * width
        _set_sizes(record, incoming, outgoing, rows_of(args.in_split), rows_of(args.out_split), known=True)
    kind = normalise(record.name)
    if kind in ("send", "recv"):
        record.peer = to_integer(args.dst if kind == "send" else args.src, -1)
    return record


class _Finder:
    """Looks up what is known about one device operation."""

    def __init__(
        self,
        host: HostTrace | None,
        device: DeviceTrace,
        pairing: Pairing | None,
        attachment: Attachment,
        groups: ProcessGroups,
        rank: int,
        names: KernelNames,
    ) -> None:
        self.names = names
        self.host, self.device, self.pairing, self.groups, self.rank = host, device, pairing, groups, rank
        self.parent = attachment.parent
        self.record_code = device.names.codes.get("record_param_comms", -1)
        self.unknown: Counter[str] = Counter()

    def record_op(self, op: int) -> int:
        """Nearest record_param_comms at or above an operator, or -1."""
        while op >= 0 and int(self.device.ops.name[op]) != self.record_code:
            op = int(self.parent[op])
        return op

    def annotation(self, op: int) -> str:
        """Operation that an annotation at or above an operator names (``nccl:all_reduce``), or empty."""
        texts = self.device.names.texts
        while op >= 0:
            match = _ANNOTATION.match(texts[int(self.device.ops.name[op])])
            if match:
                return match.group(1)
            op = int(self.parent[op])
        return ""

    def of_record(self, op: int) -> _Record | None:
        """What a record_param_comms operator says, by host trace and device trace together."""
        found: list[_Record] = []
        if (
            self.pairing is not None
            and self.host is not None
            and int(self.pairing.node[op]) in self.host.comm
        ):
            found.append(_host_record(self.host.comm[int(self.pairing.node[op])]))
        row = int(self.device.ops.comm[op])
        if row >= 0:
            found.append(_args_record(self.device.comm[row], "operator"))
        return _merged(found) if found else None

    def of_event(self, row: int, op: int) -> _Record:
        """All that is known about a device operation."""
        found: list[_Record] = []
        record = self.record_op(op)
        if record >= 0:
            own = self.of_record(record)
            if own is not None:
                found.append(own)
        comm = int(self.device.device.comm[row])
        if comm >= 0:
            found.append(_args_record(self.device.comm[comm], "device event"))
        name = self.annotation(op)
        if name:
            found.append(_Record(name=name, source="annotation", size=self._dims_bytes(op)))
        kernel = self.names.kind(self.device.names.texts[int(self.device.device.name[row])])
        if kernel:
            size = -1 if found else self._operator_bytes(op)
            found.append(_Record(name=kernel, source="kernel name", size=size))
        return _merged(found) if found else _Record()

    def _operator_bytes(self, op: int) -> int:
        """Bytes of the largest tensor that the nearest operator with tensors takes; -1 where none says."""
        dims = self._dims_bytes(op, largest=True)
        while dims < 0 and op >= 0:
            node = int(self.pairing.node[op]) if self.host is not None and self.pairing is not None else -1
            if node >= 0 and self.host is not None:
                values = self.host.io.texts[int(self.host.nodes.inputs[node])].split("\x00")[0]
                dims = _largest_tensor(values)
            op = int(self.parent[op])
        return dims

    def _dims_bytes(self, op: int, *, largest: bool = False) -> int:
        """Bytes of an operator's inputs by Input Dims and type (device trace without host trace)."""
        while op >= 0:
            row = int(self.device.ops.dims[op])
            if row >= 0:
                try:
                    dims = msgspec.json.decode(self.device.io[row][0])
                    types = msgspec.json.decode(self.device.io[row][1] or b"[]")
                except (msgspec.DecodeError, RecursionError):
                    return -1
                sizes = [
                    int(np.prod(shape)) * dtype_bytes(str(dtype))
                    for shape, dtype in zip(dims, types, strict=False)
                    if isinstance(shape, list) and shape and all(isinstance(d, int) for d in shape)
                ]
                total = max(sizes, default=0) if largest else sum(sizes)
                if total:
                    return total
            op = int(self.parent[op])
        return -1

    def comm(self, record: _Record) -> Comm | None:
        """Communication node of a record; None where it is no communication."""
        kind = normalise(record.name)
        if kind not in POINT_TO_POINT and kind not in COLLECTIVES:
            self.unknown[record.name or "(no name)"] += 1
            return None
        group = record.group or "0"
        if record.group_size > 0:
            self.groups.sizes[group] = max(record.group_size, self.groups.sizes.get(group, 0))
        comm = comm_of(kind, max(record.size, 0), group, record.name, known=record.size >= 0)
        comm.dtype, comm.seq = record.dtype, record.seq
        comm.shares = record.shares or EQUAL
        if kind in POINT_TO_POINT:
            comm.peer = record.peer
            if comm.peer < 0 and record.rank >= 0:
                members = self.groups.members(group)
                comm.peer = members[record.rank] if record.rank < len(members) else record.rank
        return comm


def comm_of(kind: str, size: int, group: str, label: str, *, known: bool) -> Comm:
    """What a communication of a kind does, its peer not yet said; a barrier's size is always known."""
    return Comm(
        kind=POINT_TO_POINT.get(kind, NodeType.COMM_COLL),
        comm_type=COLLECTIVES.get(kind, -1),
        size=size,
        group=group,
        label=label,
        known_size=known or kind == "barrier",
    )


def _largest_tensor(text: str) -> int:
    """Bytes of the largest tensor among an operator's inputs, given as JSON; -1 where there is none."""
    try:
        values = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return -1
    sizes = [tensor_bytes(value) for value in values] if isinstance(values, list) else []
    return max(sizes, default=0) or -1


def _merged(found: list[_Record]) -> _Record:
    """First source first; gaps filled from the later ones."""
    out = found[0]
    out.coalesced = normalise(out.name) in ("coalesced", *NOT_COMMUNICATION) or out.source == "kernel name"
    for other in found[1:]:
        if normalise(out.name) in NOT_COMMUNICATION or normalise(out.name) not in (
            *COLLECTIVES,
            "send",
            "recv",
        ):
            out.name, out.source = other.name or out.name, other.source
        same = normalise(other.name) == normalise(out.name)
        if out.size < 0 or (out.size == 0 and other.size > 0 and same):
            out.size = other.size
        if other.shares is not None and same and other.size == out.size:
            out.shares = _both(out.shares, other.shares)
        out.group = out.group or other.group
        out.dtype = out.dtype or other.dtype
        out.rank = out.rank if out.rank >= 0 else other.rank
        out.peer = out.peer if out.peer >= 0 else other.peer
        out.seq = out.seq if out.seq >= 0 else other.seq
        out.group_size = out.group_size or other.group_size
    return out


def _both(first: Shares | None, second: Shares) -> Shares:
    """What two sources say of the shares, the first before the second."""
    if first is None:
        return second
    out_size = first.out_size if first.out_size >= 0 else second.out_size
    return Shares(first.in_split or second.in_split, first.out_split or second.out_split, out_size)


def device_communication(
    host: HostTrace | None,
    device: DeviceTrace,
    pairing: Pairing | None,
    attachment: Attachment,
    kept: Bool,
    groups: ProcessGroups,
    rank: int,
    names: KernelNames = DEFAULT,
) -> Records:
    """Find which device operations communicate, and what."""
    finder = _Finder(host, device, pairing, attachment, groups, rank, names)
    gpu, texts = device.device, device.names.texts
    kinds = {code: names.kind(texts[code]) for code in distinct(gpu.name).tolist()}
    of_library = {code for code in kinds if LIBRARY.search(texts[code])}
    custom = {code for code, kind in kinds.items() if kind and code not in of_library}
    computing = {code for code, kind in kinds.items() if kind == ""}
    library = np.isin(gpu.name, sorted((of_library | custom) - computing))
    candidates = np.flatnonzero(kept & (gpu.kind == KERNEL) & ~np.isin(gpu.name, sorted(computing)))
    record_of = {int(r): finder.record_op(int(attachment.op[r])) for r in candidates}
    with_library = {record for r, record in record_of.items() if record >= 0 and library[r]}
    members: dict[int, list[Comm]] = {}
    rows: list[int] = []
    for row in candidates.tolist():
        record = record_of[row]
        own = int(gpu.comm[row]) >= 0 and bool(device.comm[int(gpu.comm[row])].collective)
        # Beside a library's kernel, others below the same record only pack and unpack.
        below = record >= 0 and (record not in with_library or library[row])
        if own or library[row] or below:
            rows.append(row)
    batches = _Batches(finder, rows, record_of)
    for row in rows:
        info = finder.of_event(row, int(attachment.op[row]))
        if info.group_size == 1 and not library[row]:
            continue
        if not library[row] and normalise(info.name) in NOT_COMMUNICATION:
            continue
        batch = [] if int(gpu.name[row]) in custom else batches.of(row, info)
        if batch:
            members[row] = batch
            continue
        found = finder.comm(info)
        if found is not None:
            members[row] = [found]
    warnings = _warnings(finder, members)
    warnings += [
        f"{device.source}: --comm-kernels: no kernel's name has {pattern!r}"
        for pattern in names.unused(texts[code] for code in kinds)
    ]
    return Records(members, warnings, _suspects(device, kept, members, computing))


def _warnings(finder: _Finder, members: dict[int, list[Comm]]) -> list[str]:
    source = finder.device.source
    warnings = [
        f"{source}: {counted(count, 'device operation')} of communication {name!r} have no kind; kept as computation"
        for name, count in finder.unknown.items()
    ]
    unsized = sum(not c.known_size for batch in members.values() for c in batch)
    if unsized:
        warnings.append(
            f"{source}: {counted(unsized, 'communication node')} {verb(unsized, 'has', 'have')} no size in either "
            "trace; written as 0"
        )
    return warnings


def _suspects(
    device: DeviceTrace, kept: Bool, members: dict[int, list[Comm]], computing: set[int]
) -> dict[str, int]:
    """Kernels that look like communication and are kept as computing: name and number."""
    gpu, texts = device.device, device.names.texts
    codes, counts = np.unique(gpu.name[kept & (gpu.kind == KERNEL)], return_counts=True)
    known = {int(gpu.name[row]) for row in members}
    return {
        texts[code]: count
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
        if code not in known and code not in computing and looks_like_communication(texts[code])
    }


class _Batches:
    """Coalesced groups: several records, one kernel. Each member becomes a node, sends before receives."""

    def __init__(self, finder: _Finder, rows: list[int], record_of: dict[int, int]) -> None:
        self.finder = finder
        ops = finder.device.ops
        records = np.flatnonzero(ops.name == finder.record_code)
        #: in the order in which they begin
        self.records = records[np.argsort(ops.start[records], kind="stable")]
        self.all = np.arange(len(records))
        self.used = {record for record in record_of.values() if record >= 0}
        self.launch_op = record_of
        self.start = ops.start[self.records]
        self.of_thread = rows_by(ops.thread[self.records])
        self.taken: set[int] = set()

    def of(self, row: int, info: _Record) -> list[Comm]:
        """Members of the batch that a kernel carries; empty when it carries just its own record."""
        ops, device = self.finder.device.ops, self.finder.device
        own = self.launch_op[row]
        if not info.coalesced:
            return []
        if own >= 0:
            time, thread = int(ops.start[own]), int(ops.thread[own])
        else:
            time, thread = int(device.device.start[row]), -1
        out: list[Comm] = []
        # Walk back over records without a kernel of their own until one that has a kernel.
        rows = self.all if thread < 0 else self.of_thread[thread]
        for place in range(int(np.searchsorted(self.start[rows], time)) - 1, -1, -1):
            record = int(self.records[rows[place]])
            if record in self.used and record != own:
                break
            if record in self.taken:
                break
            said = self.finder.of_record(record)
            if said is None or normalise(said.name) in NOT_COMMUNICATION:
                continue
            member = self.finder.comm(said)
            if member is not None:
                self.taken.add(record)
                out.append(member)
        out.reverse()
        return sorted(out, key=lambda comm: comm.kind != NodeType.COMM_SEND)
