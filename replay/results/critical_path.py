"""The critical path of a run: the chain of nodes that leads to the latest finish."""

from functools import cached_property

import numpy as np

from chakra.arrays import I64
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.scenario import Scenario
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.model import Engine, Op, Program, Workload

#: nodes of the critical path that are reported
MAX_PATH = 10_000


def critical_path(raw: RawRun, programs: list[Program], scenario: Scenario) -> list[dict[str, object]]:
    """Nodes that lead to the latest finish, first to last: each waited for the one before it.

    Going back from the last node: what ended when it was issued (a parent, or the node that held its slot), and for a
    collective or a receive, what the last member or the sender had waited for. Of NPUs that are equally late the first
    counts, whether classes of NPUs were simulated or all.
    """
    if not len(raw.done_ns) or raw.partial:
        return []
    class_of = raw.partition.class_of
    # a trace without nodes ends at 0, as one of nodes that take no time
    busy = np.flatnonzero(np.diff(raw.node_start)[class_of])
    if not len(busy):
        return []
    npu = int(busy[np.argmax(raw.done_ns[class_of[busy]])])
    node = int(np.argmax(raw.finish_ns[raw.nodes(int(class_of[npu]))]))
    path: list[dict[str, object]] = []
    seen: set[tuple[int, int]] = set()
    by_finish: dict[int, tuple[I64, I64]] = {}
    issued_as: dict[int, I64] = {}
    senders = _Senders(raw, programs, scenario.workload)
    members = _Members(raw, programs, scenario.membership)
    while node >= 0 and len(path) < MAX_PATH and (npu, node) not in seen:
        seen.add((npu, node))
        actor = int(class_of[npu])
        program, where = programs[actor], raw.nodes(actor)
        issue = raw.issue_ns[where]
        index = int(program.order[node])
        trace = program.trace
        path.append(
            {
                "npu": npu,
                "node": int(trace.ids[index]),
                "name": trace.name_table[int(trace.name_codes[index])],
                "kind": Engine(int(program.engine[node])).name,
                "issue_ns": int(issue[node]),
                "finish_ns": int(raw.finish_ns[where][node]),
            }
        )
        if program.op[node] == Op.COLLECTIVE:
            instance = int(raw.comm_instance[int(raw.comm_start[actor]) + int(program.comm[node])])
            if instance >= 0 and raw.instance_ready_ns[instance] > issue[node]:
                group = scenario.membership.comm[npu, program.calls[int(program.call[node])].group]
                npu, node = members.last(instance, int(group))
                continue
        if program.op[node] == Op.RECV and raw.finish_ns[where][node] > issue[node]:
            sender = senders.sender(npu, node)
            if sender is not None:
                npu, node = sender
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


class _Members:
    """Finds the member of a collective that the others wait for."""

    def __init__(self, raw: RawRun, programs: list[Program], membership: Membership) -> None:
        self.raw, self.membership = raw, membership
        cells = [(actor, np.flatnonzero(program.comm >= 0)) for actor, program in enumerate(programs)]
        actor = np.repeat([actor for actor, _ in cells], [len(nodes) for _, nodes in cells])
        node = np.concatenate([nodes[np.argsort(programs[a].comm[nodes])] for a, nodes in cells])
        issue = raw.issue_ns[raw.node_start[actor] + node]
        # the last to be issued come first
        order = np.lexsort([actor, -issue, raw.comm_instance])
        self.instance, self.issue = raw.comm_instance[order], issue[order]
        self.actor, self.node = actor[order], node[order]
        self.known: dict[tuple[int, tuple[int, ...]], int] = {}

    def last(self, instance: int, group: int) -> tuple[int, int]:
        """NPU and node of the last member of a group to be issued; the first NPU of those that are equally late."""
        first, end = np.searchsorted(self.instance, [instance, instance + 1]).tolist()
        class_of = self.raw.partition.class_of
        if self.raw.partition.n_classes == len(class_of):
            npu = int(self.raw.partition.representative[self.actor[first]])
            return npu, int(self.node[first])
        late = first + np.flatnonzero(self.issue[first:end] == self.issue[first])
        key = group, tuple(self.actor[late].tolist())
        if key not in self.known:
            members = self.membership.comms[group].members
            self.known[key] = int(members[np.isin(class_of[members], self.actor[late])].min())
        npu = self.known[key]
        return npu, int(self.node[late[self.actor[late] == class_of[npu]][0]])


class _Senders:
    """Finds the send that a receive waits for: the one of equal peers, tag and place among those."""

    def __init__(self, raw: RawRun, programs: list[Program], workload: Workload) -> None:
        self.raw, self.programs, self.workload = raw, programs, workload
        self.known: dict[tuple[int, Op], dict[tuple[int, int], list[int]]] = {}

    def sender(self, receiver: int, node: int) -> tuple[int, int] | None:
        """NPU and node of the send for a receive of an NPU."""
        program = self.programs[int(self.raw.partition.class_of[receiver])]
        peer = int(self.peers[receiver, program.p2p_peer[int(program.call[node])]])
        tag = int(program.trace.comm_tag[int(program.order[node])])
        place = self._messages(receiver, Op.RECV)[peer, tag].index(node)
        sends = self._messages(peer, Op.SEND).get((receiver, tag), [])
        return (peer, sends[place]) if place < len(sends) else None

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
