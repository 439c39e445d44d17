"""Which engine runs, and why.

The phase-level engine has no events for messages, so it needs a network without contention, or one on which equal NPUs
never share a link. Everything else goes to the message-level engine. Both are exact; tests compare them. What depends on
the network is asked of it (`chakra.replay.networks.answers`).
"""

import numpy as np

from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.plan import OLD_MODEL
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.scenario import Scenario
from chakra.replay.engines.tables import collectives_in_flight
from chakra.replay.networks.answers import LINK_BY_LINK
from chakra.replay.workload.model import Op

#: events of messages up to which a run is done again with them where streams block each other: a second or two of
#: compiled code
AGAIN_UP_TO = 5_000_000
#: the same where phases of an NPU end together, which is frequent and moves times little
TIES_UP_TO = 1_000_000


def why_not_on_network(scenario: Scenario) -> str | None:
    """Why the network needs every message simulated, or None.

    The phase-level engine knows how far the members of a collective are from each other on building blocks only. On
    single links it takes collectives whose time is known as a whole, and point-to-point messages.
    """
    on_network = scenario.answers.why_no_classes()
    if on_network is not None or scenario.network.links is None:
        return on_network
    if _runs_traces(scenario):
        return LINK_BY_LINK  # no plan says who sends what
    used = scenario.rings_used
    families = used.flat.union(used.groups, *used.dims)
    sends = scenario.options.compat is not None or bool(families - {Family.LIBRARY, Family.NONE})
    return LINK_BY_LINK if sends else None


def _runs_traces(scenario: Scenario) -> bool:
    """Whether a collective of the workload runs a custom algorithm, which traces give."""
    calls = [call for program in scenario.workload.programs for call in program.calls]
    custom = {call.kind for call in calls} & set(scenario.system.custom)
    return bool(custom) or any(call.node_id is not None for call in calls)


def why_every_npu(scenario: Scenario) -> str | None:
    """Why neither classes nor closed forms can be used, whatever the workload does with them; None if they can."""
    on_network = why_not_on_network(scenario)
    if on_network is not None:
        return on_network
    if scenario.system.shared_bus is not None:
        return "the shared memory bus couples the streams of an NPU"
    if _runs_traces(scenario):
        return "a custom collective algorithm is given as traces"
    return "asked for" if scenario.options.engine == "messages" else None


def why_messages(scenario: Scenario) -> str | None:
    """Why a run that may use classes needs the message-level engine, or None if the phase-level engine can do it."""
    options, programs = scenario.options, scenario.workload.programs
    if options.engine == "phases":
        return None
    if options.compat != OLD_MODEL and any(program.n_comm for program in programs):
        if options.astra and options.rendezvous:
            return (
                "requests of rendezvous decide the order of collectives that end at one tick, and meet messages "
                "of any size"
            )
        if any((program.op == Op.SERVER).any() for program in programs):
            return (
                "collectives that end at one tick queue for the memory server in the order of their messages"
            )
    return why_links(scenario)


def why_again(scenario: Scenario, run: RawRun) -> tuple[str, int] | None:
    """Why a finished run of the phase-level engine is done again, and up to how many events; None: it stands.

    Only messages tell two things. Streams that block each other go on when nothing else can move (C13), and the last
    to move are messages of phases that some members have begun and others have not. And of two phases of an NPU that
    end together, ASTRA-sim takes that one first whose last message it scheduled first. The order of equals means
    nothing on a machine, and NPUs that take different ones wait for each other; by default all take the same.
    """
    if run.partial or scenario.options.engine != "auto":
        return None
    if run.relieved:
        return "streams block each other in full queues until the last message has arrived (C13)", AGAIN_UP_TO
    if run.ties and scenario.options.astra:
        return (
            "phases of an NPU end together, and what follows depends on the order of their messages",
            TIES_UP_TO,
        )
    return None


def fewest_events(scenario: Scenario) -> int:
    """Events that the message-level engine takes at least; cheap to know."""
    nodes = np.array([program.n_nodes for program in scenario.workload.programs], np.int64)
    return 2 * int(nodes[scenario.workload.program_of].sum())


def why_links(scenario: Scenario) -> str | None:
    """Why messages may meet on links that they share; None: they do not, or share none."""
    if not scenario.answers.shares_links():
        return None
    workload, membership, system = scenario.workload, scenario.membership, scenario.system
    network, options = scenario.network, scenario.options
    if options.rendezvous:
        return "rendezvous requests occupy links"
    if workload.has_messages:
        return "point-to-point messages may share links"
    if not workload.has_collectives:
        return None
    if any(not membership.comms[c].whole for c in {int(c) for c in membership.comm.reshape(-1) if c >= 0}):
        return "collectives of process groups may share links"
    if scenario.classes.n_classes > 1:
        return "NPUs differ, so messages of a collective may meet on links"
    if any(len(set(p.slot[p.op == Op.COLLECTIVE].tolist())) > 1 for p in workload.programs):
        return "several streams communicate at a time"
    several = options.comm_streams > 1 or collectives_in_flight(workload.programs) > 1
    if several or options.queues_per_dim > 1 or system.active_chunks > 1:
        return "several chunks at a time share links"
    for program in workload.programs:
        for call in program.calls:
            plan = scenario.plans.of(call, network.npus, whole=True)
            if plan.templates:
                return "chunks choose their phases as they run"
            for variant in plan.variants:
                for phase in variant:
                    reason = scenario.answers.why_no_closed_form(phase)
                    if reason is not None:
                        return reason
    return None
