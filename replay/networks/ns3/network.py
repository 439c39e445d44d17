"""A network whose packets ns-3 simulates, as an `OutsideNetwork`: links, routes and settings to the glue, ticks back."""

import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chakra.arrays import I64, distinct
from chakra.errors import ConfigError, UsageError
from chakra.io.readable import counted, counted_text, verb
from chakra.replay.config.model import Links, Network, Packets
from chakra.replay.config.packet_keys import FIRST_SEGMENTS
from chakra.replay.config.packets import queue_of, threshold_of
from chakra.replay.networks.blocks import block_links
from chakra.replay.networks.interface import Ended, LinkUse, LogicalDim, Transfers, UseOverTime
from chakra.replay.networks.ns3.library import load_glue, require_ns3
from chakra.replay.networks.routes import SPLITTING, LinkGraph, link_graph
from chakra.replay.options import NS3

#: NPUs of a network that are simulated packet by packet
MAX_NPUS = 1024
#: links of such a network, a direction each
MAX_LINKS = 1 << 17
#: most links of a route: the time to live of a packet
MAX_HOPS = 254
#: bytes of IP's and TCP's headers, time stamps included
TCP_HEADERS = 52
#: packets that come to their NPUs before control comes back, for progress and interrupts
SLICE_PACKETS = 5_000
#: ns without anything under way after which the time until the next transfer is not simulated
QUIET_NS = 10_000_000_000
#: ns that a simulation can last, in ps of 63 bits, with room
LONGEST_NS = 1 << 52
#: estimated seconds from which a run has to be asked for
LONG_S = 3600
#: CPU us of a packet at both ends, and on each link, acknowledgements included (benchmarks/bench_packets.py)
COST_US = {"tcp": (20.0, 10.0), "dctcp": (20.0, 13.0), "lossless": (0.0, 1.0)}
#: intervals in which a link's use over time is counted, and words that those of all links may take; with fewer than
#: `LEAST_INTERVALS` for each none are kept
MOST_INTERVALS, LEAST_INTERVALS, USE_WORDS = 128, 16, 1 << 20
#: answers of the glue's `Advance`
_ENDED, _PAUSED, _IDLE = 1, 2, 3
#: GB/s (2^30 B/s) that a link may have: a kilobit to a petabit per second
SLOWEST_GIBPS, FASTEST_GIBPS = 1e-6, 100_000.0
#: Ethernet's bytes around a packet of the lossless transport, and packets that its buffer holds beside what flies
FRAME_BYTES, LEAST_PACKETS = 18, 6
_running = threading.Lock()


def with_packets(network: Network, *, long_run: bool = False) -> Network:
    """The network with ns-3 to simulate its packets.

    Parameters
    ----------
    network
        Of building blocks or links.
    long_run
        Whether a run is allowed that is estimated to take longer than `LONG_S`.

    Raises
    ------
    UsageError
        If ns-3 is not installed.
    ConfigError
        If the network is one that it cannot simulate: too large, or with flows that take several ways.
    """
    if network.outside is not None:
        raise UsageError(
            f"backend: {network.source} is simulated by another package, which decides how transfers share links; "
            f"{NS3!r} is not for it"
        )
    if network.npus > MAX_NPUS:
        raise ConfigError(
            f"{network.source}: {counted(network.npus, 'NPU')}; packets are simulated for at most {MAX_NPUS}; "
            "--backend flow goes "
            "to more"
        )
    links = network.links or block_links(network)
    if len(links.links) > MAX_LINKS:
        raise ConfigError(
            f"{network.source}: {counted(len(links.links), 'link')}, a direction each; packets are simulated on at "
            f"most {MAX_LINKS}"
        )
    if links.ecmp in SPLITTING:
        raise ConfigError(
            f"{network.source}: ecmp {links.ecmp!r} sends the packets of a message on several ways, which transports "
            "that keep an order take for losses; use one of hash, first, destination"
        )
    _check_links(network, links)
    require_ns3()
    return replace(network, outside=Ns3Network(replace(network, links=links), long_run))


def _check_links(network: Network, links: Links) -> None:
    """Bandwidths that ns-3 can count; buffers that hold what is under way when a lossless link is told to stop."""
    packets = network.packets
    for link in links.links:
        if not SLOWEST_GIBPS <= link.bandwidth_gibps <= FASTEST_GIBPS:
            raise ConfigError(
                f"{network.source}: a link of {link.bandwidth_gibps:g} GB/s; packets are simulated on links of "
                f"{SLOWEST_GIBPS:g} to {FASTEST_GIBPS:g} GB/s"
            )
        if packets.transport != "lossless":
            continue
        flying = 2 * link.latency_ns * link.bytes_per_ns
        least = int(flying) + LEAST_PACKETS * (packets.mtu + FRAME_BYTES)
        if packets.buffer < least:
            ends = [v if v < network.npus else links.vertices[v - network.npus] for v in (link.src, link.dst)]
            raise ConfigError(
                f"{network.source}: packets: key 'buffer' must be {least:,} bytes at least, for what the link "
                f"{ends[0]}-{ends[1]} still sends after it is told to stop"
            )


@dataclass(frozen=True, slots=True)
class Ns3Network:
    """A network of links whose packets ns-3 simulates.

    One simulation at a time runs in a process: ns-3 keeps its clock and events in global variables.

    Attributes
    ----------
    network
        With links.
    long_run
        Whether a run is allowed that is estimated to take longer than `LONG_S`.
    """

    network: Network
    long_run: bool = False

    @property
    def name(self) -> str:
        """What messages call it."""
        return NS3

    @property
    def dims(self) -> Sequence[LogicalDim]:
        """Those of the network."""
        return [LogicalDim(dim.npus, dim.bandwidth_gibps, dim.latency_ns) for dim in self.network.dims]

    def expect(self, pairs: I64, total_bytes: int) -> None:
        """Refuse a run that would take hours, unless it is allowed.

        Raises
        ------
        UsageError
            With the estimate.
        """
        expected = estimate(self.network, pairs, total_bytes)
        if expected.seconds > LONG_S and not self.long_run:
            raise UsageError(
                f"backend: 'ns3' would take about {expected.seconds / 3600:,.1f} hours here ({expected.packets:,} "
                f"packets over {expected.hops:.1f} links each): allow it with --long-run, send less, give packets a "
                "larger mtu, or use --backend flow"
            )

    def begin(self) -> "Ns3Run":
        """Load ns-3 if this process has not yet, and start a simulation.

        Raises
        ------
        ConfigError
            If one is running, ns-3 cannot be loaded, or the network is one that it does not take.
        """
        glue = load_glue()
        if not _running.acquire(blocking=False):
            raise ConfigError(
                "ns-3 simulates one network at a time in a process: run the other in a process of its own"
            )
        try:
            return Ns3Run(self.network, glue)
        except BaseException:
            _running.release()
            raise


def segment_bytes(packets: Packets) -> int:
    """Payload of a full packet of TCP."""
    return packets.mtu - TCP_HEADERS


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run will cost, about.

    Attributes
    ----------
    packets
        That carry payload.
    hops
        Links that one crosses, on average over the pairs.
    seconds
        Of a CPU core.
    """

    packets: int
    hops: float
    seconds: float


def estimate(network: Network, pairs: I64, total_bytes: int) -> Estimate:
    """Packets of a run, and how long it takes.

    Parameters
    ----------
    network
        With links.
    pairs
        Of NPUs that exchange messages, shape (pairs, 2).
    total_bytes
        That they send together.
    """
    n, packets = network.npus, network.packets
    graph = link_graph(network, pairs)
    keys = distinct(pairs[:, 0] * n + pairs[:, 1])
    keys = keys[keys // n != keys % n]
    hops = float((graph.route_start[keys + 1] - graph.route_start[keys]).mean()) if len(keys) else 0.0
    count = math.ceil(total_bytes / segment_bytes(packets))
    at_ends, per_hop = COST_US[packets.transport]
    return Estimate(count, hops, count * (at_ends + per_hop * hops) * 1e-6)


class Ns3Run:
    """One simulation.

    Attributes
    ----------
    paused_ns
        Where `advance` has stopped before anything ended and before it was asked to, ns; None if it has not.
    """

    def __init__(self, network: Network, glue: Any) -> None:
        assert network.links is not None
        self._network, self._links = network, network.links
        self.paused_ns: int | None = None
        self._known: set[int] = set()
        self._flying = 0
        #: clock of the replay less that of the simulation, ns
        self._ahead = 0
        self._lossless = network.packets.transport == "lossless"
        setup = self._setup(glue)
        kind = glue.LosslessSimulation if self._lossless else glue.TcpSimulation
        self._simulation = kind(setup)
        room = min(MOST_INTERVALS, USE_WORDS // max(len(self._links.links), 1))
        self._intervals = room if room >= LEAST_INTERVALS else 0
        self._simulation.KeepUse(self._intervals)

    def _setup(self, glue: Any) -> Any:
        network, links, packets = self._network, self._links, self._network.packets
        setup = glue.Setup()
        setup.npus, setup.vertices = network.npus, network.npus + len(links.vertices)
        setup.dctcp, setup.red = packets.transport == "dctcp", queue_of(packets) == "red"
        setup.mtu, setup.segment, setup.buffer = packets.mtu, segment_bytes(packets), packets.buffer
        setup.threshold, setup.seed = threshold_of(packets), packets.seed
        first = packets.initial_window
        setup.initialSegments = FIRST_SEGMENTS if first is None else math.ceil(first / segment_bytes(packets))
        setup.largestWindow = packets.largest_window
        setup.leastTimeoutPs = packets.least_timeout_ns * 1000
        for link in links.links:
            bits = round(link.bytes_per_ns * 8e9)
            setup.AddLink(link.src, link.dst, bits, round(link.latency_ns * 1000))
        return setup

    def _name(self, vertex: int) -> int | str:
        npus = self._network.npus
        return vertex if vertex < npus else self._links.vertices[vertex - npus]

    def _add_routes(self, src: I64, dst: I64) -> None:
        """Give the simulation the ways there and back of pairs that are new."""
        n = self._network.npus
        keys = set(distinct(np.concatenate([src * n + dst, dst * n + src])).tolist()) - self._known
        if not keys:
            return
        self._known |= keys
        wanted = np.array(sorted(keys), np.int64)
        graph = link_graph(self._network, np.stack([wanted // n, wanted % n], axis=1))
        for key in wanted.tolist():
            route = route_of(graph, key)
            if len(route) > MAX_HOPS:
                raise ConfigError(
                    f"{self._network.source}: the way from NPU {key // n} to NPU {key % n} has "
                    f"{counted(len(route), 'link')}; a "
                    f"packet lives for {MAX_HOPS}"
                )
            self._simulation.AddRoute(key // n, key % n, route, len(route))

    def submit(self, transfers: Transfers) -> None:
        """Start a batch."""
        self._add_routes(transfers.src, transfers.dst)
        start = int(transfers.start_ns[0])
        if not self._flying and start - self._ahead > self._now_ns() + QUIET_NS:
            # what is left of timers and acknowledgements ends, and then nothing happens until the batch starts
            self._simulation.Advance(self._now_ns() + QUIET_NS, -1)
            self._ahead = start - self._now_ns()
            self._simulation.SetAhead(self._ahead)
        self._flying += len(transfers.id)
        at = transfers.start_ns - self._ahead
        self._simulation.Submit(len(at), transfers.src, transfers.dst, transfers.bytes, at)

    def _now_ns(self) -> int:
        return int(self._simulation.NowNs())

    def advance(self, until_ns: int) -> Ended:
        """To the first tick at which something ends, to `until_ns`, or until so many packets have come."""
        self.paused_ns = None
        nothing = Ended(np.zeros(0, np.int64), np.zeros(0, np.int64))
        if not self._flying:
            return nothing
        until = until_ns - self._ahead
        if until > LONGEST_NS:
            until = -1
        if self._now_ns() > LONGEST_NS:
            raise ConfigError(f"transfers are under way for more than {LONGEST_NS} ns")
        state = int(self._simulation.Advance(until, SLICE_PACKETS))
        if state == _ENDED:
            numbers = np.zeros(int(self._simulation.Count()), np.int64)
            tick = int(self._simulation.Take(numbers)) + self._ahead
            self._flying -= len(numbers)
            return Ended(numbers, np.full(len(numbers), tick))
        if state == _PAUSED:
            self.paused_ns = self._now_ns() + self._ahead
        elif state == _IDLE:
            raise ConfigError(self._stuck())
        return nothing

    def _stuck(self) -> str:
        """Why nothing happens any more."""
        under_way = f"{counted(self._flying, 'transfer')} {verb(self._flying, 'is', 'are')} under way"
        left = f"{under_way}, but nothing happens any more"
        if not self._lossless:
            return left
        return (
            f"{left}: {counted(int(self._simulation.Stopped()), 'link')} "
            f"{verb(int(self._simulation.Stopped()), 'has', 'have')} stopped each other around a loop "
            "(back pressure on "
            "routes that close a circle); use another routing, larger buffers or transport tcp"
        )

    def links(self) -> Iterable[LinkUse]:
        """What links carried: bytes on the wire, headers, acknowledgements and repeated packets included."""
        for link, row in zip(self._links.links, self._counts().tolist(), strict=True):
            if row[1]:
                yield LinkUse(self._name(link.src), self._name(link.dst), row[0], row[4], row[5])

    def use_over_time(self) -> UseOverTime | None:
        """When links sent: bytes on the wire, as in `links`."""
        if not self._intervals:
            return None
        busy = np.zeros((len(self._links.links), self._intervals), np.int64)
        self._simulation.Use(busy.reshape(-1))
        used = np.flatnonzero(busy.any(axis=1))
        return UseOverTime(
            1 << int(self._simulation.UseShift()),
            [
                (self._name(link.src), self._name(link.dst), link.bandwidth_gibps)
                for link in (self._links.links[k] for k in used.tolist())
            ],
            busy[used] / 1000,
        )

    def notes(self) -> Iterable[str]:
        """Packets in all, and what became of them."""
        total = self._counts().sum(axis=0).tolist()
        said = (
            f"ns-3 ({self._network.packets.transport}, MTU {self._network.packets.mtu}): "
            f"{counted_text(total[1], 'packet')} on links"
        )
        yield (
            f"{said}, {total[2]:,} dropped, {total[3]:,} marked, "
            f"{counted_text(int(self._simulation.Events()), 'event')}"
        )

    def _counts(self) -> I64:
        """Bytes, packets, dropped, marked, busy ns and queued ns of each link."""
        out = np.zeros((len(self._links.links), 6), np.int64)
        self._simulation.Counts(out.reshape(-1))
        return out

    def close(self) -> None:
        """Forget the simulation; another may begin."""
        try:
            self._simulation.Close()
        finally:
            _running.release()


def route_of(graph: LinkGraph, key: int) -> I64:
    """Links of the route of a pair."""
    return np.ascontiguousarray(graph.routes[graph.route_start[key] : graph.route_start[key + 1]])
