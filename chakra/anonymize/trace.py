"""Execution traces made anew from columns: numbers that a replay reads, classes for texts, and nothing else."""

import json
import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from chakra.anonymize.labels import Labels
from chakra.arguments import checked
from chakra.arrays import I32, I64, distinct
from chakra.errors import TraceError
from chakra.et import ABSENT, NodeType, Trace, TraceColumns
from chakra.et.idle_nodes import IDLE_NAMES
from chakra.et.manifest import ABSOLUTE, PEER_MODE, RELATIVE
from chakra.et.operators import ATTRIBUTE as OPERATOR
from chakra.et.operators import operator_text, operators_text, parse_operators
from chakra.et.schema import INTEGER_MEMBERS
from chakra.io.digits import is_whole, whole_number
from chakra.replay.workload.process_groups import definitions
from chakra.replay.workload.recorded import ALONE, COST, EXPLAINED, RANKS, SPAN, STEPS
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata, IOInfo

#: whole-number attributes with a column
KEPT_INTEGERS = (
    "duration_ns", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "comm_priority", "num_ops",
    "tensor_size", "stream", "tid",
)  # fmt: skip
#: attributes of which something is kept, as documentation and summary list them
KEPT_ATTRIBUTES = (
    *KEPT_INTEGERS,
    "is_cpu_op",
    "involved_dim",
    "in_split_bytes",
    "out_split_bytes",
    "tensor_loc",
    OPERATOR,
)
#: attributes with pairs of tensor name and bytes
TENSORS = ("inputs", "outputs")
#: a version and nothing more
_VERSION = re.compile(r"[0-9](\.[0-9]{1,2}){0,2}(-chakra\.[0-9](\.[0-9]{1,2}){0,2})?")


@checked
def anonymous_trace(trace: Trace, labels: Labels) -> bytes:
    """The bytes of the anonymous (uncompressed) trace file.

    Parameters
    ----------
    trace
        The trace.
    labels
        Gives the classes.

    Raises
    ------
    WorkloadError
        When a node defines process groups in a way that cannot be read.
    """
    columns = TraceColumns(trace.n_nodes)
    columns.metadata = _metadata(trace, labels)
    columns.ids, columns.types = trace.ids, trace.types
    columns.set_names(trace.name_codes, [_node_name(name, labels) for name in trace.name_table])
    columns.duration_micros = trace.duration_micros
    if len(trace.start_micros):
        # The first start of a recording is a date.
        columns.start_micros = trace.start_micros - trace.start_micros.min()
    columns.set_ctrl_deps(trace.ctrl_offsets, trace.ctrl_ids)
    columns.set_data_deps(trace.data_offsets, trace.data_ids)
    if (trace.is_cpu_op >= 0).any():
        columns.set_bool("is_cpu_op", trace.is_cpu_op)
    for name in KEPT_INTEGERS:
        values = getattr(trace, name)
        if (values != ABSENT).any():
            columns.set_int(name, values)
    if len(trace.pg_table):
        columns.set_text("pg_name", trace.pg_codes, [labels.group(name) for name in trace.pg_table])
    if len(trace.dim_table):
        columns.set_bools("involved_dim", trace.dim_codes, trace.dim_table)
    _operators(trace, columns)
    _splits(trace, columns)
    _locations(trace, columns)
    for name in TENSORS:
        _tensors(trace, columns, name, labels)
    _groups(trace, columns, labels)
    return columns.encode()


def _splits(trace: Trace, columns: TraceColumns) -> None:
    """Split sizes of collectives: sizes, like comm_size."""
    table = [sizes.tolist() for sizes in np.split(trace.split_bytes, trace.split_offsets[1:-1])]
    for name, given in (("in_split_bytes", trace.in_split_codes), ("out_split_bytes", trace.out_split_codes)):
        if (given >= 0).any():
            codes = np.full(trace.n_nodes, -1, np.int32)
            codes[trace.split_nodes] = given
            columns.set_ints(name, codes, table)


def _metadata(trace: Trace, labels: Labels) -> GlobalMetadata:
    """Version, rank, peer mode and when the rank was recorded (without the date), if they are of their form."""
    given = trace.metadata
    kept = GlobalMetadata(version=given.version if _VERSION.fullmatch(given.version) else "1.0.0")
    for attr in given.attr:
        which = attr.WhichOneof("value")
        if attr.name == "rank" and which in INTEGER_MEMBERS:
            kept.attr.add(name="rank", int64_val=int(getattr(attr, which)))
        elif attr.name in (SPAN, EXPLAINED, ALONE, COST, RANKS, STEPS) and which in INTEGER_MEMBERS:
            kept.attr.add(name=attr.name, int64_val=int(getattr(attr, which)))
        elif attr.name == "base_time_ns" and which in INTEGER_MEMBERS:
            # Starts count from the file's first one from here on: what they lose, the base gains.
            first = int(trace.start_micros.min()) * 1000 if len(trace.start_micros) else 0
            kept.attr.add(name=attr.name, int64_val=labels.instant(int(getattr(attr, which)) + first))
        elif attr.name == PEER_MODE and attr.string_val in (RELATIVE, ABSOLUTE):
            kept.attr.add(name=PEER_MODE, string_val=attr.string_val)
        elif attr.name == "schema" and _VERSION.fullmatch(attr.string_val):
            kept.attr.add(name="schema", string_val=attr.string_val)
    return kept


def _node_name(name: str, labels: Labels) -> str:
    """The class of a node's name; words of the converter of profiles stay, since replays go by them."""
    return name if name in IDLE_NAMES else labels.node(name)


def _nodes_with(trace: Trace, attribute: str) -> I64:
    """Nodes in whose encoded form the attribute's name appears: few messages to look into instead of all."""
    name = attribute.encode()
    pattern = re.compile(re.escape(bytes((0x0A, len(name))) + name))
    found = np.fromiter((m.start() for m in pattern.finditer(trace.records.data.data)), np.int64)
    index = np.searchsorted(trace.records.starts, found, side="right") - 1
    return distinct(index[index >= 0])


def _last(attrs: Iterable[AttributeProto], name: str) -> AttributeProto | None:
    """The attribute of this name; of several the last one counts."""
    found = None
    for attr in attrs:
        if attr.name == name:
            found = attr
    return found


def _operators(trace: Trace, columns: TraceColumns) -> None:
    """What nodes compute, written anew from its numbers and words; texts of another form are dropped."""
    texts: list[str] = []
    place = np.full(len(trace.operator_table) + 1, -1, np.int32)
    for code, text in enumerate(trace.operator_table):
        try:
            operators = parse_operators(text)
        except TraceError as error:
            raise TraceError(f"{trace.source}: {error}") from None
        if operators:
            place[code] = len(texts)
            counts: Counter[str] = Counter()
            for operator, count in operators:
                counts[operator_text(operator)] += count
            texts.append(operators_text(counts))
    if texts:
        columns.set_text(OPERATOR, place[trace.operator_codes], texts)


def _locations(trace: Trace, columns: TraceColumns) -> None:
    nodes = _nodes_with(trace, "tensor_loc")
    values = np.full(trace.n_nodes, ABSENT, np.int64)
    for node in nodes.tolist():
        attr = _last(trace.node_proto(node).attr, "tensor_loc")
        which = attr.WhichOneof("value") if attr is not None else None
        if which in INTEGER_MEMBERS and abs(value := int(getattr(attr, which))) < 1 << 63:
            values[node] = value
    if (values != ABSENT).any():
        columns.set_int("tensor_loc", values)


def _tensors(trace: Trace, columns: TraceColumns, name: str, labels: Labels) -> None:
    """Pairs of tensor and bytes, with classes for the tensors."""
    codes: I32 = np.full(trace.n_nodes, -1, np.int32)
    table: dict[tuple[str, ...], int] = {}
    for node in _nodes_with(trace, name).tolist():
        attr = _last(trace.node_proto(node).attr, name)
        if attr is None or attr.WhichOneof("value") != "string_list":
            continue
        values = list(attr.string_list.values)
        kept: list[str] = []
        for tensor, size in zip(values[::2], values[1::2], strict=False):
            if is_whole(size, 19) and whole_number(size) < 1 << 63:
                kept += (labels.label("tensor", tensor), str(whole_number(size)))
        codes[node] = table.setdefault(tuple(kept), len(table))
    if table:
        messages = []
        for row in table:
            message = AttributeProto(name=name)
            message.string_list.SetInParent()
            message.string_list.values.extend(row)
            messages.append(message)
        columns.set_attribute(name, codes, messages)


def _groups(trace: Trace, columns: TraceColumns, labels: Labels) -> None:
    """Process groups that METADATA nodes define."""
    codes: I32 = np.full(trace.n_nodes, -1, np.int32)
    table: list[IOInfo] = []
    for node in np.flatnonzero(trace.types == NodeType.METADATA).tolist():
        text = trace.node_proto(node).inputs.values
        groups = definitions(text, f"{trace.source}: node {trace.ids[node]}")
        if groups:
            rows = [
                {"pg_name": labels.group(name), "ranks": [rank for rank in ranks if abs(rank) < 1 << 31]}
                for name, ranks in groups
            ]
            codes[node] = len(table)
            table.append(IOInfo(values=f"['{json.dumps(rows)}']"))
    if table:
        columns.set_inputs(codes, table)
