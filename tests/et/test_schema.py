"""The schema, its generated module, and the interface that the tutorials teach."""

import importlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from chakra.errors import TraceError
from chakra.et import CommType, NodeType
from chakra.schemas import et_def_pb2, protolib

ROOT = Path(__file__).resolve().parents[2]


def test_generated_module_takes_any_runtime() -> None:
    """Code of protobuf 5.29 must not ask the runtime for its version: 6 would warn, 7 refuse."""
    text = (ROOT / "schemas" / "et_def_pb2.py").read_text(encoding="utf-8")
    assert "Protobuf Python Version: 5.29" in text
    assert "runtime_version" not in text


@pytest.mark.slow
@pytest.mark.parametrize("requirement", ["protobuf==5.29.*", "protobuf==6.*", "protobuf>=7,<8"])
def test_imports_with_every_supported_protobuf(tmp_path: Path, requirement: str) -> None:
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(tmp_path),
        requirement,
    ]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        pytest.skip(f"{requirement} cannot be installed here")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import google.protobuf\n"
        f"assert google.protobuf.__file__.startswith({str(tmp_path)!r})\n"
        "from chakra.schemas.et_def_pb2 import Node, COMP_NODE\n"
        "from chakra.builder import TraceBuilder\n"
        "b = TraceBuilder(); b.compute('x', duration_ns=5)\n"
        "assert b.build().node(0).proto().type == COMP_NODE\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_field_numbers() -> None:
    """The interchange contract, as other tools have it."""
    numbers = {
        message: {field.name: field.number for field in getattr(et_def_pb2, message).DESCRIPTOR.fields}
        for message in ("Node", "IOInfo", "GlobalMetadata", "Tensor")
    }
    assert numbers == {
        "Node": {
            "id": 1,
            "name": 2,
            "type": 3,
            "ctrl_deps": 4,
            "data_deps": 5,
            "start_time_micros": 6,
            "duration_micros": 7,
            "inputs": 8,
            "outputs": 9,
            "attr": 10,
        },
        "IOInfo": {"values": 1, "shapes": 2, "types": 3},
        "GlobalMetadata": {"version": 1, "attr": 2},
        "Tensor": {
            "tensor_id": 1,
            "storage_id": 2,
            "offset": 3,
            "num_elem": 4,
            "elem_bytes": 5,
            "device": 6,
        },
    }
    attribute = et_def_pb2.AttributeProto.DESCRIPTOR
    kinds = ["double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"]
    kinds += ["fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"]
    expected = {"name": 1, "doc_string": 2}
    for place, kind in enumerate(kinds):
        expected[f"{kind}_val"], expected[f"{kind}_list"] = 3 + 2 * place, 4 + 2 * place
        field = attribute.fields_by_name[f"{kind}_val"]
        assert field.type == getattr(FieldDescriptor, f"TYPE_{kind.upper()}")
        message = attribute.fields_by_name[f"{kind}_list"].message_type
        assert message is not None
        (values,) = message.fields
        assert (values.name, values.number, values.type) == ("values", 1, field.type)
    assert {field.name: field.number for field in attribute.fields} == expected
    assert attribute.oneofs[0].name == "value"


def test_enumerations_agree() -> None:
    assert {f"{kind.name}_NODE": kind.value for kind in NodeType} == dict(et_def_pb2.NodeType.items())
    assert {kind.name: kind.value for kind in CommType} == dict(et_def_pb2.CollectiveCommType.items())


@pytest.mark.parametrize(
    ("messages", "library"),
    [
        ("chakra.et_def.et_def_pb2", "chakra.third_party.utils.protolib"),
        ("chakra.schema.protobuf.et_def_pb2", "chakra.src.third_party.utils.protolib"),
        ("chakra.schemas.et_def_pb2", "chakra.schemas.protolib"),
    ],
)
def test_scripts_of_the_tutorials_run(messages: str, library: str) -> None:
    """A generator script as users have it, with every import path in use."""
    pb: Any = importlib.import_module(messages)
    lib: Any = importlib.import_module(library)
    file = io.BytesIO()
    lib.encodeMessage(file, pb.GlobalMetadata(version="0.0.4"))
    node = pb.Node()
    node.id = 1
    node.name = "All-Reduce"
    node.type = pb.COMM_COLL_NODE
    node.attr.append(pb.AttributeProto(name="is_cpu_op", bool_val=False))
    node.attr.append(pb.AttributeProto(name="comm_type", int64_val=pb.ALL_REDUCE))
    node.attr.append(pb.AttributeProto(name="comm_size", int64_val=1_048_576))
    lib.encode_message(file, node)
    file.seek(0)
    metadata, again = pb.GlobalMetadata(), pb.Node()
    assert lib.decodeMessage(file, metadata)
    assert lib.decode_message(file, again)
    assert not lib.decodeMessage(file, pb.Node())
    assert again == node
    assert pb.Node is et_def_pb2.Node


@pytest.mark.parametrize("data", [b"\x80", b"\x05ab", b"\xff\xff\xff\xff\xff\x01", b"\x02\x12\x09"])
def test_damaged_records(data: bytes) -> None:
    with pytest.raises(TraceError):
        protolib.decode_message(io.BytesIO(data), et_def_pb2.Node())


def test_open_by_content(tmp_path: Path) -> None:
    import gzip

    for name, content in (("a.gz", b"\x00\x00"), ("b", gzip.compress(b"\x00\x00"))):
        (tmp_path / name).write_bytes(content)
        with protolib.openFileRd(tmp_path / name) as file:
            assert protolib.decode_message(file, et_def_pb2.Node())
    with pytest.raises(TraceError, match="cannot be opened"):
        protolib.openFileRd(tmp_path / "none")
