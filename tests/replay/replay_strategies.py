"""Random systems and workloads for the laws of the replay engines."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.replay import ReplayResult, simulate

TOPOLOGIES = ("Ring", "Switch", "FullyConnected")
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
#: algorithms under which one collective is monotone (direct: other than all-reduce)
MONOTONE = ("ring", "halvingDoubling", "direct")
SHAPES: dict[int, list[tuple[int, ...]]] = {
    1: [(2,), (3,), (4,), (5,), (8,)],
    2: [(2, 2), (4, 2), (3, 2), (2, 4)],
    3: [(2, 2, 2), (2, 3, 2)],
}


@dataclass(frozen=True)
class Setting:
    """A system to run on."""

    network: dict[str, Any]
    system: dict[str, Any]
    memory: dict[str, Any] | None
    groups: dict[str, list[int]] = field(default_factory=dict)
    queues: int = 1
    rendezvous: bool = False

    @property
    def npus(self) -> int:
        """Number of NPUs."""
        total = 1
        for count in self.network["npus_count"]:
            total *= count
        return total


def options_of(setting: Setting) -> dict[str, Any]:
    """Of a system, what `simulate` takes by name."""
    return {
        "memory": setting.memory,
        "comm_groups": setting.groups or None,
        "queues_per_dim": setting.queues,
        "rendezvous": setting.rendezvous,
    }


def run(setting: Setting, traces: list[Trace], **more: Any) -> ReplayResult:
    """Replay on a drawn system."""
    return simulate(traces, setting.system, setting.network, **options_of(setting), **more)


class Traces(list[Trace]):
    """Traces that show as a line per node."""

    def __repr__(self) -> str:
        rows = []
        for npu, trace in enumerate(self):
            for view in trace.nodes():
                attrs = {k: v for k, v in view.attrs.items() if k not in ("is_cpu_op", "comm_type")}
                deps = list(trace.node_proto(view.index).data_deps)
                rows.append(f"{npu}.{view.id} {view.name} {view.duration_ns} ns {attrs} after {deps}")
        return "\n".join(rows)


def _power(shape: Sequence[int]) -> bool:
    return all(n & (n - 1) == 0 for n in shape)


@st.composite
def settings_of_systems(
    draw: st.DrawFn, *, algorithm: str | None = None, dims: int | None = None, npus: int | None = None
) -> Setting:
    """A network of 1 to 3 dimensions, algorithms that it can run, groups, memory, options."""
    n_dims = dims or draw(st.integers(1, 3))
    shapes: list[tuple[int, ...]] = [s for s in SHAPES[n_dims] if algorithm != "halvingDoubling" or _power(s)]
    if npus is not None:
        shapes = [s for s in shapes if _size(s) <= npus]
    shape = draw(st.sampled_from(shapes))
    network = {
        "topology": [draw(st.sampled_from(TOPOLOGIES)) for _ in shape],
        "npus_count": list(shape),
        "bandwidth": [float(draw(st.sampled_from([10, 25, 50, 400]))) for _ in shape],
        "latency": [float(draw(st.sampled_from([0, 10, 500, 777]))) for _ in shape],
    }
    system: dict[str, Any] = {
        "endpoint-delay": draw(st.sampled_from([1, 10, 100])),
        "active-chunks-per-dimension": draw(st.integers(1, 4)),
        "preferred-dataset-splits": draw(st.integers(1, 5)),
        "collective-optimization": draw(st.sampled_from(["baseline", "localBWAware"])),
        "local-mem-bw": draw(st.sampled_from([0, 50, 1600])),
    }
    for kind in KINDS:
        names = ["ring", "direct", "direct1", "direct2"]
        if _power(shape) and kind != "all-to-all":
            names.append("halvingDoubling")
        if _power(shape) and kind == "all-reduce" and system["collective-optimization"] == "baseline":
            names.append("doubleBinaryTree")
        wanted = algorithm
        if algorithm == "halvingDoubling" and kind == "all-to-all":
            wanted = "ring"
        system[f"{kind}-implementation"] = [wanted or draw(st.sampled_from(names)) for _ in shape]
    setting = Setting(network, system, {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 100})
    total = setting.npus
    groups: dict[str, list[int]] = {}
    if total >= 4 and draw(st.booleans()):
        half = draw(st.permutations(range(total)))
        cut = draw(st.integers(2, total - 2))
        groups = {"1": list(half[:cut]), "2": list(half[cut:])}
        for kind in KINDS:  # trees and halving-doubling need a power of two in every group
            listed = system[f"{kind}-implementation"]
            system[f"{kind}-implementation"] = [
                a if len(shape) > 1 or a.startswith(("ring", "direct")) else "ring" for a in listed
            ]
    return Setting(
        network,
        system,
        setting.memory,
        groups,
        draw(st.integers(1, 3)),
        draw(st.sampled_from([False, False, False, True])) and algorithm is None,
    )


def _size(shape: Sequence[int]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


@st.composite
def workloads(draw: st.DrawFn, setting: Setting, most: int = 6, *, messages: bool = True) -> list[Trace]:
    """One trace per NPU: compute, collectives of all or of groups in one order, shifts along the ring, memory."""
    words = ["compute", "collective", "collective", "memory", "beside", *(["shift"] if messages else [])]
    n = setting.npus
    builders = [TraceBuilder(i) for i in range(n)]
    last: list[Any] = [None] * n
    stragglers = draw(st.sets(st.integers(0, n - 1), max_size=2))
    grouped = st.booleans() if setting.groups else st.just(False)
    for step in range(draw(st.integers(1, most))):
        what = draw(st.sampled_from(words))
        size = draw(st.sampled_from([1, 999, 4096, 65536, 1_000_003]))
        kind = draw(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]))
        group = draw(grouped)
        hop = draw(st.integers(1, n - 1))
        micros = draw(st.integers(0, 30))
        chained, on_cpu = draw(st.booleans()), draw(st.booleans())
        for i, b in enumerate(builders):
            after = [last[i]] if last[i] is not None else []
            if what == "beside":
                # off the chain, which alone decides the order of collectives
                b.compute(duration_micros=micros, after=after if chained else [], cpu=on_cpu)
            elif what == "compute":
                last[i] = b.compute(duration_micros=micros + (17 if i in stragglers else 0), after=after)
            elif what == "memory":
                last[i] = b.load(size, after=after)
            elif what == "collective":
                name = None
                if group:
                    name = next(g for g, ranks in setting.groups.items() if i in ranks)
                last[i] = b.collective(kind, size_bytes=max(size, 64), group=name, after=after)
            else:
                b.send((i + hop) % n, size_bytes=size, tag=step, after=after)
                last[i] = b.recv((i - hop) % n, size_bytes=size, tag=step, after=after)
    return Traces(b.build() for b in builders)


def collective_traces(setting: Setting, kind: str, size: int) -> list[Trace]:
    """All NPUs run one collective."""
    builder = TraceBuilder()
    builder.collective(kind, size_bytes=size)
    return [builder.build()] * setting.npus


def exchange_traces(setting: Setting, kinds: Sequence[str], size: int, micros: Sequence[int]) -> list[Trace]:
    """Chains of compute and collectives; `micros` is the compute time of each NPU."""
    traces = []
    for i in range(setting.npus):
        builder = TraceBuilder(i)
        last = builder.compute(duration_micros=micros[i])
        for kind in kinds:
            last = builder.collective(kind, size_bytes=size, after=[last])
            last = builder.compute(duration_micros=micros[i], after=[last])
        traces.append(builder.build())
    return traces


def permuted(traces: Sequence[Trace], order: Sequence[int]) -> list[Trace]:
    """The traces with NPU i renamed to `order[i]`, peers included."""
    from chakra.et.attributes import attribute_value
    from chakra.et.schema import CommType, NodeType

    out: list[Trace | None] = [None] * len(traces)
    for i, trace in enumerate(traces):
        builder = TraceBuilder(order[i])
        made: dict[int, Any] = {}
        for index in range(trace.n_nodes):
            view = trace.node(index)
            proto = trace.node_proto(index)
            after = [made[int(d)] for d in proto.data_deps]
            attrs: dict[str, Any] = {a.name: attribute_value(a) for a in proto.attr}
            if view.type is NodeType.COMP:
                made[view.id] = builder.compute(
                    duration_ns=view.duration_ns, cpu=bool(attrs["is_cpu_op"]), after=after
                )
            elif view.type is NodeType.MEM_LOAD:
                made[view.id] = builder.load(attrs["tensor_size"], after=after)
            elif view.type is NodeType.COMM_COLL:
                made[view.id] = builder.collective(
                    CommType(int(attrs["comm_type"])), size_bytes=attrs["comm_size"], after=after
                )
            elif view.type is NodeType.COMM_SEND:
                made[view.id] = builder.send(
                    order[attrs["comm_dst"]],
                    size_bytes=attrs["comm_size"],
                    tag=attrs["comm_tag"],
                    after=after,
                )
            else:
                made[view.id] = builder.recv(
                    order[attrs["comm_src"]],
                    size_bytes=attrs["comm_size"],
                    tag=attrs["comm_tag"],
                    after=after,
                )
        out[order[i]] = builder.build()
    return [trace for trace in out if trace is not None]
