"""`--backend flow` beside SimGrid's fluid network, case by case: a second witness beside packets.

    python benchmarks/bench_simgrid.py [PART OF A CASE'S NAME ...]

The cases of bench_packets.py that flows and packets were compared on, without headers and without latencies. SimGrid
(LGPL) is no dependence and is not installed by any extra: Debian has it as python3-simgrid; where `import simgrid`
fails, the program says so and ends. chakra keeps collectives and matching and hands over each message, as to ns-3;
SimGrid's model CM02 shares links, with its corrections for TCP switched off (factors 1, no window, no traffic of
acknowledgements). It gives flows shares by the inverse of their ways' latencies, and max-min fair ones where there are
none, which is why there are none here. A process a case, since SimGrid has one simulation in each.
"""

import importlib
import importlib.util
import math
import multiprocessing
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_packets import Case, cases, system

from chakra.replay import simulate
from chakra.replay.config.model import Network
from chakra.replay.networks.blocks import block_links, with_faults
from chakra.replay.networks.interface import NEVER_NS, Ended, LogicalDim, Transfers
from chakra.replay.networks.routes import link_graph

#: a link's name in SimGrid, by its number
LINK = "link{}"
#: seconds before a tick at which SimGrid's clock counts as there
CLOSE_S = 1e-12
SETTINGS = (
    "network/model:CM02",
    "network/latency-factor:1.0",
    "network/bandwidth-factor:1.0",
    "network/weight-S:0.0",
    "network/crosstraffic:0",
    "network/TCP-gamma:1e30",
    "surf/precision:1e-12",
    "maxmin/precision:1e-6",  # bytes per s
)


class Fluid:
    """A network that SimGrid simulates; what its methods do happens in an actor of SimGrid."""

    def __init__(self, simgrid: Any, network: Network) -> None:
        self._simgrid = simgrid
        self.name = "simgrid"
        self.dims = [LogicalDim(dim.npus, dim.bandwidth_gibps, dim.latency_ns) for dim in network.dims]
        links = network.links or block_links(network)
        network = Network(network.dims, network.source, links=links)
        zone = simgrid.NetZone.create_full_zone("network")
        self._hosts = [zone.create_host(f"npu{npu}", 1e9) for npu in range(network.npus)]
        made = [
            zone.create_link(LINK.format(k), link.bytes_per_ns * 1e9).set_latency(0.0).seal()
            for k, link in enumerate(links.links)
        ]
        n = network.npus
        pairs = np.array([(a, b) for a in range(n) for b in range(n) if a != b], np.int64)
        graph = link_graph(network, pairs)
        for a, b in pairs.tolist():
            key = a * n + b
            route = graph.routes[graph.route_start[key] : graph.route_start[key + 1]].tolist()
            ends = self._hosts[a].netpoint, self._hosts[b].netpoint
            zone.add_route(*ends, None, None, [simgrid.LinkInRoute(made[k]) for k in route], False)
        zone.seal()

    def begin(self) -> "Fluid":
        """Start with nothing under way."""
        self._flying: list[tuple[int, Any]] = []
        return self

    def _sleep(self, tick: int) -> None:
        ahead = tick * 1e-9 - self._simgrid.Engine.clock
        if ahead > CLOSE_S:
            self._simgrid.this_actor.sleep_for(ahead)

    def submit(self, transfers: Transfers) -> None:
        """Start a batch."""
        self._sleep(int(transfers.start_ns[0]))
        for number, src, dst, size in zip(
            *(values.tolist() for values in (transfers.id, transfers.src, transfers.dst, transfers.bytes)),
            strict=True,
        ):
            comm = self._simgrid.Comm.sendto_async(self._hosts[src], self._hosts[dst], size)
            self._flying.append((number, comm))

    def advance(self, until_ns: int) -> Ended:
        """To the first whole ns at which something has ended."""
        done: list[int] = []
        if self._flying:
            comms = [comm for _, comm in self._flying]
            if until_ns == NEVER_NS:
                first = self._simgrid.Comm.wait_any(comms)
            else:
                left = until_ns * 1e-9 - self._simgrid.Engine.clock
                first = self._simgrid.Comm.wait_any_for(comms, max(left, 0.0))
            if first >= 0:
                done.append(self._flying.pop(first)[0])
        if not done:
            if until_ns != NEVER_NS:
                self._sleep(until_ns)
            return Ended(np.zeros(0, np.int64), np.zeros(0, np.int64))
        tick = math.ceil((self._simgrid.Engine.clock - CLOSE_S) * 1e9)
        self._sleep(tick)
        for number, comm in list(self._flying):
            if comm.test():
                done.append(number)
                self._flying.remove((number, comm))
        done.sort()
        return Ended(np.array(done, np.int64), np.full(len(done), tick))

    def close(self) -> None:
        """Nothing is left."""


@dataclass(frozen=True)
class Ends:
    """When the NPUs of a case end, ns: with flows and in SimGrid."""

    flow: list[int]
    simgrid: list[int]


def without_latency(network: Network) -> Network:
    """The same network where nothing but bandwidth takes time."""
    dims = tuple(replace(dim, latency_ns=0.0) for dim in network.dims)
    if network.links is None:
        return replace(network, dims=dims)
    links = tuple(replace(link, latency_ns=0.0) for link in network.links.links)
    return replace(network, dims=dims, links=replace(network.links, links=links))


def witness(number: int) -> Ends:
    """Run a case, in a process of its own."""
    case = list(cases())[number]
    described = case.system or system()
    plain = without_latency(case.network(1.0))
    flow = simulate(case.workload, described, plain, backend="flow", **case.options)
    network = with_faults(plain, case.options.get("fail_links", ()), case.options.get("slow_links", {}))
    simgrid = importlib.import_module("simgrid")
    engine = simgrid.Engine(["bench", "--log=root.thresh:error", *(f"--cfg={text}" for text in SETTINGS)])
    outside = Fluid(simgrid, network)
    ended: list[list[int]] = []
    simgrid.Actor.create(
        "chakra",
        simgrid.Host.by_name("npu0"),
        lambda: ended.append(simulate(case.workload, described, outside).finish_ns.tolist()),
    )
    engine.run()
    return Ends(flow.finish_ns.tolist(), ended[0])


def show(case: Case, ends: Ends) -> tuple[int, int]:
    """Print a case's line; how many ns later the last NPU ends in SimGrid, and the NPU that differs most."""
    late = max(ends.simgrid) - max(ends.flow)
    most = max((b - a for a, b in zip(ends.flow, ends.simgrid, strict=True)), key=abs)
    print(
        f"{case.family}: {case.name}: {max(ends.flow):,} ns, {late:+,} ns, NPUs up to {most:+,} ns",
        flush=True,
    )
    return late, most


def main() -> None:
    """Run the cases whose family or name has one of the words given, or all."""
    if importlib.util.find_spec("simgrid") is None:
        print("SimGrid is not installed (import simgrid): nothing is compared")
        return
    words: Sequence[str] = sys.argv[1:]
    found: dict[str, list[tuple[int, int]]] = {}
    processes = multiprocessing.get_context("fork")
    for number, case in enumerate(cases()):
        if words and not any(word in f"{case.family}: {case.name}" for word in words):
            continue
        with processes.Pool(1) as pool:
            ends = pool.apply(witness, (number,))
        found.setdefault(case.family, []).append(show(case, ends))
    print("| cases | number | last NPU's end, largest difference | end of any NPU |")
    print("| --- | --- | --- | --- |")
    every = [row for rows in found.values() for row in rows]
    for family, rows in (*found.items(), ("all", every)):
        last, most = (max(column, key=abs) for column in zip(*rows, strict=True))
        print(f"| {family} | {len(rows)} | {last:+,} ns | {most:+,} ns |")


if __name__ == "__main__":
    main()
