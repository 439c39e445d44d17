"""How far `--backend flow` is from packets (`--backend ns3`), case by case, and what packets cost.

    python benchmarks/bench_packets.py [PART OF A CASE'S NAME ...]

Needs the extra `ns3`. TCP with an MTU of 9,000 bytes over links of 1 GB/s (2^30 B/s) and 1,000 ns; windows of 1 MiB
from the start, ten times any way's bandwidth times its delay; buffers of 64 MiB, so that nothing is lost. 16 MiB a
message. Flows get the share of the bandwidth that headers leave to payload (8,948 of 9,002 bytes). A line a case:
when the last NPU finishes with flows and with packets, the difference, that of the mean over NPUs, packets on links,
and CPU seconds. Two further groups show what windows and buffers do: 1 MiB from a first window of ten packets, and
incasts into small buffers. The last lines are tables of the families in Markdown, as in
docs/reference/flows-and-packets.md.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chakra.builder import TraceBuilder, Workload
from chakra.replay import ReplayResult, simulate
from chakra.replay.config import load_network
from chakra.replay.config.model import Network, Packets
from chakra.replay.topologies import dragonfly, fat_tree, rail_optimised, torus

MIB = 1 << 20
SIZE = 16 * MIB
MTU = 9000
LATENCY_NS = 1000.0
#: payload of a full packet by its bytes on the wire: 52 bytes of headers in it, 2 around it
SHARE = (MTU - 52) / (MTU + 2)
#: the same of the lossless transport: 44 bytes in it, 18 around it
LOSSLESS_SHARE = (MTU - 44) / (MTU + 18)
LOSSLESS = Packets(transport="lossless", mtu=MTU)
#: difference of the last end from which a case is run again without acknowledgements
WORSE = 0.05
WIDE = Packets(mtu=MTU, buffer=64 * MIB, initial_window=MIB, largest_window=MIB)
SLOW = Packets(mtu=MTU, buffer=64 * MIB)
LOSSY = Packets(mtu=MTU, buffer=128 << 10, least_timeout_ns=1_000_000)
Transfers = Sequence[tuple[int, int]]
#: a network for a bandwidth in GB/s of 2^30 B/s
Make = Callable[[float], Network]


@dataclass(frozen=True)
class Case:
    """A workload on a network."""

    family: str
    name: str
    network: Make
    workload: Workload
    system: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    packets: Packets = WIDE


def system(algorithm: str = "ring") -> dict[str, Any]:
    """One algorithm for what has it, rings for the rest; nothing but messages takes time."""
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    names = dict.fromkeys(kinds, "ring")
    names |= dict.fromkeys(kinds if algorithm == "direct" else kinds[:1], algorithm)
    return {
        **{f"{kind}-implementation": [name] for kind, name in names.items()},
        "endpoint-delay": 0,
        "preferred-dataset-splits": 1,
    }


def blocks(topology: str, npus: int) -> Make:
    """A building block."""
    return lambda bandwidth: load_network(
        {"topology": [topology], "npus_count": [npus], "bandwidth": [bandwidth], "latency": [LATENCY_NS]}
    )


def linked(npus: int, links: Sequence[tuple[object, object, float]]) -> Make:
    """Links with factors on the bandwidth."""
    return lambda bandwidth: load_network(
        {
            "npus_count": [npus],
            "links": [[a, b, factor * bandwidth, LATENCY_NS] for a, b, factor in links],
        }
    )


def tree(oversubscription: float) -> Make:
    """Two leaves of four NPUs, and two spines."""
    return lambda bandwidth: fat_tree(
        [4, 2], [1, 2], bandwidth_gibps=bandwidth, latency_ns=LATENCY_NS, oversubscription=oversubscription
    )


def wrapped(*shape: int, wrap: bool = True) -> Make:
    """A torus or a mesh."""
    return lambda bandwidth: torus(shape, bandwidth_gibps=bandwidth, latency_ns=LATENCY_NS, wrap=wrap)


def rails() -> Make:
    """Two nodes of four NPUs on four rails, and two spines; four times the bandwidth inside a node."""
    return lambda bandwidth: rail_optimised(
        2,
        4,
        node_bandwidth_gibps=4 * bandwidth,
        node_latency_ns=LATENCY_NS,
        bandwidth_gibps=bandwidth,
        latency_ns=LATENCY_NS,
        spines=2,
    )


def groups() -> Make:
    """A dragonfly of three groups of two routers with two NPUs each."""
    return lambda bandwidth: dragonfly(3, 2, 2, bandwidth_gibps=bandwidth, latency_ns=LATENCY_NS)


def messages(npus: int, transfers: Transfers, size: int = SIZE) -> Workload:
    """Messages that all start at once."""
    workload = Workload(npus)

    def program(b: TraceBuilder) -> None:
        b.compute("start", duration_ns=0)
        for tag, (src, dst) in enumerate(transfers):
            if b.rank == src:
                b.send(dst, size_bytes=size, tag=tag)
            elif b.rank == dst:
                b.recv(src, size_bytes=size, tag=tag)

    workload.run(program)
    return workload


def collective(npus: int, kind: str, size: int) -> Workload:
    """One collective of all."""
    workload = Workload(npus)
    workload.run(lambda b: b.collective(kind, size_bytes=size))
    return workload


def jobs(npus: int, members: Sequence[Sequence[int]], kind: str, size: int) -> Workload:
    """A collective in each of some groups."""
    workload = Workload(npus)
    for k, ranks in enumerate(members):
        workload.add_group(ranks, f"job{k}")

    def program(b: TraceBuilder) -> None:
        for k, ranks in enumerate(members):
            if b.rank in ranks:
                b.collective(kind, size_bytes=size, group=f"job{k}")

    workload.run(program)
    return workload


def shift(npus: int, by: int) -> Transfers:
    """Each NPU to the one `by` further on."""
    return [(npu, (npu + by) % npus) for npu in range(npus)]


def incast(sources: Sequence[int], to: int) -> Transfers:
    """Some to one."""
    return [(npu, to) for npu in sources]


def transposed(n: int) -> Transfers:
    """NPU (i, j) of n x n to NPU (j, i)."""
    return [(n * i + j, n * j + i) for i in range(n) for j in range(n) if i != j]


def cases() -> Iterator[Case]:
    """All cases without loss."""
    switch = {npus: blocks("Switch", npus) for npus in (4, 8)}
    for n in (2, 3, 5, 7):
        yield Case("incast", f"{n} to one", switch[8], messages(8, incast(range(1, n + 1), 0)))
    yield Case("incast", "one to 4", switch[8], messages(8, [(0, k) for k in range(1, 5)]))
    yield Case(
        "incast", "3 to one, twice", switch[8], messages(8, [*incast((1, 2, 3), 0), *incast((5, 6, 7), 4)])
    )
    yield Case(
        "incast",
        "rows of 3 to one and of one to 3",
        switch[8],
        messages(8, [(1, 0), (2, 0), (3, 0), (1, 4), (1, 5)]),
    )
    for kind, times in (("all_reduce", 4), ("all_gather", 1), ("reduce_scatter", 4), ("all_to_all", 4)):
        for topology in ("Switch", "Ring"):
            made = collective(4, kind, times * SIZE)
            yield Case("collectives", f"{kind}, ring on {topology}", blocks(topology, 4), made, system())
    for algorithm, times in (
        ("direct", 4),
        ("halvingDoubling", 4),
        ("doubleBinaryTree", 2),
        ("rabenseifner", 4),
    ):
        made = collective(4, "all_reduce", times * SIZE)
        yield Case("collectives", f"all_reduce, {algorithm} on Switch", switch[4], made, system(algorithm))
    for kind, times in (("all_to_all", 4), ("all_gather", 1)):
        made = collective(4, kind, times * SIZE)
        yield Case(
            "collectives",
            f"{kind}, direct on FullyConnected",
            blocks("FullyConnected", 4),
            made,
            system("direct"),
        )
        yield Case("collectives", f"{kind}, direct on Switch", switch[4], made, system("direct"))
    for by in (2, 3, 4):
        yield Case("rings that cross", f"Ring of 8, {by} on", blocks("Ring", 8), messages(8, shift(8, by)))
    both = [*shift(8, 1), *shift(8, 2)]
    yield Case("rings that cross", "Ring of 8, 1 and 2 on", blocks("Ring", 8), messages(8, both))
    made = jobs(8, [[0, 2, 4, 6], [1, 3, 5, 7]], "all_gather", SIZE)
    yield Case("rings that cross", "Ring of 8, even and odd all_gather", blocks("Ring", 8), made, system())
    for over in (1.0, 2.0, 4.0):
        yield Case(
            "oversubscribed trees", f"{over:g}:1, to the other leaf", tree(over), messages(8, shift(8, 4))
        )
        inside = [*shift(8, 4)[:4], (4, 5), (6, 7)]
        yield Case(
            "oversubscribed trees",
            f"{over:g}:1, to the other leaf and inside",
            tree(over),
            messages(8, inside),
        )
    yield Case(
        "oversubscribed trees",
        "2:1, 4 of the other leaf to one",
        tree(2),
        messages(8, incast(range(4, 8), 0)),
    )
    yield Case(
        "oversubscribed trees",
        "4:1, all_gather over leaves",
        tree(4),
        collective(8, "all_gather", SIZE // 2),
        system(),
    )
    yield Case("torus", "4x4, one on in both dimensions", wrapped(4, 4), messages(16, shift(16, 5)))
    yield Case("torus", "4x4, two on", wrapped(4, 4), messages(16, shift(16, 2)))
    yield Case(
        "torus",
        "4x4, transposed",
        wrapped(4, 4),
        messages(16, transposed(4)),
    )
    yield Case(
        "torus",
        "mesh 3x3, from corner to corner",
        wrapped(3, 3, wrap=False),
        messages(9, [(0, 8), (8, 0), (2, 6), (6, 2)]),
    )
    yield Case(
        "torus", "2x2x2, opposite corners", wrapped(2, 2, 2), messages(8, [(k, 7 - k) for k in range(8)])
    )
    for name, make, ends, transfers in (
        ("Ring of 6, one on", blocks("Ring", 6), "0-1", shift(6, 1)),
        ("Ring of 6, two on", blocks("Ring", 6), "2-3", shift(6, 2)),
        ("torus 3x3", wrapped(3, 3), "0-1", shift(9, 1)),
        ("tree, a leaf without a spine", tree(1), "L1.0.0-L2.0.0", shift(8, 4)),
    ):
        npus = make(1.0).npus
        yield Case("failed link", name, make, messages(npus, transfers), {}, {"fail_links": [ends]})
    yield Case(
        "failed link",
        "a link at half its speed",
        blocks("Ring", 6),
        messages(6, shift(6, 1)),
        {},
        {"slow_links": {"0-1": 0.5}},
    )
    apart = [[0, 1, 4, 5], [2, 3, 6, 7]]
    for kind, times, algorithm in (
        ("all_gather", 1, "ring"),
        ("all_reduce", 4, "ring"),
        ("all_to_all", 4, "direct"),
    ):
        made = jobs(8, apart, kind, times * SIZE)
        yield Case("two jobs", f"{kind} of both over leaves, 2:1", tree(2), made, system(algorithm))
    line = linked(
        6,
        [
            (0, "a", 1),
            (1, "a", 1),
            (2, "b", 1),
            (3, "b", 1),
            (4, "c", 1),
            (5, "c", 1),
            ("a", "b", 1),
            ("b", "c", 1),
        ],
    )
    yield Case("two jobs", "a long way beside two short ones", line, messages(6, [(0, 4), (1, 2), (3, 5)]))
    yield Case("two jobs", "rails, each to the other node", rails(), messages(8, shift(8, 4)))
    yield Case("two jobs", "dragonfly, each to the next group", groups(), messages(12, shift(12, 4)))


def short_and_lossy() -> Iterator[Case]:
    """What flows do not see."""
    switch = blocks("Switch", 8)
    for n in (1, 4):
        made = messages(8, incast(range(1, n + 1), 0), MIB)
        yield Case("slow start", f"1 MiB, {n} to one", switch, made, packets=SLOW)
    ring = collective(4, "all_reduce", 4 * MIB)
    yield Case(
        "slow start", "1 MiB, all_reduce, ring on Switch", blocks("Switch", 4), ring, system(), packets=SLOW
    )
    for n in (2, 4, 7):
        made = messages(8, incast(range(1, n + 1), 0))
        yield Case("lossy incast", f"{n} to one", switch, made, packets=LOSSY)


@dataclass(frozen=True)
class Found:
    """What a case came to: differences are of packets from flows."""

    case: Case
    last: float
    mean: float


def measure(case: Case) -> Found:
    """Run a case on both, and print its line."""
    described = case.system or system()
    share = LOSSLESS_SHARE if case.packets.transport == "lossless" else SHARE
    flow = simulate(case.workload, described, case.network(share), backend="flow", **case.options)
    network = replace(case.network(1.0), packets=case.packets)
    begun = time.process_time()
    packets = simulate(case.workload, described, network, backend="ns3", **case.options)
    seconds = time.process_time() - begun
    ends = [(int(run.finish_ns.max()), mean_end(run)) for run in (flow, packets)]
    last, mean = (there / here - 1 for here, there in zip(*ends, strict=True))
    (note,) = (line for line in packets.notes if line.startswith("ns-3"))
    print(
        f"{case.family}: {case.name}: {ends[0][0]:,} ns, {ends[1][0]:,} ns, {100 * last:+.2f} %, "
        f"mean {100 * mean:+.2f} %, {note.partition('): ')[2]}, {seconds:.1f} s",
        flush=True,
    )
    return Found(case, last, mean)


def mean_end(run: ReplayResult) -> float:
    """Mean finish of the NPUs that do something, ns."""
    ends = run.finish_ns[run.finish_ns > 0]
    return float(ends.mean())


def table(found: Sequence[Found]) -> Iterator[str]:
    """Differences by family, as Markdown."""
    yield "| cases | number | mean difference of the last end | largest | mean difference of the mean end | largest |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for family in dict.fromkeys(item.case.family for item in found):
        rows = [item for item in found if item.case.family == family]
        yield f"| {family} | {len(rows)} | {shares(rows)} |"
    if found:
        yield f"| all | {len(found)} | {shares(found)} |"


def shares(rows: Sequence[Found]) -> str:
    """Mean and largest of both differences, in percent."""
    cells = []
    for values in ([item.last for item in rows], [item.mean for item in rows]):
        cells.append(f"{100 * statistics.mean(map(abs, values)):.2f} %")
        cells.append(f"{100 * max(values, key=abs):+.2f} %")
    return " | ".join(cells)


def main() -> None:
    """Run the cases whose family or name has one of the words given, or all."""
    words = sys.argv[1:]

    def wanted(case: Case) -> bool:
        return not words or any(word in f"{case.family}: {case.name}" for word in words)

    begun = time.process_time()
    simulate(messages(2, [(0, 1)], 1), system(), blocks("Ring", 2)(1.0), backend="ns3")
    print(f"loading ns-3 and compiling the glue: {time.process_time() - begun:.1f} CPU s")
    found = [measure(case) for case in cases() if wanted(case)]
    apart = [measure(case) for case in short_and_lossy() if wanted(case)]
    print(
        f"more than {WORSE:.0%} apart, again with the lossless transport, which has no acknowledgements that wait:"
    )
    again = [measure(replace(item.case, packets=LOSSLESS)) for item in found if abs(item.last) > WORSE]
    print("\n".join([*table(found), "", *table(apart), "", *table(again)]))


if __name__ == "__main__":
    main()
