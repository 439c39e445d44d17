"""Which algorithms a collective uses on a communicator, and its plan.

Sources: replay semantics, sections 1.3, 3.2, 3.3; corrections C1, C4, C6, C12 and C16 of `differences.md`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chakra.errors import ConfigError, WorkloadError
from chakra.replay.collectives.algorithms import Algorithm, Family, parse
from chakra.replay.collectives.plan import (
    FLAT,
    NATIVE,
    Do,
    Phase,
    Plan,
    Rule,
    chunk_sizes,
    make_phases,
)
from chakra.replay.config.model import CollectiveKind, Network, System
from chakra.replay.options import RunOptions
from chakra.replay.workload import Call

#: endpoint delay of sub-cluster groups in ASTRA-sim, whatever the system file says
GROUP_ENDPOINT_DELAY_NS = 10
#: dimensions that ASTRA-sim takes as involved where a node does not say
INVOLVED_BY_DEFAULT = 4

#: How kinds without an algorithm of their own are priced (C6): the native kind that moves the same bytes over the
#: busiest link, and whether comm_size is the whole buffer, of which a shard moves.
PRICED_AS: dict[CollectiveKind, tuple[CollectiveKind, bool]] = {
    CollectiveKind.BROADCAST: (CollectiveKind.ALL_GATHER, True),
    CollectiveKind.SCATTER: (CollectiveKind.ALL_GATHER, True),
    CollectiveKind.GATHER: (CollectiveKind.ALL_GATHER, False),
    CollectiveKind.REDUCE: (CollectiveKind.REDUCE_SCATTER, False),
    CollectiveKind.REDUCE_SCATTER_BLOCK: (CollectiveKind.REDUCE_SCATTER, False),
    CollectiveKind.BARRIER: (CollectiveKind.ALL_REDUCE, False),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Algorithms of one call on one communicator: (dimension, algorithm, ring size) of every dimension that takes part."""

    kind: CollectiveKind
    parts: tuple[tuple[int, Algorithm, int], ...]


def priced_kind(kind: CollectiveKind) -> CollectiveKind:
    """The native kind whose algorithm prices a collective."""
    return PRICED_AS[kind][0] if kind in PRICED_AS else kind


def implementation(kind: CollectiveKind, system: System, network: Network) -> list[Algorithm]:
    """The system file's algorithms for a native kind, one per dimension from the first.

    Raises
    ------
    ConfigError
        If the file names none, or more than there are dimensions.
    """
    key = kind.value.lower().replace("_", "-") + "-implementation"
    names = system.implementations.get(kind)
    if not names:
        raise ConfigError(f"{system.source}: key {key!r} is missing, but the workload has {kind.value} collectives")
    if len(names) > len(network.dims):
        raise ConfigError(
            f"{system.source}: key {key!r} names {len(names)} algorithms, but {network.source} has "
            f"{len(network.dims)} dimension(s)"
        )
    return [parse(name, f"{system.source}: key {key!r}") for name in names]


def choose(call: Call, size: int, whole: bool, system: System, network: Network, options: RunOptions) -> Choice:
    """Algorithms of a call on a communicator of `size` members.

    Raises
    ------
    ConfigError, WorkloadError
        If no dimension takes part, or an algorithm cannot run on that many members (C16).
    """
    native = priced_kind(call.kind)
    names = implementation(native, system, network)
    parts: list[tuple[int, Algorithm, int]] = []
    if not whole:
        algorithm = names[0] if len(names) == 1 else Algorithm(Family.RING)
        parts.append((0, Algorithm(algorithm.family, True, algorithm.window), size))
    else:
        for k, algorithm in enumerate(names):
            if not _involved(call, k, options):
                if algorithm.flat:
                    break
                continue
            parts.append((k, algorithm, size if algorithm.flat else network.dims[k].npus))
            if algorithm.flat:
                break
        if not parts:
            raise WorkloadError(
                f"a collective of {call.kind.value} involves none of the network's dimensions; "
                "set involved_dim to true for at least one dimension that has an algorithm"
            )
    for _, algorithm, ring in parts:
        _check_size(algorithm, native, ring, whole, system)
    return Choice(native, tuple(parts))


def _involved(call: Call, dim: int, options: RunOptions) -> bool:
    if call.involved is None:
        return not options.astra or dim < INVOLVED_BY_DEFAULT
    return dim < len(call.involved) and call.involved[dim]


def _check_size(algorithm: Algorithm, kind: CollectiveKind, ring: int, whole: bool, system: System) -> None:
    power = ring & (ring - 1) == 0
    what = f"{system.source}: algorithm {algorithm.name!r}"
    if algorithm.family is Family.HALVING_DOUBLING:
        if kind is CollectiveKind.ALL_TO_ALL:
            raise ConfigError(f"{what} cannot run ALL_TO_ALL; use ring or direct")
        if not power:
            raise ConfigError(f"{what} needs a power of two, but {ring} NPUs take part; use ring or direct")
    if algorithm.family is Family.TREE:
        if kind is not CollectiveKind.ALL_REDUCE:
            raise ConfigError(f"{what} runs ALL_REDUCE only, not {kind.value}; use ring or direct")
        if not power or not whole:
            where = f"{ring} NPUs take part" if whole else "a process group uses it"
            raise ConfigError(
                f"{what} needs a power of two NPUs of one dimension, but {where}; use ring, direct or halvingDoubling"
            )


def transfer_bytes(call: Call, size: int) -> int:
    """Bytes that a call brings to the native kind that prices it."""
    if call.kind in PRICED_AS and PRICED_AS[call.kind][1]:
        return -(-call.bytes // size)
    return call.bytes


def make_plan(
    call: Call,
    size: int,
    whole: bool,
    system: System,
    network: Network,
    options: RunOptions,
    *,
    order: Sequence[int] | None = None,
) -> Plan:
    """Cut a call into chunks and phases on a communicator of `size` members."""
    if size == 1 or (call.bytes == 0 and call.kind is not CollectiveKind.BARRIER and not options.astra):
        return barrier_plan(call.kind, size)
    choice = choose(call, size, whole, system, network, options)
    do = NATIVE[choice.kind]
    if call.kind is CollectiveKind.BARRIER:
        sizes = [0]
    else:
        sizes = chunk_sizes(
            choice.kind, transfer_bytes(call, size), system.splits, network.npus, compat=options.astra
        )
        if not sizes:
            return barrier_plan(call.kind, size)
    least = 0 if call.kind is CollectiveKind.BARRIER else 1
    distinct = list(dict.fromkeys(sizes))
    variants = tuple(
        make_phases(do, chunk, choice.parts, system.collective_optimization, least=least, order=order)
        for chunk in distinct
    )
    return Plan(call.kind, tuple(distinct.index(chunk) for chunk in sizes), variants)


def barrier_plan(kind: CollectiveKind, size: int) -> Plan:
    """A collective that moves nothing: it waits for all members, then ends (C1, C7)."""
    phase = Phase(FLAT, 0, Rule.ANY, Algorithm(Family.NONE, True), Do.ALL_REDUCE, size, 0)
    return Plan(kind, (0,), ((phase,),))


def endpoint_delay(whole: bool, system: System, options: RunOptions) -> int:
    """Endpoint delay of a communicator's collectives in ns (C12)."""
    if not whole and options.astra:
        return GROUP_ENDPOINT_DELAY_NS
    if system.endpoint_delay_given:
        return int(system.endpoint_delay_ns * options.injection_scale)
    return system.endpoint_delay_ns
