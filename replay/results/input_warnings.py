"""What a run would leave out without a word: dimensions without an algorithm, operations without a time."""

from collections.abc import Iterator

import numpy as np

from chakra.replay.collectives.library.in_effect import placed_library
from chakra.replay.collectives.select import ROOTED, priced_kind
from chakra.replay.config.fit import idle_dimensions, whole_list
from chakra.replay.config.keys import IMPLEMENTATION_KEYS
from chakra.replay.config.model import System
from chakra.replay.engines.scenario import Scenario
from chakra.replay.options import InputWarning
from chakra.replay.workload.model import Engine, Op, Workload
from chakra.replay.workload.operator_times import timed_nodes


def idle_dimension_warnings(scenario: Scenario) -> Iterator[str]:
    """A list of algorithms that is shorter than the network has dimensions, of a collective of all NPUs.

    The list keeps its meaning (replay semantics, section 3.2): dimensions after it carry nothing.
    """
    system, network = scenario.system, scenario.network
    if placed_library(system, network, scenario.options) is not None:
        return
    kinds = []
    for t, bindings in enumerate(scenario.workload.bindings):
        npu = int(np.flatnonzero(scenario.workload.trace_of == t)[0])
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
            f"{system.source}: key '{IMPLEMENTATION_KEYS[kind]}' names {len(names)} algorithm{'s' * (len(names) != 1)} "
            f"for {len(network.dims)} dimensions: dimension{'s' * (len(idle) > 1)} {which} {carry} nothing of it, and "
            f"NPUs that differ there are never joined; a list for all of them is [{listed}]"
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
            f"{place}{count} compute node{'s' * (count != 1)} with operations and no duration take 0 ns: give durations, "
            "switch on roofline-enabled with peak-perf and local-mem-bw, or replay on a known machine (--platform)"
        )
