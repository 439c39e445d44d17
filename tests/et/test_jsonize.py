"""JSON and back gives the same bytes, whatever the file holds."""

import io
import json

import pytest
import wire_gen
from hypothesis import HealthCheck, given, settings

from chakra.errors import TraceError
from chakra.et.jsonize import trace_bytes, write_json
from chakra.schemas.et_def_pb2 import Node
from chakra.schemas.protolib import encode_varint


def to_json(content: bytes) -> str:
    out = io.StringIO()
    write_json(content, "a.et", out)
    return out.getvalue()


def back(text: str) -> bytes:
    return trace_bytes(text.encode(), "a.json")


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=wire_gen.files())
def test_json_and_back(data: bytes) -> None:
    text = to_json(data)
    json.loads(text)
    assert back(text) == data


def test_odd_record_lengths_come_back() -> None:
    node = Node(id=3).SerializeToString()
    data = b"\0" + wire_gen.padded_varint(len(node), 4) + node + encode_varint(len(node)) + node
    assert back(to_json(data)) == data


def test_values_can_be_edited() -> None:
    node = Node(id=3, name="a", type="COMP_NODE")
    node.attr.add(name="comm_size", int64_val=5)
    document = json.loads(to_json(b"\0" + encode_varint(node.ByteSize()) + node.SerializeToString()))
    assert document["nodes"][0]["type"] == "COMP_NODE"
    document["nodes"][0]["attr"][0]["int64_val"] = 7
    node.attr[0].int64_val = 7
    assert node.SerializeToString() in back(json.dumps(document))


def test_upstreams_jsonizer_output_reads() -> None:
    """Protobuf JSON objects one after the other, 64-bit integers as text."""
    text = '{\n  "version": "0.0.4"\n}{\n "id": "3", "name": "x", "type": "COMP_NODE", "dataDeps": ["1"]}'
    data = back(text)
    node = Node(id=3, name="x", type="COMP_NODE", data_deps=[1]).SerializeToString()
    assert data == b"\x07\n\x050.0.4" + encode_varint(len(node)) + node


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "empty"),
        ("{", "line 1 column 2"),
        ('{"schema": "chakra.et.json/1", "nodes": 5}', "'nodes' a list"),
        ('{"schema": "chakra.et.json/1", "nodes": [{"id": -1}]}', "nodes[0]"),
        ('{"schema": "chakra.et.json/1", "nodes": [{"idd": 1}]}', "unknown key 'idd'"),
        ('{"schema": "chakra.et.json/1", "nodes": [{"id": 1, "type": "NO_NODE"}]}', "NO_NODE"),
        ('{"schema": "chakra.et.json/1", "nodes": [{"id": 1, "attr": [{"int64_val": 1}]}]}', "name"),
        ('{"schema": "chakra.et.json/1", "nodes": [{"id": 1, "raw": "?"}]}', "nodes[0]"),
        ('{"version": "1"}{"id": "x"}', "object 2"),
        ("[1]", "object 1"),
    ],
)
def test_bad_documents_are_refused_in_one_line(text: str, wanted: str) -> None:
    with pytest.raises(TraceError) as caught:
        back(text)
    assert wanted in str(caught.value)
    assert "\n" not in str(caught.value)
