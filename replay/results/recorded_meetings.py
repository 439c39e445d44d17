"""Waits for peers inside recorded collectives, where every node takes its recorded time (``replay-only``).

A recorded collective lasts from when its own rank starts it: it holds the wait for members that come later. No data moves
before the last member has come, so its start tells the two apart, as in collectives that are simulated. That needs the
traces of all ranks, on a clock that they share. Sends and receives are left whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from chakra.arrays import I64, rows_by
from chakra.et import NodeType
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.scenario import Scenario
from chakra.replay.workload.bindings import bindings_of
from chakra.replay.workload.model import Engine, Program
from chakra.replay.workload.recorded import all_ranks_told
from chakra.replay.workload.starts import clock_offsets


@dataclass(frozen=True, slots=True)
class Meetings:
    """When the last member of recorded collectives has come.

    Attributes
    ----------
    ready_ns
        Of actors that have such collectives, by node in program order: on the actor's own clock; -1 of other nodes.
    whole
        Whether that is known of all communication that takes recorded time. Else the transfer of the time account holds
        waits for peers.
    """

    ready_ns: dict[int, I64] = field(default_factory=dict)
    whole: bool = True


@dataclass(frozen=True, slots=True)
class _Called:
    """Collectives of one communicator that a member has run, in the order of their starts."""

    actor: int
    nodes: I64
    kinds: I64
    #: starts on the clock that all ranks share, ns
    start: I64
    #: what the member's own clock lies behind that one, ns
    offset: int


def recorded_meetings(scenario: Scenario, raw: RawRun, programs: Sequence[Program]) -> Meetings:
    """When the last member of each recorded collective has come; nothing unless all times are recorded ones.

    Parameters
    ----------
    scenario
        What ran.
    raw
        Its times.
    programs
        Program of each actor.
    """
    if not scenario.system.replay_only or scenario.options.astra:
        return Meetings()
    lasting = [
        np.flatnonzero((program.engine == Engine.COMM) & (program.duration_ns > 0)) for program in programs
    ]
    if not any(map(len, lasting)):
        return Meetings()
    traces = scenario.workload.traces
    offsets = clock_offsets(traces, scenario.options, scenario.system) if all_ranks_told(traces) else None
    if offsets is None:
        return Meetings(whole=False)
    ready = {actor: np.full(program.n_nodes, -1, np.int64) for actor, program in enumerate(programs)}
    for number, members in _called(scenario, raw, programs, offsets).items():
        comm = scenario.membership.comms[number]
        # a member that has none of the collectives, or others, has not told when it came
        told = np.array([member.actor for member in members])
        if not np.isin(raw.partition.class_of[comm.members], told).all():
            continue
        if not all(np.array_equal(member.kinds, members[0].kinds) for member in members):
            continue
        last = np.max([member.start for member in members], axis=0)
        for member in members:
            ready[member.actor][member.nodes] = last - member.offset
    whole = all((ready[actor][nodes] >= 0).all() for actor, nodes in enumerate(lasting))
    return Meetings(ready, whole)


def _called(
    scenario: Scenario, raw: RawRun, programs: Sequence[Program], offsets: I64
) -> dict[int, list[_Called]]:
    """Collectives of every communicator by member; one NPU stands for those of its class, which start together."""
    workload, membership = scenario.workload, scenario.membership
    out: dict[int, list[_Called]] = {}
    for actor, npu in enumerate(raw.partition.representative.tolist()):
        number = int(workload.trace_of[npu])
        trace, program = workload.traces[number], programs[actor]
        types = trace.types[program.order]
        issue = raw.issue_ns[raw.nodes(actor)]
        nodes = np.flatnonzero((types == NodeType.COMM_COLL) & (issue >= 0))
        if not len(nodes):
            continue
        nodes = nodes[np.argsort(issue[nodes], kind="stable")]
        slots = bindings_of(trace, program.order, astra=False).group[nodes]
        for slot, places in rows_by(slots).items():
            mine = nodes[places]
            offset = int(offsets[number])
            kinds = trace.comm_type[program.order[mine]]
            member = _Called(actor, mine, kinds, issue[mine] + offset, offset)
            out.setdefault(int(membership.comm[npu, slot]), []).append(member)
    return out
