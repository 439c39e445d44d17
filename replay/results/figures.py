"""Figures of a run beyond times per NPU: collectives, dimensions, the critical path."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives.plan import Plan
from chakra.replay.config.model import CollectiveKind, Network, Topology
from chakra.replay.engines.outcome import RawRun
from chakra.replay.symmetry.classes import peers_of
from chakra.replay.workload.model import Engine, Op, Program, Workload

#: instances above this number are merged by group and plan in the result document
MAX_ROWS = 2000
#: nodes of the critical path that are reported
MAX_PATH = 10_000


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
    raw: RawRun, programs: list[Program], network: Network, spans: list[set[int]], sizes: I64
) -> list[dict[str, Any]]:
    """One row per collective instance, merged by group and plan above `MAX_ROWS`.

    `spans[c]` are the dimensions in which the members of communicator c differ; `sizes[plan]` is a plan's comm_size.
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
            "bound_ns": size * scale * factor / egress if egress and not barrier else None,
            "count": rows[key]["count"] + 1 if key in rows else 1,
        }
    return list(rows.values())


def critical_path(raw: RawRun, programs: list[Program], workload: Workload) -> list[dict[str, Any]]:
    """Nodes that lead to the latest finish, first to last: each waited for the one before it.

    Going back from the last node: what ended when it was issued (a parent, or the node that held its slot), and for a
    collective or a receive, what the last member or the sender had waited for.
    """
    if not len(raw.done_ns) or raw.partial:
        return []
    found = instances(raw, programs)
    npu_of = raw.partition.representative
    actor = int(np.argmax(raw.done_ns))
    node = int(np.argmax(raw.finish_ns[raw.nodes(actor)]))
    path: list[dict[str, Any]] = []
    seen: set[tuple[int, int]] = set()
    by_finish: dict[int, tuple[I64, I64]] = {}
    senders = _Senders(raw, programs, workload)
    while node >= 0 and len(path) < MAX_PATH and (actor, node) not in seen:
        seen.add((actor, node))
        program, where = programs[actor], raw.nodes(actor)
        issue = raw.issue_ns[where]
        index = int(program.order[node])
        trace = program.trace
        path.append(
            {
                "npu": int(npu_of[actor]),
                "node": int(trace.ids[index]),
                "name": trace.name_table[int(trace.name_codes[index])],
                "kind": Engine(int(program.engine[node])).name,
                "issue_ns": int(issue[node]),
                "finish_ns": int(raw.finish_ns[where][node]),
            }
        )
        if program.op[node] == Op.COLLECTIVE:
            instance = int(raw.comm_instance[int(raw.comm_start[actor]) + int(program.comm[node])])
            last = int(found.last_actor[instance])
            if last >= 0 and found.ready[instance] > issue[node] and last != actor:
                actor, node = last, int(found.last_node[instance])
                continue
        if program.op[node] == Op.RECV and raw.finish_ns[where][node] > issue[node]:
            sender = senders.sender(actor, node)
            if sender is not None:
                actor, node = sender
                continue
        if actor not in by_finish:
            order = np.argsort(raw.finish_ns[where], kind="stable")
            by_finish[actor] = (raw.finish_ns[where][order], order)
        finish, order = by_finish[actor]
        lo, hi = np.searchsorted(finish, issue[node]), np.searchsorted(finish, issue[node], side="right")
        candidates = order[lo:hi]
        candidates = candidates[candidates != node]
        if not len(candidates) or issue[node] == 0:
            break
        offsets, parents = trace.parents()
        mine = set(parents[int(offsets[index]) : int(offsets[index + 1])].tolist())
        parent = [int(c) for c in candidates if int(program.order[c]) in mine]
        node = parent[0] if parent else int(candidates[-1])
    path.reverse()
    return path


class _Senders:
    """Finds the send that a receive waits for: the one of equal peers, tag and place among those."""

    def __init__(self, raw: RawRun, programs: list[Program], workload: Workload) -> None:
        self.raw, self.programs, self.workload = raw, programs, workload
        self.known: dict[tuple[int, Op], dict[tuple[int, int], list[int]]] = {}

    def sender(self, actor: int, node: int) -> tuple[int, int] | None:
        """Actor and node of the send for a receive of an actor."""
        program = self.programs[actor]
        receiver = int(self.raw.partition.representative[actor])
        peer = int(self.peers[receiver, program.p2p_peer[int(program.call[node])]])
        tag = int(program.trace.comm_tag[int(program.order[node])])
        place = self._messages(receiver, Op.RECV)[peer, tag].index(node)
        sends = self._messages(peer, Op.SEND).get((receiver, tag), [])
        return (int(self.raw.partition.class_of[peer]), sends[place]) if place < len(sends) else None

    @cached_property
    def peers(self) -> I64:
        return peers_of(self.workload)

    def _messages(self, npu: int, op: Op) -> dict[tuple[int, int], list[int]]:
        """Sends or receives of an NPU by peer and tag, in the order of their issue."""
        if (npu, op) not in self.known:
            actor = int(self.raw.partition.class_of[npu])
            program = self.programs[actor]
            nodes = np.flatnonzero(program.op == op)
            nodes = nodes[np.argsort(self.raw.issue_ns[self.raw.nodes(actor)][nodes], kind="stable")]
            peers = self.peers[npu, program.p2p_peer[program.call[nodes]]]
            tags = program.trace.comm_tag[program.order[nodes]]
            found = self.known[npu, op] = {}
            for node, peer, tag in zip(nodes.tolist(), peers.tolist(), tags.tolist(), strict=True):
                found.setdefault((peer, tag), []).append(node)
        return self.known[npu, op]
