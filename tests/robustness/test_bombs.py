"""Small inputs that ask for much: each is refused, or read, within 2 GiB of address space and seconds, in one line."""

import gzip
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chakra.schemas import et_def_pb2 as pb2
from chakra.schemas.protolib import encode_varint

TRACES = Path(__file__).resolve().parents[2] / "traces" / "allreduce_ring8"
WORKLOAD = ("-w", TRACES / "workload")
SYSTEM = ("-s", TRACES / "system.json")
NETWORK = ("-n", TRACES / "network.yml")
METADATA = b"\x07\x0a\x051.0.0"
DEEP = "[" * 200_000


def record(payload: bytes) -> bytes:
    """A length-delimited record."""
    return encode_varint(len(payload)) + payload


def gzipped(head: bytes, mebibytes: int, fill: bytes = b"\0") -> bytes:
    """A few bytes of gzip for many."""
    packer = zlib.compressobj(9, wbits=31)
    block = fill * (1 << 20)
    return b"".join(
        [packer.compress(head), *(packer.compress(block) for _ in range(mebibytes)), packer.flush()]
    )


def collective(size: int) -> bytes:
    """A trace of one all-reduce."""
    node = pb2.Node(id=1, name="c", type=pb2.COMM_COLL_NODE)
    node.attr.add(name="comm_type", int64_val=0)
    node.attr.add(name="comm_size", uint64_val=size)
    return METADATA + record(node.SerializeToString())


def links_of_a_star(npus: int) -> str:
    """Links of NPUs around one switch."""
    return "".join(f"- [{npu}, hub]\n" for npu in range(npus))


def dims(count: str, n: int = 1) -> str:
    """A network file."""
    row = ", ".join([count] * n)
    return (
        f"topology: [ {', '.join(['Ring'] * n)} ]\nnpus_count: [ {row} ]\n"
        f"bandwidth: [ {', '.join(['50'] * n)} ]\nlatency: [ {', '.join(['500'] * n)} ]\n"
    )


LAUGH = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30)
)
MERGE = "b0: &b0 {x0: 1}\n" + "".join(
    f"b{i}: &b{i}\n  <<: [{', '.join([f'*b{i - 1}'] * 9)}]\n  x{i}: 1\n" for i in range(1, 6)
)
STUDY = (
    "workload: {{kind: transformer, model: gpt3-175b, npus: 64, fuse: true}}\nplatform: hgx-h100\n"
    "parameters: {parameters}\nmethod: {method}\n"
)
SYSTEM_KEYS = json.loads((TRACES / "system.json").read_text())


def system(**keys: object) -> str:
    """A system file with other values."""
    return json.dumps({**SYSTEM_KEYS, **{key.replace("_", "-"): value for key, value in keys.items()}})


INFO = ("info", "@")
AS_SYSTEM = ("replay", *WORKLOAD, "-s", "@", *NETWORK)
AS_NETWORK = ("replay", *WORKLOAD, *SYSTEM, "-n", "@")
AS_GROUPS = ("replay", *WORKLOAD, *SYSTEM, *NETWORK, "-g", "@")
AS_SCALE = ("replay", *WORKLOAD, *SYSTEM, *NETWORK, "--npu-scale", "@")
AS_DEVICE = ("link", "--device", "@", "-o", "out.et")
SWEEP = ("sweep", "@", "-o", "results", "--workers", "1")

#: name: (command with @ for the file, its content, a part of the one line)
REFUSED: dict[str, tuple[tuple[object, ...], Callable[[], bytes | str], str]] = {
    "record of 4 GiB": (
        INFO,
        lambda: METADATA + b"\xff\xff\xff\xff\x0fxx",
        "record of 4294967295 bytes, but only 2",
    ),
    "length of 11 bytes": (INFO, lambda: METADATA + b"\xff" * 10 + b"\1", "more than 5 bytes"),
    "attribute of 2 GiB": (INFO, lambda: METADATA + record(b"\x08\1\x12\xff\xff\xff\xff\x07ab"), "byte 9"),
    "dependencies of negative length": (
        INFO,
        lambda: METADATA + record(b"\x08\1\x2a" + b"\xff" * 9 + b"\1"),
        "byte 9",
    ),
    "nested groups": (INFO, lambda: METADATA + record(b"\x08\1" + b"\x7b" * 100_000), "not a Node"),
    "a million empty nodes": (INFO, lambda: METADATA + b"\0" * 1_000_000, "used twice"),
    "gzip of zeros": (INFO, lambda: gzipped(b"", 400), "grow beyond"),
    "gzip in members": (INFO, lambda: gzip.compress(bytes(1 << 22)) * 80, "grow beyond"),
    "gzip cut off": (INFO, lambda: gzip.compress(os.urandom(50_000))[:-500], "cut off"),
    "gzip empty members": (INFO, lambda: gzip.compress(b"") * 100_000, "is empty"),
    "gzip of blanks, Kineto": (
        AS_DEVICE,
        lambda: gzipped(b'{"schemaVersion":1,"traceEvents":[{"ph":"X"},', 300, b" "),
        "grow beyond",
    ),
    "deep JSON ET": (INFO, lambda: '{"workload_graph":' + DEEP, "nested too deeply"),
    "deep Kineto": (AS_DEVICE, lambda: '{"traceEvents":[{"args":' + DEEP, "broken after byte 16"),
    "deep Kineto head": (AS_DEVICE, lambda: '{"x":' + DEEP + ',"traceEvents":[]}', "nested too deeply"),
    "deep system": (AS_SYSTEM, lambda: '{"a":' * 200_000, "nested too deeply"),
    "deep factors": (AS_SCALE, lambda: DEEP, "nested too deeply"),
    "deep result": (
        ("report", "@"),
        lambda: '{"schema":"chakra.replay.result/1","x":' + DEEP,
        "nested too deeply",
    ),
    "deep YAML": (AS_NETWORK, lambda: "- " * 100_000 + "a", "not valid YAML"),
    "deep study": (SWEEP, lambda: "a: " + DEEP, "nested more than 50"),
    "aliases of aliases": (AS_NETWORK, lambda: LAUGH, "aliases stand for more than"),
    "aliases in a study": (
        SWEEP,
        lambda: LAUGH + "parameters: {workload.tp: *a29}\n",
        "aliases stand for more than",
    ),
    "aliases in a preset": (("platform", "show", "@"), lambda: LAUGH, "aliases stand for more than"),
    "merge keys": (SWEEP, lambda: MERGE, "merge keys"),
    "an alias of itself": (SWEEP, lambda: "a: &a [*a]\n", "nested without end"),
    "10^12 NPUs": (AS_NETWORK, lambda: dims("1000000000000"), "npus_count"),
    "2^30 NPUs": (AS_NETWORK, lambda: dims("2", 30), "at most 24 dimensions"),
    "2*10^9 NPUs": (AS_NETWORK, lambda: dims("2000000000"), "more than the 16777216 supported"),
    "100,000 dimensions": (AS_NETWORK, lambda: dims("2", 100_000), "has 100000 entries"),
    "2^24 NPUs without traces": (
        AS_NETWORK,
        lambda: dims("16777216"),
        "no file for 16777208 of 16777216 ranks",
    ),
    "number of 5,000 digits": (
        AS_SYSTEM,
        lambda: '{"endpoint-delay":' + "9" * 5000 + "}",
        "a number of 5000 digits",
    ),
    "1e400": (AS_SYSTEM, lambda: '{"endpoint-delay":1e400}', "found inf"),
    "octal": (AS_NETWORK, lambda: dims("010"), 'found "010"'),
    "underscore": (AS_NETWORK, lambda: dims("1_000"), 'found "1_000"'),
    "hexadecimal": (AS_NETWORK, lambda: dims("0x10"), 'found "0x10"'),
    "8,200 NPUs of single links": (
        (*AS_NETWORK, "--replicate"),
        lambda: "npus_count: [8200]\nbandwidth: 50\nlatency: 500\nlinks:\n" + links_of_a_star(8200),
        "a network of single links has at most 8192 unless the backend is flow",
    ),
    "network of 257 MiB": (AS_NETWORK, lambda: b"#" * (257 << 20), "at most 268435456 are read"),
    "preset of 5 MB": (("platform", "show", "@"), lambda: "#" * 5_000_000, "4000000"),
    "10^9 chunks": (AS_SYSTEM, lambda: system(preferred_dataset_splits=10**9), "at most 65,536"),
    "memory of 10^-300 GB/s": (AS_SYSTEM, lambda: system(local_mem_bw=1e-300), "more than a year"),
    "repeated keys": (
        AS_GROUPS,
        lambda: "{" + "".join(f'"{i}":[0],' for i in range(1, 100_000)) + '"1":[0]}',
        "key '1' is given twice",
    ),
    "rank of 22 digits": (AS_GROUPS, lambda: '{"1":[9999999999999999999999]}', "but the network has 8 NPUs"),
    "range of factors": (AS_SCALE, lambda: "0-99999999999 2\n", "the network has 8 NPUs"),
    "10^9 layers": (
        ("convert", "text", "-i", "@", "-o", "out", "--npus", 8),
        lambda: "DATA\n1000000000\nl -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 10 1\n",
        "ends after 1",
    ),
    "10^12 designs": (
        SWEEP,
        lambda: STUDY.format(
            parameters="{workload.tp: {range: [1, 1000000]}, workload.pp: {range: [1, 1000000]}}",
            method="grid",
        ),
        "1000000000000 combinations",
    ),
    "10^9 samples": (
        SWEEP,
        lambda: STUDY.format(parameters="{workload.tp: [1]}", method="{random: 1000000000}"),
        "method",
    ),
    "10^5 levels of switches": (
        ("topology", "fat-tree", "--down", ",".join(["1"] * 20_000), "-o", "n.yml"),
        lambda: "",
        "at most 64",
    ),
    "10^5 dimensions of a torus": (
        ("topology", "torus", "--shape", "x".join(["2"] * 20_000), "-o", "n.yml"),
        lambda: "",
        "at most 24",
    ),
    "10^6 NPUs link by link": (
        ("topology", "torus", "--shape", "1000000", "-o", "n.yml"),
        lambda: "",
        "at most 131,072",
    ),
    "failed link among 10^7 NPUs": (
        (*AS_NETWORK, "--fail-link", "0-1"),
        lambda: dims("16777216"),
        "at most 131072",
    ),
    "failed link among 10^7 links": (
        (*AS_NETWORK, "--slow-link", "0-1=0.5"),
        lambda: dims("8192").replace("Ring", "FullyConnected"),
        "at most 4000000",
    ),
    "cluster of 10^9 NPUs": (
        ("platform", "write", "999999999x hgx-h100", "-o", "p"),
        lambda: "",
        "a network has at most 16777216",
    ),
    "groups of a manifest": (
        ("replay", "-w", "bomb.workload.json", *SYSTEM, *NETWORK),
        lambda: "",
        "groups: more than 67108864 members in all, at group 'g4'",
    ),
    "10^7 values": (
        SWEEP,
        lambda: STUDY.format(parameters="{workload.tp: {range: [1, 9], count: 10000000}}", method="grid"),
        "bomb.yml: parameter workload.tp: count must be a whole number from 1 to 1000000",
    ),
    "10^7 steps": (
        SWEEP,
        lambda: STUDY.format(parameters="{workload.tp: {range: [1, 10000000]}}", method="grid"),
        "bomb.yml: parameter workload.tp: 10000000 values",
    ),
    "10^19 workers": (
        (*SWEEP[:-1], "9223372036854775807"),
        lambda: STUDY.format(parameters="{workload.tp: [1]}", method="grid"),
        "from 1 to 4096 workers",
    ),
    "line of a log": (
        ("timeline", "@", "out.json"),
        lambda: b"[0] [workload] [debug] issue," + b"a" * (2 << 20),
        "longer than 1048576 bytes",
    ),
}


def _manifest(folder: Path) -> Path:
    """Twenty groups, each of as many members as there may be NPUs."""
    trace, n = folder / "t.et", 1 << 24
    trace.write_bytes((TRACES / "workload.0.et").read_bytes())
    every = {"start": 0, "digits": [[n, 1]]}
    groups = {f"g{i}": {"members": [[n, 1]], "groups": []} for i in range(20)}
    document = {"format": "chakra.workload/1", "npus": n, "traces": ["t.et"], "groups": groups}
    document["trace_of"] = [{"trace": 0, "ranks": every}]
    file = folder / "bomb.workload.json"
    file.write_text(json.dumps(document))
    return file


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name: str, fence: Callable[..., Any], tmp_path: Path) -> None:
    args, make, part = REFUSED[name]
    content = make()
    file = tmp_path / "bomb.yml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    beside = tmp_path.parent / f"{tmp_path.name}.workload"
    beside.mkdir()
    args = tuple(_manifest(beside) if arg == "bomb.workload.json" else arg for arg in args)
    ended = fence(*(file.name if arg == "@" else arg for arg in args))
    # on a slow machine lines of progress stand before
    lines = [line for line in ended.err.splitlines() if not line.endswith(" s so far")]
    assert (ended.code, len(lines)) == (2, 1), ended
    assert part in lines[0]
    assert len(lines[0]) < 1000
    assert [path.name for path in tmp_path.iterdir()] in (["bomb.yml"], ["bomb.yml", "results"])


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("transformer", "--model", "gpt3-175b", "--npus", 10**9, "--layers", 10**9), "must be at most"),
        (("transformer", "--model", "gpt3-175b", "--npus", 8, "--layers", 10**9), "layers must be at most"),
        (("transformer", "--model", "gpt3-175b", "--npus", 8, "--hidden", 10**15), "hidden must be at most"),
        (
            ("transformer", "--model", "gpt3-175b", "--npus", 8, "--micro-batches", 10**9),
            "micro-batches must be",
        ),
        (
            ("transformer", "--model", "gpt3-175b", "--mode", "decode", "--decode-steps", 10**9),
            "decode-steps must be",
        ),
        (("dlrm", "--npus", 10**9), "npus must be at most"),
        (("dlrm", "--npus", 8, "--global-batch", 10**9), "passes"),
        (("transformer", "--npus", 8, "--hidden", 10**9), "larger buckets"),
        (("transformer", "--npus", 8, "--bucket-mb", "1e-6"), "larger buckets"),
        (("transformer", "--npus", 8, "--zero", 1, "--bucket-mb", "1e-6"), "larger buckets"),
        (
            ("transformer", "--npus", 1 << 20, "--cp", 1 << 20, "--seq", 1 << 20),
            "round the ring of cp ranks",
        ),
        (("resnet", "--npus", 8, "--image", 10**9), "64 bits do not hold it"),
        (("transformer", "--npus", 8, "--peak-tflops", "1e-308", "--mem-gbps", "1e-308"), "are too small"),
        (
            (
                "transformer",
                "--npus",
                8,
                "--peak-tflops",
                1,
                "--mem-gbps",
                1,
                "--matmul-efficiency",
                "1e-320",
            ),
            "more ns than 64 bits hold",
        ),
        (("transformer", "--tp", 1 << 20, "--dp", 1 << 20), "at most 4194304 are generated"),
        (("transformer", "--npus", 8, "--tp", 0), "tp must be at least 1, not 0"),
        (("mlp", "--npus", 8, "--pp", -1), "pp must be at least 1, not -1"),
        (
            ("transformer", "--npus", 64, "--pp", 64, "--micro-batches", 1 << 17, "--layers", 64),
            "at most 4194304 are generated",
        ),
        (("collective", "--npus", 10**9, "--size", "1MiB"), "--npus must be at most"),
        (("collective", "--npus", 8, "--count", 10**9, "--size", "1MiB"), "--count must be at most"),
        (("collective", "--npus", 8, "--size", "9" * 5000), "is not a size"),
    ],
)
def test_absurd_sizes_are_not_generated(
    args: tuple[object, ...], part: str, fence: Callable[..., Any], tmp_path: Path
) -> None:
    ended = fence("generate", *args, "-o", tmp_path / "out")
    assert (ended.code, len(ended.err.splitlines())) == (2, 1), ended
    assert part in ended.err
    assert not list(tmp_path.iterdir())


def test_more_links_than_a_list_has(fence: Callable[..., Any], tmp_path: Path) -> None:
    ended = fence("topology", "fat-tree", "--down", 8, "--up", 1_000_000, "-o", tmp_path / "out.yml")
    assert (ended.code, ended.err) == (
        2, "chakra: error: 8,000,000 links; a list of links has at most 2,000,000\n",
    )  # fmt: skip
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("size", "part"), [(2**64 - 1, "does not fit a signed"), (2**63 - 1, "does not fit 64 bits")]
)
def test_sizes_beyond_64_bits(size: int, part: str, fence: Callable[..., Any], tmp_path: Path) -> None:
    for rank in range(8):
        (tmp_path / f"w.{rank}.et").write_bytes(collective(size))
    ended = fence("replay", "-w", "w", *SYSTEM, *NETWORK)
    assert ended.code == 2
    assert part in ended.err


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/full", "/dev/urandom", "loop", "folder", "n" * 3000])
@pytest.mark.parametrize(
    "args", [INFO, AS_SYSTEM, AS_NETWORK, AS_GROUPS, AS_SCALE, AS_DEVICE, ("report", "@"), SWEEP]
)
def test_what_is_no_file(
    path: str, args: tuple[object, ...], fence: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    ended = fence(*(path if arg == "@" else arg for arg in args), seconds=5)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1), ended


def test_gaps_between_ranks(fence: Callable[..., Any], tmp_path: Path) -> None:
    for rank in (0, 10**9):
        (tmp_path / f"w.{rank}.et").write_bytes((TRACES / "workload.0.et").read_bytes())
    ended = fence("validate", "w", seconds=5)
    assert ended.code == 2
    assert "no file for 999999999 ranks: 1, 2, 3" in ended.err
    ended = fence("replay", "-w", "w", *SYSTEM, *NETWORK, seconds=5)
    assert ended.code == 2
    assert "no file for 7 of 8 ranks: 1, 2, 3" in ended.err


def test_many_attributes_of_the_metadata_take_linear_time(fence: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "m.et").write_bytes(record(b"\x0a\x051.0.0" + b"\x12\0" * 300_000))
    assert fence("info", "m.et", seconds=10).code == 0
