"""Which engine runs, and why.

The phase-level engine has no events for messages, so it needs a network without contention, or one on which equal NPUs
never share a link. Everything else goes to the message-level engine. Both are exact; tests compare them.
"""

from chakra.replay.classes import Partition
from chakra.replay.closed_forms import has_closed_form
from chakra.replay.collectives.plan import FLAT
from chakra.replay.collectives.select import make_plan
from chakra.replay.communicators import Membership
from chakra.replay.config.model import Network, System
from chakra.replay.options import RunOptions
from chakra.replay.workload import Op, Workload


def why_every_npu(workload: Workload, system: System, options: RunOptions) -> str | None:
    """Why neither classes nor closed forms can be used, whatever the network; None if they can."""
    if system.shared_bus is not None:
        return "the shared memory bus couples the streams of an NPU"
    calls = [call for program in workload.programs for call in program.calls]
    if {call.kind for call in calls} & set(system.custom) or any(call.node_id is not None for call in calls):
        return "a custom collective algorithm is given as traces"
    return "asked for" if options.engine == "messages" else None


def why_messages(
    workload: Workload,
    membership: Membership,
    classes: Partition,
    system: System,
    network: Network,
    options: RunOptions,
) -> str | None:
    """Why a run needs the message-level engine, or None if the phase-level engine can do it."""
    if options.engine != "auto":
        return "asked for" if options.engine == "messages" else None
    if system.shared_bus is not None:
        return "the shared memory bus couples the streams of an NPU"
    kinds = {call.kind for program in workload.programs for call in program.calls}
    if kinds & set(system.custom) or any(
        call.node_id is not None for p in workload.programs for call in p.calls
    ):
        return "a custom collective algorithm is given as traces"
    talking = [program for program in workload.programs if program.comm.max(initial=-1) >= 0]
    if options.astra and options.rendezvous and talking:
        return "requests of rendezvous decide the order of collectives that end at one tick, and meet messages of any size"
    if options.astra and talking and any((program.op == Op.SERVER).any() for program in workload.programs):
        return "collectives that end at one tick queue for the memory server in the order of their messages"
    if options.backend == "aware":
        return _why_links(workload, membership, classes, system, network, options)
    return None


def _why_links(
    workload: Workload,
    membership: Membership,
    classes: Partition,
    system: System,
    network: Network,
    options: RunOptions,
) -> str | None:
    """Why links may be shared on the congestion-aware network."""
    if options.rendezvous:
        return "rendezvous requests occupy links"
    if any(len(program.p2p_peer) for program in workload.programs):
        return "point-to-point messages may share links"
    if not any(program.calls for program in workload.programs):
        return None
    if any(not membership.comms[c].whole for c in {int(c) for c in membership.comm.reshape(-1) if c >= 0}):
        return "collectives of process groups may share links"
    if classes.n_classes > 1:
        return "NPUs differ, so messages of a collective may meet on links"
    if options.comm_streams > 1 or options.queues_per_dim > 1 or system.active_chunks > 1:
        return "several chunks at a time share links"
    for program in workload.programs:
        for call in program.calls:
            plan = make_plan(call, network.npus, True, system, network, options)
            for variant in plan.variants:
                for phase in variant:
                    if phase.view == FLAT and len(network.dims) > 1:
                        return "a flat ring crosses dimensions"
                    dim = network.dims[0 if phase.view == FLAT else phase.view]
                    if not has_closed_form(phase, dim):
                        return f"{phase.algorithm.name} shares links of a {dim.topology.value} dimension"
    return None
