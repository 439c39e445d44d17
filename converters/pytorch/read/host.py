"""The host trace (PyTorch execution trace) as columns.

Layouts are told apart by the keys that are present, not by the version string: ``ctrl_deps`` or ``parent``,
``attrs`` or flat keys. The string is used in messages only (trace formats, section 4.2).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from chakra.arrays import I64
from chakra.converters.pytorch.read.columns import Growing, Names, collector_off, integers, to_integer
from chakra.converters.pytorch.read.file_kinds import expect, read_head
from chakra.converters.pytorch.read.first_bytes import FileKind
from chakra.converters.pytorch.read.jsonarray import ArrayReader
from chakra.errors import ConversionError
from chakra.io.json_value import Json
from chakra.io.readable import counted, verb

KNOWN_SCHEMAS = (
    "1.0.1", "1.0.2-chakra.0.0.4", "1.0.3-chakra.0.0.4", "1.0.4-chakra.0.0.4", "1.1.0-chakra.0.0.4",
    "1.1.1-chakra.0.0.4", "1.1.1-chakra.1.0.0",
)  # fmt: skip
_ROOT = re.compile(r"\[pytorch\|profiler\|execution_(?:graph|trace)\|(process|thread)\]$")
_EMPTY = msgspec.Raw(b"")


class Attr(msgspec.Struct, gc=False):
    """One entry of a node's ``attrs``."""

    name: str = ""
    value: Json = None


class RawIO(msgspec.Struct, gc=False):
    """Inputs or outputs, undecoded."""

    values: msgspec.Raw = _EMPTY
    shapes: msgspec.Raw = _EMPTY
    types: msgspec.Raw = _EMPTY


class HostNode(msgspec.Struct, gc=False):
    """A node of any schema."""

    id: Json = None
    name: Json = ""
    ctrl_deps: Json = None
    parent: Json = None
    attrs: list[Attr] = []
    inputs: Any = None
    outputs: Any = None
    rf_id: Json = 0
    fw_parent: Json = 0
    seq_id: Json = -1
    scope: Json = 0
    tid: Json = 0
    fw_tid: Json = 0
    op_schema: Json = ""
    # Written by linkers into host nodes (the linked form).
    exclusive_dur: Json = None
    inclusive_dur: Json = None
    ts: Json = None
    cat: Json = None
    stream: Json = None
    inter_thread_dep: Json = None
    sync_dep: Json = None
    pg_name: Json = None


class NodeWithIO(HostNode, gc=False):
    """The layout with ``inputs`` and ``outputs`` objects (1.0.2 and later)."""

    inputs: RawIO | None = None
    outputs: RawIO | None = None


class FlatNode(HostNode, gc=False):
    """The layout of 1.0.1: flat keys beside each other."""

    inputs: msgspec.Raw = _EMPTY
    input_shapes: msgspec.Raw = _EMPTY
    input_types: msgspec.Raw = _EMPTY
    outputs: msgspec.Raw = _EMPTY
    output_shapes: msgspec.Raw = _EMPTY
    output_types: msgspec.Raw = _EMPTY


@dataclass(slots=True)
class HostNodes:
    """One row per node, ordered by id (= order of entry)."""

    id: I64
    name: I64
    parent: I64
    rf_id: I64
    fw_parent: I64
    seq_id: I64
    scope: I64
    tid: I64
    fw_tid: I64
    schema: I64
    inputs: I64
    """First of three codes (values, shapes, types) in ``HostTrace.io``."""
    outputs: I64
    root: I64
    """1 on process and thread roots."""


@dataclass(slots=True)
class HostTrace:
    """A PyTorch execution trace."""

    source: str
    names: Names
    nodes: HostNodes
    io: Names
    schema: str
    header: dict[str, object]
    comm: dict[int, dict[str, object]]
    """Row -> decoded attributes, ``inputs`` and ``types`` of record_param_comms nodes."""
    groups: list[dict[str, object]]
    """Items of ``## process_group:init ##`` nodes."""
    kernel_backend: dict[int, str] = field(default_factory=dict)
    linked: dict[str, list[object]] | None = None
    warnings: list[str] = field(default_factory=list)
    repaired: int = 0
    lost_bytes: int = 0

    def texts(self, codes: I64) -> list[tuple[str, str, str]]:
        """Values, shapes and types as JSON text for codes of ``inputs`` or ``outputs``."""
        table = self.io.texts
        return [_split_io(table[c]) if c >= 0 else ("[]", "[]", "[]") for c in codes]


def _split_io(text: str) -> tuple[str, str, str]:
    values, shapes, types = text.split("\x00")
    return values, shapes, types


_COLUMNS = (
    "id", "name", "parent", "rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "schema", "inputs", "outputs",
    "root", "order",
)  # fmt: skip
_KEPT = {"rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 0, "fw_tid": 0}


class _Builder:
    """Collects rows of one file."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.io = Names()
        self.schemas = Names()
        self.table = Growing(*_COLUMNS)
        self.comm: dict[int, dict[str, object]] = {}
        self.groups: list[dict[str, object]] = []
        self.backend: dict[int, str] = {}
        self.rows = 0
        self.flat: bool | None = None
        self.unreadable = 0

    def add(self, nodes: Sequence[HostNode], flat: bool) -> None:
        """Append one piece."""
        kept: dict[str, list[Json]] = {name: [default] * len(nodes) for name, default in _KEPT.items()}
        schema = [""] * len(nodes)
        for i, node in enumerate(nodes):
            if node.attrs:
                for attr in node.attrs:
                    column = kept.get(attr.name)
                    if column is not None:
                        column[i] = attr.value
                    elif attr.name == "op_schema":
                        schema[i] = str(attr.value or "")
                    elif attr.name == "kernel_backend" and attr.value:
                        self.backend[self.rows + i] = str(attr.value)
            else:
                for name, column in kept.items():
                    column[i] = getattr(node, name)
                schema[i] = str(node.op_schema or "")
        names = [n.name if n.name.__class__ is str else str(n.name) for n in nodes]
        parents = [n.ctrl_deps if n.ctrl_deps is not None else n.parent for n in nodes]
        parents = [p[0] if isinstance(p, list) and p else None if isinstance(p, list) else p for p in parents]
        ids = integers([n.id for n in nodes], -1)
        inputs, outputs = self._io_codes(nodes, flat)
        self.table.add(
            id=ids,
            name=self.names.encode(names),
            parent=integers(parents, -1),
            schema=self.schemas.encode(schema),
            inputs=inputs,
            outputs=outputs,
            root=np.array([1 if n.startswith("[pytorch") and _ROOT.match(n) else 0 for n in names], np.int64),
            order=np.arange(self.rows, self.rows + len(nodes)),
            **{name: integers(column, _KEPT[name]) for name, column in kept.items()},
        )
        for i, text in enumerate(names):
            if text == "record_param_comms" or text.startswith(("c10d::", "gloo:", "nccl:", "mpi:", "ucc:")):
                self.comm[self.rows + i] = self._comm(nodes[i], flat)
            elif text.startswith("## process_group:init"):
                self._process_groups(nodes[i], flat)
        self.rows += len(nodes)

    def _io_codes(self, nodes: Sequence[Any], flat: bool) -> tuple[I64, I64]:
        code = self.io.code

        def text(values: msgspec.Raw, shapes: msgspec.Raw, types: msgspec.Raw) -> int:
            parts = (bytes(values) or b"[]", bytes(shapes) or b"[]", bytes(types) or b"[]")
            return code(b"\x00".join(parts).decode("utf-8", "replace"))

        if flat:
            first = [text(n.inputs, n.input_shapes, n.input_types) for n in nodes]
            second = [text(n.outputs, n.output_shapes, n.output_types) for n in nodes]
        else:
            none = RawIO()
            ins = [n.inputs or none for n in nodes]
            outs = [n.outputs or none for n in nodes]
            first = [text(x.values, x.shapes, x.types) for x in ins]
            second = [text(x.values, x.shapes, x.types) for x in outs]
        return np.array(first, np.int64), np.array(second, np.int64)

    def _comm(self, node: Any, flat: bool) -> dict[str, object]:
        out: dict[str, object] = {attr.name: attr.value for attr in node.attrs if attr.name not in _KEPT}
        if flat:
            parts = (node.inputs, node.input_types, node.outputs)
        else:
            ins, outs = node.inputs or RawIO(), node.outputs or RawIO()
            parts = (ins.values, ins.types, outs.values)
        for name, raw in zip(("inputs", "types", "outputs"), parts, strict=True):
            try:
                out[name] = msgspec.json.decode(raw) if bytes(raw) else []
            except (msgspec.DecodeError, RecursionError):
                out[name] = []
                self.unreadable += 1
        return out

    def _process_groups(self, node: Any, flat: bool) -> None:
        try:
            raw = node.inputs if flat else (node.inputs or RawIO()).values
            values = msgspec.json.decode(raw)
            items = msgspec.json.decode(values[0])
            self.groups.extend(item for item in items if isinstance(item, dict))
        except (msgspec.DecodeError, RecursionError, IndexError, TypeError, AttributeError):
            self.unreadable += 1


def read_host_trace(path: str | Path, names: Names | None = None, *, repair: bool = False) -> HostTrace:
    """Read a PyTorch execution trace of any schema (plain or gzip).

    Raises
    ------
    ConversionError
        Not a host trace, broken, or with repeated ids: one line with the file and what is wrong.
    """
    expect(path, FileKind.HOST, FileKind.LINKED)
    names = names or Names()
    if _is_flat(path):
        return _read(path, names, FlatNode, repair)
    return _read(path, names, NodeWithIO, repair)


def _is_flat(path: str | Path) -> bool:
    """True when the first node has flat keys (``input_types``), False when ``inputs`` is an object."""
    from chakra.converters.pytorch.read.jsonarray import Source

    source = Source(path)
    try:
        head = read_head(source, 1 << 18)
    finally:
        source.close()
    match = re.search(rb'"inputs"\s*:\s*([\[{])', head)
    return match is not None and match.group(1) == b"["


def _read(path: str | Path, names: Names, struct: type[HostNode], repair: bool) -> HostTrace:
    reader = ArrayReader(path, "nodes", struct, repair=repair)
    builder = _Builder(names)
    flat = struct is FlatNode
    with collector_off():
        for nodes in reader:
            builder.add(nodes, flat)
    return assemble(str(path), builder, reader)


def assemble(path: str, builder: _Builder, reader: ArrayReader[Any]) -> HostTrace:
    """Host trace out of the collected rows and the file's other keys."""
    if not builder.rows:
        raise ConversionError(f"{path}: the trace has no nodes; was the observer started before the step?")
    columns = builder.table.joined()
    order = np.argsort(columns["id"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    ids = columns["id"]
    _check_ids(str(path), ids)
    row_of = np.empty(len(order), np.int64)
    row_of[columns.pop("order")] = np.arange(len(order))
    header = reader.header
    schema = str(header.get("schema", ""))
    trace = HostTrace(
        source=str(path),
        names=builder.names,
        nodes=HostNodes(**columns),
        io=builder.io,
        schema=schema,
        header=header,
        comm={int(row_of[row]): value for row, value in builder.comm.items()},
        groups=builder.groups,
        kernel_backend={int(row_of[row]): value for row, value in builder.backend.items()},
        repaired=reader.repaired,
        lost_bytes=reader.lost_bytes,
    )
    trace.io.codes.clear()
    trace.nodes.schema = _shift_codes(trace, builder.schemas, columns["schema"])
    if schema not in KNOWN_SCHEMAS:
        trace.warnings.append(
            f"{path}: host trace schema {schema or '(none)'!r} is not one of {', '.join(KNOWN_SCHEMAS)}; "
            "read by the keys that are present"
        )
    if builder.unreadable:
        trace.warnings.append(
            f"{path}: {counted(builder.unreadable, 'communication record')} could not be read"
        )
    return trace


def _shift_codes(trace: HostTrace, schemas: Names, codes: I64) -> I64:
    """Operator schemas share the name table."""
    table = trace.names.encode(schemas.texts)
    return table[codes] if len(table) else codes


def _check_ids(source: str, ids: I64) -> None:
    if (ids < 0).any():
        raise ConversionError(
            f"{source}: {counted(int((ids < 0).sum()), 'node')} {verb(int((ids < 0).sum()), 'has', 'have')} no id; "
            "every node needs a unique number"
        )
    repeated = np.flatnonzero(ids[1:] == ids[:-1])
    if len(repeated):
        raise ConversionError(
            f"{source}: node id {int(ids[repeated[0]])} appears more than once ({counted(len(repeated), 'repeat')}); "
            "are several traces joined in one file?"
        )


def tensor_bytes(value: object) -> int:
    """Bytes of a tensor value (six fields: id, storage, offset, elements, bytes each, device) or nested
    lists of them.
    """
    if not isinstance(value, list):
        return 0
    if len(value) == 6 and isinstance(value[5], str):
        return max(to_integer(value[3], 0), 0) * max(to_integer(value[4], 0), 0)
    return sum(tensor_bytes(item) for item in value)
