"""Naming files by content, bounded reading, atomic writing."""

import gzip
import os
from pathlib import Path

import pytest

from chakra.errors import ConfigError, TraceError, UsageError
from chakra.io import files, rank_files


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}', files.KINETO),
        (b'\n  {\n"traceEvents" :[{"ph": "X"}]}', files.KINETO),
        (b'[{"ph": "X", "name": "a"}]', files.KINETO),
        (b'{"schema": "1.0.2", "pid": 3, "nodes": [{"id": 1, "traceEvents": 3}]}', files.HOST_TRACE),
        (b'{"schema": "1.0.2", "nodes": [{"id": 1, "exclusive_dur": 4}]}', files.LINKED),
        (b'{"a": {"traceEvents": []}, "workload_graph": []}', files.JSON_ET),
        (b'{"schema": "chakra.et.json/1", "nodes": []}', files.JSONIZED_ET),
        (b'{"schema": "chakra.replay.result/1", "finish_ns": []}', files.RESULT),
        (b'{"topology": ["Ring"]}', files.JSON),
        (b"{}", files.JSON),
        (b"topology: [ Ring ]\nnpus_count: [ 8 ]\n", files.YAML),
        (b"MODEL    \n2\nlayer -1 5 NONE 0\n", files.TEXT_WORKLOAD),
        (b"HYBRID_DLRM 4\n8\n", files.TEXT_WORKLOAD),
        ("grüße\n".encode(), files.TEXT),
        (b"", files.EMPTY),
        (b"\x07\n\x051.0.0\x04\x08\x01\x18\x04", files.EXECUTION_TRACE),
        (b"{\n" + b"\x79" + b"v" * 121 + b"\x04\x08\x01\x18\x04", files.EXECUTION_TRACE),
        (b"\0", files.EXECUTION_TRACE),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", files.UNKNOWN),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_kinds(tmp_path: Path, content: bytes, kind: str, packed: bool) -> None:
    path = tmp_path / "f"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert files.sniff_kind(path) == kind


def test_a_character_cut_at_the_end_of_the_head_is_still_text() -> None:
    assert files.kind_of(("x" + "é" * 40000).encode()[:4096]) == files.TEXT


@pytest.mark.shared
def test_kinds_of_the_reference_data(shared: Path) -> None:
    data = shared / "data"
    for pattern, kind in (
        ("asim/*.et", files.EXECUTION_TRACE),
        ("chakra/**/*.et*", files.EXECUTION_TRACE),
        ("chakra/*.json*", files.JSON_ET),
        ("text/*.txt", files.TEXT_WORKLOAD),
        ("host/*.et.json*", files.HOST_TRACE),
        ("kineto/*.json*", files.KINETO),
    ):
        paths = sorted(data.glob(pattern))
        assert paths
        assert {path.name: files.sniff_kind(path) for path in paths} == dict.fromkeys(
            (p.name for p in paths), kind
        )


def test_errors_are_of_the_class_asked_for(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"a": \n 5,, }')
    with pytest.raises(ConfigError, match="line 2 column 4: not JSON"):
        files.read_json(tmp_path / "bad.json", error=ConfigError)
    (tmp_path / "bad.json").write_bytes(b'"\xff"')
    with pytest.raises(TraceError, match="byte 1: not UTF-8"):
        files.read_json(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text("[" * 200_000)
    with pytest.raises(TraceError, match=r"deep|not JSON"):
        files.read_json(tmp_path / "bad.json")
    with pytest.raises(ConfigError, match="No such file"):
        files.read_bytes(tmp_path / "none", error=ConfigError)
    with pytest.raises(ConfigError, match="No such file"):
        files.open_stream(tmp_path / "none", error=ConfigError)


def test_gzip_of_several_members_and_padding(tmp_path: Path) -> None:
    content = gzip.compress(b"a" * 5000) + gzip.compress(b"b")
    assert files.gunzip(content + b"\0" * 9, "f") == b"a" * 5000 + b"b"
    with pytest.raises(TraceError, match="3 bytes that are not gzip follow"):
        files.gunzip(content + b"abc", "f")
    for cut in range(2, len(content) - 1):
        if cut != len(gzip.compress(b"a" * 5000)):
            with pytest.raises(TraceError, match=r"gzip|follow"):
                files.gunzip(content[:cut], "f")


def test_real_compression_ratios_pass(tmp_path: Path) -> None:
    """The bound is for bombs: the most repetitive trace of any size worth having is far below it."""
    record = b"\x30\x08\x01\x12\x20" + b"layer" * 6 + b"xx" + b"\x18\x04"
    content = b"\0" + record * 2_000_000
    assert files.gunzip(gzip.compress(content, 1), "f") == content


def test_writing_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "f.json"
    with files.atomic_text(path) as file:
        file.write("old\n")
    with pytest.raises(ZeroDivisionError), files.atomic_text(path) as file:
        file.write(f"new {1 // 0}")
    assert path.read_text() == "old\n"
    assert os.listdir(path.parent) == ["f.json"]
    with files.atomic_bytes(path) as raw:
        raw.write(b"newer")
        assert path.read_text() == "old\n"
    assert path.read_text() == "newer"


def test_permissions_and_links_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "f"
    old = os.umask(0o027)
    try:
        with files.atomic_text(path) as file:
            file.write("a")
        assert path.stat().st_mode & 0o777 == 0o640
        path.chmod(0o604)
        link = tmp_path / "link"
        link.symlink_to(path)
        with files.atomic_text(link) as file:
            file.write("b")
        assert link.is_symlink()
        assert path.read_text() == "b"
        assert path.stat().st_mode & 0o777 == 0o604
    finally:
        os.umask(old)


def test_devices_are_written_in_place() -> None:
    with files.atomic_text("/dev/null") as file:
        file.write("x")
    with files.atomic_bytes("/dev/null") as raw:
        raw.write(b"x")
    assert not Path("/dev/null").is_file()


def test_folders_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is a folder"), files.atomic_text(tmp_path):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"), files.atomic_text(tmp_path / "file" / "x"):
        pass


def test_rank_files(tmp_path: Path) -> None:
    for name in ("w.0.et", "w.10.et", "w.2.et.gz", "w.x.et", "w.1.json", "ww.1.et"):
        (tmp_path / name).write_bytes(b"")
    assert [Path(path).name for path in rank_files.rank_files(tmp_path / "w")] == [
        "w.0.et",
        "w.2.et.gz",
        "w.10.et",
    ]
    assert rank_files.rank_files(tmp_path / "none" / "w") == []
    assert rank_files.rank_files(tmp_path / "v") == []
