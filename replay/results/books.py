"""Books of a run: bytes per dimension, and per link where links are modelled, from who sends how much to whom.

Conservation: what the books of all dimensions or links hold is what the algorithms send (tests/replay/test_books.py).
Which dimensions a message counts in: `chakra.replay.results.crossed`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from chakra.arrays import I64, ranges, rows_by
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.call import Call
from chakra.replay.collectives.in_network import port_bytes
from chakra.replay.collectives.library.in_effect import Layout
from chakra.replay.collectives.plan import FLAT, Phase, Plan, Rule, Schedule
from chakra.replay.collectives.steps import Steps
from chakra.replay.config.model import Topology
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.scenario import Scenario
from chakra.replay.engines.traffic import Messages, library_messages, phase_messages
from chakra.replay.symmetry.classes import booked_dims
from chakra.replay.workload.model import Op


@dataclass(frozen=True, slots=True)
class Calls:
    """A collective that some NPUs have ended equally often."""

    call: Call
    count: int
    npus: I64


def ended_calls(scenario: Scenario, raw: RawRun) -> Iterator[Calls]:
    """Collectives that have ended, by call, with the NPUs that ended them equally often."""
    workload = scenario.workload
    alike: dict[tuple[int, bytes], list[int]] = {}
    for actor in range(len(raw.program_of)):
        number = int(raw.program_of[actor])
        program = workload.programs[number]
        if not program.calls:
            continue
        nodes = np.flatnonzero(program.op == Op.COLLECTIVE)
        nodes = nodes[raw.finish_ns[raw.nodes(actor)][nodes] >= 0]
        counts = np.bincount(program.call[nodes], minlength=len(program.calls)).astype(np.int64)
        alike.setdefault((number, counts.tobytes()), []).append(actor)
    group_of = np.full(len(raw.program_of), -1, np.int64)
    for k, actors in enumerate(alike.values()):
        group_of[actors] = k
    of_npu = group_of[raw.partition.class_of]
    npus_of = rows_by(of_npu)
    for k, (number, counts_bytes) in enumerate(alike):
        npus = npus_of[k]
        counts = np.frombuffer(counts_bytes, np.int64)
        for call, count in zip(workload.programs[number].calls, counts.tolist(), strict=True):
            if count:
                yield Calls(call, count, npus)


def phases_of(plan: Plan) -> Counter[Phase]:
    """Phases of a plan and how many chunks go through each; none where chunks choose their phases as they run."""
    if plan.schedule is not Schedule.PLAN:
        return Counter()
    return Counter(phase for v in plan.chunks for phase in plan.variants[v])


def unsent_bytes(scenario: Scenario, raw: RawRun) -> I64:
    """Bytes per dimension, over all NPUs, of a library's collectives that were simulated without their messages.

    Where every message is simulated these are all that an engine has not counted.
    """
    library = scenario.plans.library
    if library is None or library.sends:
        return np.zeros(len(scenario.network.dims), np.int64)
    return flat_bytes(scenario, raw, libraries_only=True)[0]


def flat_bytes(scenario: Scenario, raw: RawRun, *, libraries_only: bool = False) -> tuple[I64, I64]:
    """Bytes per dimension of phases on flat rings, which may cross dimensions, over all NPUs.

    Returns
    -------
    crossed : (dims,) where the bytes went
    booked : (dims,) where the phase-level engine has counted them: under the dimension whose queues they use
    """
    dims = len(scenario.network.dims)
    crossed, booked = np.zeros(dims, np.int64), np.zeros(dims, np.int64)
    membership = scenario.membership
    size_of = np.array([comm.size for comm in membership.comms], np.int64)
    whole_of = np.array([comm.whole for comm in membership.comms], bool)
    for calls in ended_calls(scenario, raw):
        comm = membership.comm[calls.npus, calls.call.group]
        place = membership.member[calls.npus, calls.call.group]
        sizes, whole = size_of[comm], whole_of[comm]
        for size, is_whole in {*zip(sizes.tolist(), whole.tolist(), strict=True)}:
            here = (sizes == size) & (whole == is_whole)
            numbers, row = np.unique(comm[here], return_inverse=True)
            rings = np.stack([membership.comms[c].members for c in numbers.tolist()])
            plan = scenario.plans.of(calls.call, size, whole=is_whole)
            for phase, chunks in phases_of(plan).items():
                if phase.view != FLAT or phase.algorithm.family is Family.NONE:
                    continue
                if libraries_only and phase.algorithm.family is not Family.LIBRARY:
                    continue
                steps = None
                if phase.algorithm.family is Family.STEPS:
                    steps = scenario.plans.steps(phase, whole=is_whole)
                total = sum(messages.total_bytes for messages in phase_messages(phase, steps))
                for some, messages in _messages(scenario, phase, steps, rings):
                    mine = np.isin(row.reshape(-1), some)
                    sent = _crossings(scenario, rings, row.reshape(-1)[mine], place[here][mine], messages)
                    crossed += sent * calls.count * chunks
                booked[phase.dim] += total // phase.size * len(place[here]) * calls.count * chunks
    return crossed, booked


def _messages(
    scenario: Scenario, phase: Phase, steps: Steps | None, rings: I64
) -> Iterator[tuple[I64, Messages]]:
    """Messages of a phase on some rings, with the rows of the rings that have them.

    All have the same, but those of a library's collective: where its members lie decides who sends to whom.
    """
    library = scenario.plans.library
    if phase.algorithm.family is not Family.LIBRARY or library is None:
        every = np.arange(len(rings))
        yield from ((every, messages) for messages in phase_messages(phase, steps))
        return
    alike: dict[Layout, list[int]] = {}
    for number, members in enumerate(rings):
        alike.setdefault(library.layout(members), []).append(number)
    for some in alike.values():
        rows = np.array(some)
        yield from ((rows, messages) for messages in library_messages(library, phase, rings[some[0]]))


def _crossings(scenario: Scenario, rings: I64, row: I64, place: I64, messages: Messages) -> I64:
    """Bytes per dimension of the messages that the NPUs at some places of some rings send."""
    order = np.argsort(messages.source, kind="stable")
    first = np.searchsorted(messages.source[order], np.arange(rings.shape[1] + 1))
    each = np.diff(first)[place]
    which = order[ranges(first[place], each)]
    source = np.repeat(rings[row, place], each)
    target = rings[np.repeat(row, each), messages.target[which]]
    booked = booked_dims(scenario.network, source, target)
    size = messages.size[which] * messages.count
    return np.asarray((booked * size[:, None]).sum(axis=0), np.int64)


def link_rows(scenario: Scenario, raw: RawRun) -> list[dict[str, Any]]:
    """Books of the links of a congested network whose run was computed in closed form, in the order of the links.

    There all NPUs run the same whole-cluster collectives, one chunk at a time, and no two of them share a link; only
    through a switch do an NPU's own messages wait for each other.
    """
    network = scenario.network
    grid = np.arange(network.npus).reshape([dim.npus for dim in reversed(network.dims)])
    times: Counter[Phase] = Counter()
    for calls in ended_calls(scenario, raw):
        comm = scenario.membership.comms[int(scenario.membership.comm[calls.npus[0], calls.call.group])]
        plan = scenario.plans.of(calls.call, comm.size, whole=comm.whole)
        for phase, chunks in phases_of(plan).items():
            times[phase] += chunks * calls.count
    parts: list[I64] = []  # dimension, place of the link, from, to, bytes, busy, queued
    for phase, often in times.items():
        k = 0 if phase.view == FLAT else phase.view
        dim = network.dims[k]
        rings = np.moveaxis(grid, len(network.dims) - 1 - k, -1).reshape(-1, dim.npus)
        if phase.algorithm.family is Family.SWITCH:
            parts += _ports(phase, dim.bytes_per_ns, k, network.npus, often)
            continue
        for messages in phase_messages(phase):
            source, target = rings[:, messages.source].reshape(-1), rings[:, messages.target].reshape(-1)
            if phase.rule is Rule.LAST:  # these queues run their rings the other way round
                source, target = target, source
            size = np.tile(messages.size, len(rings))
            number = messages.count * often
            busy = (size / dim.bytes_per_ns).astype(np.int64) * number
            ways = [(source * dim.npus * network.npus + target, source, target)]
            if dim.topology is Topology.SWITCH:
                nobody = np.full(len(source), -1)
                ways = [(2 * source, source, nobody), (2 * target + 1, nobody, target)]
            elif dim.topology is Topology.RING:
                forward = np.tile((messages.target - messages.source) % dim.npus == 1, len(rings)) ^ (
                    phase.rule is Rule.LAST and dim.npus > 2
                )
                ways = [(2 * source + (1 - forward), source, target)]
            for place, start, end in ways:
                zero = np.zeros(len(place), np.int64)
                parts.append(np.stack([zero + k, place, start, end, size * number, busy, zero], axis=1))
        if phase.algorithm.family is Family.DIRECT and dim.topology is Topology.SWITCH:
            parts.append(_own_queues(phase, dim.bytes_per_ns, k, network.npus, often))
    if not parts:
        return []
    rows = np.concatenate(parts)
    keys, where = np.unique(rows[:, :4], axis=0, return_inverse=True)
    sums = np.zeros((len(keys), 3), np.int64)
    np.add.at(sums, where.reshape(-1), rows[:, 4:])
    return [
        {
            "dim": dim,
            "from": source,
            "to": target,
            "bandwidth_gibps": network.dims[dim].bandwidth_gibps,
            "bytes": size,
            "busy_ns": busy,
            "queued_ns": queued,
        }
        for (dim, _, source, target), (size, busy, queued) in zip(keys.tolist(), sums.tolist(), strict=True)
    ]


def _ports(phase: Phase, bytes_per_ns: float, k: int, npus: int, often: int) -> list[I64]:
    """What the links between all NPUs and their switches carry in a phase that the switches carry out."""
    npu, zero = np.arange(npus), np.zeros(npus, np.int64)
    up, down = (
        (zero + size * often, zero + int(size / bytes_per_ns) * often)
        for size in port_bytes(phase.do, phase.bytes, phase.size)
    )
    return [
        np.stack([zero + k, 2 * npu, npu, zero - 1, *up, zero], axis=1),
        np.stack([zero + k, 2 * npu + 1, zero - 1, npu, *down, zero], axis=1),
    ]


def _own_queues(phase: Phase, bytes_per_ns: float, k: int, npus: int, often: int) -> I64:
    """Waiting of an NPU's messages at its own port, where it sends to all others at once."""
    each = int(next(phase_messages(phase)).size[0])
    waiting = int(each / bytes_per_ns) * (phase.size - 1) * (phase.size - 2) // 2 * often
    npu, zero = np.arange(npus), np.zeros(npus, np.int64)
    return np.stack([zero + k, 2 * npu, npu, zero - 1, zero, zero, zero + waiting], axis=1)
