"""What must not be refused, although it looks like what is."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from chakra.cli.main import run
from chakra.io.yaml import parse_document
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata, Node
from chakra.schemas.protolib import encode_varint


def test_one_trace_of_a_larger_job_is_checked_with_the_jobs_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """How many ranks there are is not known then, so no rank of a group is beyond the end."""
    attrs = [
        AttributeProto(name="comm_type", int64_val=0),
        AttributeProto(name="comm_size", int64_val=64),
        AttributeProto(name="pg_name", string_val="tp"),
    ]
    messages = [GlobalMetadata(version="0.0.4"), Node(id=1, type=7, attr=attrs)]  # type: ignore[arg-type]
    payloads = [message.SerializeToString() for message in messages]
    (tmp_path / "w.0.et").write_bytes(b"".join(encode_varint(len(p)) + p for p in payloads))
    (tmp_path / "g.json").write_text(json.dumps({"tp": [0, 5, 7]}))
    assert run(["validate", str(tmp_path / "w.0.et"), "-g", str(tmp_path / "g.json")]) == 0
    assert "error" not in capsys.readouterr().out
    assert run(["validate", str(tmp_path / "w.0.et"), "--npus", "1", "-g", str(tmp_path / "g.json")]) == 2


def test_a_reused_anchor_is_yaml_and_no_warning() -> None:
    """YAML 1.2 takes the last of equal anchors; the library's warning would be many lines."""
    text = "a: &x 1\nb: &x 2\nc: *x\n"
    assert parse_document(text, "f.yml") == {"a": 1, "b": 2, "c": 2}
    with pytest.warns(Warning, match="duplicate anchor"):
        YAML(typ="safe", pure=True).compose(text)
