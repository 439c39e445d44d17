# ruff: noqa: E501 - tables
"""Bad inputs: a command line and the files it meets. What it must say is in ``expected.txt``, under the same name.

A case changes one thing of a good input (`GOOD`), so that the error is about that thing.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import seeds as fuzz_seeds

from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata, Node
from chakra.schemas.protolib import encode_varint

Files = dict[str, "str | bytes"]


@dataclass(frozen=True, slots=True)
class Case:
    """One command line with its files; ``args`` is split at blanks."""

    name: str
    args: str
    files: Files = field(default_factory=dict)


def framed(*messages: bytes) -> bytes:
    """Messages of a trace file."""
    return b"".join(encode_varint(len(message)) + message for message in messages)


def attr(name: str, **value: Any) -> AttributeProto:
    """An attribute."""
    out = AttributeProto(name=name)
    for member, content in value.items():
        if member.endswith("_list"):
            getattr(out, member).SetInParent()
            getattr(out, member).values.extend(content)
        else:
            setattr(out, member, content)
    return out


def node(number: int, kind: int, *attrs: AttributeProto, name: str = "", **fields: Any) -> bytes:
    """A node's message."""
    return Node(id=number, type=kind, name=name or f"n{number}", attr=attrs, **fields).SerializeToString()  # type: ignore[arg-type]


META = GlobalMetadata(version="0.0.4").SerializeToString()
COMP, SEND, RECV, COLL = 4, 5, 6, 7


def trace(*nodes: bytes) -> bytes:
    """A trace file."""
    return framed(META, *nodes)


def compute(number: int = 1, **fields: Any) -> bytes:
    """A node that computes for 5 us."""
    return node(number, COMP, duration_micros=5, **fields)


def collective(number: int = 2, size: int = 1024, *more: AttributeProto, kind: int = 0) -> bytes:
    """An all-reduce of all ranks."""
    return node(number, COLL, attr("comm_type", int64_val=kind), attr("comm_size", int64_val=size), *more)


def message(kind: int, peer: int, tag: int = 0, number: int = 2) -> bytes:
    """A send or receive of 8 bytes."""
    key = "comm_dst" if kind == SEND else "comm_src"
    return node(
        number,
        kind,
        attr(key, int32_val=peer),
        attr("comm_tag", int32_val=tag),
        attr("comm_size", int64_val=8),
    )


NETWORK = "topology: [ Ring ]\nnpus_count: [ 2 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
SYSTEM = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"], "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["ring"], "collective-optimization": "baseline", "local-mem-bw": 100,
}  # fmt: skip
GOOD_TRACE = trace(compute(), collective(2))
GOOD: Files = {
    "w.0.et": GOOD_TRACE,
    "w.1.et": GOOD_TRACE,
    "n.yml": NETWORK,
    "s.json": json.dumps(SYSTEM),
    "m.json": '{"memory-type": "NO_MEMORY_EXPANSION"}',
    "g.json": '{"1": [0, 1]}',
}
REPLAY = "replay -w w -s s.json -n n.yml"


def _deep(opening: str, closing: str, depth: int = 100_000) -> str:
    return opening * depth + closing * depth


def _list(*changes: tuple[str, Any]) -> str:
    return json.dumps(SYSTEM | dict(changes))


def _replaying(area: str, file: str, args: str, contents: dict[str, str | bytes]) -> list[Case]:
    return [Case(f"{area}-{name}", args, GOOD | {file: content}) for name, content in contents.items()]


def _network() -> list[Case]:
    line = NETWORK.splitlines()
    links = "npus_count: [2]\nlinks:\n- [0, 1, 50, 500]\n"
    return _replaying("network", "n.yml", REPLAY, {
        "empty": "", "not-utf8": b"topology: [ \xff ]\n", "binary": GOOD_TRACE, "list": "- 1\n- 2\n", "scalar": "hello\n",
        "unclosed": "topology: [ Ring\nnpus_count: [ 2 ]\n", "tab": "topology:\n\t- Ring\n", "no-topology": "\n".join(line[1:]),
        "no-npus": "\n".join([line[0], *line[2:]]), "twice": NETWORK + "latency: [ 1 ]\n", "word": NETWORK.replace("Ring", "Torus2D"),
        "typo": NETWORK.replace("Ring", "Rign"), "unknown-key": NETWORK + "latencies: [ 1 ]\n",
        "no-npu": NETWORK.replace("[ 2 ]", "[ 0 ]"), "npus-text": NETWORK.replace("[ 2 ]", "[ two ]"),
        "npus-negative": NETWORK.replace("[ 2 ]", "[ -2 ]"), "npus-huge": NETWORK.replace("[ 2 ]", "[ 99999999999 ]"),
        "npus-digits": NETWORK.replace("[ 2 ]", f"[ {'9' * 5000} ]"), "npus-fraction": NETWORK.replace("[ 2 ]", "[ 2.5 ]"),
        "bandwidth-zero": NETWORK.replace("50.0", "0"), "bandwidth-nan": NETWORK.replace("50.0", ".nan"),
        "bandwidth-inf": NETWORK.replace("50.0", "1e999"), "latency-negative": NETWORK.replace("500.0", "-1"),
        "lengths-differ": NETWORK.replace("[ 500.0 ]", "[ 500.0, 1 ]"), "scalar-value": NETWORK.replace("[ 2 ]", "2"),
        "python-tag": "topology: !!python/object/apply:os.system [ 'true' ]\n" + "\n".join(line[1:]),
        "deep": "topology: " + _deep("[", "]", 5000), "npus-other": NETWORK.replace("[ 2 ]", "[ 3 ]"),
        "old-key": NETWORK + "links-count: [ 2 ]\n", "escape": "\x1b[31m: [ 1 ]\n", "bidi": "\u202etopology: [ Ring ]\n",
        "links-self": links + "- [1, 1, 50, 500]\n", "links-twice": links + "- [0, 1, 50, 500]\n",
        "links-unreached": "npus_count: [3]\nlinks:\n- [0, 1, 50, 500]\n", "links-no-speed": "npus_count: [2]\nlinks:\n- [0, 1]\n",
        "links-unknown": "npus_count: [2]\nlinks:\n- {from: 0, two: 1}\n", "links-npu": links + "- [0, 7, 50, 500]\n",
        "links-route": links + "routes:\n- [0, spine, 1]\n", "links-empty": "npus_count: [2]\nlinks: []\n",
    })  # fmt: skip


def _system() -> list[Case]:
    text = json.dumps(SYSTEM)
    cases = _replaying("system", "s.json", REPLAY, {
        "empty": "", "not-json": "{'a': 1}", "cut": text[:40], "list": "[1]", "yaml": "scheduling-policy: LIFO\n", "not-utf8": b'{"\xff": 1}',
        "deep": _deep('{"a":', "1}"), "nan": '{"endpoint-delay": NaN}', "digits": '{"endpoint-delay": ' + "9" * 5000 + "}",
        "twice": '{"endpoint-delay": 1, "endpoint-delay": 2}', "unknown-key": _list(("endpoint-dely", 1)),
        "network-key": _list(("bandwidth", [1])), "delay-negative": _list(("endpoint-delay", -1)), "delay-text": _list(("endpoint-delay", "10")),
        "delay-null": _list(("endpoint-delay", None)), "delay-huge": _list(("endpoint-delay", 2**40)), "splits-zero": _list(("preferred-dataset-splits", 0)),
        "policy": _list(("scheduling-policy", "FILO")), "policy-number": _list(("scheduling-policy", 1)), "optimization": _list(("collective-optimization", "best")),
        "algorithm": _list(("all-reduce-implementation", ["rings"])), "algorithm-text": _list(("all-reduce-implementation", "ring")),
        "algorithm-none": _list(("all-reduce-implementation", [])), "algorithm-two": _list(("all-reduce-implementation", ["ring", "ring"])),
        "direct-zero": _list(("all-reduce-implementation", ["direct0"])), "peak-text": _list(("peak-perf", "fast")), "roofline-text": _list(("roofline-enabled", "yes")),
        "roofline-no-peak": _list(("roofline-enabled", 1)), "bandwidth-infinite": _list(("local-mem-bw", 1e308 * 10)),
        "custom-two": _list(("all-reduce-implementation-custom", ["a", "b"])), "custom-absent": _list(("all-reduce-implementation-custom", ["absent"])),
        "per-node-absent": _list(("per-node-custom-implementation", "absent.yml")), "control": '{"\\u001b[2J\\n": 1}', "surrogate": '{"\\ud800": 1}',
        "long-key": json.dumps({"k" * 10_000: 1}), "trailing": text + "}", "directory-value": _list(("L", [1])),
    })  # fmt: skip
    return [*cases, Case("system-absent", REPLAY, {k: v for k, v in GOOD.items() if k != "s.json"})]


def _memory_and_groups() -> list[Case]:
    pool = {"memory-type": "PER_NODE_MEMORY_EXPANSION", "num-nodes": 1, "num-npus-per-node": 2}
    memory = _replaying("memory", "m.json", REPLAY + " -m m.json", {
        "kind": '{"memory-type": "DISK"}', "no-nodes": '{"memory-type": "PER_NODE_MEMORY_EXPANSION"}', "latency": json.dumps(pool | {"remote-mem-latency": -5}),
        "bandwidth": json.dumps(pool | {"remote-mem-bw": "x"}), "unknown": json.dumps(pool | {"remote-mem-bandwith": 1}),
        "list": "[]",
    })  # fmt: skip
    groups = _replaying("groups", "g.json", REPLAY + " -g g.json", {
        "rank": '{"1": [0, 7]}', "twice": '{"1": [0, 0]}', "empty": '{"1": []}', "text": '{"1": "all"}', "zero": '{"0": [0, 1]}', "negative": '{"1": [-1]}',
        "bool": '{"1": [true]}', "list": "[[0, 1]]", "fraction": '{"1": [0.5]}', "nested": '{"1": [[0, 1]]}', "repeated": '{"1": [0], "1": [1]}',
        "digits": '{"1": [' + "1" * 5000 + "]}",
    })  # fmt: skip
    scale = _replaying("npu-scale", "x.txt", REPLAY + " --npu-scale x.txt", {
        "line": "hello\n", "rank": "5 2.0\n", "range": "1-0 2.0\n", "factor": "0 fast\n", "zero": "0 0\n", "twice": "0 1\n0 2\n", "short": "[1.0]",
        "key": '{"a": 1}', "nan": "0 nan\n",
    })  # fmt: skip
    return [*memory, *groups, *scale]


def _traces() -> list[Case]:
    length = encode_varint(2**40)
    bad_kind = attr("comm_size", string_val="big")
    return _replaying("trace", "w.1.et", REPLAY, {
        "empty": b"", "cut": GOOD_TRACE[:-3], "json": "{}", "text": "hello world\n", "yaml": NETWORK, "length": framed(META) + length + b"x",
        "endless-length": b"\xff" * 20, "not-a-node": framed(META, b"\x0a\xff\xff"), "gzip-cut": gzip.compress(GOOD_TRACE, mtime=0)[:-12],
        "gzip-damaged": b"\x1f\x8b\x08\x00" + b"\xff" * 30, "kineto": '{"traceEvents": []}', "host": '{"nodes": []}', "repeat-id": trace(compute(1), compute(1)),
        "absent-dep": trace(compute(1, data_deps=[9])), "self-dep": trace(compute(1, data_deps=[1])),
        "cycle": trace(compute(1, data_deps=[2]), compute(2, data_deps=[1])), "size-text": trace(node(1, COLL, attr("comm_type", int64_val=0), bad_kind)),
        "no-size": trace(node(1, COLL, attr("comm_type", int64_val=0))), "no-type": trace(node(1, COLL, attr("comm_size", int64_val=1))),
        "type-unknown": trace(collective(1, kind=99)), "size-negative": trace(collective(1, -5)), "send-nowhere": trace(message(SEND, 9)),
        "send-self": trace(message(SEND, 1)), "no-receive": trace(message(SEND, 0)), "no-send": trace(message(RECV, 0)),
        "group-unknown": trace(compute(), collective(2, 1024, attr("pg_name", string_val="tp"))),
        "control-name": trace(compute(1, name="\x1b[31m\n\u202e", data_deps=[7])), "older": fuzz_seeds.seeds("et")[1], "oldest": fuzz_seeds.seeds("et")[2],
        "jsonized": '{"schema": "chakra.et.json/1", "nodes": []}', "json-et": '{"workload_graph": 5}', "json-et-node": '{"workload_graph": [{"Id": "x"}]}',
        "json-et-digits": '{"workload_graph": [{"Id": ' + "9" * 5000 + "}]}",
    })  # fmt: skip


def _alone(
    area: str, file: str, args: str, contents: dict[str, str | bytes], **more: str | bytes
) -> list[Case]:
    return [Case(f"{area}-{name}", args, {file: content, **more}) for name, content in contents.items()]


LAYER = "L -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 8 1\n"


def _converters() -> list[Case]:
    text = _alone("text", "w.txt", "convert text --input w.txt --output out --num-npus 4 --num-passes 1", {
        "empty": "", "policy": "DATAS\n1\n" + LAYER, "lower-case": "data\n1\n" + LAYER, "no-count": "DATA\n", "count": "DATA\nmany\n" + LAYER,
        "few-layers": "DATA\n2\n" + LAYER, "many-layers": "DATA\n1\n" + 2 * LAYER, "word": "DATA\n1\n" + LAYER.replace("ALLREDUCE", "ALLREDUC"),
        "time": "DATA\n1\n" + LAYER.replace("-1 1", "-1 fast"), "negative": "DATA\n1\n" + LAYER.replace("8 1", "-8 1"), "huge": "DATA\n1\n" + LAYER.replace("8 1", "9" * 30 + " 1"),
        "cut": "DATA\n1\nL -1 1 NONE\n", "binary": b"\x00\x01\x02", "trace": GOOD_TRACE, "not-utf8": b"DATA \xff\n", "group": "HYBRID_TRANSFORMER\n1\n" + LAYER,
        "bottom": "HYBRID_DLRM 9\n1\n" + LAYER, "digits": "DATA\n" + "9" * 5000 + "\n" + LAYER,
    })  # fmt: skip
    old = fuzz_seeds.OLD_NETWORK
    config = _alone("old-config", "c.json", "convert config -i c.json -o out", {
        "empty": "", "topology": json.dumps(old | {"topology-name": "torus"}), "count": json.dumps(old | {"dimensions-count": 4}),
        "word": json.dumps(old | {"topologies-per-dim": ["Ring", "Mesh", "Switch"]}), "units": json.dumps(old | {"units-count": [4, 0, 2]}),
        "text": json.dumps(old | {"link-latency": "slow"}), "garnet": "num-npus: 8\nnum-packages: 4\n", "system-word": "scheduling-policy: BEST\n",
        "cut": json.dumps(old)[:30], "list": "[1, 2]",
    })  # fmt: skip
    graph = json.loads(fuzz_seeds.INFRAGRAPH)
    infra = _alone("infragraph", "i.json", "topology import -i i.json", {
        "empty": "", "text": "hello\n", "list": "[]", "no-npus": json.dumps(graph | {"instances": []}), "apart": json.dumps(graph | {"edges": []}),
        "link": json.dumps(graph | {"links": []}), "speed": json.dumps(graph | {"links": [{"name": "cable"}]}), "trace": GOOD_TRACE,
    })  # fmt: skip
    ring = fuzz_seeds.seeds("msccl")[0].decode()
    msccl = _alone("msccl", "a.xml", "convert msccl -i a.xml -o out --size 4096", {
        "empty": "", "text": "hello\n", "bomb": '<!DOCTYPE a [<!ENTITY b "bbbb">]>\n' + ring, "attribute": ring.replace(' type="s"', "", 1),
        "rank": ring.replace('send="1"', 'send="7"', 1), "chunk": ring.replace('srcoff="0"', 'srcoff="9"', 1), "twice": ring.replace('type="rrc"', 'type="r"'),
        "circle": ring.replace('type="s"', 'type="nop"'), "custom": ring.replace("allreduce", "custom"), "cut": ring[:200], "trace": GOOD_TRACE,
    })  # fmt: skip
    kineto = _alone("kineto", "k.json", "convert pytorch --device k.json -o out.et", {
        "empty": "", "cut": '{"traceEvents": [{"ph": "X", "cat": "cpu_op"', "no-events": '{"traceEvents": []}', "scalar": '{"traceEvents": 5}', "host": '{"nodes": []}',
        "other": '{"a": 1}', "trace": GOOD_TRACE, "text": "hello\n", "array": '[{"ph": "X"}, 5]', "deep": '{"traceEvents": ' + _deep("[", "]") + "}",
    })  # fmt: skip
    jsonize = _alone("jsonize", "t.json", "jsonize t.json out.et", {
        "empty": "", "not-json": "{", "schema": '{"schema": "chakra.et.json/1"}', "node": '{"schema": "chakra.et.json/1", "nodes": [5]}',
        "key": '{"schema": "chakra.et.json/1", "nodes": [{"id": 1, "nam": "x"}]}', "id": '{"schema": "chakra.et.json/1", "nodes": [{"id": "x"}]}',
        "large": '{"schema": "chakra.et.json/1", "nodes": [{"id": 99999999999999999999999}]}', "raw": '{"schema": "chakra.et.json/1", "nodes": [{"raw": "%%"}]}',
        "surrogate": '{"\\ud800": 1}', "digits": "9" * 5000,
    })  # fmt: skip
    return [*text, *config, *infra, *msccl, *kineto, *jsonize]


def _tools() -> list[Case]:
    result = {"schema": "chakra.replay.result/1", "finish_ns": [5]}
    node_row = {"npu": 0, "ids": [1], "issue_ns": [0], "finish_ns": [5]}
    report = _alone("report", "r.json", "report r.json -o out.html", {
        "empty": "", "trace": GOOD_TRACE, "text": "hello\n", "other": '{"a": 1}', "schema": json.dumps(result | {"schema": "chakra.replay.result/9"}),
        "finish": json.dumps(result | {"finish_ns": ["x"]}), "none": json.dumps(result | {"finish_ns": []}), "lengths": json.dumps(result | {"exposed_comm_ns": [1, 2]}),
        "large": json.dumps(result | {"finish_ns": [2**64]}), "cut": json.dumps(result)[:20], "network": NETWORK, "kineto": '{"traceEvents": [{"ph": "X"}]}',
    })  # fmt: skip
    timeline = _alone("timeline", "r.json", "timeline r.json out.json", {
        "empty": "", "no-nodes": json.dumps(result), "nodes": json.dumps(result | {"nodes": [5]}), "lists": json.dumps(result | {"nodes": [node_row | {"ids": [1, 2]}]}),
        "kinds": json.dumps(result | {"nodes": [node_row | {"kinds": {"a": 1}}]}), "time": json.dumps(result | {"nodes": [node_row | {"issue_ns": ["x"]}]}),
        "trace": GOOD_TRACE, "other": '{"a": 1}', "log-cut": "issue,sys->id=0, tick=", "host": '{"nodes": []}',
    })  # fmt: skip
    nccl = fuzz_seeds.NCCL.decode()
    calibrate = _alone("calibrate", "l.log", "calibrate l.log", {
        "empty": "", "text": "hello\n", "one-size": "\n".join(nccl.splitlines()[:7]), "no-ranks": "\n".join(x for x in nccl.splitlines() if "Rank" not in x).replace("11.63   11.63", "11.63   23.25").replace("3.20    3.20", "3.20    6.39").replace("0.10    0.10", "0.10    0.20"),
        "no-name": nccl.replace("all_reduce_perf", "perf"), "time": nccl.replace("10.50", "fast").replace("20.50", "fast"), "ranks": nccl.replace("11.63   11.63", "11.63   20.36"), "contradiction": nccl.replace("90.125", "0.0001").replace("20.50", "0.001"),
        "falling": nccl.replace("90.125   11.63   11.63", "0.1000   10486   10486").replace("20.50    3.20    3.20", "1.000   65.54   65.54"),
    })  # fmt: skip
    study = "workload: {kind: mlp, npus: 4}\nplatform: dgx-a100\nparameters:\n  workload.dp: [1, 2]\n"
    sweep = _alone("sweep", "study.yml", "sweep study.yml -o out", {
        "empty": "", "list": "- 1\n", "unknown": study + "objectives: step_ms\n", "no-workload": "platform: dgx-a100\n", "no-platform": "workload: {kind: mlp}\n",
        "objective": study + "objective: speed\n", "method": study + "method: {random: 0}\n", "constraint": study + "constraints: ['__import__(1)']\n",
        "constraint-syntax": study + "constraints: ['dp <']\n", "parameter": study.replace("workload.dp", "dp"), "range": study.replace("[1, 2]", "{range: [2, 1]}"),
        "values": study.replace("[1, 2]", "[]"), "tag": "workload: !!python/name:os.system\n", "merge": "a: &a {b: 1}\nworkload: {<<: *a}\n", "yaml": "workload: {kind\n",
        "pareto": study + "pareto: [step_ms]\n",
    })  # fmt: skip
    preset = fuzz_seeds.seeds("platform")[0].decode()
    simai = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 all_gpus: 8 pp_comm: 0\n1\nL -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n"
    aicb = _alone("simai", "w.txt", "convert text -i w.txt -o out", {
        "label": simai.replace("pp:", "tpp:"), "group": simai.replace("group: 2", "group: 3"), "experts": simai.replace("ep: 2", "ep: 3"), "twice": simai.replace("pp: 1", "ep: 1"),
        "word": simai.replace("NONE 0 1 NONE", "ALLTOALL_TP 0 1 NONE"), "none": simai.replace("all_gpus: 8 ", ""), "value": simai.replace("ep: 2", "ep: two"),
    })  # fmt: skip
    layers = _alone("layers", "l.csv", "generate transformer --model llama2-7b --layer-file l.csv -o out", {
        "empty": "", "header": "layers,width\n1,2\n", "word": "mixer\nattn\n", "number": "ffn\n-1\n", "none": "layers,ffn\n", "heads": "heads,kv-heads\n32,8\n33,8\n", "binary": GOOD_TRACE,
    })  # fmt: skip
    platform = _alone("platform", "p.yml", "platform show p.yml", {
        "empty": "", "text": "hello\n", "no-dims": preset.partition("dims:")[0], "status": preset.replace("datasheet", "guess"), "yaml": "name: [\n", "unknown-name": "name: 5\n",
    })  # fmt: skip
    manifest = fuzz_seeds.MANIFEST
    beside: dict[str, str | bytes] = {"s.json": json.dumps(SYSTEM), "n.yml": NETWORK}
    beside |= {"seed.0.et": GOOD_TRACE, "seed.1.et": GOOD_TRACE}
    workloads = _alone("manifest", "w.workload.json", "replay -w w -s s.json -n n.yml", {
        "empty": "", "format": json.dumps(manifest | {"format": "x"}), "npus": json.dumps(manifest | {"npus": 0}), "start": json.dumps(manifest | {"groups": {"a": {"members": [[2, 2**70]]}}}), "mode": json.dumps(manifest | {"peer_mode": "x"}),
        "absent": json.dumps(manifest | {"traces": ["none.et"]}), "traces": json.dumps(manifest | {"traces": []}), "list": "[]", "digits": '{"npus": ' + "9" * 5000 + "}",
    }, **beside)  # fmt: skip
    return [*report, *timeline, *calibrate, *sweep, *aicb, *layers, *platform, *workloads]


def _commands() -> list[Case]:
    lines = {
        "no-command": "nonsense", "close-command": "repaly", "no-option": REPLAY + " --no-such-option", "no-argument": "replay -w",
        "no-workload": "replay -w absent -s s.json -n n.yml", "choice": REPLAY + " --backend awre", "number": REPLAY + " --num-queues-per-dim 0",
        "scale": REPLAY + " --injection-scale fast", "info-absent": "info absent.et", "info-folder": "info .", "info-network": "info n.yml",
        "visualize-absent": "visualize absent.et out.svg", "visualize-format": "visualize w.0.et out.xyz", "validate-absent": "validate absent",
        "validate-network": "validate w -n s.json", "validate-npus": "validate w --npus 3", "jsonize-absent": "jsonize absent.et out.json",
        "timeline-workload": "timeline w.0.et out.json", "report-trace": "report w.0.et -o out.html", "check-config-trace": "check-config w.0.et",
        "check-config-none": "check-config", "check-config-two": "check-config s.json s.json", "platform-name": "platform show hgx-h10",
        "topology-down": "topology fat-tree --down 8,x", "topology-speed": "topology torus --shape 4x4 --bandwidth -1", "topology-one": "topology torus --shape 1",
        "generate-kind": "generate transfomer", "generate-model": "generate transformer --model gpt9 --npus 8 -o out", "generate-pattern": "generate transformer --model llama2-7b --layer-pattern M*x -o out", "generate-context": "generate transformer --model mamba2-130m --cp 2 -o out",
        "generate-image": "generate transformer --model vit-b16 --image 100 -o out", "generate-mask": "generate transformer --model vit-b16 --causal -o out",
        "generate-split": "generate transformer --npus 8 --tp 3 -o out",
        "link-absent": "link --host absent --device absent -o out.json", "anonymize-absent": "anonymize absent out", "anonymize-self": "anonymize w w",
        "warmup-extra": "warmup extra", "doctor-extra": "doctor extra", "sweep-absent": "sweep absent.yml -o out",
    }  # fmt: skip
    return [Case(f"command-{name}", args, GOOD) for name, args in lines.items()]


#: texts that Python's own float or int takes: an underscore, no number, no end, too large, digits of another script
_ODD = {"underscore": "1_0", "nan": "nan", "inf": "inf", "large": "1e400", "script": "\u0661\u0660"}


def _numbers() -> list[Case]:
    """Texts that are no numbers, wherever one is read; lines of files say what stands in a cell."""
    study = "workload: {kind: mlp, npus: 4}\nplatform: dgx-a100\nparameters:\n  workload.dp: [1]\n"
    mixtral = "generate transformer --model mixtral-8x7b --npus 8 -o out"
    lines: dict[str, tuple[str, Files]] = {
        "whole": (REPLAY + " --num-queues-per-dim @", {}), "step": ("link --device d.json -o out.json --step @", {}),
        "real": (REPLAY + " --injection-scale @", {}), "bounded": ("topology torus --shape 4x4 --latency @", {}),
        "list": ("generate transformer --npus 8 --tp @ -o out", {}), "shape": ("topology torus --shape 4x@", {}),
        "ratio": ("topology fat-tree --down 8,4 --oversubscription @", {}),
        "kernel-speed": (REPLAY + " --kernel-speed matmul=@", {}), "slow-link": (REPLAY + " --slow-link 0-1=@", {}),
        "what-if": (REPLAY + " --what-if dim0.bandwidth=@x", {}), "scale-file": (REPLAY + " --npu-scale f.txt", {"f.txt": "0 @\n"}),
        "load": (mixtral + " --expert-load zipf:@", {}), "share": (mixtral + " --expert-load-file f.csv", {"f.csv": "expert,share\n0,@\n"}),
        "expert": (mixtral + " --expert-load-file f.csv", {"f.csv": "expert,share\n@,1\n"}),
        "layers": (mixtral + " --layer-file f.csv", {"f.csv": "layers,ffn\n@,64\n"}),
        "deprofile": ("convert pytorch --host h.json --device d.json -o out --deprofile @", {}),
        "size": ("convert msccl --algorithm ring --npus 4 --collective all_reduce --size @ -o out", {}),
        "machines": ("platform show @xhgx-h100", {}), "study-size": ("sweep study.yml -o out", {"study.yml": study.replace("[1]", "[@]")}),
        "study-rate": ("sweep study.yml -o out", {"study.yml": study.replace("dgx-a100", "hgx-h100 over @G")}),
        "shard": ("sweep study.yml -o out --shard 1/@", {"study.yml": study}),
        "text": ("convert text -i w.txt -o out", {"w.txt": "MICRO\n@\n"}), "network": (REPLAY, {"n.yml": NETWORK.replace("500.0", "@")}),
        "ranks": ("timeline w.0.et out.json --ranks @", {}), "group": (REPLAY + " --comm-group-configuration g.json", {"g.json": '{"1": [0, "@"]}'}),
        "upstream-key": ("convert config -i f.txt -o out.json", {"f.txt": "scheduling-policy: LIFO\nL: @\n"}),
    }  # fmt: skip
    return [
        Case(f"odd-{name}-{odd}", args.replace("@", text), GOOD | {file: str(body).replace("@", text) for file, body in files.items()})
        for name, (args, files) in lines.items()
        for odd, text in _ODD.items()
    ]  # fmt: skip


_PARTS: tuple[Callable[[], list[Case]], ...] = (
    _network, _system, _memory_and_groups, _traces, _converters, _tools, _commands, _numbers,
)  # fmt: skip


def all_cases() -> list[Case]:
    """Every case, by area."""
    return [case for part in _PARTS for case in part()]
