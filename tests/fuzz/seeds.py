# ruff: noqa: E501 - tables
"""First inputs of every harness, from this repository's own files and tests: small and of every kind."""

import gzip
import io
import json
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from leaks import SECRETS

from chakra.converters.msccl import export_msccl
from chakra.converters.pytorch.job import Inputs, Settings, convert_rank
from chakra.converters.text.policies import POLICIES, Header
from chakra.et import jsonize
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata, Node, NodeType
from chakra.schemas.protolib import encode_varint

ROOT = Path(__file__).resolve().parents[2]
for _area in ("timeline", "report", "pytorch"):
    sys.path.insert(0, str(ROOT / "tests" / _area))


def _small(pattern: str, most: int = 6, limit: int = 20_000) -> list[bytes]:
    found = sorted(path for path in ROOT.glob(pattern) if path.stat().st_size < limit)
    return [path.read_bytes() for path in found[:: max(1, len(found) // most)]][:most]


def _framed(*messages: bytes) -> bytes:
    return b"".join(encode_varint(len(message)) + message for message in messages)


def _traces() -> list[bytes]:
    attr = AttributeProto
    dims = attr(name="involved_dim")
    dims.bool_list.values.extend([True, False])
    values = attr(name="shape")
    values.int64_list.values.extend([4, 4])
    metadata = GlobalMetadata(version="0.0.4", attr=[attr(name="peer_mode", string_val="relative")])
    nodes = [
        Node(id=1, name="compute", type=4, duration_micros=5, attr=[attr(name="num_ops", int64_val=9), values]),  # type: ignore[arg-type]
        Node(
            id=2,
            name="collective",
            type=7,  # type: ignore[arg-type]
            data_deps=[1],
            attr=[
                attr(name="comm_type", int64_val=0), attr(name="comm_size", uint64_val=1024), dims,
                attr(name="pg_name", string_val="1"), attr(name="is_cpu_op", bool_val=False),
            ],
        ),
        Node(
            id=3, name="send", type=5, ctrl_deps=[1, 2],  # type: ignore[arg-type]
            attr=[attr(name=key, int32_val=value) for key, value in (("comm_dst", 1), ("comm_tag", 7), ("comm_size", 8))],
        ),
        Node(id=4, name="load", type=2, attr=[attr(name="tensor_size", uint64_val=64)]),  # type: ignore[arg-type]
    ]  # fmt: skip
    nodes[0].inputs.values, nodes[0].inputs.shapes = "[[1, 0, 0, 16, 4, 'cpu']]", "[[4]]"
    made = _framed(metadata.SerializeToString(), *(node.SerializeToString() for node in nodes))
    # the two older wire formats: the node type in another place, attributes with types of their own
    older = _framed(b"\n\x050.0.2", b"\x08\x01\x12\x01a\x18\x04\x52\x08\x0a\x03x_i\x10\x02\x18\x05")
    oldest = _framed(b"\n\x050.0.1", b"\x08\x01\x12\x01a\x18\x64\x28\x05\x3a\x02\x01\x02")
    return [
        made,
        older,
        oldest,
        _framed(b""),
        *_small("traces/*/workload.0.et"),
        *_small("tests/data/oracle/d*/et/*.0.et"),
    ]


def _jsonized() -> list[bytes]:
    out = []
    for data in _traces():
        text = io.StringIO()
        try:
            jsonize.write_json(data, "seed", text)
        except Exception:  # the old formats
            continue
        out.append(text.getvalue().encode())
    return [
        *out,
        b'{"version": "0.0.4"}\n{"id": "1", "name": "a", "type": "COMP_NODE", "attr": [{"name": "x", "int64Val": "5"}]}',
    ]


JSON_ET: dict[str, Any] = {
    "workload_graph": [
        {"Id": 1, "Name": "a", "NodeType": 4, "is_cpu_op": True, "data_deps": [], "runtime": 5.5},
        {
            "Id": 2,
            "Name": "b",
            "NodeType": 7,
            "data_deps": [1],
            "comm_type": 0,
            "comm_size": 1024,
            "comm_priority": 1,
        },
    ]
}


def _text() -> list[bytes]:
    out = []
    for policy, row in POLICIES.items():
        header = {
            Header.LAST_BOTTOM_LAYER: f"{policy} 1",
            Header.GROUP: f"{policy} model_parallel_NPU_group: 4",
            Header.GROUP_AND_CHECKPOINTS: f"{policy} model_parallel_NPU_group: 4 checkpoints: 2 0 1 checkpoint_initiates: 1 1",
        }.get(row.header, policy)
        layers = [
            f"L{i} -1 10 ALLGATHER 64 20 ALLTOALL 8 30 ALLREDUCE 128 5{' DATA' if row.per_layer else ''}"
            for i in range(3)
        ]
        out.append("\n".join([header, "3", *layers, ""]).encode())
    return out


NETWORK_LINKS = b"""npus_count: [4]
links:
- [0, leaf, 50, 500]
- [1, leaf, 50, 500]
- {from: 2, to: leaf, bandwidth: 25.5, latency: 1e3}
- {from: 3, to: leaf, directed: true}
- {from: leaf, to: 3, directed: true}
bandwidth: 10
latency: 5
routes:
- [0, leaf, 1]
routing: hops
ecmp: first
"""
GRAPHML = b"""<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="d0" for="edge" attr.name="bandwidth" attr.type="double"/>
<key id="d1" for="edge" attr.name="latency" attr.type="double"/>
<graph edgedefault="undirected"> <node id="0"/> <node id="1"/> <node id="s"/>
<edge source="0" target="s"> <data key="d0">50.0</data> <data key="d1">500.0</data> </edge>
<edge source="1" target="s"> <data key="d0">50.0</data> <data key="d1">500.0</data> </edge>
</graph></graphml>
"""
SYSTEM: dict[str, Any] = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 2, "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring", "direct2"], "all-to-all-implementation-custom": ["algorithm"],
    "all-gather-implementation": ["oneHalvingDoubling"], "collective-optimization": "localBWAware", "local-mem-bw": 1600.5,
    "peak-perf": 989, "roofline-enabled": 1, "track-local-mem": True, "model-shared-bus": 1, "L": 1.5, "o": 2, "g": 3,
    "G": 0.0015, "local-reduction-delay": 1, "inter-dimension-scheduling": "themis", "intra-dimension-scheduling": "SCF",
    "per-node-custom-implementation": "per_node.yml", "boost-mode": 1,
}  # fmt: skip
INFRAGRAPH = json.dumps({
    "devices": [
        {"name": "host", "components": [{"name": "gpu", "count": 2, "choice": "xpu"}, {"name": "nic", "count": 2, "choice": "device"}],
         "links": [{"name": "pcie", "physical": {"bandwidth": {"choice": "gigabytes_per_second", "gigabytes_per_second": 64}, "latency": {"ns": 200}}}],
         "edges": [{"ep1": {"component": "gpu[0:2]"}, "ep2": {"device": "nic[0:2]", "component": "port[0]"}, "scheme": "one2one", "link": "pcie"}]},
        {"name": "nic", "components": [{"name": "port", "count": 1, "choice": "port"}]},
        {"name": "switch", "components": [{"name": "asic", "count": 1, "choice": "switch"}]},
    ],
    "links": [{"name": "cable", "physical": {"bandwidth": {"gigabits_per_second": 400}, "latency": {"us": 0.5}}}],
    "instances": [{"name": "host", "device": "host", "count": 2}, {"name": "leaf", "device": "switch", "count": 1}],
    "edges": [{"ep1": {"instance": "host[0:2]", "component": "nic.port[0]"}, "ep2": {"instance": "leaf", "component": "asic"}, "scheme": "many2many", "link": "cable"}],
}).encode()  # fmt: skip
OLD_NETWORK = {
    "topology-name": "Hierarchical", "dimensions-count": 3, "topologies-per-dim": ["Ring", "FullyConnected", "Switch"],
    "dimension-type": ["N", "N", "P"], "units-count": [4, 8, 2], "links-count": [2, 7, 1],
    "link-latency": [500, 500, 700], "link-bandwidth": [250, 25, 12.5],
}  # fmt: skip
OLD_SYSTEM = b"""scheduling-policy: LIFO
endpoint-delay: 10
active-chunks-per-dimension: 1
preferred-dataset-splits: 64
boost-mode: 1
all-reduce-implementation: halvingDoubling_ring_direct4
all-to-all-implementation: oneDirect
collective-optimization: localBWAware
intra-dimension-scheduling: SCF
inter-dimension-scheduling: themis
"""
POOL: dict[str, Any] = {
    "memory-type": "MEMORY_POOL", "remote-mem-latency": 100, "remote-mem-bw": 50, "num-nodes": 2, "num-npus-per-node": 2,
}  # fmt: skip
MANIFEST: dict[str, Any] = {
    "format": "chakra.workload/1", "npus": 4, "peer_mode": "relative", "traces": ["seed.0.et", "seed.1.et"],
    "trace_of": [{"trace": 0, "ranks": {"start": 0, "digits": [[2, 1]]}}, {"trace": 1, "ranks": [2, 3]}],
    "groups": {"tp": {"members": [[2, 1]], "groups": [[2, 2]], "start": 0}, "e": {"ranks": [[0, 3]]}}, "about": {"a": 1},
}  # fmt: skip
LOG = b"""[2026-03-01 10:00:00.123] [workload] [debug] issue,sys->id=0, tick=0, node->id=1, node->name=a,b=c COMP, node->type=4
issue,sys->id=1, tick=5, node->id=1, node->name=ring (x=1), node->type=7
callback,sys->id=0, tick=100, node->id=1, node->name=a,b=c COMP, node->type=4
issue,sys->id=0, tick=100, node->id=2, node->name=COMM_COLL_NODE_ALL_REDUCE
callback,sys->id=1, tick=250, node->id=1, node->name=ring (x=1), node->type=7
callback,sys->id=0, tick=250, node->id=2, node->name=COMM_COLL_NODE_ALL_REDUCE
"""
NCCL = b"""# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 8 maxBytes 1
#  Rank  0 Group  0 Pid  100 on node device  0 [0x00] NVIDIA H100
#  Rank  1 Group  0 Pid  100 on node device  1 [0x00] NVIDIA H100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    10.50    0.10    0.10      0    11.50    0.09    0.09      0
       65536         16384     float     sum      -1    20.50    3.20    3.20      0    21.50    3.05    3.05      0
     1048576        262144     float     sum      -1   90.125   11.63   11.63      0    91.50   11.46   11.46      0
# Avg bus bandwidth    : 1
"""
KINETO: dict[str, Any] = {
    "schemaVersion": 1,
    "distributedInfo": {"rank": 0, "backend": "nccl", "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]},
    "traceEvents": [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::mm",
            "pid": 1,
            "tid": "7",
            "ts": 1782000000000000.125,
            "dur": 0.2,
        },
        {"ph": "i", "name": "note", "pid": 1, "tid": 7, "ts": 1},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    ],
}


@cache
def _pytorch() -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Host, device and linked trace of a small job."""
    from mini_job import MiniJob

    job = MiniJob()
    job.op("aten::linear", 10, 30, inputs=([[3, 4, 0, 8, 4, "cuda:0"]], [[4, 2]], ["Tensor(float)"]))
    job.call("cudaLaunchKernel", 15, 2, 900)
    job.kernel("gemm", 20, 40, 900)
    job.op(
        "record_param_comms",
        50,
        10,
        attrs={"collective_name": "allreduce", "pg_name": "0", "in_msg_nelems": 64},
    )
    job.call("cudaLaunchKernel", 52, 2, 901)
    job.kernel(
        "ncclDevKernel_AllReduce", 60, 30, 901, stream=9,
        args={"Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64, "Group size": 2, "dtype": "Float",
              "Process Group Name": "0", "Process Group Ranks": "[0, 1]"},
    )  # fmt: skip
    job.op("autograd::mm", 40, 6, tid=200, et_tid=2, fw_parent=10)
    job.call("cudaStreamSynchronize", 70, 30, 902)
    with tempfile.TemporaryDirectory() as folder:
        host, device = job.write(Path(folder))
        linked = Path(folder) / "linked.json"
        convert_rank(Inputs(host=host, device=device), linked, Settings())
        return json.loads(host.read_text()), json.loads(device.read_text()), linked.read_bytes()


def _dump(*documents: Any) -> list[bytes]:
    return [json.dumps(document).encode() for document in documents]


def _results() -> list[bytes]:
    from report_sample import sample

    full = sample(3)
    full["links"] = [
        {"dim": 0, "from": 0, "to": end, "bandwidth_gibps": 1.5, "bytes": 5, "busy_ns": 7, "queued_ns": 1}
        for end in (1, "s0")
    ]
    full["link_use"] = {
        "interval_ns": 512,
        "mean": [0.5, 1.0],
        "links": [{"dim": 0, "from": 0, "to": "s0", "bandwidth_gibps": 1.5, "alike": 2, "share": [0.5, 1.0]}],
    }
    return _dump(full, {"finish_ns": [1, None]}, {**sample(1), "partial": True})


def _kineto() -> list[bytes]:
    return _dump(_pytorch()[1], KINETO)


def _every_attribute() -> str:
    """A trace in JSON with every member of every message, where a text can be."""
    attr = AttributeProto
    head = GlobalMetadata(version="1.0.0")
    head.attr.add(name="schema", string_val="1.0.2-chakra.0.0.4", doc_string="d")
    head.attr.add(name="base_time_ns", int64_val=1_789_634_533_000_000_000)
    for name in ("peer_mode", "time", "input_file", "process_group_names"):
        head.attr.add(name=name, string_val="relative", doc_string="d")
    messages = [head.SerializeToString()]
    for number in range(8):
        node = Node(
            id=number + 1,
            name="aten::mm",
            type=NodeType.Name(number),
            duration_micros=5,
            start_time_micros=1_789_634_533_000_000,
        )
        for side in (node.inputs, node.outputs):
            side.values, side.shapes, side.types = (
                "[[1, 0, 0, 16, 4, 'cpu'], 'text']",
                "[[4]]",
                "['Tensor(float)']",
            )
        if number == 1:
            node.inputs.values = (
                "['" + json.dumps([{"pg_name": "tp", "pg_desc": "d", "ranks": [0, 1]}]) + "']"
            )
        for name in ("inputs", "outputs"):
            node.attr.add(name=name, doc_string="d").string_list.values.extend(["weight", "64", "bias", "8"])
        for name in ("operator", "op_schema", "kernel_file", "tensor_loc", "doc"):
            node.attr.add(name=name, string_val="gemm m=1 k=2 n=3 type=bf16", doc_string="d")
        node.attr.add(name="raw", bytes_val=b"raw")
        node.attr.add(name="pg_name", string_val="tp", doc_string="d")
        node.attr.append(attr(name="comm_size", int64_val=64, doc_string="d"))
        node.attr.append(attr(name="comm_type", int64_val=0, doc_string="d"))
        messages.append(node.SerializeToString())
    text = io.StringIO()
    jsonize.write_json(_framed(*messages), "seed", text)
    return text.getvalue()


def _cases() -> list[bytes]:
    """Cases of `leaks.search`: every format, each with every secret."""
    host, device, _ = _pytorch()
    device = {
        "traceName": "x",
        "baseTimeNanoseconds": 1_782_864_000_000_000_123,
        "deviceProperties": [{"id": 0, "name": "x"}],
        "distributedInfo": {
            "backend": "nccl", "rank": 0, "world_size": 2, "pg_count": 1,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1], "pg_size": 2}],
        },
        **device,
    }  # fmt: skip
    documents: list[tuple[str, Any]] = [("host", host), ("kineto", device), ("et-json", JSON_ET)]
    documents += [("groups", {"1": [0, 1], "tp": [1, 0]}), ("manifest", MANIFEST)]
    documents += [("memory", {"memory-type": "NO_MEMORY_EXPANSION", "note": "n"}), ("memory", POOL)]
    documents += [("et", json.loads(text)) for text in (_every_attribute(), _jsonized()[0])]
    return _dump(
        *(
            {"form": form, "secret": secret, "seed": 7 * number + secret, "document": document}
            for number, (form, document) in enumerate(documents)
            for secret in range(len(SECRETS))
        ),
        *(
            {"form": form, "secret": 0, "seed": seed, "document": document}
            for form, document in documents
            for seed in "ab"
        ),
    )


_SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "et-decoders": _traces,
    "et": _traces,
    "et-repair": _traces,
    "et-gz": lambda: [gzip.compress(data, mtime=0) for data in _traces()[:3]] + _traces()[:1],
    "et-in-gz": _traces,
    "et-json": lambda: _dump(JSON_ET),
    "jsonize": _jsonized,
    "custom-collective": lambda: [*_traces(), *_small("tests/data/oracle/*custom*/**/*.et")],
    "text": _text,
    "network": lambda: [NETWORK_LINKS, *_small("traces/*/network.yml"), *_small("tests/data/oracle/b*/network.yml")],
    "network-graphml": lambda: [GRAPHML],
    "infragraph": lambda: [INFRAGRAPH],
    "network-old": lambda: _dump(OLD_NETWORK),
    "system": lambda: [*_dump(SYSTEM), *_small("traces/*/system.json"), *_small("tests/data/oracle/*/system.json")],
    "system-old": lambda: [OLD_SYSTEM, b"num-npus: 8\nnum-packages: 4\n", b"Switch\n8\n500\n50\n"],
    "msccl": lambda: [export_msccl(*ours).encode() for ours in (("ring", "all_reduce", 2), ("bruck", "all_to_all", 3))],
    "memory": lambda: [*_small("traces/*/memory.json", 3), *_small("tests/data/oracle/d*/memory.json", 3)],
    "groups": lambda: _dump({"1": [0, 1, 2], "tp": [3, 2]}, {"7b": [5]}),
    "per-node": lambda: [b"1: prefix\n27: other/prefix\n"],
    "npu-scale": lambda: [b"0 2.0\n4-7 1.5 # slow\n", *_dump({"3": 2.0}, [1.0] * 16)],
    "study": lambda: [
        *_small("docs/studies/*.yml"),
        (b"workload: {kind: mlp, npus: 4}\nplatform: dgx-a100\nparameters:\n  workload.dp: {range: [1, 8], count: 3, log: true}\n"
        b"  system.x: {range: [0.5, 2], step: 0.5}\nmethod: {random: 5, seed: 1}\n"
        b"constraints: [memory, 'workload_dp * 2 <= 8 and not (x == 1)']\nobjective: step_ms\npareto: [step_ms, memory_gb]\n"),
    ],
    "platform": lambda: _small("chakra/presets/*.yml"),
    "yaml": lambda: [b"a: &x [1, 2]\nb: *x\nc: |\n  text\n? k\n: {d: 1e9, e: 2001-01-01}\n", *_small("chakra/presets/*.yml", 2)],
    "manifest": lambda: _dump(MANIFEST),
    "host": lambda: _dump(_pytorch()[0]),
    "kineto": _kineto,
    "linked": lambda: [_pytorch()[2]],
    "paired": lambda: _dump({"host": _pytorch()[0], "device": _pytorch()[1]}),
    "timeline-kineto": _kineto,
    "timeline-log": lambda: [LOG],
    "nccl-log": lambda: [NCCL],
    "anonymize": _cases,
    "result": _results,
    "kinds": lambda: [*_traces()[:2], *_dump(JSON_ET, KINETO, MANIFEST), LOG, NETWORK_LINKS, OLD_SYSTEM, _text()[0]],
}  # fmt: skip


def seeds(name: str) -> list[bytes]:
    """The first inputs of a harness."""
    return _SEEDS[name]()


def beside(name: str, folder: Path) -> None:
    """Write the files that a harness's inputs refer to."""
    if name == "manifest":
        for rank in (0, 1):
            (folder / f"seed.{rank}.et").write_bytes(_traces()[0])
