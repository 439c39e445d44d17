"""Which algorithms a collective uses on a communicator, and its plan.

Sources: replay semantics, sections 1.3, 3.2, 3.3, 7.1 and 7.2; corrections C1, C4, C6, C12 and C16 of `differences.md`.
"""

import math
from dataclasses import dataclass, replace

from chakra.errors import ConfigError, WorkloadError
from chakra.io.readable import counted, verb, with_article
from chakra.replay.collectives import registry
from chakra.replay.collectives.algorithms import Algorithm, Family, parse
from chakra.replay.collectives.call import Call, Uneven
from chakra.replay.collectives.in_network import KINDS, check_switch
from chakra.replay.collectives.library.in_effect import PlacedLibrary
from chakra.replay.collectives.plan import (
    FLAT,
    NATIVE,
    OLD_MODEL,
    Phase,
    Plan,
    Rule,
    Schedule,
    chunk_sizes,
    make_phases,
    phase_order,
)
from chakra.replay.collectives.steps import Do, Link, Steps
from chakra.replay.collectives.trees import chain_segments
from chakra.replay.collectives.uneven import (
    as_table,
    call_bytes,
    chunks_of,
    even_bytes,
    pair_bytes,
    uneven_steps,
)
from chakra.replay.config.algorithms import IN_NETWORK
from chakra.replay.config.model import CollectiveKind, Network, System, Topology
from chakra.replay.options import RunOptions

#: endpoint delay of sub-cluster groups in ASTRA-sim, whatever the system file says
GROUP_ENDPOINT_DELAY_NS = 10
#: dimensions that ASTRA-sim takes as involved where a node does not say
INVOLVED_BY_DEFAULT = 4

#: The cost of kinds without an algorithm of their own (C6): that of the native kind which moves the same bytes over the
#: busiest link; and whether comm_size is the whole buffer, of which a shard moves.
PRICED_AS: dict[CollectiveKind, tuple[CollectiveKind, bool]] = {
    CollectiveKind.BROADCAST: (CollectiveKind.BROADCAST, False),
    CollectiveKind.REDUCE: (CollectiveKind.REDUCE, False),
    CollectiveKind.SCATTER: (CollectiveKind.ALL_GATHER, True),
    CollectiveKind.GATHER: (CollectiveKind.ALL_GATHER, False),
    CollectiveKind.REDUCE_SCATTER_BLOCK: (CollectiveKind.REDUCE_SCATTER, False),
    CollectiveKind.BARRIER: (CollectiveKind.ALL_REDUCE, False),
}

#: kinds with one root, which the traces do not name
ROOTED = {CollectiveKind.BROADCAST: Do.BROADCAST, CollectiveKind.REDUCE: Do.REDUCE}
#: with the shared memory bus, which has no tables of steps: the half of scatter + all-gather, or of reduce-scatter +
#: gather, that all members see
ON_THE_BUS = {
    CollectiveKind.BROADCAST: CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE: CollectiveKind.REDUCE_SCATTER,
}
SCHEDULES = {
    "ascending": Schedule.PLAN,
    "roundRobin": Schedule.ROUND_ROBIN,
    "offlineGreedy": Schedule.GREEDY,
    "offlineGreedyFlex": Schedule.FLEX,
}
NOT_POWER = "use rabenseifner, recursiveDoubling, bruck, ring or direct, which run on any number"


@dataclass(frozen=True, slots=True)
class Choice:
    """Algorithms of a call on a communicator: (dimension, algorithm, ring size) of every dimension that takes part."""

    kind: CollectiveKind
    parts: tuple[tuple[int, Algorithm, int], ...]


def priced_kind(kind: CollectiveKind) -> CollectiveKind:
    """The native kind whose algorithm gives a collective's cost."""
    return PRICED_AS[kind][0] if kind in PRICED_AS else kind


def _native(kind: CollectiveKind, system: System) -> CollectiveKind:
    """The kind whose algorithm gives a collective's cost on a system."""
    if system.shared_bus is not None and kind in ROOTED:
        return ON_THE_BUS[kind]
    return priced_kind(kind)


def implementation(kind: CollectiveKind, system: System, network: Network) -> list[Algorithm]:
    """The system file's algorithms for a native kind, one per dimension from the first.

    Raises
    ------
    ConfigError
        If the file names none, or more than there are dimensions.
    """
    names = system.implementations.get(kind)
    if kind in ROOTED:
        # no key of their own: what all-reduce names where it can broadcast, else what suits the size
        wanted = system.implementations.get(CollectiveKind.ALL_REDUCE, ())
        rooted = [parse(name, system.source) if name in registry.names() else None for name in wanted]
        able = [
            algorithm
            if algorithm is not None and ROOTED[kind] in registry.find(algorithm.steps).kinds
            else Algorithm(Family.STEPS)
            for algorithm in rooted[: len(network.dims)]
        ]
        return able + [Algorithm(Family.STEPS)] * (len(network.dims) - len(able))
    key = kind.value.lower().replace("_", "-") + "-implementation"
    if not names:
        raise ConfigError(
            f"{system.source}: key {key!r} is missing, but the workload has {kind.value} collectives"
        )
    if len(names) > len(network.dims):
        raise ConfigError(
            f"{system.source}: key {key!r} names {counted(len(names), 'algorithm')}, but {network.source} has "
            f"{counted(len(network.dims), 'dimension')}"
        )
    return [parse(name, f"{system.source}: key {key!r}") for name in names]


def choose(
    call: Call, size: int, whole: bool, system: System, network: Network, options: RunOptions
) -> Choice:
    """Algorithms of a call on a communicator of `size` members.

    Raises
    ------
    ConfigError, WorkloadError
        If no dimension takes part, or an algorithm cannot run on that many members (C16).
    """
    native = _native(call.kind, system)
    names = implementation(native, system, network)
    parts: list[tuple[int, Algorithm, int]] = []
    if not whole:
        alone = len(names) == 1 or native in ROOTED
        algorithm = names[0] if alone else Algorithm(Family.RING)
        parts.append((0, replace(algorithm, flat=True), size))
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
            raise _involves_none(call.kind)
    for dim, algorithm, ring in parts:
        by_switch = algorithm.family is Family.SWITCH
        if (by_switch or algorithm.steps) and system.shared_bus is not None:
            raise ConfigError(
                f"{system.source}: algorithm {algorithm.name!r} is not modelled together with the shared memory bus; use "
                "ring, direct, halvingDoubling or doubleBinaryTree"
            )
        _check_size(algorithm, native, ring, whole, system)
        if by_switch and whole:
            check_switch(native, dim, system, network, options)
    return Choice(native, tuple(parts))


def _involves_none(kind: CollectiveKind) -> WorkloadError:
    return WorkloadError(
        f"a collective of {kind.value} involves none of the network's dimensions; "
        "set involved_dim to true for at least one dimension that has an algorithm"
    )


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
            raise ConfigError(
                f"{what} needs a power of two, but {counted(ring, 'NPU')} {verb(ring, 'takes', 'take')} part; {NOT_POWER}"
            )
    if algorithm.family is Family.TREE:
        if kind is not CollectiveKind.ALL_REDUCE:
            raise ConfigError(f"{what} runs ALL_REDUCE only, not {kind.value}; use ring or direct")
        if not power or not whole:
            where = (
                f"{counted(ring, 'NPU')} {verb(ring, 'takes', 'take')} part"
                if whole
                else "a process group uses it"
            )
            raise ConfigError(
                f"{what} needs a power of two NPUs of one dimension, but {where}; use pipelinedTree, which runs on "
                "any number, or ring"
            )
    if algorithm.family is Family.SWITCH and kind not in KINDS:
        able = ", ".join(one.value for one in KINDS)
        raise ConfigError(f"{what} cannot run {kind.value} (it runs {able}); use ring, direct or bruck")
    if algorithm.family is Family.STEPS and algorithm.steps and kind not in ROOTED:
        kinds = registry.find(algorithm.steps).kinds
        if NATIVE[kind] not in kinds:
            able = ", ".join(do.name for do in sorted(kinds))
            raise ConfigError(f"{what} cannot run {kind.value} (it runs {able}); use ring, direct or bruck")


def transfer_bytes(call: Call, size: int, priced: CollectiveKind | None = None) -> int:
    """Bytes that a call brings to the native kind that gives its cost."""
    if call.kind is CollectiveKind.GATHER:
        return call.bytes
    if call.kind in PRICED_AS and (PRICED_AS[call.kind][1] or priced is CollectiveKind.ALL_GATHER):
        return -(-call.bytes // size)
    return call.bytes


def make_plan(
    call: Call,
    size: int,
    whole: bool,
    system: System,
    network: Network,
    options: RunOptions,
    library: PlacedLibrary | None = None,
) -> Plan:
    """Cut a call into chunks and phases on a communicator of `size` members; with a library, it is one phase."""
    if size == 1 or (call.bytes == 0 and call.kind is not CollectiveKind.BARRIER and not options.astra):
        return barrier_plan(call.kind, size)
    if call.uneven is not None:
        return _uneven_plan(call, call.uneven, size, whole, system, network, options, library)
    if library is not None:
        if whole and not any(_involved(call, dim, options) for dim in range(len(network.dims))):
            raise _involves_none(call.kind)
        return library_plan(call, size, library)
    choice = choose(call, size, whole, system, network, options)
    if choice.kind in ROOTED:
        return _rooted_plan(call, choice, system, network, options)
    do = NATIVE[choice.kind]
    old = options.compat == OLD_MODEL
    barrier = call.kind is CollectiveKind.BARRIER
    sizes = [0]
    if not barrier:
        # of some dimensions only, those that differ in them share the bytes
        exchanging = math.prod(ring for _, _, ring in choice.parts)
        moved = transfer_bytes(call, exchanging, choice.kind)
        sizes = chunk_sizes(choice.kind, moved, system.splits, network.npus, compat=options.astra, old=old)
        if not sizes:
            return barrier_plan(call.kind, size)
    schedule = SCHEDULES[system.inter_dimension_scheduling]
    if barrier or not whole or any(algorithm.flat for _, algorithm, _ in choice.parts):
        schedule = Schedule.PLAN
    if len(network.dims) == 1 and not old:
        schedule = Schedule.PLAN  # nothing to choose, and no reason to cut an all-reduce in two
    greedy = schedule in (Schedule.GREEDY, Schedule.FLEX)
    if greedy and do is Do.ALL_TO_ALL:
        schedule, greedy = Schedule.PLAN, False
    if greedy and any(algorithm.family is Family.SWITCH for _, algorithm, _ in choice.parts):
        raise ConfigError(
            f"{system.source}: inter-dimension-scheduling {system.inter_dimension_scheduling!r} weighs dimensions by "
            f"what NPUs send to each other, and algorithm {IN_NETWORK!r} sends to switches; use ascending or roundRobin"
        )
    check_old_model(system, network, options)
    dims = [dim for dim, _, _ in choice.parts]
    many = len(network.dims)
    turns = many if schedule is Schedule.ROUND_ROBIN else 1
    orders = [
        phase_order(do, dims, system.collective_optimization, turn=turn, of=many, split=greedy, old=old)
        for turn in range(turns)
    ]
    _check_phases(choice, orders[0], system)
    least = 0 if barrier else 1
    distinct = list(dict.fromkeys(sizes))
    variants = tuple(
        make_phases(chunk, choice.parts, order, least=least, as_astra=options.astra)
        for chunk in distinct
        for order in orders
    )
    templates: tuple[tuple[Phase, Phase], ...] = ()
    if greedy:
        first = Rule.ANY if old or do is not Do.ALL_REDUCE else Rule.FIRST
        last = Rule.ANY if old or do is not Do.ALL_REDUCE else Rule.LAST
        templates = tuple(
            (
                Phase(dim, dim, first, algorithm, Do.REDUCE_SCATTER, ring, ring),
                Phase(dim, dim, last, algorithm, Do.ALL_GATHER, ring, ring),
            )
            for dim, algorithm, ring in choice.parts
        )
    chunks = tuple(distinct.index(chunk) * turns for chunk in sizes)
    return Plan(call.kind, chunks, variants, schedule, templates, do=do)


def counted_bytes(call: Call) -> int:
    """comm_size of a call in results; with unequal shares, of the even one whose ports carry what the busiest does."""
    if call.uneven is None:
        return call.bytes
    return call_bytes(call.kind, NATIVE[priced_kind(call.kind)], call.uneven.sizes)


def _uneven_plan(
    call: Call,
    uneven: Uneven,
    size: int,
    whole: bool,
    system: System,
    network: Network,
    options: RunOptions,
    library: PlacedLibrary | None,
) -> Plan:
    """Cut a call with unequal shares: the same algorithm on one flat ring, each message as long as what it carries."""
    if whole and not all(_involved(call, dim, options) for dim in range(len(network.dims))):
        raise WorkloadError(
            f"{with_article(call.kind.value)} of unequal shares involves some of the network's dimensions only "
            "(involved_dim): use a process group"
        )
    native = priced_kind(call.kind)
    do, sizes = NATIVE[native], uneven.sizes
    if not pair_bytes(do, sizes).any():
        return barrier_plan(call.kind, size)
    even = replace(call, bytes=counted_bytes(call), uneven=None)
    if library is not None:
        return replace(library_plan(even, size, library, uneven), uneven=True)
    if system.shared_bus is not None:
        return replace(make_plan(even, size, whole, system, network, options), uneven=True)
    names = implementation(native, system, network)
    alike = len(names) == 1 or (whole and len({replace(name, flat=True) for name in names}) == 1)
    algorithm = names[0] if alike else Algorithm(Family.RING)
    _check_size(algorithm, native, size, False, system)
    if algorithm.family is Family.SWITCH:
        raise ConfigError(
            f"{system.source}: algorithm {IN_NETWORK!r} cannot run {with_article(call.kind.value)} of unequal "
            "shares; use direct, ring or bruck"
        )
    algorithm = as_table(algorithm)
    shares = chunks_of(sizes, system.splits)
    distinct = {part.tobytes(): Uneven(part) for part in shares}
    variants = []
    for part in distinct.values():
        moved = even_bytes(do, part.sizes)
        if algorithm.family is Family.STEPS and uneven_steps(algorithm.steps, do, part, moved) is None:
            return replace(make_plan(even, size, whole, system, network, options), uneven=True)
        variants.append((Phase(FLAT, 0, Rule.ANY, algorithm, do, size, moved, part),))
    place = {key: k for k, key in enumerate(distinct)}
    chunks = tuple(place[part.tobytes()] for part in shares)
    return Plan(call.kind, chunks, tuple(variants), uneven=True)


def library_plan(call: Call, size: int, library: PlacedLibrary, uneven: Uneven | None = None) -> Plan:
    """A collective in one piece: all members wait for the last one, then take what the library takes."""
    algorithm = Algorithm(Family.LIBRARY, flat=True, library=library.name, kind=call.kind.value)
    moved = library.size_bytes(call.kind, call.bytes, size)
    do = NATIVE.get(priced_kind(call.kind) if uneven is not None else call.kind, Do.ALL_REDUCE)
    phase = Phase(FLAT, 0, Rule.ANY, algorithm, do, size, moved, uneven)
    return Plan(call.kind, (0,), ((phase,),))


def check_old_model(system: System, network: Network, options: RunOptions) -> None:
    """Refuse the cost model of ASTRA-sim 1.0 where links are modelled.

    It charges a message in one dimension, by its delay: links have no part in it (section 7.1).

    Raises
    ------
    ConfigError
        If there are links.
    """
    linked = options.backend == "aware" or network.links is not None or network.outside is not None
    if options.compat == OLD_MODEL and linked:
        raise ConfigError(
            f"{system.source}: compat {OLD_MODEL!r} is a model of delays without links; it runs on building blocks with "
            "backend 'unaware' only"
        )


def _check_phases(choice: Choice, order: list[tuple[int, Do, Rule]], system: System) -> None:
    """An all-reduce that is cut into reduce-scatter and all-gather needs algorithms that run those."""
    algorithms = {dim: algorithm for dim, algorithm, _ in choice.parts}
    for dim, do, _ in order:
        algorithm = algorithms[dim]
        if algorithm.family is Family.STEPS and do not in registry.find(algorithm.steps).kinds:
            raise ConfigError(
                f"{system.source}: algorithm {algorithm.name!r} of dimension {dim} cannot run the {do.name} that "
                "localBWAware and greedy schedules make of an all-reduce; use ring, direct, rabenseifner or bruck"
            )


def _rooted_plan(call: Call, choice: Choice, system: System, network: Network, options: RunOptions) -> Plan:
    """Broadcast and reduce: one dimension after the other carries all bytes.

    Traces do not name the root. So all members are charged the time of the last one, from the last one's start.
    """
    sizes = chunk_sizes(call.kind, call.bytes, system.splits, network.npus, compat=False)
    do = ROOTED[call.kind]
    distinct = list(dict.fromkeys(sizes))
    variants = []
    for chunk in distinct:
        phases = []
        for dim, algorithm, ring in choice.parts:
            view = FLAT if algorithm.flat else dim
            if not algorithm.steps:
                algorithm = replace(
                    algorithm, steps=_cheaper(ring, chunk, network, dim, view, system, options)
                )
            phases.append(Phase(view, dim, Rule.ANY, algorithm, do, ring, chunk))
        variants.append(tuple(phases))
    return Plan(call.kind, tuple(distinct.index(chunk) for chunk in sizes), tuple(variants))


def _cheaper(
    ring: int, chunk: int, network: Network, dim: int, view: int, system: System, options: RunOptions
) -> str:
    """The cheapest way to broadcast or reduce when all members start together, by the closed forms of the guide."""
    endpoint = endpoint_delay(True, system, options)
    link = link_of(network, dim, view, endpoint)
    ring_shaped = view != FLAT and network.dims[dim].topology is Topology.RING
    steps = [1 << k for k in range((ring - 1).bit_length())]
    hops = sum(min(step, ring - step) for step in steps) if ring_shaped else len(steps)
    away = hops * (link.latency_ns - endpoint) + len(steps) * endpoint  # latencies of all distances
    segments = chain_segments(ring, chunk, link)
    transfer = chunk / link.bytes_per_ns
    segment = transfer / segments
    cost = {
        "binomialTree": away + len(steps) * transfer,
        "chain": (ring - 1) * (link.latency_ns + segment) + (segments - 1) * (endpoint + segment),
        "scatterAllGather": 2 * away + 2 * (ring - 1) / ring * transfer,
    }
    return min(cost, key=lambda name: cost[name])


def link_of(network: Network, dim: int, view: int, endpoint_ns: int) -> Link:
    """What a message between neighbours of a dimension costs; on a flat ring, on the slowest dimension."""
    dims = list(network.dims) if view == FLAT else [network.dims[dim]]
    slowest = min(dims, key=lambda d: d.bytes_per_ns)
    hops = 2 if slowest.topology is Topology.SWITCH else 1
    return Link(hops * slowest.latency_ns + endpoint_ns, slowest.bytes_per_ns)


def steps_of(phase: Phase, whole: bool, network: Network, system: System, options: RunOptions) -> Steps:
    """The schedule of a phase whose algorithm is a table of steps."""
    link = link_of(network, phase.dim, phase.view, endpoint_delay(whole, system, options))
    return registry.steps(phase.algorithm.steps, phase.do, phase.size, phase.bytes, link)


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
