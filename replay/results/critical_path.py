"""The critical path of a run: the chain of nodes that leads to the latest finish."""

from functools import cached_property

import numpy as np

from chakra.arrays import I64
from chakra.replay.engines.outcome import RawRun
from chakra.replay.results.collectives import instances
from chakra.replay.workload.model import Engine, Op, Program, Workload

#: nodes of the critical path that are reported
MAX_PATH = 10_000


def critical_path(raw: RawRun, programs: list[Program], workload: Workload) -> list[dict[str, object]]:
    """Nodes that lead to the latest finish, first to last: each waited for the one before it.

    Going back from the last node: what ended when it was issued (a parent, or the node that held its slot), and for a
    collective or a receive, what the last member or the sender had waited for.
    """
    if not len(raw.done_ns) or raw.partial:
        return []
    found = instances(raw, programs)
    npu_of = raw.partition.representative
    # a trace without nodes ends at 0, as one of nodes that take no time
    busy = np.flatnonzero(np.diff(raw.node_start))
    if not len(busy):
        return []
    actor = int(busy[np.argmax(raw.done_ns[busy])])
    node = int(np.argmax(raw.finish_ns[raw.nodes(actor)]))
    path: list[dict[str, object]] = []
    seen: set[tuple[int, int]] = set()
    by_finish: dict[int, tuple[I64, I64]] = {}
    issued_as: dict[int, I64] = {}
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
            issued = raw.order[where][: int(raw.order_n[actor])]
            issued_as[actor] = np.full(program.n_nodes, -1, np.int64)
            issued_as[actor][issued] = np.arange(len(issued))
        finish, order = by_finish[actor]
        lo, hi = np.searchsorted(finish, issue[node]), np.searchsorted(finish, issue[node], side="right")
        candidates = order[lo:hi]
        # a node of 0 ns that ends at this tick may as well be a child: what one waited for was issued before
        candidates = candidates[issued_as[actor][candidates] < issued_as[actor][node]]
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
        return self.workload.peers

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
