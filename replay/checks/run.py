"""Checks of a whole workload before it runs: do the traces of all ranks fit together and the system?

`check_workload` lists everything that it finds, for ``chakra validate``, which then tries the run
(`chakra.replay.trial`). `check_run` is its short form at the start of every replay, over the compiled workload: it looks
at programs and groups, not at NPUs, so it costs next to nothing for many equal ranks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, distinct
from chakra.errors import ChakraError, ConfigError, StallError, WorkloadError
from chakra.et import ABSENT, CommType, NodeType, Trace
from chakra.io.readable import counted, told_once
from chakra.replay.checks.partners import (
    Problem,
    call_text,
    collective_problems,
    group_text,
    message_problems,
    node_text,
    some,
)
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.in_network import check_switch, switch_dimension
from chakra.replay.collectives.select import choose
from chakra.replay.config.algorithms import IN_NETWORK
from chakra.replay.config.model import CollectiveKind, Memory, MemoryKind, Network, System
from chakra.replay.options import RunOptions
from chakra.replay.workload.communicators import GroupTable, Membership
from chakra.replay.workload.compile import compile_workload
from chakra.replay.workload.match_ranks import match_ranks
from chakra.replay.workload.model import Op, Program, Workload
from chakra.replay.workload.node_order import collectives_by_group

#: findings of one kind that are listed one by one
LISTED = 20
#: problems that an error at the start of a run shows
SHOWN = 3
#: a node of more than an hour is more likely to be given in ns
LONG_MICROS = 3_600_000_000
#: a collective or message of more than this (1 TiB) is more likely to be given in bits or elements times something
LARGE_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found, and what a trial run needs; `compiled` is None where the ranks do not fit together."""

    findings: list["Finding"]
    compiled: Workload | None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is, or may be, wrong with a workload."""

    #: "error" or "warning"
    severity: str
    message: str
    #: whether a run would wait for ever for this
    stall: bool = False


def check_workload(traces: Sequence[Trace], groups: Mapping[str, Sequence[int]], npus: int) -> list[Finding]:
    """Everything that is wrong with the traces of ranks 0, 1, 2, ..., alone and against each other.

    Parameters
    ----------
    traces
        One per rank. A single trace for one NPU is checked alone: there is nobody for it to meet.
    groups
        Communicator groups by name, as `chakra.replay.config.load_groups` gives them.
    npus
        Number of NPUs of the system.

    Returns
    -------
    list of Finding
        Errors first. A replay in default mode refuses the workload for each of the errors.
    """
    unique, trace_of = shared_traces(traces)
    return examine(unique, trace_of, {name: [ranks] for name, ranks in groups.items()}, npus).findings


def shared_traces(traces: Sequence[Trace]) -> tuple[list[Trace], I64]:
    """Distinct traces, and the index among them of each rank's."""
    number: dict[int, int] = {}
    trace_of = np.array([number.setdefault(id(trace), len(number)) for trace in traces], np.int64)
    return list({id(trace): trace for trace in traces}.values()), trace_of


def examine(
    unique: Sequence[Trace], trace_of: I64, groups: GroupTable, npus: int, *, relative: bool = False
) -> Examined:
    """The same of ranks that share traces, as those of a workload manifest do.

    Parameters
    ----------
    unique
        Distinct traces.
    trace_of
        Index of each rank's trace, (ranks,).
    groups
        Rows of ranks by name, of which each rank is in one at most.
    npus
        Number of NPUs of the system.
    relative
        Whether peers are offsets.

    Returns
    -------
    Examined
        Findings as of `check_workload`.
    """
    errors: list[Finding] = []
    if len(trace_of) != npus:
        errors.append(
            Finding(
                "error", f"{counted(len(trace_of), 'trace')} for {counted(npus, 'NPU')}; give one per NPU"
            )
        )
    problems = list(_listed(trace_problems(unique)))
    compiled: Workload | None = None
    if not problems and len(trace_of) == npus:
        memory = Memory(MemoryKind.PER_NPU)
        compiled = compile_workload(unique, trace_of, System(), memory, RunOptions(), relative=relative)
    warnings = [Finding("warning", text) for text in _by_ranks(unique, trace_of)]
    if compiled is not None and npus > 1:
        problems += _listed(rank_problems(compiled, strict=True))
        ends = list(_listed(peer_problems(compiled, astra=False)))
        problems += ends
        if not ends:
            problems += _listed(message_problems(compiled, compiled.peers))
        try:
            # without a network: what all dimensions are is only known where a node names them all
            matched, membership = match_ranks(compiled, groups, dims=1, unused_groups=True)
        except WorkloadError as error:
            problems.append(Problem(str(error)))
        else:
            unequal = list(_listed(collective_problems(matched, membership)))
            problems += unequal
            if not unequal:
                for finding in order_findings(matched, membership):
                    (errors if finding.severity == "error" else warnings).append(finding)
        warnings += [Finding("warning", text) for text in traffic_warnings(compiled)]
    errors += [Finding("error", problem.message, problem.stall) for problem in problems]
    return Examined(errors + warnings, None if errors else compiled)


def _listed(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The first problems, and how many more there are."""
    more = 0
    stall = True
    for i, problem in enumerate(problems):
        if i < LISTED:
            yield problem
        else:
            more += 1
            stall &= problem.stall
    if more:
        yield Problem(f"... and {more} more like the last one", stall)


def check_run(
    workload: Workload,
    membership: Membership,
    options: RunOptions,
    *,
    named_by_rank: bool,
    traced_ranks: int | None = None,
) -> None:
    """Refuse a workload that cannot run, before it runs.

    Parameters
    ----------
    named_by_rank
        Whether each trace was found by its rank's name; a list may give one trace to several ranks on purpose.
    traced_ranks
        Ranks that have a trace of their own, if the others repeat them.

    Raises
    ------
    StallError
        If all that is wrong are ends without a partner, for which the run would wait for ever.
    WorkloadError
        If anything else is wrong.
    """
    problems: list[Problem] = []
    for trace in workload.traces:
        trace.check()
    problems += rank_problems(workload, strict=named_by_rank, traced_ranks=traced_ranks)
    ends = list(peer_problems(workload, astra=options.astra))
    problems += ends
    if not ends:
        lost = options.astra and not options.rendezvous
        problems += message_problems(workload, workload.peers, astra=options.astra, lost_sends=lost)
    problems += collective_problems(workload, membership)
    if not problems:
        return
    hard = [problem for problem in problems if not problem.stall]
    shown = "; ".join(problem.message for problem in (hard or problems)[:SHOWN])
    more = len(problems) - min(len(hard or problems), SHOWN)
    if more:
        shown += f"; and {counted(more, 'more problem')} (chakra validate lists them)"
    raise WorkloadError(shown) if hard else StallError(f"the workload cannot end: {shown}")


def check_dimensions(
    workload: Workload, membership: Membership, system: System, network: Network, options: RunOptions
) -> None:
    """Refuse collectives of the whole system that no dimension of the network takes part in.

    Raises
    ------
    WorkloadError
        Naming the first such node.
    ConfigError
        If the system file has no algorithm for a collective.
    """
    done: set[tuple[CollectiveKind, tuple[bool, ...] | None]] = set()
    for p, program in enumerate(workload.programs):
        npus = workload.npus_of_program[p]
        for number, call in enumerate(program.calls):
            key = (call.kind, call.involved)
            if not len(npus) or call.involved is None or key in done or not call.bytes:
                continue
            if call.kind in system.custom or call.node_id is not None:
                continue  # an algorithm given as traces has no dimensions
            comm = int(membership.comm[npus[0], call.group])
            if comm < 0 or not membership.comms[comm].whole or workload.npus == 1:
                continue
            done.add(key)
            try:
                choose(call, workload.npus, True, system, network, options)
            except WorkloadError as error:
                node = int(np.flatnonzero((program.call == number) & (program.op == Op.COLLECTIVE))[0])
                raise WorkloadError(f"{node_text(workload, int(npus[0]), node)}: {error}") from None


def check_switches(
    workload: Workload, membership: Membership, system: System, network: Network, options: RunOptions
) -> None:
    """Refuse collectives of process groups that no switch joins which could carry them out, where that is asked for.

    Raises
    ------
    ConfigError
        Naming the first such group.
    """
    if IN_NETWORK not in {name for names in system.implementations.values() for name in names}:
        return
    done: set[tuple[CollectiveKind, int]] = set()
    for p, program in enumerate(workload.programs):
        npus = workload.npus_of_program[p]
        for call in program.calls:
            moves = call.bytes or call.kind is CollectiveKind.BARRIER
            if call.kind in system.custom or call.node_id is not None or not moves:
                continue
            for c in distinct(membership.comm[npus, call.group]).tolist():
                comm = membership.comms[c] if c >= 0 else None
                if comm is None or comm.whole or comm.size == 1 or (call.kind, c) in done:
                    continue
                done.add((call.kind, c))
                choice = choose(call, comm.size, False, system, network, options)
                if choice.parts[0][1].family is not Family.SWITCH:
                    continue
                dim = switch_dimension(comm.members, network) if network.links is None else 0
                if dim is None:
                    raise ConfigError(
                        f"{system.source}: algorithm {IN_NETWORK!r} cannot run on {group_text(comm)}: no switch joins "
                        "its members, which differ in several dimensions; with two algorithms or more in the list "
                        "process groups use ring"
                    )
                check_switch(choice.kind, dim, system, network, options)


# --------------------------------------------------------------------------------------------------------------
# One trace


def trace_problems(traces: Iterable[Trace]) -> Iterator[Problem]:
    """What keeps a trace from running on any system: cycles, nodes without the attributes they need."""
    for trace in traces:
        try:
            trace.check()
            compile_workload(
                [trace], np.zeros(1, np.int64), System(), Memory(MemoryKind.PER_NPU), RunOptions()
            )
        except ChakraError as error:
            yield Problem(str(error))


def _by_ranks(traces: Sequence[Trace], trace_of: I64) -> Iterator[str]:
    """`unit_warnings` of all traces behind the file's name, those that several have once, with all their ranks."""
    yield from told_once(
        (trace.source, text, np.flatnonzero(trace_of == number).tolist())
        for number, trace in enumerate(traces)
        for text in unit_warnings(trace)
    )


def unit_warnings(trace: Trace) -> Iterator[str]:
    """Figures of a trace that look as if they were given in another unit, without the name of its file."""
    long = np.flatnonzero(trace.duration_micros > LONG_MICROS)
    if len(long):
        i = int(long[0])
        yield (
            f"node {int(trace.ids[i])} takes {int(trace.duration_micros[i])} us, more than an hour"
            f"{_and_more(len(long))}; durations are in microseconds (duration_micros) or ns (duration_ns)"
        )
    comm = (trace.types >= NodeType.COMM_SEND) & (trace.comm_size != ABSENT)
    large = np.flatnonzero(comm & (trace.comm_size > LARGE_BYTES))
    if len(large):
        i = int(large[0])
        yield (
            f"node {int(trace.ids[i])} moves {int(trace.comm_size[i])} bytes, more than 1 TiB"
            f"{_and_more(len(large))}; comm_size is in bytes"
        )
    nothing = (trace.types == NodeType.COMM_COLL) & (trace.comm_size == 0)
    nothing[trace.split_nodes] = False  # who brings in nothing may still get something
    empty = np.flatnonzero(nothing & (trace.comm_type != CommType.BARRIER))
    if len(empty):
        yield (
            f"node {int(trace.ids[empty[0]])} is a collective of 0 bytes{_and_more(len(empty))}: it only "
            "waits for all members"
        )
    comp = trace.types == NodeType.COMP
    timed = (trace.duration_micros > 0) | ((trace.duration_ns != ABSENT) & (trace.duration_ns > 0))
    if comp.any() and not (timed | (trace.num_ops != ABSENT))[comp].any():
        yield (
            "no compute node has a duration or num_ops: compute takes no time. "
            "Durations are whole microseconds (duration_micros) or ns (duration_ns)"
        )


def _and_more(count: int) -> str:
    return f" (and {counted(count - 1, 'more node')})" if count > 1 else ""


def traffic_warnings(workload: Workload) -> Iterator[str]:
    """A workload whose communication nodes move nothing."""
    total = nodes = 0
    for program in workload.programs:
        nodes += len(program.p2p_bytes) + sum(c.kind is not CollectiveKind.BARRIER for c in program.calls)
        total += int(program.p2p_bytes.sum()) + sum(call.bytes for call in program.calls)
    if nodes and not total:
        yield "no communication node moves any bytes: compute alone decides the result"


def run_warnings(workload: Workload, options: RunOptions) -> Iterator[str]:
    """What the result of a run should warn of: collectives of 0 bytes (C1), and no traffic at all."""
    if options.astra:
        return
    runs = np.bincount(workload.program_of, minlength=len(workload.programs))
    empty = 0
    for program, count in zip(workload.programs, runs.tolist(), strict=True):
        zero = [
            call.bytes == 0 and not call.alone and call.kind is not CollectiveKind.BARRIER
            for call in program.calls
        ]
        if any(zero):
            calls = program.call[program.op == Op.COLLECTIVE]
            empty += count * int(np.asarray(zero)[calls].sum())
    if empty:
        yield (
            f"{counted(empty, 'collective node')} of 0 bytes: they wait for all members and move nothing (C1; "
            "ASTRA-sim charges time for them, or hangs)"
        )
    yield from traffic_warnings(workload)


# --------------------------------------------------------------------------------------------------------------
# Ranks and peers


def rank_problems(workload: Workload, *, strict: bool, traced_ranks: int | None = None) -> Iterator[Problem]:
    """Traces that say that they are another rank's."""
    for t, trace in enumerate(workload.traces):
        rank = trace.rank
        if rank is None:
            continue
        npus = workload.npus_of_trace[t]
        if traced_ranks is not None:
            npus = npus[npus < traced_ranks]
        wrong = npus[npus != rank]
        if len(wrong) and (strict or len(wrong) == len(npus)):
            yield Problem(
                f"{trace.source}: the trace of rank {rank} (metadata attribute 'rank') is given for rank {some(wrong)}"
            )


def peer_problems(workload: Workload, *, astra: bool) -> Iterator[Problem]:
    """Messages to ranks that do not exist, to oneself, or in somebody else's name."""
    n = workload.npus
    for t, bindings in enumerate(workload.bindings):
        trace = workload.traces[t]
        npus = workload.npus_of_trace[t]
        if not len(npus):
            continue
        program = workload.programs[int(workload.program_of[npus[0]])]
        if not len(program.p2p_peer):
            continue  # replayed by duration only
        peers = bindings.peers
        low, high = (1 - n, n - 1) if workload.relative else (0, n - 1)
        outside = np.flatnonzero((peers < low) | (peers > high))
        if len(outside):
            what = "offsets" if workload.relative else "ranks"
            yield Problem(
                f"{_peer_node(workload, program, npus, outside)} talks to rank {some(peers[outside])}, "
                f"but the system has {what} {low} to {high}"
            )
            continue
        own = peers % n == 0 if workload.relative else np.isin(peers, npus)
        if own.any():
            slot = np.flatnonzero(own)
            npu = npus if workload.relative else peers[slot]
            yield Problem(
                f"{_peer_node(workload, program, npu, slot)} exchanges a message with its own rank {int(npu[0])}"
            )
        if not workload.relative:
            yield from _sender_problems(trace, npus, astra=astra)


def _peer_node(workload: Workload, program: Program, npus: I64, slots: I64) -> str:
    """The first node of an NPU that uses one of some peer slots."""
    messages = np.flatnonzero(program.p2p_bytes >= 0)
    first = messages[np.isin(program.p2p_peer[messages], slots)][0]
    node = int(
        np.flatnonzero((program.comm >= 0) & (program.call == first) & (program.op != Op.COLLECTIVE))[0]
    )
    return node_text(workload, int(npus[0]), node)


def _sender_problems(trace: Trace, npus: I64, *, astra: bool) -> Iterator[Problem]:
    """Sends that name another sender than their own rank, receives that name another receiver."""
    sides = [(NodeType.COMM_SEND, trace.comm_src, "comm_src", "send")]
    if not astra:
        sides.append((NodeType.COMM_RECV, trace.comm_dst, "comm_dst", "receive"))
    for kind, column, name, word in sides:
        given = np.flatnonzero((trace.types == kind) & (column != ABSENT))
        if not len(given):
            continue
        named = distinct(column[given])
        if len(named) == 1 and len(npus) == 1 and named[0] == npus[0]:
            continue
        bad = [(int(v), npus[npus != v]) for v in named]
        value, others = next((pair for pair in bad if len(pair[1])), (0, npus[:0]))
        if len(others):
            i = int(given[np.flatnonzero(column[given] == value)[0]])
            yield Problem(
                f"{trace.source}: node {int(trace.ids[i])}: {name} of a {word} is {value}, but the trace is "
                f"rank {some(others)}'s"
            )


# --------------------------------------------------------------------------------------------------------------
# Order of collectives


def order_problem(workload: Workload, membership: Membership, npu: int, node: int) -> str:
    """Why a run ended at a node (program order) of an NPU whose group runs another collective there."""
    program = workload.programs[int(workload.program_of[npu])]
    call = program.calls[int(program.call[node])]
    number = int(membership.comm[npu, call.group])
    text = (
        f"{node_text(workload, npu, node)}: rank {npu} runs {call_text(call)} in "
        f"{group_text(membership.comms[number])}, but another member issued a collective of another kind, size or "
        "dimensions there"
    )
    for finding in order_findings(workload, membership, only=number):
        return f"{text}; {finding.message}"
    return (
        f"{text}; by node id all members run the same ones, but which comes first depends on times here: comm-streams "
        "above 1 (--comm-streams 2) matches them by node id"
    )


def order_findings(
    workload: Workload, membership: Membership, *, only: int | None = None
) -> Iterator[Finding]:
    """Members that run the same collectives of a group in another order; `only`: of one communicator.

    Dependencies and times decide the order of a run. An error is certain only if they leave no choice on both members.
    """
    chains: dict[tuple[int, int], bool] = {}
    seen: set[tuple[int, int, int, int]] = set()
    by_group: dict[int, dict[int, I64]] = {}
    nothing = np.zeros(0, np.int64)
    found = 0
    for c, users in _first_users(workload, membership):
        if only not in (None, c):
            continue
        comm = membership.comms[c]
        keys = list(users)
        for p, _ in keys:
            if p not in by_group:
                by_group[p] = collectives_by_group(workload.programs[p])
        for key in keys[1:]:
            pair = (*keys[0], *key)
            if pair in seen:
                continue
            seen.add(pair)
            base, other = workload.programs[keys[0][0]], workload.programs[key[0]]
            a = by_group[keys[0][0]].get(keys[0][1], nothing)
            b = by_group[key[0]].get(key[1], nothing)
            for ordinal, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=False)):
                mine, theirs = base.calls[int(base.call[x])], other.calls[int(other.call[y])]
                if (mine.kind, mine.bytes) == (theirs.kind, theirs.bytes):
                    continue
                for k, (program, nodes) in zip((keys[0], key), ((base, a), (other, b)), strict=True):
                    if k not in chains:
                        chains[k] = is_chain(program, nodes)
                sure = chains[keys[0]] and chains[key]
                found += 1
                if found <= LISTED:
                    yield Finding(
                        "error" if sure else "warning",
                        f"{group_text(comm)}: {'in' if sure else 'by node id, in'} place {ordinal} rank "
                        f"{users[keys[0]]} ({node_text(workload, users[keys[0]], x)}) runs {call_text(mine)}, rank "
                        f"{users[key]} ({node_text(workload, users[key], y)}) {call_text(theirs)}: the order differs"
                        + ("" if sure else ", and dependencies do not fix it"),
                    )
                break


def _first_users(
    workload: Workload, membership: Membership
) -> Iterator[tuple[int, dict[tuple[int, int], int]]]:
    """Of every communicator in use, the first NPU of each (program, group slot) that uses it."""
    npu, slot = np.nonzero(membership.comm >= 0)
    comm = membership.comm[npu, slot]
    program = workload.program_of[npu]
    order = np.lexsort((npu, slot, comm))
    rows = np.stack([comm, slot, program], axis=1)[order]
    if not len(rows):
        return
    # slots ascend within a communicator, and within a slot the NPUs: the first of a kind stands for it
    _, first = np.unique(rows, axis=0, return_index=True)
    users: dict[tuple[int, int], int] = {}
    current = int(rows[0, 0])
    for k in np.sort(first).tolist():
        c, s, p = rows[k].tolist()
        if c != current:
            yield current, users
            current, users = c, {}
        users[p, s] = int(npu[order[k]])
    yield current, users


def is_chain(program: Program, nodes: I64) -> bool:
    """Whether dependencies put some nodes (program order) of a program into one order, that of their ids."""
    wanted = np.zeros(program.n_nodes, bool)
    wanted[nodes] = True
    before = np.zeros(program.n_nodes, np.int64)  # nodes wanted on the longest path to each node
    left = program.parents.astype(np.int64)
    ready = np.flatnonzero(left == 0).tolist()
    start, child = program.child_start.tolist(), program.child.tolist()
    while ready:
        node = ready.pop()
        here = before[node] + wanted[node]
        for k in range(start[node], start[node + 1]):
            below = child[k]
            before[below] = max(before[below], here)
            left[below] -= 1
            if left[below] == 0:
                ready.append(below)
    return bool((before[nodes] == np.arange(len(nodes))).all())
