"""A workload tried on a machine on which nothing takes time: can it end, or do its ranks wait for each other?

What each rank's trace says may fit together, and yet nobody begin: a ring of ranks that all receive before they send.
Such waiting is found by running the workload, as a replay does and as fast: ranks that do alike run once. Collectives
only wait for their members and messages only for their sender here, so that no network or system file is needed. What
depends on these waits for nobody: nothing is told that a replay does not do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from chakra.arrays import I64, distinct, rows_by
from chakra.errors import WorkloadError
from chakra.et import Trace
from chakra.replay.checks.limits import check_limits
from chakra.replay.checks.run import Examined, Finding, examine, is_chain, shared_traces
from chakra.replay.collectives.call import Call
from chakra.replay.config.model import CollectiveKind, Memory, Network, System
from chakra.replay.config.network import load_network
from chakra.replay.engines.run import run_engine
from chakra.replay.engines.scenario import Scenario
from chakra.replay.options import RunOptions
from chakra.replay.results.stall import Stall
from chakra.replay.workload.communicators import GroupTable, Membership
from chakra.replay.workload.compile import UNBOUNDED
from chakra.replay.workload.match_ranks import match_ranks
from chakra.replay.workload.model import Op, Program, Workload
from chakra.replay.workload.node_order import collectives_by_group

#: flags of `involved_dim` that are looked at
MOST_DIMS = 64
#: nodes looked at, at most, to tell whether dependencies fix the order of what stalled
LOOKED_AT = 20_000_000


def try_traces(traces: Sequence[Trace], groups: GroupTable, npus: int) -> list[Finding]:
    """What is wrong with the traces of ranks 0, 1, 2, ..., alone, against each other, and run together.

    Parameters
    ----------
    traces
        One per rank.
    groups
        Rows of ranks by name, of which each rank is in one at most.
    npus
        Number of NPUs of the system.
    """
    unique, trace_of = shared_traces(traces)
    return try_shared(unique, trace_of, groups, npus)


def try_shared(
    unique: Sequence[Trace],
    trace_of: I64,
    groups: GroupTable,
    npus: int,
    *,
    relative: bool = False,
) -> list[Finding]:
    """The same of ranks that share traces; the arguments are those of `chakra.replay.checks.run.examine`."""
    found: Examined = examine(unique, trace_of, groups, npus, relative=relative)
    if found.compiled is None or npus == 1:
        return found.findings
    # the flags of `involved_dim` stay as they are: no network says here which of them are all dimensions
    matched, membership = match_ranks(found.compiled, groups, dims=MOST_DIMS, unused_groups=True)
    tried = list(_stalls(_without_free(matched), membership))
    return sorted([*tried, *found.findings], key=lambda finding: finding.severity != "error")


def _without_free(workload: Workload) -> Workload:
    """The workload, in which collectives that may end before all members have come wait for nobody.

    Those are the ones of some dimensions, whose members differ in these alone, and those of unequal shares, in which
    who exchanges nothing does not meet. The network that is not known here may have as many dimensions as that many
    NPUs can have.
    """
    dims = workload.npus.bit_length() - 1
    programs = list(workload.programs)
    for number, program in enumerate(programs):
        free = np.array([_may_end_early(call, dims) for call in program.calls], bool)
        if not free.any():
            continue
        nodes = np.flatnonzero(program.op == Op.COLLECTIVE)
        nodes = nodes[free[program.call[nodes]]]
        op, duration, call, comm = (
            array.copy() for array in (program.op, program.duration_ns, program.call, program.comm)
        )
        op[nodes], duration[nodes], call[nodes], comm[nodes] = Op.TIMER, 0, -1, -1
        comm[comm >= 0] = np.arange((comm >= 0).sum())
        programs[number] = replace(program, op=op, duration_ns=duration, call=call, comm=comm)
    return replace(workload, programs=tuple(programs))


def _may_end_early(call: Call, dims: int) -> bool:
    if call.uneven is not None or call.alone or call.node_id is not None:
        return True
    return call.involved is not None and (len(call.involved) < dims or not all(call.involved[:dims]))


def _stalls(workload: Workload, membership: Membership) -> Iterator[Finding]:
    scenario = _ideal(workload, membership)
    try:
        check_limits(scenario.workload, scenario.system, scenario.network, scenario.options)
    except WorkloadError as error:
        yield Finding("error", str(error))
        return
    stall = _stall(scenario, workload)
    if stall is None:
        return
    free = _stall(_ideal(_unbounded(workload), membership), workload)
    if free is None:
        yield Finding(
            "warning",
            "with one collective or message in flight at a time, a replay in which none takes time stalls: "
            f"{stall.reason()}; --comm-streams of a replay allows more in flight",
            stall=True,
        )
    elif all(_order_is_fixed(workload, program) for program in free.blocked_programs()):
        yield Finding("error", f"no replay can end: {free.reason()}", stall=True)
    else:
        yield Finding(
            "warning",
            f"a replay in which no communication takes time stalls: {stall.reason()}; dependencies do not fix the "
            "order of all of it, so other times may end it",
            stall=True,
        )


def _stall(scenario: Scenario, workload: Workload) -> Stall | None:
    """Why a run cannot end, told of the workload as it was given; None: it ends."""
    raw = run_engine(scenario, None)
    if (raw.done_ns >= 0).all():
        return None
    return Stall(raw, replace(scenario, workload=workload))


def _ideal(workload: Workload, membership: Membership) -> Scenario:
    """Transfers of nothing on one switch. Messages keep apart what they were apart by their size."""
    sizes = distinct(np.concatenate([program.p2p_bytes for program in workload.programs]))
    programs = tuple(
        replace(
            program,
            calls=tuple(Call(CollectiveKind.ALL_REDUCE, 0, call.group, None) for call in program.calls),
            p2p_bytes=np.searchsorted(sizes, program.p2p_bytes) + 1,
        )
        for program in workload.programs
    )
    network: Network = load_network(
        {"topology": ["Switch"], "npus_count": [workload.npus], "bandwidth": [1e6], "latency": [0]}
    )
    return Scenario(
        replace(workload, programs=programs), membership, System(), network, Memory(), RunOptions()
    )


def _unbounded(workload: Workload) -> Workload:
    """The same with as much in flight as dependencies allow; collectives then meet by the order of node ids."""
    programs = (
        replace(program, slot_cap=np.full_like(program.slot_cap, UNBOUNDED)) for program in workload.programs
    )
    return replace(workload, programs=tuple(programs))


def _order_is_fixed(workload: Workload, number: int) -> bool:
    """Whether dependencies leave a program no choice in which order it issues what meets others by its order."""
    program = workload.programs[number]
    meeting = [*collectives_by_group(program).values(), *_alike_messages(program)]
    several = [nodes for nodes in meeting if len(nodes) > 1]
    if len(several) * program.n_nodes > LOOKED_AT:
        return False
    return all(is_chain(program, nodes) for nodes in several)


def _alike_messages(program: Program) -> list[I64]:
    """Messages (program order) of a program that their partner tells apart by their order alone."""
    nodes = np.flatnonzero((program.op == Op.SEND) | (program.op == Op.RECV))
    rows = np.stack([program.p2p_peer, program.p2p_tag, program.p2p_bytes, program.p2p_is_send], axis=1)
    _, kind = np.unique(rows, axis=0, return_inverse=True)
    return [nodes[places] for places in rows_by(kind.reshape(-1)).values()]
