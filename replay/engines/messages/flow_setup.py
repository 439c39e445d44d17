"""What a run on flows needs before its tables: who is simulated, and on which paths."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from chakra.arrays import F64, I64
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.plan import Plan
from chakra.replay.collectives.steps import Do
from chakra.replay.config.algorithms import IN_NETWORK
from chakra.replay.engines.messages.flows import Flows
from chakra.replay.engines.messages.simulated import Simulated, everybody, one_of_each
from chakra.replay.engines.phases.channels import UnfoldableError
from chakra.replay.engines.scenario import Scenario
from chakra.replay.networks.flow.link_paths import link_paths, link_sections
from chakra.replay.networks.flow.paths import (
    Paths,
    alone_and_back,
    alone_on_first,
    block_paths,
    with_ports,
    with_trees,
)
from chakra.replay.networks.flow.sections import Sections, in_sections
from chakra.replay.options import FLOW
from chakra.replay.symmetry.flow_classes import fold
from chakra.replay.symmetry.flow_roles import talk
from chakra.replay.symmetry.library_talk import AloneLike, alone_like, library_talk, places_of_npus
from chakra.replay.symmetry.rings_used import rings_used
from chakra.replay.workload.model import Op


@dataclass(frozen=True, slots=True)
class FlowSetup:
    """Who is simulated, and the paths of their flows, all but the bounds of numbers.

    Attributes
    ----------
    who
        NPUs, or classes of them.
    paths
        Of pairs of `who`; links are classes where NPUs are.
    alone, back
        Bytes per ns of a flow of each pair that is alone, and of one on the way back.
    link_of
        Class of each link, or None.
    like
        Which collectives of a library take equal times alone, where that is known.
    """

    who: Simulated
    paths: Paths
    alone: F64
    back: F64
    link_of: I64 | None
    like: AloneLike = field(default_factory=dict)

    def flows(self, largest: int, cap: float | None) -> Flows:
        """What the tables are made of; no message has more than `largest` bytes, no flow more than `cap` bytes per ns."""
        widest = float(self.paths.bytes_per_ns.max(initial=0.0)) * self.paths.whole
        binds = cap is not None and cap < widest
        return Flows(
            self.paths,
            largest,
            self.who.npus,
            self.alone,
            self.back,
            cap if cap is not None and binds else 0.0,
            self.link_of,
        )


def find_paths(scenario: Scenario, pairs: I64) -> Paths:
    """Paths of pairs of NPUs on the network of a run."""
    network = scenario.network
    if network.links is not None:
        return link_paths(network, pairs)
    ports = pairs[:, 1] >= network.npus
    paths = block_paths(network, pairs[~ports])
    return with_ports(paths, network, pairs[ports]) if ports.any() else paths


def find_sections(scenario: Scenario, pairs: I64) -> Sections:
    """The same, for networks on which each pair has one route."""
    if scenario.network.links is not None:
        return link_sections(scenario.network, pairs)
    return in_sections(find_paths(scenario, pairs))


def every_npu(scenario: Scenario, pairs: I64, trees: Sequence[tuple[int, I64]] = ()) -> FlowSetup:
    """All NPUs are simulated, these pairs of them exchange messages, and trees of switches join these rings."""
    paths = find_paths(scenario, pairs)
    if trees:
        paths = with_trees(paths, scenario.network, trees)
    alone, back = alone_and_back(paths.src, paths.dst, alone_on_first(paths), scenario.network.npus)
    return FlowSetup(everybody(scenario.network.npus), paths, alone, back, None)


def why_not_folded(scenario: Scenario) -> str | None:
    """Why every NPU is simulated; None if those that flows cannot tell apart are simulated once."""
    options, system, network = scenario.options, scenario.system, scenario.network
    programs = scenario.workload.programs
    if not options.fold:
        return "asked for"
    if options.rendezvous:
        return "requests of rendezvous go from receiver to sender"
    if system.shared_bus is not None:
        return "the shared memory bus couples the streams of an NPU"
    if network.links is not None and network.links.ecmp == "adaptive":
        return "a flow's route depends on the flows before it"
    if network.links is not None and IN_NETWORK in {
        name for names in system.implementations.values() for name in names
    }:
        return "trees of switches carry collectives of groups out"
    calls = [call for program in programs for call in program.calls]
    if {call.kind for call in calls} & set(system.custom) or any(call.node_id is not None for call in calls):
        return "a custom collective algorithm is given as traces"
    if any((program.op == Op.SERVER).any() for program in programs):
        return "NPUs share memory servers"
    return None


def folded(scenario: Scenario) -> FlowSetup | None:
    """One NPU of each class is simulated; None if there are no classes of more than one, or they may not be used."""
    if scenario.options.backend != FLOW or why_not_folded(scenario) is not None:
        return None
    workload, membership, network = scenario.workload, scenario.membership, scenario.network
    rings = rings_used(workload, membership, scenario.plans, each_message=True)
    if rings.uneven:
        return None
    library = library_talk(workload, membership, scenario.plans)
    said = talk(workload, membership, scenario.plans, library)
    routes = find_sections(scenario, said.pairs)
    like = alone_like(library, routes, network.npus)
    begin = places_of_npus(like, membership) if like else None
    found = fold(workload, membership, network, rings, said, routes, begin)
    if found is None:
        return None
    alone, back = alone_and_back(routes.src, routes.dst, routes.alone(), network.npus)
    try:
        who = one_of_each(found.partition, membership, network, rings)
    except UnfoldableError:
        return None
    return FlowSetup(who, found.paths, alone[found.pair], back[found.pair], found.link_of, like)


def largest_message(plans: list[Plan]) -> int:
    """Bytes that no message of collectives exceeds."""
    largest = 0
    for plan in plans:
        phases = [phase for variant in plan.variants for phase in variant]
        for phase in phases + [phase for pair in plan.templates for phase in pair]:
            gathers = phase.do is Do.ALL_GATHER and phase.algorithm.family not in (Family.RING, Family.DIRECT)
            largest = max(largest, int(phase.bytes) * (phase.size if gathers else 1))
            if phase.sizes is not None:
                largest = max(largest, int(phase.sizes.sizes.sum()))
    return largest
