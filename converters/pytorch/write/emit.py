"""From the linked graph to an execution trace."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from chakra import __version__
from chakra.arguments import check_fields
from chakra.arrays import I64, Bool, bounds
from chakra.converters.pytorch.comm.group_numbers import GroupNumbers
from chakra.converters.pytorch.comm.operations import Comm
from chakra.converters.pytorch.graph.linked_graph import micros
from chakra.converters.pytorch.link import NODE_DEVICE, Linked
from chakra.converters.pytorch.read.device import KERNEL, MEMCPY, MEMSET
from chakra.converters.pytorch.read.host import HostTrace
from chakra.converters.pytorch.read.split_sizes import Shares
from chakra.et import ABSENT, NodeType, TraceColumns
from chakra.et.schema import IN_SPLIT, OUT_SPLIT
from chakra.schemas.et_def_pb2 import AttributeProto, IOInfo

#: Pseudo device of communication that the CPU does (gloo): its "stream" is the thread that runs it.
CPU_DEVICE = -1
PROCESS_GROUPS = "## process_group:init ##"


@dataclass(frozen=True, slots=True)
class EmitOptions:
    """What goes into the file.

    Attributes
    ----------
    io
        Inputs and outputs of operators (values, shapes, types).
    metadata_nodes
        Process groups as a METADATA node too (the current simulator refuses such files).
    """

    io: bool = True
    metadata_nodes: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


def emit(linked: Linked, rank: int, groups: GroupNumbers, options: EmitOptions | None = None) -> TraceColumns:
    """Columns of the trace of one rank (all nodes at once; see `encode_blocks` for files).

    Parameters
    ----------
    rank
        Global rank: the other end of point-to-point communication.
    groups
        Numbers of the process groups, shared by all ranks of a job.
    """
    return _Emitter(linked, rank, groups, options or EmitOptions()).columns(0, len(linked.graph))


def encode_blocks(
    linked: Linked, rank: int, groups: GroupNumbers, options: EmitOptions | None = None, size: int = 100_000
) -> Iterator[bytes]:
    """Encoded file, block by block of ``size`` nodes, so that memory holds one block."""
    emitter = _Emitter(linked, rank, groups, options or EmitOptions())
    n = len(linked.graph)
    for begin in range(0, max(n, 1), size):
        columns = emitter.columns(begin, min(begin + size, n))
        encoded = columns.encode()
        if begin:
            # Every block begins with the metadata record, which only the first one keeps.
            empty = TraceColumns(0)
            empty.metadata = columns.metadata
            yield encoded[len(empty.encode()) :]
        else:
            yield encoded


class _Emitter:
    """Makes columns of any stretch of nodes."""

    def __init__(self, linked: Linked, rank: int, groups: GroupNumbers, options: EmitOptions) -> None:
        self.linked, self.rank, self.groups, self.options = linked, rank, groups, options
        graph = linked.graph
        self.origin = int(graph.start.min()) if len(graph) else 0
        self.micros = micros(graph.duration, graph.engine)
        self.comm_rows = np.array(sorted(graph.comm), np.int64)
        self.tags = _tags(linked, rank, groups)

    def columns(self, begin: int, end: int) -> TraceColumns:
        """Columns of the nodes ``begin`` to ``end``."""
        linked, graph = self.linked, self.linked.graph
        part = slice(begin, end)
        n = end - begin
        columns = TraceColumns(n)
        columns.ids = np.arange(begin + 1, end + 1, dtype=np.uint64)
        columns.types = graph.type[part].astype(np.uint8)
        columns.start_micros = (graph.start[part] - self.origin) // 1000
        columns.duration_micros = self.micros[part]
        columns.set_names(*_table(graph.name[part], linked.device.names.texts))
        first, last = graph.offsets[begin], graph.offsets[end]
        columns.set_data_deps(
            graph.offsets[begin : end + 1] - first, graph.sources[first:last].astype(np.uint64) + np.uint64(1)
        )
        parent = graph.parent[part]
        has = parent >= 0
        offsets = bounds(has)
        columns.set_ctrl_deps(offsets, parent[has].astype(np.uint64) + np.uint64(1))
        device_row = graph.device_row[part]
        on_device = device_row >= 0
        comm = self.comm_rows[(self.comm_rows >= begin) & (self.comm_rows < end)] - begin
        cpu_comm = np.zeros(n, np.bool_)
        cpu_comm[comm[~on_device[comm]]] = True
        host = ~on_device & ~cpu_comm
        columns.set_bool("is_cpu_op", host)
        columns.set_int("duration_ns", graph.duration[part])
        thread = graph.thread[part]
        tid = np.where(thread >= 0, linked.thread_numbers[thread], ABSENT)
        columns.set_int("tid", np.where(host, tid, ABSENT))
        rows = np.maximum(device_row, 0)
        gpu = linked.device.device
        stream = np.where(on_device, gpu.stream[rows] if len(gpu.stream) else 0, ABSENT)
        number = np.where(on_device, gpu.device[rows] if len(gpu.device) else 0, ABSENT)
        columns.set_int("stream", np.where(cpu_comm, tid, stream))
        columns.set_int("device", np.where(cpu_comm, CPU_DEVICE, number))
        _set_device_details(columns, linked, graph.kind[part] == NODE_DEVICE, rows)
        if linked.host is not None:
            self._set_host_details(columns, linked.host, graph.name[part], graph.host_row[part])
        self._set_communication(columns, comm, begin)
        _set_metadata(columns, linked, self.rank, self.groups)
        return columns

    def _set_host_details(self, columns: TraceColumns, host: HostTrace, names: I64, host_row: I64) -> None:
        """Attributes and tensors of operators; process group records as METADATA nodes where asked for."""
        _set_host_attributes(columns, host, host_row)
        rows = np.where(host_row >= 0, host.nodes.inputs[host_row], -1)
        codes, table = _io(host, rows) if self.options.io else (np.full(columns.n, -1, np.int64), [])
        code = self.linked.device.names.codes.get(PROCESS_GROUPS, -1)
        groups = (
            np.flatnonzero((names == code) & (host_row >= 0)) if self.options.metadata_nodes else rows[:0]
        )
        if len(groups):
            columns.types[groups] = NodeType.METADATA
            codes[groups] = len(table)
            table = [*table, IOInfo(values=_group_text(self.groups))]
        columns.set_inputs(codes, table)
        if self.options.io:
            columns.set_outputs(*_io(host, np.where(host_row >= 0, host.nodes.outputs[host_row], -1)))

    def _set_communication(self, columns: TraceColumns, rows: I64, begin: int) -> None:
        comm, n = self.linked.graph.comm, columns.n
        if not len(self.comm_rows):
            return
        kind, size, source, target, tag, sequence = (np.full(n, ABSENT, np.int64) for _ in range(6))
        group, label = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
        names: dict[str, int] = {}
        labels: dict[str, int] = {}
        for i in rows.tolist():
            info = comm[begin + i]
            size[i] = info.size
            number = self.groups.id_of(info.group)
            group[i] = names.setdefault(number, len(names))
            label[i] = labels.setdefault(info.label, len(labels))
            if info.seq >= 0:
                sequence[i] = info.seq
            if info.kind in (NodeType.COMM_SEND, NodeType.COMM_RECV):
                source[i], target[i] = _ends(info, self.rank)
                tag[i] = self.tags[begin + i]
            else:
                kind[i] = info.comm_type
        columns.set_int("comm_type", kind)
        columns.set_int("comm_size", size)
        columns.set_int("comm_src", source)
        columns.set_int("comm_dst", target)
        columns.set_int("comm_tag", tag)
        columns.set_int("comm_seq", sequence)
        columns.set_text("pg_name", group, list(names))
        columns.set_text("collective_name", label, list(labels))
        _set_shares(columns, {i: comm[begin + i].shares for i in rows.tolist()})


def _set_shares(columns: TraceColumns, shares: dict[int, Shares]) -> None:
    """Write split sizes of the nodes that have unequal shares."""
    for name in (IN_SPLIT, OUT_SPLIT):
        lists: dict[tuple[int, ...], int] = {}
        codes = np.full(columns.n, -1, np.int64)
        for i, said in shares.items():
            split = said.in_split if name == IN_SPLIT else said.out_split
            if split is not None:
                codes[i] = lists.setdefault(split, len(lists))
        if lists:
            columns.set_ints(name, codes, list(lists))


def _ends(info: Comm, rank: int) -> tuple[int, int]:
    """Global ranks (source, target) of a transfer."""
    peer = max(info.peer, 0)
    return (rank, peer) if info.kind == NodeType.COMM_SEND else (peer, rank)


def _tags(linked: Linked, rank: int, groups: GroupNumbers) -> dict[int, int]:
    """Tag of every transfer: its number among those of its (group, source, target), so that both ends
    agree.
    """
    count: Counter[tuple[str, int, int]] = Counter()
    out: dict[int, int] = {}
    for i in sorted(linked.graph.comm):
        info = linked.graph.comm[i]
        if info.kind in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            key = (groups.id_of(info.group), *_ends(info, rank))
            out[i] = count[key]
            count[key] += 1
    return out


def _table(codes: I64, texts: list[str]) -> tuple[I64, list[str]]:
    """Codes renumbered over the texts in use, -1 kept; and those texts."""
    used, inverse = np.unique(codes, return_inverse=True)
    shift = 1 if len(used) and used[0] < 0 else 0
    return inverse.reshape(-1) - shift, [texts[c] for c in used[shift:].tolist()]


def _set_device_details(columns: TraceColumns, linked: Linked, on_device: Bool, rows: I64) -> None:
    gpu = linked.device.device
    if not len(gpu.kind):
        return
    kinds = np.where(on_device, gpu.kind[rows], -1)
    table = {KERNEL: "kernel", MEMCPY: "gpu_memcpy", MEMSET: "gpu_memset"}
    columns.set_text("cat", kinds, [table[k] for k in sorted(table)])
    sizes = gpu.bytes[rows]
    columns.set_int("bytes", np.where(on_device & (kinds != KERNEL) & (sizes > 0), sizes, ABSENT))
    correlation = gpu.correlation[rows]
    columns.set_int("correlation", np.where(on_device & (correlation != 0), correlation, ABSENT))


def _group_text(groups: GroupNumbers) -> str:
    """Process groups in the form whose first and last two characters the simulator's reader cuts off."""
    items = [
        {"pg_name": groups.ids[name], "ranks": list(groups.members[name])} for name in sorted(groups.ids)
    ]
    return f"['{msgspec.json.encode(items).decode()}']"


def _set_host_attributes(columns: TraceColumns, host: HostTrace, host_row: I64) -> None:
    nodes = host.nodes
    has = host_row >= 0
    rows = np.maximum(host_row, 0)
    columns.set_int("et_id", np.where(has, nodes.id[rows], ABSENT))
    for name in ("rf_id", "fw_parent", "seq_id", "scope", "fw_tid"):
        values: I64 = getattr(nodes, name)
        columns.set_int(name, np.where(has, values[rows], ABSENT))
    columns.set_text("op_schema", *_table(np.where(has, nodes.schema[rows], -1), host.names.texts))


def _io(host: HostTrace, codes: I64) -> tuple[I64, list[IOInfo]]:
    """Codes and messages of inputs or outputs, as JSON text; nodes without any have none."""
    used, inverse = np.unique(codes, return_inverse=True)
    table: list[IOInfo] = []
    index = np.full(len(used), -1, np.int64)
    texts = host.io.texts
    for i, code in enumerate(used.tolist()):
        if code < 0 or texts[code] == "[]\x00[]\x00[]":
            continue
        values, shapes, types = texts[code].split("\x00")
        index[i] = len(table)
        table.append(IOInfo(values=values, shapes=shapes, types=types))
    return index[inverse.reshape(-1)], table


def _set_metadata(columns: TraceColumns, linked: Linked, rank: int, groups: GroupNumbers) -> None:
    header = linked.host.header if linked.host is not None else {}
    add = columns.metadata.attr
    if linked.host is not None:
        add.append(AttributeProto(name="schema", string_val=linked.host.schema))
    for name in ("pid", "start_ts", "finish_ts"):
        value = header.get(name)
        if isinstance(value, int) and 0 <= value < 1 << 64:
            add.append(AttributeProto(name=name, uint64_val=value))
    time = header.get("time")
    if isinstance(time, str):
        add.append(AttributeProto(name="time", string_val=time))
    add.append(AttributeProto(name="rank", int64_val=rank))
    add.append(AttributeProto(name="converter", string_val=f"chakra {__version__} convert pytorch"))
    add.append(AttributeProto(name="measured_span_ns", int64_val=linked.measured_ns))
    add.append(AttributeProto(name="explained_span_ns", int64_val=linked.graph.explained_ns))
    if linked.graph.alone_ns != linked.graph.explained_ns:
        add.append(AttributeProto(name="alone_span_ns", int64_val=linked.graph.alone_ns))
    if linked.recording_cost_ns:
        add.append(AttributeProto(name="recording_cost_ns", int64_val=linked.recording_cost_ns))
    if groups.world:
        add.append(AttributeProto(name="recorded_ranks", int64_val=groups.world))
    if linked.whole_steps:
        add.append(AttributeProto(name="recorded_steps", int64_val=linked.whole_steps))
    accelerator = _accelerator(linked)
    if accelerator:
        add.append(AttributeProto(name="accelerator", string_val=accelerator))
    add.append(AttributeProto(name="base_time_ns", int64_val=linked.device.first_ns + linked.first_ns))
    renamed = {name: number for name, number in groups.ids.items() if name != number}
    if renamed:
        text = msgspec.json.encode(dict(sorted(renamed.items()))).decode()
        add.append(AttributeProto(name="process_group_names", string_val=text))


def _accelerator(linked: Linked) -> str:
    """Name of the accelerator, as the profiler wrote it; of several kinds none."""
    properties = linked.device.header.get("deviceProperties")
    if not isinstance(properties, list):
        return ""
    names = {str(one.get("name", "")) for one in properties if isinstance(one, dict)}
    return names.pop() if len(names) == 1 else ""
