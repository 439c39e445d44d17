"""From the linked graph to an execution trace."""

from collections import Counter
from dataclasses import dataclass

import msgspec
import numpy as np

from chakra import __version__
from chakra.arrays import I64
from chakra.converters.pytorch.device import KERNEL, MEMCPY, MEMSET
from chakra.converters.pytorch.graph import RECV, SEND, micros
from chakra.converters.pytorch.groups import GroupTable
from chakra.converters.pytorch.host import HostTrace
from chakra.converters.pytorch.link import Linked
from chakra.et import ABSENT, TraceColumns
from chakra.schemas.et_def_pb2 import AttributeProto, IOInfo

#: Pseudo device of communication that the CPU does (gloo): its "stream" is the thread that runs it.
CPU_DEVICE = -1


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


def emit(linked: Linked, rank: int, groups: GroupTable, options: EmitOptions | None = None) -> TraceColumns:
    """Columns of the trace of one rank.

    Parameters
    ----------
    rank
        Global rank: the other end of point-to-point communication.
    groups
        Numbers of the process groups, shared by all ranks of a job.
    """
    options = options or EmitOptions()
    graph, device = linked.graph, linked.device
    n = len(graph)
    columns = TraceColumns(n)
    columns.ids = np.arange(1, n + 1, dtype=np.uint64)
    columns.types = graph.type.astype(np.uint8)
    origin = int(graph.start.min()) if n else 0
    columns.start_micros = (graph.start - origin) // 1000
    columns.duration_micros = micros(graph.duration, graph.engine)
    columns.set_names(*_names(linked))
    columns.set_data_deps(graph.offsets, (graph.sources + 1).astype(np.uint64))
    has = graph.parent >= 0
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(has, out=offsets[1:])
    columns.set_ctrl_deps(offsets, (graph.parent[has] + 1).astype(np.uint64))
    on_device = graph.device_row >= 0
    cpu_comm = np.zeros(n, np.bool_)
    cpu_comm[[i for i in graph.comm if not on_device[i]]] = True
    host = ~on_device & ~cpu_comm
    columns.set_bool("is_cpu_op", host)
    columns.set_int("duration_ns", graph.duration)
    tid = np.where(graph.thread >= 0, linked.thread_numbers[graph.thread], ABSENT)
    columns.set_int("tid", np.where(host, tid, ABSENT))
    rows = np.maximum(graph.device_row, 0)
    gpu = device.device
    stream = np.where(on_device, gpu.stream[rows] if len(gpu.stream) else 0, np.where(cpu_comm, tid, ABSENT))
    number = np.where(
        on_device, gpu.device[rows] if len(gpu.device) else 0, np.where(cpu_comm, CPU_DEVICE, ABSENT)
    )
    columns.set_int("stream", stream)
    columns.set_int("device", number)
    _set_device_details(columns, linked, on_device, rows)
    if linked.host is not None:
        _set_host_details(columns, linked.host, graph.host_row, options)
    _set_communication(columns, linked, rank, groups)
    _set_metadata(columns, linked, rank, groups)
    return columns


def _names(linked: Linked) -> tuple[I64, list[str]]:
    """Names in use only: codes and table."""
    used, codes = np.unique(linked.graph.name, return_inverse=True)
    texts = linked.device.names.texts
    return codes.reshape(-1), [texts[c] for c in used.tolist()]


def _set_device_details(columns: TraceColumns, linked: Linked, on_device: np.ndarray, rows: I64) -> None:
    gpu = linked.device.device
    if not on_device.any():
        return
    kinds = np.where(on_device, gpu.kind[rows], -1)
    table = {KERNEL: "kernel", MEMCPY: "gpu_memcpy", MEMSET: "gpu_memset"}
    columns.set_text("cat", kinds, [table[k] for k in sorted(table)])
    sizes = gpu.bytes[rows]
    columns.set_int("bytes", np.where(on_device & (kinds != KERNEL) & (sizes > 0), sizes, ABSENT))
    correlation = gpu.correlation[rows]
    columns.set_int("correlation", np.where(on_device & (correlation != 0), correlation, ABSENT))


def _set_host_details(columns: TraceColumns, host: HostTrace, host_row: I64, options: EmitOptions) -> None:
    nodes = host.nodes
    has = host_row >= 0
    rows = np.maximum(host_row, 0)
    columns.set_int("et_id", np.where(has, nodes.id[rows], ABSENT))
    for name in ("rf_id", "fw_parent", "seq_id", "scope", "fw_tid"):
        values: I64 = getattr(nodes, name)
        columns.set_int(name, np.where(has, values[rows], ABSENT))
    used, codes = np.unique(np.where(has, nodes.schema[rows], -1), return_inverse=True)
    texts = host.names.texts
    shift = 1 if len(used) and used[0] < 0 else 0
    columns.set_text("op_schema", codes.reshape(-1) - shift, [texts[c] for c in used[shift:].tolist()])
    if options.io:
        columns.set_inputs(*_io(host, np.where(has, nodes.inputs[rows], -1)))
        columns.set_outputs(*_io(host, np.where(has, nodes.outputs[rows], -1)))


def _io(host: HostTrace, codes: I64) -> tuple[I64, list[IOInfo]]:
    """Codes and messages of inputs or outputs, as JSON text; nodes without any have none."""
    used, inverse = np.unique(codes, return_inverse=True)
    table, index = [], np.full(len(used), -1, np.int64)
    texts = host.io.texts
    for i, code in enumerate(used.tolist()):
        if code < 0 or texts[code] == "[]\x00[]\x00[]":
            continue
        values, shapes, types = texts[code].split("\x00")
        index[i] = len(table)
        table.append(IOInfo(values=values, shapes=shapes, types=types))
    return index[inverse.reshape(-1)], table


def _set_communication(columns: TraceColumns, linked: Linked, rank: int, groups: GroupTable) -> None:
    comm = linked.graph.comm
    n = columns.n
    if not comm:
        return
    rows = sorted(comm)
    kind, size, source, target, tag, sequence = (np.full(n, ABSENT, np.int64) for _ in range(6))
    group = np.full(n, -1, np.int64)
    names: dict[str, int] = {}
    tags: Counter[tuple[str, int, int]] = Counter()
    for i in rows:
        info = comm[i]
        size[i] = info.size
        number = groups.id_of(info.group)
        group[i] = names.setdefault(number, len(names))
        if info.seq >= 0:
            sequence[i] = info.seq
        if info.kind in (SEND, RECV):
            peer = max(info.peer, 0)
            ends = (rank, peer) if info.kind == SEND else (peer, rank)
            source[i], target[i] = ends
            # Both ends count the transfers of a (group, source, target) in the same order.
            tag[i] = tags[(number, *ends)]
            tags[(number, *ends)] += 1
        else:
            kind[i] = info.comm_type
    columns.set_int("comm_type", kind)
    columns.set_int("comm_size", size)
    if (source != ABSENT).any():
        columns.set_int("comm_src", source)
        columns.set_int("comm_dst", target)
        columns.set_int("comm_tag", tag)
    columns.set_int("comm_seq", sequence)
    columns.set_text("pg_name", group, list(names))
    labels: dict[str, int] = {}
    codes = np.full(n, -1, np.int64)
    for i in rows:
        codes[i] = labels.setdefault(comm[i].label, len(labels))
    columns.set_text("collective_name", codes, list(labels))


def _set_metadata(columns: TraceColumns, linked: Linked, rank: int, groups: GroupTable) -> None:
    header = linked.host.header if linked.host is not None else {}
    add = columns.metadata.attr
    if linked.host is not None:
        add.append(AttributeProto(name="schema", string_val=linked.host.schema))
    for name in ("pid", "start_ts", "finish_ts"):
        value = header.get(name)
        if isinstance(value, int) and 0 <= value < 1 << 64:
            add.append(AttributeProto(name=name, uint64_val=value))
    if isinstance(header.get("time"), str):
        add.append(AttributeProto(name="time", string_val=header["time"]))
    add.append(AttributeProto(name="rank", int64_val=rank))
    add.append(AttributeProto(name="converter", string_val=f"chakra {__version__} convert pytorch"))
    add.append(AttributeProto(name="measured_span_ns", int64_val=linked.measured_ns))
    add.append(AttributeProto(name="base_time_ns", int64_val=linked.device.first_ns + linked.first_ns))
    renamed = {name: number for name, number in groups.ids.items() if name != number}
    if renamed:
        text = msgspec.json.encode(dict(sorted(renamed.items()))).decode()
        add.append(AttributeProto(name="process_group_names", string_val=text))
