"""A trace with a few nodes changed: everything that is not changed stays as it stands in the file, byte for byte."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from chakra.et import Trace
from chakra.et.manifest import PEER_MODE, RELATIVE
from chakra.et.read import decode_trace
from chakra.schemas.et_def_pb2 import GlobalMetadata, Node
from chakra.schemas.protolib import encode_varint

#: facts of one rank, which a trace of many ranks cannot state
_OF_ONE_RANK = ("rank",)


@dataclass(slots=True)
class Edits:
    """What changes in a trace.

    Attributes
    ----------
    values
        Node index -> attribute -> new value; a text for an attribute that has one.
    lists
        Node index -> attribute -> new list of integers.
    renamed
        Node index -> new name.
    dropped
        Indices of nodes that go; what waits for one waits for what it waited for under control.
    """

    values: dict[int, dict[str, int | str]] = field(default_factory=dict)
    lists: dict[int, dict[str, list[int]]] = field(default_factory=dict)
    renamed: dict[int, str] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)

    def set(self, index: int, name: str, value: int | str) -> None:
        """Change an attribute of a node."""
        self.values.setdefault(index, {})[name] = value


def edited(trace: Trace, edits: Edits) -> Trace:
    """The trace after the edits, with relative peers, and no longer of one rank."""
    records = trace.records
    touched = {*edits.values, *edits.lists, *edits.renamed, *edits.dropped, *_children(trace, edits.dropped)}
    gone = {int(trace.ids[i]): [int(x) for x in trace.node(i).ctrl_deps] for i in edits.dropped}
    pieces = [_record(_metadata(trace).SerializeToString(deterministic=True))]
    done = records.meta_end
    for index in sorted(touched):
        start = int(records.ends[index - 1]) if index else records.meta_end
        pieces.append(records.data[done:start].tobytes())
        done = int(records.ends[index])
        if index in edits.dropped:
            continue
        node = trace.node_proto(index)
        _change(node, edits.values.get(index, {}), edits.renamed.get(index))
        for name, numbers in edits.lists.get(index, {}).items():
            _set_list(node, name, numbers)
        if gone:
            _bridge(node, gone)
        pieces.append(_record(node.SerializeToString(deterministic=True)))
    pieces.append(records.data[done:].tobytes())
    return decode_trace(np.frombuffer(b"".join(pieces), np.uint8), trace.source)


def _metadata(trace: Trace) -> GlobalMetadata:
    metadata = trace.metadata
    kept = [attr for attr in metadata.attr if attr.name not in (*_OF_ONE_RANK, PEER_MODE)]
    del metadata.attr[:]
    metadata.attr.extend(kept)
    metadata.attr.add(name=PEER_MODE, string_val=RELATIVE)
    return metadata


def _children(trace: Trace, dropped: set[int]) -> set[int]:
    if not dropped:
        return set()
    offsets, index = trace.children()
    return {int(child) for i in dropped for child in index[offsets[i] : offsets[i + 1]]}


def _change(node: Node, values: Mapping[str, int | str], name: str | None) -> None:
    left = dict(values)
    for attr in node.attr:
        if attr.name in left:
            member = attr.WhichOneof("value")
            setattr(attr, member, left.pop(attr.name))
    for attribute, value in left.items():
        if isinstance(value, int):
            node.attr.add(name=attribute, int64_val=value)
    duration = values.get("duration_ns")
    if isinstance(duration, int):
        node.duration_micros = (duration + 500) // 1000
    if name is not None:
        node.name = name


def _set_list(node: Node, name: str, numbers: Sequence[int]) -> None:
    """Replace a list of integers, whatever its kind was."""
    attribute = next((attr for attr in node.attr if attr.name == name), None)
    if attribute is None:
        attribute = node.attr.add(name=name)
    attribute.int64_list.values[:] = numbers


def _bridge(node: Node, gone: Mapping[int, list[int]]) -> None:
    """Replace dependencies on nodes that are gone by what those waited for."""
    for field_ in (node.ctrl_deps, node.data_deps):
        waiting, kept = list(field_), []
        while waiting:
            dep = waiting.pop(0)
            if dep in gone:
                waiting = [*gone[dep], *waiting]
            elif dep not in kept:
                kept.append(dep)
        field_[:] = kept


def numbered(name: str, number: int) -> str:
    """A bucket's name with another number."""
    return re.sub(r"bucket[0-9]+", f"bucket{number}", name, count=1)


def _record(payload: bytes) -> bytes:
    return encode_varint(len(payload)) + payload
