"""Reading JSON-encoded execution traces, the form that the feeder of older simulators took besides
protobuf.
"""

import json

from chakra.errors import TraceError
from chakra.et.schema import NodeType
from chakra.io.files import json_fault
from chakra.schemas.et_def_pb2 import GlobalMetadata, Node
from chakra.schemas.protolib import encode_varint

#: Members for the attributes that nodes may carry as keys of the same name.
_INTEGER_KEYS = {
    "num_ops": "int64_val",
    "tensor_size": "uint64_val",
    "comm_type": "int64_val",
    "comm_size": "int64_val",
    "comm_priority": "int32_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
}


def encode_json_et(data: bytes, source: str) -> bytes:
    """Turn a JSON-encoded execution trace into the bytes of an ordinary one.

    The document is an object with ``workload_graph``, a list of nodes; other top-level keys are ignored. A
    node has ``Id``, ``Name``, ``NodeType``, ``is_cpu_op``, ``data_deps`` and optionally ``runtime``
    (microseconds; a fraction becomes the attribute duration_ns) and communication attributes. ``ctrlDeps`` is
    ignored, as the feeder did.

    Raises
    ------
    TraceError
        With line and column, or the node's position and id.
    """
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise TraceError(f"{source}: byte {error.start}: not UTF-8 text") from error
    except (ValueError, RecursionError) as error:
        hint = (
            "; a JSON-encoded execution trace was expected" if isinstance(error, json.JSONDecodeError) else ""
        )
        raise TraceError(f"{source}: {json_fault(error)}{hint}") from error
    graph = document.get("workload_graph")
    if not isinstance(graph, list):
        raise TraceError(f"{source}: key 'workload_graph' must be a list of nodes")
    pieces = [_record(GlobalMetadata(version="1.0.0").SerializeToString())]
    for position, entry in enumerate(graph):
        where = f"{source}: workload_graph[{position}]"
        if not isinstance(entry, dict):
            raise TraceError(f"{where}: a node must be an object, not {type(entry).__name__}")
        pieces.append(_record(_node(entry, where).SerializeToString()))
    return b"".join(pieces)


def _node(entry: dict[str, object], where: str) -> Node:
    for key in ("Id", "NodeType"):
        if key not in entry:
            raise TraceError(f"{where}: key {key!r} is missing")
    node = Node(id=_integer(entry["Id"], "Id", where, 0, 2**64))
    where = f"{where} (node {node.id})"
    node.name = _text(entry.get("Name", ""), where)
    node.type = _integer(entry["NodeType"], "NodeType", where, 0, len(NodeType))  # type: ignore[assignment]
    deps = entry.get("data_deps", [])
    if not isinstance(deps, list):
        raise TraceError(f"{where}: key 'data_deps' must be a list of node ids")
    node.data_deps.extend(_integer(dep, "data_deps", where, 0, 2**64) for dep in deps)
    cpu = entry.get("is_cpu_op")
    if cpu is not None:
        if cpu not in (True, False, 0, 1):
            raise TraceError(f"{where}: key 'is_cpu_op' must be true or false, not {cpu!r}")
        node.attr.add(name="is_cpu_op", bool_val=bool(cpu))
    _set_runtime(node, entry.get("runtime"), where)
    for key, member in _INTEGER_KEYS.items():
        if entry.get(key) is not None:
            bits = 31 if member == "int32_val" else 63
            value = _integer(entry[key], key, where, 0 if member == "uint64_val" else -(2**bits), 2**bits)
            node.attr.add(name=key, **{member: value})
    return node


def _set_runtime(node: Node, runtime: object, where: str) -> None:
    if runtime is None:
        return
    if isinstance(runtime, bool) or not isinstance(runtime, int | float) or not 0 <= runtime < 2**53:
        raise TraceError(f"{where}: key 'runtime' must be a number of microseconds, not {runtime!r}")
    node.duration_micros = int(runtime)
    if runtime != int(runtime):
        node.attr.add(name="duration_ns", int64_val=round(runtime * 1000))


def _integer(value: object, key: str, where: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < high:
        raise TraceError(f"{where}: key {key!r} must be an integer from {low} to {high - 1}, not {value!r}")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise TraceError(f"{where}: key 'Name' must be text, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise TraceError(f"{where}: key 'Name' holds half a surrogate pair") from error
    return value


def _record(payload: bytes) -> bytes:
    return encode_varint(len(payload)) + payload
