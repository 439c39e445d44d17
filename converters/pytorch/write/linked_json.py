"""The linked JSON form: upstream's file between its linker and its converter, written and read.

Host nodes in order of their old ids, each followed by its device operations, with upstream's keys (trace
formats, section 6), so that its converter reads the file. What that form cannot say (threads, streams'
devices, waiting calls, event records) is kept under one more top-level key, ``chakra_link``; a file without
it, such as upstream's own, is read with the launch placed at the start of the operator.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from chakra.arrays import I64, distinct
from chakra.converters.pytorch.link import NODE_DEVICE, Linked
from chakra.converters.pytorch.match.pair import Pairing
from chakra.converters.pytorch.read import host as host_trace
from chakra.converters.pytorch.read.columns import Names, integers, to_integer
from chakra.converters.pytorch.read.device import (
    KERNEL,
    MEMCPY,
    MEMSET,
    Calls,
    CommArgs,
    DeviceOps,
    DeviceTrace,
    Ops,
    Syncs,
)
from chakra.converters.pytorch.read.file_kinds import expect
from chakra.converters.pytorch.read.first_bytes import FileKind
from chakra.converters.pytorch.read.host import HostTrace, NodeWithIO
from chakra.converters.pytorch.read.jsonarray import ArrayReader
from chakra.converters.pytorch.time.host_time import NODE_JOIN, NODE_SYNC
from chakra.converters.pytorch.time.sync import classify
from chakra.converters.pytorch.write.linked_tables import (
    check_range,
    integer_table,
    nanoseconds,
    texts,
    thread_pairs,
)
from chakra.errors import ConversionError
from chakra.io.files import atomic_bytes
from chakra.io.readable import counted

_KINDS = {KERNEL: "kernel", MEMCPY: "gpu_memcpy", MEMSET: "gpu_memset"}
_KIND_OF = {text: kind for kind, text in _KINDS.items()}
#: What upstream's converter calls the layout that is written.
_WRITTEN_SCHEMA = {"1.0.1": "1.0.2-chakra.0.0.4"}


# -- writing ---------------------------------------------------------------------------------------------


def write_linked(linked: Linked, path: str | Path) -> None:
    """Write the linked JSON (gzip when the name ends in ``.gz``).

    Raises
    ------
    ConversionError
        There is no host trace: the form is made of host nodes.
    """
    if linked.host is None or linked.pairing is None:
        raise ConversionError("the linked JSON form needs a host trace; write a .et instead")
    writer = _Writer(linked, linked.host, linked.pairing)
    with atomic_bytes(path) as file:
        file.write(writer.head())
        first = True
        for node in writer.nodes():
            file.write(b"\n" if first else b",\n")
            file.write(node)
            first = False
        file.write(b"\n]" + writer.tail() + b"}\n")


class _Writer:
    def __init__(self, linked: Linked, host: HostTrace, pairing: Pairing) -> None:
        self.linked, self.host, self.pairing = linked, host, pairing
        device = linked.device
        self.op = np.where(pairing.op >= 0, np.where(linked.active[pairing.op], pairing.op, -1), -1)
        self.children = self._device_children()
        # New ids: old order, each node's device operations right behind it.
        counts = np.array([1 + len(self.children.get(i, ())) for i in range(len(host.nodes.id))], np.int64)
        self.new_id = np.cumsum(counts) - counts + 1
        self.device_id: dict[int, int] = {}
        for row, children in self.children.items():
            for k, d in enumerate(children):
                self.device_id[d] = int(self.new_id[row]) + 1 + k
        self.exclusive = self._exclusive()
        self.sync_dep, self.thread_dep = self._dependencies()
        self.texts = device.names.texts

    def _device_children(self) -> dict[int, list[int]]:
        """Host row -> device rows: by the innermost matched operator around the launch, else by the thread's
        root.
        """
        linked, graph = self.linked, self.linked.graph
        out: dict[int, list[int]] = {}
        roots = {int(self.host.nodes.tid[r]): r for r in np.flatnonzero(self.host.nodes.root).tolist()}
        fallback = min(roots.values(), default=0)
        seen: set[int] = set()
        for i in np.flatnonzero(graph.kind == NODE_DEVICE).tolist():
            d = int(graph.device_row[i])
            if d in seen:
                continue
            seen.add(d)
            parent = int(graph.parent[i])
            row = int(graph.host_row[parent]) if parent >= 0 else -1
            if row < 0:
                call = int(linked.attachment.call[d])
                tid = int(linked.thread_numbers[linked.device.calls.thread[call]]) if call >= 0 else -1
                row = roots.get(tid, fallback)
            out.setdefault(row, []).append(d)
        return out

    def _exclusive(self) -> I64:
        """Self time of every operator row, in ns."""
        ops, parent = self.linked.device.ops, self.linked.attachment.parent
        own = ops.end - ops.start
        out = own.copy()
        inner = np.flatnonzero(parent >= 0)
        np.subtract.at(out, parent[inner], own[inner])
        own_time: I64 = np.maximum(out, 0)
        return own_time

    def _dependencies(self) -> tuple[dict[int, list[int]], dict[int, int]]:
        """Host row -> device ids it waits for; host row -> host id of another thread it starts after."""
        graph = self.linked.graph
        sync: dict[int, list[int]] = {}
        cross: dict[int, int] = {}
        for i in np.flatnonzero(
            (graph.kind == NODE_SYNC) | (graph.kind == 0) | (graph.kind == NODE_JOIN)
        ).tolist():
            target = i if graph.host_row[i] >= 0 else int(graph.parent[i])
            row = int(graph.host_row[target]) if target >= 0 else -1
            if row < 0:
                continue
            for s in graph.sources[graph.offsets[i] : graph.offsets[i + 1]].tolist():
                if graph.device_row[s] >= 0:
                    sync.setdefault(row, []).append(self.device_id[int(graph.device_row[s])])
                elif graph.thread[s] != graph.thread[i] and row not in cross:
                    source = s if graph.host_row[s] >= 0 else int(graph.parent[s])
                    if source >= 0 and graph.host_row[source] >= 0:
                        cross[row] = int(self.new_id[graph.host_row[source]])
        return sync, cross

    def head(self) -> bytes:
        header = {
            k: v for k, v in self.host.header.items() if k not in ("schema", "finish_ts", "chakra_link")
        }
        schema = self.host.schema
        known = schema in host_trace.KNOWN_SCHEMAS and schema != "1.1.1-chakra.1.0.0"
        header = {"schema": _WRITTEN_SCHEMA.get(schema, schema) if known else "1.1.1-chakra.0.0.4", **header}
        return msgspec.json.encode(header)[:-1] + b',"nodes":['

    def tail(self) -> bytes:
        extra: dict[str, object] = {}
        if "finish_ts" in self.host.header:
            extra["finish_ts"] = self.host.header["finish_ts"]
        extra["chakra_link"] = self._extra()
        return b"," + msgspec.json.encode(extra)[1:-1]

    def _extra(self) -> dict[str, object]:
        linked, device = self.linked, self.linked.device
        calls = device.calls
        texts = device.names.texts
        waiting = np.array([classify(texts[c]) is not None for c in calls.name.tolist()], np.bool_)
        used = waiting.copy()
        launch = linked.attachment.call[linked.kept]
        used[launch[launch >= 0]] = True
        rows = np.flatnonzero(used)
        codes = distinct(calls.name[rows])
        return {
            "threads": device.threads,
            "first_ns": device.first_ns,
            "resolution_ns": device.resolution_ns,
            "source": device.source,
            "header": {k: v for k, v in device.header.items() if k == "distributedInfo"},
            "names": [texts[c] for c in codes.tolist()],
            "calls": [
                np.searchsorted(codes, calls.name[rows]).tolist(),
                *(
                    getattr(calls, c)[rows].tolist()
                    for c in ("thread", "start", "end", "correlation", "external")
                ),
            ],
            "syncs": _sync_table(device.syncs, texts),
            "records": _sync_table(device.records, texts),
        }

    def nodes(self) -> Iterator[bytes]:
        """Encoded nodes, one after the other."""
        host, nodes = self.host, self.host.nodes
        ids = {int(i): int(n) for i, n in zip(nodes.id, self.new_id, strict=True)}
        inputs, outputs = host.texts(nodes.inputs), host.texts(nodes.outputs)
        gpu, ops = self.linked.device.device, self.linked.device.ops
        for row in range(len(nodes.id)):
            base: dict[str, object] = {
                "id": int(self.new_id[row]),
                "name": self.texts[int(nodes.name[row])],
                "ctrl_deps": ids.get(int(nodes.parent[row]), 0),
                "inputs": _io(inputs[row]),
                "outputs": _io(outputs[row]),
                "attrs": self._attrs(row),
            }
            op = int(self.op[row])
            own: dict[str, object] = {
                "inclusive_dur": int(ops.end[op] - ops.start[op]) / 1000 if op >= 0 else 0,
                "exclusive_dur": int(self.exclusive[op]) / 1000 if op >= 0 else 0,
                "ts": int(ops.start[op]) / 1000 if op >= 0 else 0,
                "inter_thread_dep": self.thread_dep.get(row),
                "sync_dep": self.sync_dep.get(row, []),
            }
            if op >= 0:
                own["os_thread"] = int(ops.thread[op])
                own["ev_idx"] = int(ops.ev_idx[op])
                own["sequence"] = int(ops.sequence[op])
                own["annotation"] = bool(ops.annotation[op])
                if ops.comm[op] >= 0:
                    own["comm"] = self.linked.device.comm[int(ops.comm[op])]
            yield msgspec.json.encode({**base, **own})
            for d in self.children.get(row, ()):
                duration = int(gpu.end[d] - gpu.start[d]) / 1000
                child = {
                    **base,
                    "id": self.device_id[d],
                    "name": self.texts[int(gpu.name[d])],
                    "ctrl_deps": base["id"],
                    "cat": _KINDS[int(gpu.kind[d])],
                    "ph": "X",
                    "ts": int(gpu.start[d]) / 1000,
                    "inclusive_dur": duration,
                    "exclusive_dur": duration,
                    "stream": int(gpu.stream[d]),
                    "device": int(gpu.device[d]),
                    "context": int(gpu.context[d]),
                    "correlation": int(gpu.correlation[d]),
                    "bytes": int(gpu.bytes[d]),
                    "inter_thread_dep": None,
                    "sync_dep": [],
                }
                if gpu.comm[d] >= 0:
                    comm = self.linked.device.comm[int(gpu.comm[d])]
                    child["comm"] = comm
                    if comm.group is not None:
                        child["pg_name"] = str(comm.group)
                yield msgspec.json.encode(child)

    def _attrs(self, row: int) -> list[dict[str, object]]:
        nodes = self.host.nodes
        out: list[dict[str, object]] = [
            {
                "name": name,
                "type": "int64" if name == "seq_id" else "uint64",
                "value": int(getattr(nodes, name)[row]),
            }
            for name in ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid")
        ]
        out.append({"name": "op_schema", "type": "string", "value": self.texts[int(nodes.schema[row])]})
        backend = self.host.kernel_backend.get(row)
        if backend:
            out.append({"name": "kernel_backend", "type": "string", "value": backend})
        for name, value in self.host.comm.get(row, {}).items():
            if name not in ("inputs", "types", "outputs", "op_schema", "kernel_backend"):
                kind = "string" if isinstance(value, str) else "bool" if isinstance(value, bool) else "uint64"
                out.append({"name": name, "type": kind, "value": value})
        return out


def _io(texts: tuple[str, str, str]) -> dict[str, msgspec.Raw]:
    return {k: msgspec.Raw(t.encode()) for k, t in zip(("values", "shapes", "types"), texts, strict=True)}


_SYNC_COLUMNS = (
    "device",
    "stream",
    "start",
    "end",
    "correlation",
    "wait_stream",
    "wait_record",
    "wait_event",
)


def _sync_table(table: Syncs, texts: list[str]) -> list[object]:
    names = [texts[c] for c in table.name.tolist()]
    return [names, *(getattr(table, c).tolist() for c in _SYNC_COLUMNS)]


# -- reading ---------------------------------------------------------------------------------------------


class LinkedNode(NodeWithIO, gc=False):
    """A node of the linked form."""

    ph: object = None
    device: object = None
    context: object = None
    correlation: object = None
    bytes: object = None
    os_thread: object = None
    ev_idx: object = None
    sequence: object = None
    annotation: object = None
    comm: CommArgs | None = None


def read_linked(path: str | Path, *, repair: bool = False) -> tuple[HostTrace, DeviceTrace, Pairing]:
    """Read a linked JSON, ours or upstream's, back into host trace, device trace and their pairing.

    Raises
    ------
    ConversionError
        The file is not of this form, broken, or none of its nodes carries a time.
    """
    expect(path, FileKind.LINKED)
    reader = ArrayReader(path, "nodes", LinkedNode, repair=repair)
    names = Names()
    builder = host_trace._Builder(names)
    hosts: list[LinkedNode] = []
    gpu_nodes: list[LinkedNode] = []
    for nodes in reader:
        own = [n for n in nodes if not n.cat or n.stream is None]
        gpu_nodes += [n for n in nodes if n.cat and n.stream is not None]
        builder.add(own, False)
        for n in own:
            n.inputs = n.outputs = None
        hosts += own
    host = host_trace.assemble(str(path), builder, reader)
    return _device_of(str(path), reader, names, host, hosts, gpu_nodes)


def _device_of(
    source: str,
    reader: ArrayReader[LinkedNode],
    names: Names,
    host: HostTrace,
    hosts: list[LinkedNode],
    gpu_nodes: list[LinkedNode],
) -> tuple[HostTrace, DeviceTrace, Pairing]:
    extra = reader.header.get("chakra_link")
    extra = extra if isinstance(extra, dict) else {}
    ours = bool(extra.get("threads"))
    hosts.sort(key=lambda n: to_integer(n.id, 0))
    threads = thread_pairs(extra["threads"], source) if ours else _tids(host.nodes.tid)
    comm: list[CommArgs] = []
    ops, rows = _host_ops(source, host, hosts, comm, len(threads), ours=ours)
    gpu_nodes.sort(key=lambda n: (n.ts if isinstance(n.ts, (int, float)) else 0, to_integer(n.id, 0)))
    device = _device_ops(names, gpu_nodes, comm, ours, source)
    calls = (
        _calls(extra, names, len(threads), source)
        if ours
        else _calls_at_parents(names, host, ops, rows, gpu_nodes)
    )
    first = 0 if ours else int(min(ops.start.min(), device.start.min(initial=1 << 62)))
    for table in (ops, device, calls):
        if first:
            table.start -= first
            table.end -= first
    trace = DeviceTrace(
        source=str(extra.get("source", source)),
        names=names,
        threads=threads,
        ops=ops,
        calls=calls,
        device=device,
        syncs=_syncs(extra, "syncs", names, source),
        records=_syncs(extra, "records", names, source),
        comm=comm,
        io=[],
        header=header if ours and isinstance(header := extra.get("header"), dict) else {},
        first_ns=to_integer(extra.get("first_ns"), first),
        resolution_ns=to_integer(extra.get("resolution_ns"), 1),
        events=len(hosts) + len(gpu_nodes),
    )
    op = np.full(len(hosts), -1, np.int64)
    op[rows] = np.arange(len(rows))
    node = rows.copy()
    real = int((host.nodes.root == 0).sum())
    return host, trace, Pairing(op, node, "linked file", real, 1.0, [])


def _host_ops(
    source: str, host: HostTrace, hosts: list[LinkedNode], comm: list[CommArgs], n_threads: int, *, ours: bool
) -> tuple[Ops, I64]:
    """Host nodes that carry a time, as the device trace's operators, and their rows among the host nodes.

    What the operators of communication say is added to `comm`.
    """
    matched = [i for i, n in enumerate(hosts) if (n.os_thread is not None if ours else _has_time(n))]
    matched = [i for i in matched if not host.nodes.root[i]]
    if not matched:
        raise ConversionError(
            f"{source}: no host node carries a time; was the file linked with a device trace?"
        )
    tid = host.nodes.tid
    thread = integers([hosts[i].os_thread if ours else int(tid[i]) for i in matched], 0)
    check_range(thread, n_threads, "os_thread", source)
    start = nanoseconds([hosts[i].ts for i in matched], source)
    end = start + nanoseconds([hosts[i].inclusive_dur for i in matched], source)
    ev_idx = integers([hosts[i].ev_idx for i in matched], 0)
    rows = np.array(matched, np.int64)
    order = np.lexsort((rows, ev_idx, start - end, start, thread))
    rows = rows[order]
    ops = Ops(
        name=host.nodes.name[rows],
        thread=thread[order],
        start=start[order],
        end=end[order],
        rf_id=host.nodes.rf_id[rows],
        external=np.zeros(len(rows), np.int64),
        ev_idx=ev_idx[order],
        sequence=integers([hosts[i].sequence for i in rows.tolist()], -1),
        annotation=np.array(
            [bool(hosts[i].annotation) if ours else int(host.nodes.scope[i]) == 7 for i in rows.tolist()],
            np.bool_,
        ),
        comm=np.array([_comm_row(comm, hosts[i].comm) for i in rows.tolist()], np.int64),
        dims=np.full(len(rows), -1, np.int64),
    )
    return ops, rows


def _has_time(node: LinkedNode) -> bool:
    return isinstance(node.inclusive_dur, (int, float)) and node.inclusive_dur > 0 and node.ts is not None


def _tids(tid: I64) -> list[tuple[str, str]]:
    return [("0", str(t)) for t in range(int(tid.max(initial=0)) + 1)]


def _comm_row(comm: list[CommArgs], args: CommArgs | None) -> int:
    if args is None:
        return -1
    comm.append(args)
    return len(comm) - 1


def _device_ops(
    names: Names, nodes: list[LinkedNode], comm: list[CommArgs], ours: bool, source: str
) -> DeviceOps:
    start = nanoseconds([n.ts for n in nodes], source)
    rows = []
    for n in nodes:
        args = n.comm
        if args is None and n.pg_name is not None:
            args = CommArgs(group=n.pg_name)
        rows.append(_comm_row(comm, args))
    correlation = integers([n.correlation for n in nodes], 0) if ours else np.arange(1, len(nodes) + 1)
    return DeviceOps(
        name=names.encode(str(n.name) for n in nodes),
        kind=np.array([_KIND_OF.get(str(n.cat).lower(), KERNEL) for n in nodes], np.int64),
        device=integers([n.device for n in nodes], 0),
        context=integers([n.context for n in nodes], 0),
        stream=integers([n.stream for n in nodes], 0),
        start=start,
        end=start + nanoseconds([n.inclusive_dur for n in nodes], source),
        correlation=correlation,
        external=np.zeros(len(nodes), np.int64),
        comm=np.array(rows, np.int64),
        bytes=integers([n.bytes for n in nodes], 0),
    )


def _calls(extra: dict[str, object], names: Names, n_threads: int, source: str) -> Calls:
    known = texts(extra.get("names", []), "names", source)
    codes = names.encode(known)
    name, *columns = integer_table(extra.get("calls", [[]] * 6), "calls", 6, source)
    check_range(name, len(known), "chakra_link: name of a call", source)
    check_range(columns[0], n_threads, "chakra_link: thread of a call", source)
    return Calls(codes[name] if len(name) else name, *columns)


def _calls_at_parents(names: Names, host: HostTrace, ops: Ops, rows: I64, nodes: list[LinkedNode]) -> Calls:
    """A launch for every device node, as long as the operator it hangs on."""
    op_of = {int(host.nodes.id[r]): i for i, r in enumerate(rows.tolist())}
    parent = [op_of.get(to_integer(n.ctrl_deps, -1), -1) for n in nodes]
    have = np.array([i for i, p in enumerate(parent) if p >= 0], np.int64)
    at = np.array([p for p in parent if p >= 0], np.int64)
    thread, start, end = ops.thread[at], ops.start[at], ops.end[at]
    order = np.lexsort((have, start, thread))
    zero = np.zeros(len(have), np.int64)
    code = np.full(len(have), names.code("launch"), np.int64)
    return Calls(code, thread[order], start[order], end[order], have[order] + 1, zero)


def _syncs(extra: dict[str, object], key: str, names: Names, source: str) -> Syncs:
    table = extra.get(key)
    if table is None:
        table = [[] for _ in range(1 + len(_SYNC_COLUMNS))]
    if not isinstance(table, list) or len(table) != 1 + len(_SYNC_COLUMNS):
        raise ConversionError(
            f"{source}: chakra_link: '{key}' must be {counted(1 + len(_SYNC_COLUMNS), 'list')}"
        )
    known = texts(table[0], key, source)
    columns = integer_table(table[1:], key, len(_SYNC_COLUMNS), source)
    if len(columns[0]) != len(known):
        raise ConversionError(f"{source}: chakra_link: '{key}' has lists of unequal length")
    return Syncs(names.encode(known), *columns)
