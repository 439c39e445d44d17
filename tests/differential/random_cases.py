"""Random workloads and systems for comparison with ASTRA-sim, one per seed, in the layout of the oracle corpus.

A case keeps to what ASTRA-sim's HEAD can run (halving-doubling on powers of two, trees for all-reduces, splits no larger
than an all-gather), so that most cases have a figure.
"""

import hashlib
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chakra.schemas import et_def_pb2 as pb
from chakra.schemas.protolib import encode_varint

COLLECTIVES = ("ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL")
KEYS = {kind: kind.lower().replace("_", "-") for kind in COLLECTIVES}
#: workloads: the same collectives everywhere; unequal computation; graphs with CPU, zero-time and memory nodes; messages
STYLES = ("equal", "unequal", "graph", "messages", "pipeline", "groups", "mixed", "custom")
MAX_NPUS = 40
#: cases from here on are disguised, too: other node numbers, another order in the file, other integer types
DISGUISED = 1_000_000
INTEGERS = (
    "int32_val", "int64_val", "uint32_val", "uint64_val", "sint32_val", "sint64_val", "fixed32_val", "fixed64_val",
    "sfixed32_val", "sfixed64_val",
)  # fmt: skip


class Trace:
    """One rank's nodes, numbered as they are added."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []

    def add(
        self, kind: pb.NodeType, name: str, deps: list[int], ctrl: list[int], micros: int = 0, **attrs: Any
    ) -> Any:
        """A node; attributes are (field of the value, value)."""
        node = pb.Node(id=len(self.nodes), name=name, type=kind, duration_micros=micros)
        node.data_deps.extend(deps)
        node.ctrl_deps.extend(ctrl)
        for key, (form, value) in attrs.items():
            entry = node.attr.add(name=key)
            if form == "bool_list":
                entry.bool_list.values.extend(value)
            else:
                setattr(entry, form, value)
        self.nodes.append(node)
        return node

    def encoded(self) -> bytes:
        """The trace as a file's bytes."""
        parts = [pb.GlobalMetadata(version="0.0.4"), *self.nodes]
        return b"".join(encode_varint(len(b)) + b for b in (part.SerializeToString() for part in parts))


@dataclass
class RandomCase:
    """A case in memory; `write` lays it out as a folder of the corpus."""

    seed: int
    style: str
    backend: str
    network: dict[str, list[Any]]
    system: dict[str, Any]
    memory: dict[str, Any]
    options: dict[str, Any]
    traces: list[Trace]
    groups: dict[str, list[int]] = field(default_factory=dict)
    custom: dict[str, list[Trace]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Folder name."""
        return f"r{self.seed:07d}_{self.style}_{self.backend}"

    def write(self, folder: Path) -> None:
        """Write case.json, configurations and traces; equal traces share a file."""
        folder.mkdir(parents=True)
        about = {
            "name": self.name,
            "family": "r",
            "backend": self.backend,
            "npus": len(self.traces),
            "options": [f"--{key}={str(value).lower()}" for key, value in self.options.items()],
        }
        (folder / "case.json").write_text(json.dumps(about, indent=1) + "\n")
        (folder / "system.json").write_text(json.dumps(self.system, indent=1) + "\n")
        (folder / "memory.json").write_text(json.dumps(self.memory) + "\n")
        lines = [
            f"{key}: [ {', '.join(str(value) for value in values)} ]" for key, values in self.network.items()
        ]
        (folder / "network.yml").write_text("\n".join(lines) + "\n")
        if self.groups:
            (folder / "comm_groups.json").write_text(json.dumps(self.groups) + "\n")
        _write_traces(folder / "et", self.traces)
        for prefix, traces in self.custom.items():
            _write_traces(folder / "custom" / prefix, traces)


def _write_traces(folder: Path, traces: list[Trace]) -> None:
    folder.mkdir(parents=True)
    files: dict[str, str] = {}
    where = {}
    for rank, trace in enumerate(traces):
        content = trace.encoded()
        digest = hashlib.sha256(content).hexdigest()
        if digest not in files:
            files[digest] = f"t{len(files)}.et"
            (folder / files[digest]).write_bytes(content)
        where[str(rank)] = files[digest]
    (folder / "map.json").write_text(json.dumps(where) + "\n")


def make(seed: int) -> RandomCase:
    """The case of a seed."""
    case = _Maker(seed).case()
    if seed >= DISGUISED:
        draw = random.Random(-seed)
        alike = draw.random() < 0.8  # else ranks may order their collectives differently
        for traces in (case.traces, *case.custom.values()):
            state = draw.getstate()
            for trace in traces:
                if alike:
                    draw.setstate(state)
                disguise(trace, draw)
    return case


def disguise(trace: Trace, draw: random.Random) -> None:
    """Renumber nodes, shuffle them in the file and give integers other types; nodes still refer to the same ones."""
    count = len(trace.nodes)
    numbers = list(range(count))
    if draw.random() < 0.5:
        numbers = draw.sample(range(draw.choice([count, 4 * count, 10**6 + count])), count)
        if draw.random() < 0.5:
            numbers.sort()
    for node in trace.nodes:
        node.id = numbers[node.id]
        for deps in (node.data_deps, node.ctrl_deps):
            deps[:] = [numbers[i] for i in deps]
            if draw.random() < 0.1:
                deps.extend(deps[:1])
        for attr in node.attr:
            form = attr.WhichOneof("value")
            if form in INTEGERS:
                value = getattr(attr, form)
                fitting = (
                    INTEGERS if value < 1 << 31 else ("int64_val", "uint64_val", "sint64_val", "fixed64_val")
                )
                setattr(attr, draw.choice(fitting), value)
    if draw.random() < 0.5:
        draw.shuffle(trace.nodes)


class _Maker:
    """Draws one case; all choices come from one generator, so a seed is a case."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.draw = random.Random(seed)
        self.style = self.draw.choice(STYLES)
        self.aware = self.draw.random() < 0.4
        self.network = self._network()
        self.sizes: list[int] = self.network["npus_count"]
        self.npus = math.prod(self.sizes)
        self.system = self._system()
        self.traces = [Trace() for _ in range(self.npus)]
        self.groups: dict[str, list[int]] = {}
        self.custom: dict[str, list[Trace]] = {}
        self.memory: dict[str, Any] = {"memory-type": "NO_MEMORY_EXPANSION"}

    def case(self) -> RandomCase:
        """Draw the workload, then options that any workload may have."""
        {
            "equal": self._graphs,
            "unequal": self._graphs,
            "graph": self._graphs,
            "messages": self._messages,
            "pipeline": self._pipeline,
            "groups": self._grouped,
            "mixed": self._grouped,
            "custom": self._custom,
        }[self.style]()
        if self.style in ("graph", "messages", "groups") and self.draw.random() < 0.3:
            self._memory_nodes()
        for trace in self.traces:
            if not trace.nodes:
                self._compute(trace, [], 1)
        options: dict[str, Any] = {}
        if self.draw.random() < 0.3:
            options["num-queues-per-dim"] = self.draw.choice([1, 2, 3, 4, 6])
        if self.draw.random() < 0.15:
            options["rendezvous-protocol"] = True
        if self.draw.random() < 0.1:
            options["injection-scale"] = self.draw.choice([2, 0.5, 0.55, 3])
        return RandomCase(
            self.seed, self.style, "aware" if self.aware else "unaware", self.network, self.system, self.memory,
            options, self.traces, self.groups, self.custom,
        )  # fmt: skip

    # -- systems -----------------------------------------------------------------------------------------------

    def _network(self) -> dict[str, list[Any]]:
        draw = self.draw
        dims = 1 if self.aware else draw.choice([1, 1, 1, 2, 2, 3, 4])
        while True:
            most = 9 if dims == 1 else 5
            if draw.random() < 0.1:
                most = 20
            sizes = [draw.randint(2, most) for _ in range(dims)]
            if math.prod(sizes) <= MAX_NPUS:
                break
        topology = [draw.choice(["Ring", "Switch", "FullyConnected"]) for _ in sizes]
        if self.aware and topology[0] == "Ring" and sizes[0] == 2:
            sizes[0] = draw.randint(3, 8)  # HEAD aborts on a ring of two
        bandwidth = [draw.choice([1, 25, 50, 50.0, 100, 400, 12.5, 0.3, draw.uniform(1, 900)]) for _ in sizes]
        latency = [draw.choice([0, 1, 500, 500.0, 1000, 2.5, 30.7, draw.uniform(0, 3000)]) for _ in sizes]
        return {"topology": topology, "npus_count": sizes, "bandwidth": bandwidth, "latency": latency}

    def _algorithm(self, key: str, npus: int, one: str = "") -> str:
        power = npus & (npus - 1) == 0
        names = ["ring", "ring", "ring", "direct", "direct", f"direct{self.draw.randint(1, 6)}"]
        if power and key != "all-to-all":
            names.append("halvingDoubling")
        if power and key == "all-reduce" and not one:
            names.append("doubleBinaryTree")
        name = self.draw.choice(names)
        return one + name[:1].upper() + name[1:] if one else name

    def _system(self) -> dict[str, Any]:
        draw = self.draw
        system: dict[str, Any] = {"scheduling-policy": draw.choice(["LIFO", "FIFO", "EXPLICIT"])}
        if draw.random() < 0.9:
            system["endpoint-delay"] = draw.choice([1, 10, 10, 3, 100, 1000, draw.randint(1, 5000)])
        system["active-chunks-per-dimension"] = draw.choice([1, 1, 2, 3, 4, 16])
        splits = [1] if self.style == "custom" else [1, 1, 2, 3, 4, 5, 8, 16, 64]
        system["preferred-dataset-splits"] = draw.choice(splits)
        for key in KEYS.values():
            names = [self._algorithm(key, n) for n in self.sizes]
            kind = draw.random()
            if kind < 0.08:
                names = [self._algorithm(key, self.npus, "one")]
            elif kind < 0.13:
                names = names[:1]
            system[f"{key}-implementation"] = names
        system["collective-optimization"] = draw.choice(["baseline", "localBWAware"])
        if draw.random() < 0.85:
            system["local-mem-bw"] = draw.choice([0, 50, 1600, 1600, 100, 3.3, draw.uniform(0.1, 2000)])
        system |= {"boost-mode": 0, "trace-enabled": 1}
        if draw.random() < 0.06:
            system |= {
                "model-shared-bus": 1, "L": draw.choice([1, 10, 100.5]), "o": draw.choice([1, 5]),
                "g": draw.choice([1, 2.5]), "G": draw.choice([0.001, 0.01, 0.0125]),
                "local-reduction-delay": draw.choice([1, 3]),
            }  # fmt: skip
        if draw.random() < 0.05:
            system["replay-only"] = 1
        if draw.random() < 0.15:
            system |= {"roofline-enabled": 1, "peak-perf": draw.choice([1, 10, 312, 0.5])}
            system["local-mem-bw"] = system.get("local-mem-bw") or 100
        return system

    # -- nodes -------------------------------------------------------------------------------------------------

    def _bytes(self) -> int:
        draw = self.draw
        return draw.choice(
            [
                1, 7, draw.randint(1, 300), draw.randint(64, 5000), draw.randint(1000, 2_000_000),
                1 << draw.randint(4, 24), draw.randint(1, 1 << 22),
            ]
        )  # fmt: skip

    def _deps(self, count: int) -> tuple[list[int], list[int]]:
        """Some earlier nodes, most of them as data dependencies."""
        if not count:
            return [], []
        deps = sorted(self.draw.sample(range(count), min(count, self.draw.choice([0, 1, 1, 1, 2, 3]))))
        cut = len(deps) // 2 if self.draw.random() < 0.2 else len(deps)
        return deps[:cut], deps[cut:]

    def _compute(
        self, trace: Trace, deps: list[int], micros: int, *, cpu: bool = False, ctrl: Any = ()
    ) -> int:
        attrs: dict[str, Any] = {"is_cpu_op": ("bool_val", cpu)}
        if self.system.get("roofline-enabled") or self.draw.random() < 0.1:
            attrs["num_ops"] = ("int64_val", self.draw.randint(1, 10**9))
            attrs["tensor_size"] = ("uint64_val", self.draw.randint(1, 10**7))
        return int(trace.add(pb.COMP_NODE, "COMP_NODE", deps, list(ctrl), micros, **attrs).id)

    def _collective(self, trace: Trace, deps: list[int], ctrl: Any = (), group: str | None = None) -> None:
        draw = self.draw
        kind = draw.choice(COLLECTIVES)
        size = self._bytes()
        if kind == "ALL_GATHER":
            size = max(size, self.system["preferred-dataset-splits"])  # HEAD never ends with less
        attrs: dict[str, Any] = {
            "is_cpu_op": ("bool_val", False),
            "comm_type": ("int64_val", pb.CollectiveCommType.Value(kind)),
            "comm_size": (draw.choice(["int64_val", "uint64_val"]), size),
        }
        if group is not None:
            attrs["pg_name"] = ("string_val", group)
        if draw.random() < 0.5:
            flags = [draw.random() < 0.7 for _ in self.sizes]
            if any(flags):
                attrs["involved_dim"] = ("bool_list", flags)
        if draw.random() < 0.1:
            attrs["comm_priority"] = ("int32_val", draw.randint(0, 5))
        trace.add(pb.COMM_COLL_NODE, f"COMM_COLL_NODE_{kind}", deps, list(ctrl), **attrs)

    def _send(self, source: int, target: int, size: int, tag: int, deps: list[int]) -> int:
        return self._message(self.traces[source], pb.COMM_SEND_NODE, source, target, size, tag, deps)

    def _receive(self, source: int, target: int, size: int, tag: int, deps: list[int]) -> int:
        return self._message(self.traces[target], pb.COMM_RECV_NODE, source, target, size, tag, deps)

    @staticmethod
    def _message(
        trace: Trace, kind: pb.NodeType, source: int, target: int, size: int, tag: int, deps: list[int]
    ) -> int:
        name = "COMM_SEND_NODE" if kind == pb.COMM_SEND_NODE else "COMM_RECV_NODE"
        ends: dict[str, Any] = {"comm_src": ("int32_val", source), "comm_dst": ("int32_val", target)}
        node = trace.add(
            kind, name, deps, [], comm_size=("int64_val", size), comm_tag=("int32_val", tag), **ends
        )  # fmt: skip
        return int(node.id)

    # -- workloads ---------------------------------------------------------------------------------------------

    def _everywhere(self, write: Callable[[int, Trace], None]) -> None:
        """The same choices for every rank: its number is all that may differ."""
        state = self.draw.getstate()
        for rank, trace in enumerate(self.traces):
            self.draw.setstate(state)
            write(rank, trace)

    def _graphs(self) -> None:
        draw = self.draw
        nodes = draw.choice([1, 2, 3, 5, 8, 14, 30])
        graph = self.style == "graph"
        computing = {"equal": draw.choice([0.0, 0.3]), "unequal": 0.5, "graph": 0.6}[self.style]

        def write(rank: int, trace: Trace) -> None:
            for k in range(nodes):
                deps, ctrl = self._deps(k)
                what = draw.random()
                skew = draw.choice([0, 0, 1, 5]) if self.style == "unequal" else 0
                micros = draw.choice([0, 1, 3, 20, 100])
                cpu = graph and draw.random() < 0.15
                if what < computing:
                    self._compute(trace, deps, micros + skew * (rank * 7 % 5), cpu=cpu, ctrl=ctrl)
                elif graph and what < computing + 0.04:
                    kind = pb.CollectiveCommType.Value("BROADCAST")
                    attrs = {"comm_type": ("int64_val", kind), "comm_size": ("int64_val", self._bytes())}
                    trace.add(pb.COMM_COLL_NODE, "COMM_COLL_NODE_BROADCAST", deps, ctrl, micros, **attrs)
                elif graph and what < computing + 0.06:
                    trace.add(pb.INVALID_NODE, "INVALID", deps, ctrl)
                else:
                    self._collective(trace, deps, ctrl)

        self._everywhere(write)
        if graph and draw.random() < 0.4:
            for trace in self.traces:
                for node in trace.nodes:
                    if node.type == pb.COMP_NODE and draw.random() < 0.5:
                        node.duration_micros = draw.choice([0, 1, 2, 50])

    def _messages(self) -> None:
        draw = self.draw
        hot = draw.randrange(self.npus) if draw.random() < 0.3 else None  # an incast
        for number in range(draw.choice([1, 2, 4, 10, 30, 60])):
            source, target = draw.sample(range(self.npus), 2)
            if hot is not None and source != hot:
                target = hot
            tag = draw.choice([0, 0, 1, 2, number, 5 * 10**8])
            size = self._bytes()
            self._send(source, target, size, tag, self._deps(len(self.traces[source].nodes))[0])
            self._receive(source, target, size, tag, self._deps(len(self.traces[target].nodes))[0])
            if draw.random() < 0.4:
                trace = draw.choice(self.traces)
                deps, ctrl = self._deps(len(trace.nodes))
                cpu = draw.random() < 0.2
                self._compute(trace, deps, draw.choice([0, 1, 7, 40]), cpu=cpu, ctrl=ctrl)
        if draw.random() < 0.4:
            self._everywhere(lambda rank, trace: self._collective(trace, []))

    def _pipeline(self) -> None:
        draw = self.draw
        stages = list(range(self.npus))
        draw.shuffle(stages)
        stages = stages[: draw.randint(2, self.npus)]
        micros, size = draw.randint(0, 30), self._bytes()
        batches = draw.choice([1, 3, 6])
        for j, rank in enumerate(stages):
            before: list[int] = []
            for batch in range(batches):
                deps = list(before)
                if j:
                    wait = before if draw.random() < 0.5 else []
                    deps.append(self._receive(stages[j - 1], rank, size, batch, wait))
                before = [self._compute(self.traces[rank], deps, micros + j % 3)]
                if j < len(stages) - 1:
                    self._send(rank, stages[j + 1], size, batch, before)
        for trace in self.traces:
            if not trace.nodes:
                self._compute(trace, [], 1)
        if draw.random() < 0.4:
            self._everywhere(lambda rank, trace: self._collective(trace, [len(trace.nodes) - 1]))

    def _grouped(self) -> None:
        """Groups that split all ranks evenly, so that every rank is in as many: HEAD counts streams per rank."""
        draw = self.draw
        partitions: list[dict[int, str]] = []
        number = draw.choice([1, 1, 5])
        for _ in range(draw.randint(1, 3)):
            ranks = list(range(self.npus))
            if draw.random() < 0.6:
                draw.shuffle(ranks)
            width = draw.choice([d for d in range(2, self.npus + 1) if self.npus % d == 0])
            part: dict[int, str] = {}
            for first in range(0, self.npus, width):
                members = ranks[first : first + width]
                self.groups[str(number)] = members
                part |= dict.fromkeys(members, str(number))
                number += draw.choice([1, 1, 3])
            partitions.append(part)
        nodes = draw.choice([1, 2, 3, 5, 8, 14])

        def write(rank: int, trace: Trace) -> None:
            for k in range(nodes):
                deps, ctrl = self._deps(k)
                what, part = draw.random(), draw.choice(partitions)
                micros, skew = draw.choice([0, 1, 3, 20]), draw.choice([0, 0, 1, 5])
                if what < 0.25:
                    self._compute(trace, deps, micros + skew * (rank % 4), ctrl=ctrl)
                elif what < 0.4 and self.style == "mixed":
                    self._collective(trace, deps, ctrl, draw.choice([None, "0", ""]))
                else:
                    self._collective(trace, deps, ctrl, part[rank])

        self._everywhere(write)

    def _custom(self) -> None:
        """Collective algorithms given as traces: rounds in which every rank sends to another at the same distance."""
        draw = self.draw
        for key in draw.sample(list(KEYS.values()), draw.randint(1, 3)):
            prefix = f"custom_{key}"
            self.system[f"{key}-implementation-custom"] = [prefix]
            rounds = [
                (draw.randint(1, self.npus - 1), self._bytes(), draw.randint(0, 4), draw.random())
                for _ in range(draw.randint(1, 4))
            ]
            chained, micros = draw.random() < 0.7, draw.choice([None, 0, 1, 3])
            traces = []
            for rank in range(self.npus):
                trace = Trace()
                before: list[int] = []
                for distance, size, tag, _ in rounds:
                    to, source = (rank + distance) % self.npus, (rank - distance) % self.npus
                    send = self._message(trace, pb.COMM_SEND_NODE, rank, to, size, tag, before)
                    receive = self._message(trace, pb.COMM_RECV_NODE, source, rank, size, tag, before)
                    if chained:
                        before = [receive] if micros is None else [send, receive]
                    if micros is not None:
                        before = [self._compute(trace, before or [receive], micros)]
                traces.append(trace)
            self.custom[prefix] = traces
        self._graphs_like("unequal")

    def _graphs_like(self, style: str) -> None:
        own, self.style = self.style, style
        self._graphs()
        self.style = own

    def _memory_nodes(self) -> None:
        draw = self.draw
        self.memory = {
            "memory-type": draw.choice(["PER_NPU_MEMORY_EXPANSION", "MEMORY_POOL"]),
            "remote-mem-latency": draw.choice([0, 1, 100]),
            "remote-mem-bw": draw.choice([0, 1, 50, 100]),
        }
        for trace in self.traces:
            for _ in range(draw.randint(0, 3)):
                deps, ctrl = self._deps(len(trace.nodes))
                kind, name = draw.choice(
                    [(pb.MEM_LOAD_NODE, "MEM_LOAD_NODE"), (pb.MEM_STORE_NODE, "MEM_STORE_NODE")]
                )
                size = ("uint64_val", self._bytes())
                trace.add(kind, name, deps, ctrl, tensor_size=size, is_cpu_op=("bool_val", False))
