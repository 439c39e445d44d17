"""Traces that can leave a company: only what a replay needs is kept, texts become numbered classes.

What is kept is a closed list, so that an attribute which this module does not know can carry nothing out.
"""

import json
from collections.abc import Iterable

from chakra.errors import TraceError, UsageError
from chakra.et import NodeType, Trace
from chakra.replay.process_groups import definitions
from chakra.schemas import et_def_pb2 as pb2
from chakra.schemas.protolib import encode_varint

#: whole-number and boolean attributes that a replay reads
KEPT = frozenset(
    (
        "is_cpu_op", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "comm_priority", "duration_ns",
        "num_ops", "tensor_size", "tensor_loc", "stream", "tid", "involved_dim",
    )
)  # fmt: skip
#: attributes that name a process group
GROUPS = frozenset(("pg_name", "comm_group"))
#: attributes with pairs of tensor name and bytes
TENSORS = frozenset(("inputs", "outputs"))

KEPT_TEXT = (
    "kept: node numbers, types, dependencies, times; the attributes "
    + ", ".join(sorted(KEPT))
    + "; bytes of tensors; "
    "ranks of process groups, and group names that are numbers"
)
DROPPED_TEXT = (
    "replaced by numbered classes: node names, tensor names, other group names; dropped: every other attribute, "
    "arguments, shapes, types, documentation, metadata of the file"
)


class Anonymizer:
    """Replaces texts by classes; equal texts of all traces that one object sees get equal classes."""

    def __init__(self) -> None:
        self._classes: dict[str, dict[str, str]] = {}

    def label(self, kind: str, text: str) -> str:
        """The class of a text, such as ``node17``; classes are numbered by first use."""
        known = self._classes.setdefault(kind, {})
        return known.setdefault(text, f"{kind}{len(known)}")

    def group(self, name: str) -> str:
        """The name of a process group: numbers stay, since ASTRA-sim reads nothing else."""
        return name if (name.isascii() and name.isdigit()) or not name else self.label("group", name)

    def node(self, node: pb2.Node, source: str) -> pb2.Node:
        """A node with only what is kept."""
        out = pb2.Node(id=node.id, name=self.label("node", node.name), type=node.type)
        out.ctrl_deps.extend(node.ctrl_deps)
        out.data_deps.extend(node.data_deps)
        out.start_time_micros = node.start_time_micros
        out.duration_micros = node.duration_micros
        for attr in node.attr:
            self._attribute(out, attr)
        if int(node.type) == NodeType.METADATA:
            groups = definitions(node.inputs.values, f"{source}: node {node.id}")
            if groups:
                rows = [{"pg_name": self.group(name), "ranks": list(ranks)} for name, ranks in groups]
                out.inputs.values = f"['{json.dumps(rows)}']"
        return out

    def _attribute(self, out: pb2.Node, attr: pb2.AttributeProto) -> None:
        which = attr.WhichOneof("value") or ""
        text = which in ("string_val", "string_list", "bytes_val", "bytes_list", "")
        if attr.name in KEPT and not text:
            kept = out.attr.add()
            kept.CopyFrom(attr)
            kept.ClearField("doc_string")
        elif attr.name in GROUPS and which == "string_val":
            out.attr.add(name=attr.name, string_val=self.group(attr.string_val))
        elif attr.name in GROUPS and not text:
            kept = out.attr.add()
            kept.CopyFrom(attr)
            kept.ClearField("doc_string")
        elif attr.name in TENSORS and which == "string_list":
            values = list(attr.string_list.values)
            pairs = zip(values[::2], values[1::2], strict=False)
            kept = out.attr.add(name=attr.name)
            for name, size in pairs:
                if size.isascii() and size.isdigit():
                    kept.string_list.values.extend((self.label("tensor", name), size))

    def trace_bytes(self, trace: Trace) -> bytes:
        """The bytes of an anonymous trace file.

        Raises
        ------
        TraceError
            When a node defines process groups in a way that cannot be read.
        """
        head = pb2.GlobalMetadata(version=trace.metadata.version if _plain(trace.metadata.version) else "")
        nodes = (_record(self.node(trace.node_proto(i), trace.source)) for i in range(trace.n_nodes))
        return b"".join((_record(head), *nodes))

    def groups_json(self, data: object, source: str) -> str:
        """A groups file under the new names.

        Raises
        ------
        TraceError
            When it is not an object of lists of ranks.
        """
        if not isinstance(data, dict) or not all(
            isinstance(ranks, list) and all(isinstance(r, int) for r in ranks) for ranks in data.values()
        ):
            raise TraceError(f"{source}: a groups file is an object of lists of ranks")
        return json.dumps({self.group(name): ranks for name, ranks in data.items()}) + "\n"


def _plain(version: str) -> bool:
    """Whether a version says nothing but a version."""
    return len(version) < 20 and all(c.isdigit() or c == "." for c in version)


def _record(message: pb2.Node | pb2.GlobalMetadata) -> bytes:
    data = message.SerializeToString()
    return encode_varint(len(data)) + data


def check_apart(sources: Iterable[str], targets: Iterable[str]) -> None:
    """Raises UsageError when an output would overwrite an input."""
    import os

    inputs = {os.path.realpath(path) for path in sources}
    for target in targets:
        if os.path.realpath(target) in inputs:
            raise UsageError(f"{target}: input and output are the same file")
