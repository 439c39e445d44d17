"""Reads cases of the reference corpus straight into the message-level engine, without the rest of the package.

Written from ASTRA-sim's own rules alone (replay semantics, sections 1 to 3), so that the engine is checked apart from the
package's compile step. Run as a script it prints how many cases of each family are equal.
"""

import json
import struct
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.internal.decoder import _DecodeVarint32  # type: ignore[attr-defined]
from ruamel.yaml import YAML

from chakra.replay.config.model import Topology
from chakra.replay.engines.messages.engine import MessageEngine
from chakra.replay.engines.messages.model import (
    Actor,
    Algorithm,
    Bus,
    Collective,
    Do,
    EngineModel,
    EngineResult,
    Mode,
    NetworkDim,
    Phase,
    Program,
    Ring,
    Rule,
)
from chakra.schemas import et_def_pb2 as et

CPU, GPU, COMM, FREE = 0, 1, 2, 3
ANY_NUMBER = 1 << 40
TAGS = 500_000_000
KEYS = {0: "all-reduce", 2: "all-gather", 6: "all-to-all", 7: "reduce-scatter"}
DO = {0: Do.ALL_REDUCE, 2: Do.ALL_GATHER, 6: Do.ALL_TO_ALL, 7: Do.REDUCE_SCATTER}


def read_nodes(path: Path) -> list[Any]:
    """Nodes of a trace file, by ascending id."""
    data = path.read_bytes()
    at, first, nodes = 0, True, []
    while at < len(data):
        size, at = _DecodeVarint32(data, at)
        record = data[at : at + size]
        at += size
        if first:
            first = False
            continue
        node = et.Node()
        node.ParseFromString(record)
        nodes.append(node)
    return sorted(nodes, key=lambda node: node.id)


def attributes(node: Any) -> dict[str, Any]:
    """Attributes of a node as plain values."""
    out: dict[str, Any] = {}
    for attr in node.attr:
        which = attr.WhichOneof("value")
        value = getattr(attr, which)
        out[attr.name] = list(value.values) if which.endswith("_list") else value
    return out


class ReadTrace(NamedTuple):
    """A trace: its program, peers of its messages, its calls, GPU compute ns and id of each node."""

    program: Program
    peers: np.ndarray
    calls: list[Any]
    gpu_ns: np.ndarray
    ids: list[int]


@dataclass
class Case:
    """A case, ready to run, and what is expected."""

    name: str
    engine: MessageEngine
    expected: dict[str, Any]
    gpu_ns: np.ndarray
    ids: list[list[int]]
    rank_of_ids: list[int]


class Loader:
    """Builds the engine's inputs of one case."""

    def __init__(self, folder: Path, jit: bool | None) -> None:
        self.folder = folder
        self.jit = jit
        self.case = json.loads((folder / "case.json").read_text())
        self.system = json.loads((folder / "system.json").read_text())
        self.memory = json.loads((folder / "memory.json").read_text())
        self.network = YAML(typ="safe").load((folder / "network.yml").read_text())
        self.npus = int(np.prod(self.network["npus_count"]))
        self.n_dims = len(self.network["npus_count"])
        groups = folder / "comm_groups.json"
        self.group_lists = json.loads(groups.read_text()) if groups.exists() else {}
        options = dict(o.lstrip("-").partition("=")[::2] for o in self.case.get("options") or [])
        self.queues = int(options.get("num-queues-per-dim", 1))
        self.rendezvous = options.get("rendezvous-protocol") == "true"
        delay = 10
        if "endpoint-delay" in self.system:
            delay = int(int(self.system["endpoint-delay"]) * float(options.get("injection-scale", 1)))
        self.delay = delay
        self.groups: list[tuple[int, ...]] = [tuple(range(self.npus))]
        self.group_index: dict[str, int] = {"0": 0}
        self.collectives: list[Collective] = []
        self.collective_index: dict[Any, int] = {}
        self.programs: list[Program] = []
        self.per_node: dict[int, str] = {}
        if "per-node-custom-implementation" in self.system:
            path = self.folder / Path(self.system["per-node-custom-implementation"]).name
            self.per_node = {int(k): str(v) for k, v in YAML(typ="safe").load(path.read_text()).items()}

    def flag(self, key: str) -> bool:
        """ASTRA-sim's switches: anything but the number 0 is on."""
        value = self.system.get(key, 0)
        return isinstance(value, bool) or value != 0

    def group(self, name: str) -> int:
        """Engine's number of a communicator."""
        if name not in self.group_index:
            members = tuple(self.group_lists[name])
            if len(members) == self.npus:
                members = tuple(range(self.npus))
            self.group_index[name] = len(self.groups)
            self.groups.append(members)
        return self.group_index[name]

    def algorithm(self, name: str) -> tuple[Algorithm, int, bool]:
        """Algorithm, window, flat."""
        flat = name.startswith("one")
        if flat:
            name = name[3].lower() + name[4:]
        if name.startswith("direct"):
            return Algorithm.DIRECT, int(name[6:] or 0), flat
        table = {
            "ring": Algorithm.RING,
            "halvingDoubling": Algorithm.HALVING_DOUBLING,
            "doubleBinaryTree": Algorithm.TREE,
        }
        return table[name], 0, flat

    def collective(self, kind: int, size: int, group: int, involved: list[bool] | None, node_id: int) -> int:
        """Engine's number of a collective."""
        custom = self.system.get(f"{KEYS[kind]}-implementation-custom", [None])[0]
        custom = self.per_node.get(node_id, custom)
        key = (kind, size, group, tuple(involved or ()), custom)
        if key not in self.collective_index:
            self.collective_index[key] = len(self.collectives)
            made = (
                self.custom_collective(custom, group) if custom else self.native(kind, size, group, involved)
            )
            self.collectives.append(made)
        return self.collective_index[key]

    def native(self, kind: int, size: int, group: int, involved: list[bool] | None) -> Collective:
        """Chunks and phases (3.1 to 3.3)."""
        splits = int(self.system["preferred-dataset-splits"])
        chunk = size // splits
        if kind != 2 and self.npus > chunk:
            chunk = self.npus
            size = splits * chunk
        chunks = np.full(-(-size // chunk), chunk, np.int64)
        names = self.system[f"{KEYS[kind]}-implementation"]
        sub = len(self.groups[group]) != self.npus
        do = DO[kind]
        if sub:
            algorithm, window, _ = self.algorithm(names[0] if len(names) == 1 else "ring")
            phases = [Phase(0, algorithm, do, Rule.ANY, Ring.GROUP, window, True)]
            return Collective(chunks, tuple(phases), 10, False, 0, tree_counter=kind)
        dims = []
        for k, name in enumerate(names):
            algorithm, window, flat = self.algorithm(name)
            if involved is None or (k < len(involved) and involved[k]) or group != 0:
                dims.append((k, algorithm, window, Ring.FLAT if flat else Ring.DIM))
            if flat:
                break
        steps: list[tuple[Any, Do, Rule]]
        if do is Do.ALL_REDUCE and self.system.get("collective-optimization") == "localBWAware":
            steps = [(d, Do.REDUCE_SCATTER, Rule.FIRST) for d in dims[:-1]]
            steps.append((dims[-1], do, Rule.FIRST))
            steps += [(d, Do.ALL_GATHER, Rule.LAST) for d in dims[-2::-1]]
        elif do is Do.ALL_GATHER:
            steps = [(d, do, Rule.ANY) for d in dims[::-1]]
        else:
            steps = [(d, do, Rule.ANY) for d in dims]
        phases = [Phase(d[0], d[1], what, rule, d[3], d[2]) for d, what, rule in steps]
        return Collective(chunks, tuple(phases), self.delay, True, 0, tree_counter=kind)

    def custom_collective(self, prefix: str, group: int) -> Collective:
        """A custom algorithm: its program on each member (4.6)."""
        members = self.groups[group]
        files = json.loads((self.folder / "custom" / prefix / "map.json").read_text())
        built: dict[str, tuple[int, np.ndarray]] = {}
        which, peers = [], []
        for npu in members:
            name = files[str(sorted(members).index(npu))]
            if name not in built:
                read = self.program(self.folder / "custom" / prefix / name, custom=True)
                built[name] = (len(self.programs), read.peers)
                self.programs.append(read.program)
            which.append(built[name][0])
            peers.append(np.array(members, np.int64)[built[name][1]])
        phase = Phase(0, Algorithm.CUSTOM, Do.ALL_REDUCE, Rule.FIXED, Ring.GROUP)
        return Collective(
            np.zeros(1, np.int64),
            (phase,),
            mode=Mode.CUSTOM,
            custom_programs=tuple(which),
            custom_peers=tuple(peers),
        )

    def memory_ns(self, size: int) -> int:
        """Time of a remote access."""
        bandwidth = int(self.memory.get("remote-mem-bw", 0))
        return int(self.memory.get("remote-mem-latency", 0)) + (size // bandwidth if bandwidth else 0)

    def roofline_ns(self, ops: float, size: float) -> int:
        """Time of a compute node under the roofline model."""
        bandwidth = float(self.system.get("local-mem-bw", 0)) * 1e9
        peak = float(self.system["peak-perf"]) * 1e12
        perf = min(bandwidth * (ops / size), peak)
        return int(ops / perf * 1e9)

    def program(self, path: Path, custom: bool = False) -> ReadTrace:
        """Read a trace."""
        nodes = read_nodes(path)
        index = {node.id: k for k, node in enumerate(nodes)}
        n = len(nodes)
        op, slot, ns, ref = (np.zeros(n, np.int64) for _ in range(4))
        ref[:] = -1
        children: list[list[int]] = [[] for _ in nodes]
        size: list[int] = []
        tag: list[int] = []
        peer: list[int] = []
        calls: list[Any] = []
        gpu = np.zeros(n, np.int64)
        replay_only = self.flag("replay-only") and not custom
        for k, node in enumerate(nodes):
            for dep in {*node.ctrl_deps, *node.data_deps}:
                children[index[dep]].append(k)
            attr = attributes(node)
            cpu = bool(attr.get("is_cpu_op", False))
            duration = max(1, 1000 * node.duration_micros)
            slot[k] = CPU if cpu else GPU if node.type == et.COMP_NODE else COMM
            if node.type == et.COMM_RECV_NODE:
                slot[k] = FREE
            ns[k] = duration
            if replay_only:
                gpu[k] = duration if not cpu else 0
                continue
            if node.type == et.COMP_NODE:
                if self.flag("roofline-enabled") and not cpu and not custom:
                    if attr["tensor_size"] == 0:
                        op[k] = 1
                    else:
                        ns[k] = self.roofline_ns(float(attr["num_ops"]), float(attr["tensor_size"]))
                gpu[k] = ns[k] if not cpu and op[k] == 0 else 0
            elif node.type in (et.MEM_LOAD_NODE, et.MEM_STORE_NODE):
                ns[k] = self.memory_ns(attr["tensor_size"])
                if self.memory["memory-type"] != "PER_NPU_MEMORY_EXPANSION":
                    op[k] = 5
            elif node.type in (et.INVALID_NODE, et.METADATA_NODE):
                op[k] = 1
            elif node.type == et.COMM_COLL_NODE:
                kind = attr["comm_type"]
                if kind == et.BROADCAST:
                    continue
                op[k] = 2
                name = str(attr.get("pg_name", "") or "0")
                involved = attr.get("involved_dim")
                call = (kind, int(attr["comm_size"]), name, involved, node.id)
                if call not in calls:
                    calls.append(call)
                ref[k] = calls.index(call)
            else:
                send = node.type == et.COMM_SEND_NODE
                op[k] = 3 if send else 4
                ref[k] = len(tag)
                tag.append(int(attr["comm_tag"]) % TAGS)
                size.append(int(attr["comm_size"]))
                peer.append(int(attr["comm_dst" if send else "comm_src"]))
        start = np.concatenate([[0], np.cumsum([len(c) for c in children])]).astype(np.int64)
        program = Program(
            op=op,
            slot=slot,
            duration_ns=ns,
            child_start=start,
            child=np.array([c for below in children for c in sorted(below)], np.int64),
            index=ref,
            p2p_bytes=np.array(size, np.int64),
            p2p_tag=np.array(tag, np.int64),
            slot_cap=np.array([1, 1, 1, ANY_NUMBER], np.int64),
        )
        return ReadTrace(program, np.array(peer, np.int64), calls, gpu, [node.id for node in nodes])

    def bus(self) -> Bus | None:
        """The shared bus."""
        if self.system.get("model-shared-bus") != 1:
            return None
        single = struct.unpack("f", struct.pack("f", float(self.system.get("G", 0))))[0]
        return Bus(
            int(self.system.get("L", 0)),
            int(self.system.get("o", 0)),
            int(self.system.get("g", 0)),
            single,
            int(self.system.get("local-reduction-delay", 1)),
        )

    def load(self) -> Case:
        """The case."""
        files = json.loads((self.folder / "et" / "map.json").read_text())
        built: dict[str, Any] = {}
        actors, gpu_ns, which = [], [], []
        ids: list[list[int]] = []
        per_node = self.memory["memory-type"] == "PER_NODE_MEMORY_EXPANSION"
        block = int(self.memory.get("num-npus-per-node", 1)) if per_node else 1
        for npu in range(self.npus):
            name = files[str(npu)]
            if name not in built:
                read = self.program(self.folder / "et" / name)
                resolved = [
                    (self.collective(kind, size, self.group(group), involved, node_id), self.group(group))
                    for kind, size, group, involved, node_id in read.calls
                ]
                built[name] = (
                    len(self.programs),
                    read.peers,
                    np.array(resolved, np.int64).reshape(-1, 2),
                    read.gpu_ns,
                    len(ids),
                )
                ids.append(read.ids)
                self.programs.append(read.program)
            number, peers, resolved_calls, gpu, place = built[name]
            actors.append(Actor(number, resolved_calls, peers, npu // block if per_node else 0))
            gpu_ns.append(gpu)
            which.append(place)
        dims = tuple(
            NetworkDim(Topology(topology), npus, bandwidth * (1 << 30) / 1_000_000_000, latency)
            for topology, npus, bandwidth, latency in zip(
                self.network["topology"],
                self.network["npus_count"],
                self.network["bandwidth"],
                self.network["latency"],
                strict=True,
            )
        )
        model = EngineModel(
            dims=dims,
            aware=self.case["backend"] == "aware",
            queues_per_dim=self.queues,
            streams_per_queue=-(-int(self.system.get("active-chunks-per-dimension", 1)) // self.queues),
            rendezvous=self.rendezvous,
            reduce_bytes_per_s=float(self.system.get("local-mem-bw", 0)) * 1e9,
            bus=self.bus(),
            n_servers=self.npus // block + 1 if per_node else 1,
            sum_dims=False,
            repeat_pass=False,
            relieve=False,
        )
        engine = MessageEngine(model, self.programs, actors, self.groups, self.collectives, jit=self.jit)
        expected = json.loads((self.folder / "expected.json").read_text())
        return Case(self.case["name"], engine, expected, np.array(gpu_ns, dtype=object), ids, which)


def difference(case: Case, result: EngineResult) -> str:
    """What differs from the expected figures; empty if nothing does."""
    if result.stall is not None:
        return f"stalled: {str(result.stall)[:300]}"
    finish = [int(t) for t in result.finish_ns]
    if finish != case.expected["finish"]:
        return f"finish {finish[:4]} want {case.expected['finish'][:4]}"
    for npu, want in (case.expected.get("nodes") or {}).items():
        npu = int(npu)
        first, ids = int(result.node_start[npu]), case.ids[case.rank_of_ids[npu]]
        place = {node: first + k for k, node in enumerate(ids)}
        for node, ticks in want.items():
            at = place[int(node)]
            got = [int(result.issue_ns[at]), int(result.node_finish_ns[at])]
            if got != ticks:
                return f"npu {npu} node {node}: {got} want {ticks}"
    for npu, t in enumerate(finish):
        first, last = int(result.node_start[npu]), int(result.node_start[npu + 1])
        issued = result.issue_ns[first:last] >= 0
        exposed = (t - int(np.asarray(case.gpu_ns[npu], np.int64)[issued].sum())) % 2**64
        if exposed != case.expected["exposed_comm"][npu] % 2**64:
            return f"npu {npu}: exposed {exposed} want {case.expected['exposed_comm'][npu]}"
    return ""


def check(folder: Path, jit: bool | None = None) -> str:
    """Run one case; what differs, or nothing."""
    case = Loader(folder, jit).load()
    return difference(case, case.engine.run())


def well_formed(folder: Path) -> bool:
    """Whether ASTRA-sim's figures of a case are right figures."""
    case = json.loads((folder / "case.json").read_text())
    expected = json.loads((folder / "expected.json").read_text())
    return case["family"] != "j" and expected["symptom"] in ("ok", "warned")


def main(corpus: Path, families: str, jit: bool | None) -> None:
    """Print counts per family."""
    tally: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    start = time.perf_counter()
    for folder in sorted(corpus.iterdir()):
        if not folder.is_dir() or not well_formed(folder):
            continue
        case = json.loads((folder / "case.json").read_text())
        if families and case["family"] not in families and not case["name"].startswith(families):
            continue
        count = tally[case["family"], case["backend"]]
        count[1] += 1
        try:
            different = check(folder, jit)
        except Exception as error:  # a development aid: show every failure and go on
            different = f"{type(error).__name__}: {error}"
        count[0] += not different
        if different:
            print("differs:", folder.name, different)
    for key in sorted(tally):
        print(f"family {key[0]} {key[1]}: {tally[key][0]}/{tally[key][1]}")
    total = np.sum(list(tally.values()), axis=0)
    print(f"equal {total[0]}/{total[1]} in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        sys.argv[2] if len(sys.argv) > 2 else "",
        {"jit": True, "plain": False}.get(sys.argv[-1]),
    )
