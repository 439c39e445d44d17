"""Closed forms of phases on the congestion-aware network, where no link is shared (replay semantics, section 4.7).

They hold for one stream at a time per dimension whose members start together: ring on every topology, halving-doubling
and direct where every ordered pair has a way of its own, and direct with an unlimited window (not all-reduce)
through a switch, whose ports serve one message after the other; what the switch itself carries out.
"""

from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.in_network import port_bytes
from chakra.replay.collectives.plan import Do, Phase
from chakra.replay.config.model import Dimension, Topology
from chakra.replay.engines.kernels import codes
from chakra.replay.engines.kernels import packets as rules


def has_closed_form(phase: Phase, dim: Dimension) -> bool:
    """Whether `queued_duration` knows a phase on a ring that is one dimension."""
    family, topology = phase.algorithm.family, dim.topology
    if family in (Family.RING, Family.NONE, Family.SWITCH):
        return True
    if family is Family.HALVING_DOUBLING:
        return topology is not Topology.RING or dim.npus <= 2
    if family is Family.DIRECT:
        open_window = phase.algorithm.window_in(phase.size) == phase.size - 1
        return topology is not Topology.RING and open_window and phase.do is not Do.ALL_REDUCE
    return False


def queued_duration(phase: Phase, dim: Dimension, endpoint_ns: int, reduce_bytes_per_s: float) -> int:
    """Duration of a phase in ns when all members start together and no link is shared."""
    family, do, n = int(phase.algorithm.family), int(phase.do), phase.size
    if family == codes.ALG_NONE:
        return 0

    def way(size: int) -> int:
        """Store and forward: two hops through a switch, one otherwise, each truncated."""
        hop = int(dim.latency_ns + size / dim.bytes_per_ns)
        return 2 * hop if dim.topology is Topology.SWITCH else hop

    def reduction(size: int) -> int:
        return 3 * int(size / reduce_bytes_per_s * 1e9) if reduce_bytes_per_s > 0 else 0

    if family == codes.ALG_SWITCH:
        ways = port_bytes(phase.do, phase.bytes, n)
        return 2 * endpoint_ns + sum(int(dim.latency_ns + size / dim.bytes_per_ns) for size in ways)
    packets = rules.packet_count(family, do, n)
    if family == codes.ALG_DIRECT:
        size = rules.packet_bytes(family, do, n, packets, phase.bytes, 0, phase.as_astra)
        queue = (n - 2) * int(size / dim.bytes_per_ns) if dim.topology is Topology.SWITCH else 0
        last = reduction(size) if phase.do is Do.REDUCE_SCATTER else 0
        return endpoint_ns + queue + way(size) + endpoint_ns + last
    cycle = phase.algorithm.cycle_in(n, sub_cluster=False)
    if family == codes.ALG_RING:
        size = rules.packet_bytes(family, do, n, packets, phase.bytes, 0, phase.as_astra)
        reductions = n - 1 if phase.do in (Do.ALL_REDUCE, Do.REDUCE_SCATTER) else 0
        return endpoint_ns + packets * (way(size) + endpoint_ns) + reductions * reduction(size)
    total = endpoint_ns
    for p in range(packets):
        total += way(rules.packet_bytes(family, do, n, packets, phase.bytes, p, phase.as_astra)) + endpoint_ns
        if rules.packet_reduces(do, p + 1, 1, cycle):
            total += reduction(rules.packet_bytes(family, do, n, packets, phase.bytes, p + 1, phase.as_astra))
    return total
