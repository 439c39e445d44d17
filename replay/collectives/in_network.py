"""Collectives that the switches of a network carry out: reduction on the way up, multicast on the way down.

Each member sends what it brings over its link to the switch, and gets the result over the link back, as SHARP does
between nodes and NVLS within one. With d bytes that enter a phase of n members, a member's link carries

- all-reduce: d up, d down;
- reduce-scatter: d up, d/n down;
- all-gather (multicast): d up, n d down, its own part with the others.

Members wait for the last one, and end together. Sources: Graham et al., "Scalable Hierarchical Aggregation Protocol
(SHArP)", COM-HPC 2016, doi:10.1109/COMHPC.2016.006; Klenk et al., "An In-Network Architecture for Accelerating
Shared-Memory Multiprocessor Collectives", ISCA 2020, doi:10.1109/ISCA45697.2020.00085.
"""

import numpy as np

from chakra.arrays import I64
from chakra.errors import ConfigError
from chakra.replay.collectives.steps import Do
from chakra.replay.config.algorithms import IN_NETWORK
from chakra.replay.config.keys import SWITCHES
from chakra.replay.config.model import CollectiveKind, Network, Switches, System, Topology
from chakra.replay.options import FLOW, NS3, OUTSIDE, RunOptions

#: what a switch must be able to do
KINDS = {
    CollectiveKind.ALL_REDUCE: (Switches.REDUCES,),
    CollectiveKind.REDUCE_SCATTER: (Switches.REDUCES,),
    CollectiveKind.ALL_GATHER: (Switches.MULTICASTS, Switches.REDUCES),
}
_VERB = {Switches.REDUCES: "reduce", Switches.MULTICASTS: "multicast"}


def port_bytes(do: Do, size_bytes: int, n: int) -> tuple[int, int]:
    """Bytes that each of n members sends up to the switch and gets down from it, where `size_bytes` enter the phase."""
    if do is Do.ALL_GATHER:
        return size_bytes, size_bytes * n
    return size_bytes, -(-size_bytes // n) if do is Do.REDUCE_SCATTER else size_bytes


def check_switch(
    kind: CollectiveKind, dim: int, system: System, network: Network, options: RunOptions
) -> None:
    """Refuse a collective in a dimension whose switches cannot carry it out.

    Raises
    ------
    ConfigError
        Saying what is missing.
    """
    what = f"{system.source}: algorithm {IN_NETWORK!r}"
    where = network.source
    if options.backend == NS3:
        raise ConfigError(
            f"{what}: switches of --backend ns3 forward packets and neither reduce nor multicast; use --backend flow, or "
            "another algorithm"
        )
    if network.outside is not None or options.backend == OUTSIDE:
        raise ConfigError(
            f"{what}: {where} is simulated by another package, which knows messages between NPUs only"
        )
    if network.links is not None and options.backend != FLOW:
        raise ConfigError(
            f"{what}: {where} is given link by link, where trees of switches are flows: use --backend {FLOW}, or another "
            "algorithm"
        )
    able = network.dims[dim].switches if network.links is None else network.links.switches
    there = network.dims[dim]
    if network.links is None and there.topology is not Topology.SWITCH:
        raise ConfigError(
            f"{what}: dimension {dim} of {where} is a {there.topology.value}, which has no switches; use another "
            "algorithm there"
        )
    if able not in KINDS[kind]:
        needed = KINDS[kind][0]
        raise ConfigError(
            f"{what} needs switches that {_VERB[needed]} for {kind.value}, but those of "
            f"{where} are {able.value!r}; '{SWITCHES.name}' of the network file says what they do "
            f"({needed.value})"
        )


def switch_dimension(members: I64, network: Network) -> int | None:
    """The one dimension in which members (NPU numbers) differ; None if they differ in several, or are one."""
    found = None
    rest = members
    for k, dim in enumerate(network.dims):
        if np.any(rest % dim.npus != rest[0] % dim.npus):
            if found is not None:
                return None
            found = k
        rest = rest // dim.npus
    return found
