"""Upstream's sample traces, one or two nodes each, of every kind of node. Source: mlcommons/chakra, its generator."""

from collections.abc import Callable, Iterator
from pathlib import Path

from chakra.io.files import PathLike, atomic_bytes
from chakra.schemas import et_def_pb2 as pb2
from chakra.schemas.protolib import encode_message

#: collectives of the samples; the file is named as the collective
_COLLECTIVES = ("ALL_REDUCE", "ALL_TO_ALL", "ALL_GATHER", "REDUCE_SCATTER", "BROADCAST", "BARRIER")


def write_samples(
    npus: int,
    *,
    runtime_us: int = 5,
    tensor_bytes: int = 1024,
    comm_bytes: int = 65536,
    folder: PathLike = ".",
) -> list[str]:
    """Write every sample as ``NAME.<npu>.et``.

    Parameters
    ----------
    npus
        Traces of each sample.
    runtime_us
        Duration of compute nodes, us.
    tensor_bytes
        Bytes of memory nodes, sends and receives.
    comm_bytes
        Bytes of collectives (a barrier has none).
    folder
        Where.

    Returns
    -------
    list of str
        Names of the samples.
    """
    makers = dict(_samples(runtime_us, tensor_bytes, comm_bytes))
    number = 0
    for name, make in makers.items():
        for npu in range(npus):
            nodes = make()
            with atomic_bytes(Path(folder) / f"{name}.{npu}.et") as file:
                encode_message(file, pb2.GlobalMetadata(version="1.0.0"))
                first = number
                for node in nodes:
                    node.id += first
                    node.data_deps[:] = [parent + first for parent in node.data_deps]
                    encode_message(file, node)
            number += len(nodes)
    return list(makers)


def _samples(
    runtime_us: int, tensor_bytes: int, comm_bytes: int
) -> Iterator[tuple[str, Callable[[], list[pb2.Node]]]]:
    """Name and nodes of each sample; ids count from 0 within it."""

    def sized(kind: str) -> Callable[[], list[pb2.Node]]:
        return lambda: [_node(0, kind, pb2.AttributeProto(name="tensor_size", uint64_val=tensor_bytes))]

    def compute(count: int, *, chained: bool = False) -> Callable[[], list[pb2.Node]]:
        def make() -> list[pb2.Node]:
            nodes = [_node(i, "COMP_NODE") for i in range(count)]
            for node in nodes:
                node.duration_micros = runtime_us
            if chained:
                nodes[1].data_deps.append(0)
            return nodes

        return make

    def collective(kind: str) -> Callable[[], list[pb2.Node]]:
        size = 0 if kind == "BARRIER" else comm_bytes
        return lambda: [
            _node(
                0,
                "COMM_COLL_NODE",
                pb2.AttributeProto(name="comm_type", int64_val=pb2.CollectiveCommType.Value(kind)),
                pb2.AttributeProto(name="comm_size", int64_val=size),
                name=kind,
            )
        ]

    yield "one_metadata_node_all_types", lambda: [_all_types()]
    yield "one_remote_mem_load_node", sized("MEM_LOAD_NODE")
    yield "one_remote_mem_store_node", sized("MEM_STORE_NODE")
    yield "one_comp_node", compute(1)
    yield "two_comp_nodes_independent", compute(2)
    yield "two_comp_nodes_dependent", compute(2, chained=True)
    for kind in _COLLECTIVES:
        yield kind, collective(kind)
    yield "one_comm_send_node", sized("COMM_SEND_NODE")
    yield "one_comm_recv_node", sized("COMM_RECV_NODE")


def _node(number: int, kind: str, *attributes: pb2.AttributeProto, name: str | None = None) -> pb2.Node:
    node = pb2.Node(id=number, name=name or kind, type=kind)
    node.attr.append(pb2.AttributeProto(name="is_cpu_op", bool_val=False))
    node.attr.extend(attributes)
    return node


def _all_types() -> pb2.Node:
    """A metadata node that has an attribute of every type, named as the type."""
    node = pb2.Node(id=0, name="METADATA_NODE", type="METADATA_NODE")
    for field in pb2.AttributeProto.DESCRIPTOR.oneofs_by_name["value"].fields:
        name = field.name.removesuffix("_val")
        values = _VALUES[name.removesuffix("_list")]
        attribute = node.attr.add(name=name)
        if name.endswith("_list"):
            getattr(attribute, field.name).values.extend(values)
        else:
            setattr(attribute, field.name, values[0])
    return node


#: two values of every type of attribute
_VALUES: dict[str, tuple[object, object]] = {
    "double": (1.25, 2.5),
    "float": (1.25, 2.5),
    "int32": (12345, 23456),
    "int64": (1 << 40, 1 << 41),
    "uint32": (12345, 23456),
    "uint64": (1 << 40, 1 << 41),
    "sint32": (-12345, 23456),
    "sint64": (-(1 << 40), 1 << 41),
    "fixed32": (12345, 23456),
    "fixed64": (1 << 40, 1 << 41),
    "sfixed32": (-12345, 23456),
    "sfixed64": (-(1 << 40), 1 << 41),
    "bool": (True, False),
    "string": ("12345", "23456"),
    "bytes": (b"12345", b"23456"),
}
