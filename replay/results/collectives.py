"""Collectives of a run: times of every instance, and the rows of the table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.library.shape import Choice
from chakra.replay.collectives.plan import Plan
from chakra.replay.config.model import CollectiveKind, Network, Topology
from chakra.replay.engines.outcome import RawRun
from chakra.replay.workload.model import Program

#: instances above this number are merged by group and plan in the result document
MAX_ROWS = 2000


@dataclass(frozen=True, slots=True)
class Instances:
    """Times of every collective instance in ns: first issue, last issue, last end; and how much its members waited."""

    start: I64
    ready: I64
    end: I64
    waiting: I64
    last_actor: I64
    last_node: I64


def instances(raw: RawRun, programs: list[Program]) -> Instances:
    """Times of all collective instances; -1 where one never became complete."""
    n = len(raw.instance_plan)
    far = np.iinfo(np.int64).max
    start, end = np.full(n, far), np.full(n, -1)
    waiting = np.zeros(n, np.int64)
    last_actor, last_node, last_issue = np.full(n, -1), np.full(n, -1), np.full(n, -1)
    for actor, program in enumerate(programs):
        comm = np.flatnonzero(program.comm >= 0)
        if not len(comm):
            continue
        cells = slice(int(raw.comm_start[actor]), int(raw.comm_start[actor + 1]))
        instance = raw.comm_instance[cells]
        known = instance >= 0
        nodes, instance = comm[known], instance[known]
        where = raw.nodes(actor)
        issue, finish = raw.issue_ns[where][nodes], raw.finish_ns[where][nodes]
        np.minimum.at(start, instance, issue)
        np.maximum.at(end, instance, finish)
        np.add.at(waiting, instance, np.maximum(raw.instance_ready_ns[instance] - issue, 0))
        later = issue > last_issue[instance]
        last_issue[instance[later]] = issue[later]
        last_actor[instance[later]] = actor
        last_node[instance[later]] = nodes[later]
    start[start == far] = -1
    return Instances(start, raw.instance_ready_ns.copy(), end, waiting, last_actor, last_node)


def bus_factor(kind: CollectiveKind, n: int) -> tuple[float, float]:
    """(S / comm_size, bus bytes / S) as nccl-tests define them; for an all-gather S = n * comm_size."""
    if kind is CollectiveKind.ALL_REDUCE:
        return 1.0, 2 * (n - 1) / n
    if kind in (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER):
        return float(n), (n - 1) / n
    if kind in (
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.REDUCE_SCATTER_BLOCK,
        CollectiveKind.ALL_TO_ALL,
    ):
        return 1.0, (n - 1) / n
    if kind is CollectiveKind.SCATTER:
        return 1.0, (n - 1) / n
    return 1.0, 1.0  # BROADCAST, REDUCE


def _least(plan: Plan, factor: float) -> float:
    """Bytes that each NPU must send over S: where switches reduce, its own data once."""
    switched = any(phase.algorithm.family is Family.SWITCH for phase in plan.variants[0])
    return min(factor, 1.0) if switched else factor


def egress_bytes_per_ns(network: Network, dims: set[int]) -> float:
    """Bandwidth with which one NPU can send into some dimensions: two links of a ring, all of a full mesh."""
    total = 0.0
    for k in dims:
        dim = network.dims[k]
        links = 1
        if dim.topology is Topology.RING:
            links = 1 if dim.npus == 2 else 2
        elif dim.topology is Topology.FULLY_CONNECTED:
            links = dim.npus - 1
        total += links * dim.bytes_per_ns
    return total


def algorithm_name(plan: Plan) -> str:
    """Algorithms of a plan's phases, one per dimension."""
    names: list[str] = []
    for phase in plan.variants[0]:
        if not names or names[-1] != phase.algorithm.name:
            names.append(phase.algorithm.name)
    return "+".join(dict.fromkeys(names))


def collective_rows(
    raw: RawRun,
    programs: list[Program],
    network: Network,
    spans: list[set[int]],
    sizes: I64,
    ran: Callable[[int, int], Choice | None],
) -> list[dict[str, Any]]:
    """One row per collective instance, merged by group and plan above `MAX_ROWS`.

    `ran` says what a library ran for a plan on a communicator, if one did; `spans[c]` are the dimensions in which the
    members of communicator c differ; `sizes[plan]` is a plan's comm_size; of
    unequal shares, of the even collective that brings as many bytes through its ports as the busiest member does.
    """
    found = instances(raw, programs)
    done = np.flatnonzero((found.start >= 0) & (raw.instance_plan >= 0))
    rows: dict[Any, dict[str, Any]] = {}
    merge = len(done) > MAX_ROWS
    for i in done.tolist():
        plan_number, c = int(raw.instance_plan[i]), int(raw.instance_comm[i])
        key = (plan_number, c) if merge else i
        ready, end = int(found.ready[i]), int(found.end[i])
        time = end - ready
        if key in rows and rows[key]["end_ns"] - rows[key]["ready_ns"] >= time:
            rows[key]["count"] += 1
            continue
        plan = raw.plans[plan_number]
        name, n, _ = raw.comms[c]
        scale, factor = bus_factor(plan.kind, n)
        size = int(sizes[plan_number])
        barrier = plan.kind is CollectiveKind.BARRIER
        timed = time > 0 and not barrier
        egress = egress_bytes_per_ns(network, spans[c])
        number = rows[key]["count"] + 1 if key in rows else 1
        rows[key] = {
            "kind": plan.kind.value,
            "algorithm": algorithm_name(plan),
            "group": name,
            "members": n,
            "bytes": size,
            "start_ns": int(found.start[i]),
            "ready_ns": ready,
            "end_ns": end,
            "waiting_ns": int(found.waiting[i]),
            "transfer_ns": time,
            "algbw_gbps": size * scale / time if timed else None,
            "busbw_gbps": size * scale * factor / time if timed else None,
            "bound_ns": size * scale * _least(plan, factor) / egress if egress and not barrier else None,
            "count": number,
        }
        if plan.uneven:
            rows[key]["uneven"] = True
        choice = ran(plan_number, c)
        if choice is not None:
            rows[key] |= {
                "library_algorithm": choice.algorithm.value,
                "library_protocol": choice.protocol.value,
                "library_channels": choice.channels,
            }
    return list(rows.values())
