"""What a run would leave out without a word: dimensions without an algorithm, operations without a time."""

from collections.abc import Iterator

import numpy as np

from chakra.io.readable import counted, verb, with_article
from chakra.replay.collectives.library.in_effect import uses_library
from chakra.replay.collectives.select import ROOTED, priced_kind
from chakra.replay.config.fit import idle_dimensions, whole_list
from chakra.replay.config.keys import IMPLEMENTATION_KEYS
from chakra.replay.config.model import CollectiveKind, Network, Packets, System
from chakra.replay.engines.scenario import Scenario
from chakra.replay.options import FLOW, NS3, InputWarning, RunOptions
from chakra.replay.workload.custom import position_file, prefix_of, resolve_prefix
from chakra.replay.workload.model import Engine, Op, Workload
from chakra.replay.workload.operator_times import timed_nodes


def idle_dimension_warnings(scenario: Scenario) -> Iterator[str]:
    """A list of algorithms that is shorter than the network has dimensions, of a collective of all NPUs.

    The list keeps its meaning (replay semantics, section 3.2): dimensions after it carry nothing.
    """
    system, network = scenario.system, scenario.network
    if uses_library(system, network, scenario.options):
        return
    kinds = []
    for t, bindings in enumerate(scenario.workload.bindings):
        npu = int(scenario.workload.npus_of_trace[t][0])
        program = scenario.workload.programs[int(scenario.workload.program_of[npu])]
        whole = [
            scenario.membership.comms[c].whole if c >= 0 else False for c in scenario.membership.comm[npu]
        ]
        assert len(whole) >= len(bindings.groups)
        for call in program.calls:
            kind = priced_kind(call.kind)
            if not whole[call.group] or call.kind in ROOTED or kind in kinds:
                continue
            if kind in system.custom or call.node_id is not None:
                continue
            idle = idle_dimensions(system.implementations.get(kind, ()), network)
            if any(call.involved is None or (d < len(call.involved) and call.involved[d]) for d in idle):
                kinds.append(kind)
    for kind in kinds:
        names = system.implementations.get(kind, ())
        idle = idle_dimensions(names, network)
        listed = ", ".join(f'"{name}"' for name in whole_list(names, network))
        which = ", ".join(f"{d} ({network.dims[d].topology} of {network.dims[d].npus})" for d in idle)
        carry = "carry" if len(idle) > 1 else "carries"
        yield InputWarning(
            f"{system.source}: key '{IMPLEMENTATION_KEYS[kind]}' names {counted(len(names), 'algorithm')} "
            f"for {counted(len(network.dims), 'dimension')}: dimension{'s' * (len(idle) > 1)} {which} {carry} "
            "nothing of it, and "
            f"NPUs that differ there are never joined; a list for all of them is [{listed}]"
        )


def custom_warnings(scenario: Scenario) -> Iterator[str]:
    """Custom algorithms whose messages cannot be those of the collective that they stand for.

    Their sizes are those of the traces (replay semantics, section 4.6), so a collective of another size or another
    number of members runs without a word. Told: fewer bytes than any algorithm needs, or more than the number of
    members times as many; and, as ASTRA-sim does not look at them, positions beyond the group.
    """
    if not (scenario.system.custom or scenario.custom_of_node):
        return
    said: set[tuple[str, CollectiveKind, int, int]] = set()
    for npu in range(scenario.workload.npus):
        program = scenario.workload.programs[int(scenario.workload.program_of[npu])]
        for call in program.calls:
            prefix = prefix_of(call.kind, call.node_id, scenario.system, scenario.custom_of_node)
            number = int(scenario.membership.comm[npu][call.group])
            members = scenario.membership.comms[number].size if number >= 0 else 1
            if prefix is None or members == 1 or (key := (prefix, call.kind, call.bytes, members)) in said:
                continue
            said.add(key)
            yield from _custom_warning(scenario, *key)


def _custom_warning(
    scenario: Scenario, prefix: str, kind: CollectiveKind, size: int, members: int
) -> Iterator[str]:
    programs = scenario.custom_algorithms.of(prefix, members)
    named = f"{scenario.system.source}: custom algorithm {prefix!r}"
    if more := position_file(resolve_prefix(prefix, scenario.system), members):
        yield InputWarning(
            f"{named} has more positions ({more}) than the {counted(members, 'member')} that "
            f"{verb(members, 'runs', 'run')} it"
        )
    sent = sum(int(p.p2p_bytes[p.op[p.op != Op.TIMER] == Op.SEND].sum()) for p in programs)
    least = size * (members - 1)
    if kind is CollectiveKind.ALL_REDUCE:
        least *= 2
    elif kind is CollectiveKind.ALL_GATHER:
        least *= members
    if size and kind in IMPLEMENTATION_KEYS and not least <= sent <= least * members:
        yield InputWarning(
            f"{named} sends {sent} bytes in all, and {with_article(kind.lower())} of {size} bytes among "
            f"{members} needs {least}: sizes are those of its traces, not the collective's; make traces for that size"
        )


def untimed_warnings(workload: Workload, system: System) -> Iterator[str]:
    """Compute nodes that have operations and no duration, where nothing gives them a time."""
    if system.roofline and not system.replay_only:
        return
    runs = np.bincount(workload.program_of, minlength=len(workload.programs))
    count, place = 0, ""
    for program, often in zip(workload.programs, runs.tolist(), strict=True):
        trace = program.trace
        computes = (program.op == Op.TIMER) & np.isin(program.engine, (Engine.CPU, Engine.GPU))
        free = computes & (program.duration_ns == 0) & (trace.num_ops[program.order] > 0)
        nodes = np.flatnonzero(free & ~timed_nodes(trace)[program.order])
        if len(nodes) and not place:
            place = f"{trace.source}: node {int(program.ids()[nodes[0]])}: "
        count += len(nodes) * often
    if count:
        yield InputWarning(
            f"{place}{counted(count, 'compute node')} with operations and no duration take 0 ns: give durations, "
            "switch on roofline-enabled with peak-perf and local-mem-bw, or replay on a known machine (--platform)"
        )


def network_warnings(network: Network, options: RunOptions) -> list[str]:
    """Keys of a network file that its backend does not know: what bounds flows, and how packets go."""
    backend, found = options.backend, []
    if network.flow_cap_gibps is not None and backend != FLOW:
        found.append(
            f"{network.source}: key 'flow_cap' has no effect: backend {backend!r} has no flows (--backend flow)"
        )
    if network.packets != Packets() and backend != NS3:
        found.append(
            f"{network.source}: key 'packets' has no effect: backend {backend!r} has no packets (--backend ns3)"
        )
    return found
