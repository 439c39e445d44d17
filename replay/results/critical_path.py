"""The critical path of a run: the chain of nodes that leads to the latest finish."""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from chakra.arrays import I64, rows_by
from chakra.io.readable import counted_name
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.scenario import Scenario
from chakra.replay.results.meetings_of_some import dims_left_out, partners
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.model import Engine, Op, Program, Workload

#: nodes of the critical path that are listed one by one; its sums are of all
MAX_PATH = 10_000


class PathNode(TypedDict):
    """A node of the path: `node` is its id, `kind` the name of its `Engine`."""

    npu: int
    node: int
    name: str
    kind: str
    issue_ns: int
    finish_ns: int


class PathPart(TypedDict):
    """What nodes of one operator and kind take on the path, and how many they are."""

    operator: str
    kind: str
    count: int
    total_ns: int


class PathSums(TypedDict):
    """Times of a whole path: how many nodes it has, what nothing runs on, and what does."""

    nodes: int
    gaps: int
    gap_ns: int
    parts: list[PathPart]


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """Nodes of the critical path, first to last, as columns: all of them, however many.

    Attributes
    ----------
    npu, node
        NPU and id of each node.
    name, kind
        Place of each node's name in `names`, number of its `Engine`.
    issue_ns, finish_ns
        Times of each node.
    names
        Distinct names.
    """

    npu: I64
    node: I64
    name: I64
    kind: I64
    issue_ns: I64
    finish_ns: I64
    names: list[str]

    def rows(self, most: int = MAX_PATH) -> list[PathNode]:
        """The first nodes, one by one."""
        columns = (self.npu, self.node, self.name, self.kind, self.issue_ns, self.finish_ns)
        return [
            {
                "npu": npu,
                "node": node,
                "name": self.names[name],
                "kind": Engine(kind).name,
                "issue_ns": issue,
                "finish_ns": finish,
            }
            for npu, node, name, kind, issue, finish in zip(
                *(column[:most].tolist() for column in columns), strict=True
            )
        ]

    def sums(self) -> PathSums:
        """Time of the whole path by operator and kind, largest first, and of its gaps; they add up to its end.

        An instant belongs to the first node of the path that covers it; parts count all nodes, those of no time, too.
        Names that differ in numbers that count (layers, micro-batches) are one operator.
        """
        # The last member of a collective stands for when it came: it may end after members whose ends lead on, and what
        # follows these is not its time.
        reached = np.minimum.accumulate(self.finish_ns[::-1])[::-1]
        before = np.concatenate([np.zeros(1, np.int64), reached[:-1]])[: len(reached)]
        time = np.maximum(reached - np.maximum(self.issue_ns, before), 0)
        gap = np.maximum(self.issue_ns - before, 0)
        places: dict[str, int] = {}
        operator = np.array(
            [places.setdefault(counted_name(name), len(places)) for name in self.names], np.int64
        )
        key, inverse = np.unique(
            np.stack([operator[self.name], self.kind], axis=1), axis=0, return_inverse=True
        )
        total, count = np.zeros(len(key), np.int64), np.zeros(len(key), np.int64)
        np.add.at(total, inverse.reshape(-1), time)
        np.add.at(count, inverse.reshape(-1), 1)
        known = list(places)
        found = [
            (-ns, known[name], Engine(kind).name, number)
            for (name, kind), number, ns in zip(key.tolist(), count.tolist(), total.tolist(), strict=True)
        ]
        parts: list[PathPart] = [
            {"operator": name, "kind": kind, "count": number, "total_ns": -ns}
            for ns, name, kind, number in sorted(found)
        ]
        return {
            "nodes": len(self.node),
            "gaps": int((gap > 0).sum()),
            "gap_ns": int(gap.sum()),
            "parts": parts,
        }


def critical_path(raw: RawRun, programs: list[Program], scenario: Scenario) -> CriticalPath:
    """Nodes that lead to the latest finish, first to last: each waited for the one before it.

    Going back from the last node: what ended when it was issued (a parent, or the node that held its slot), and for a
    collective or a receive, what the last member or the sender had waited for. Of NPUs that are equally late the first
    counts, whether classes of NPUs were simulated or all.
    """
    if not len(raw.done_ns) or raw.partial:
        return _columns(raw, programs, [])
    class_of = raw.partition.class_of
    # a trace without nodes ends at 0, as one of nodes that take no time
    busy = np.flatnonzero(np.diff(raw.node_start)[class_of])
    if not len(busy):
        return _columns(raw, programs, [])
    npu = int(busy[np.argmax(raw.done_ns[class_of[busy]])])
    node = int(np.argmax(raw.finish_ns[raw.nodes(int(class_of[npu]))]))
    path: list[tuple[int, int]] = []
    seen: set[tuple[int, int]] = set()
    by_finish: dict[int, tuple[I64, I64]] = {}
    issued_as: dict[int, I64] = {}
    senders = _Senders(raw, programs, scenario.workload)
    members = _Members(raw, programs, scenario.membership)
    while node >= 0 and (npu, node) not in seen:
        seen.add((npu, node))
        actor = int(class_of[npu])
        program, where = programs[actor], raw.nodes(actor)
        issue = raw.issue_ns[where]
        index = int(program.order[node])
        trace = program.trace
        path.append((npu, node))
        if program.op[node] == Op.COLLECTIVE:
            instance = int(raw.comm_instance[int(raw.comm_start[actor]) + int(program.comm[node])])
            if instance >= 0 and raw.instance_ready_ns[instance] > issue[node]:
                call = program.calls[int(program.call[node])]
                group = int(scenario.membership.comm[npu, call.group])
                late = members.last(instance, group)
                if some := dims_left_out(call, group, scenario.membership, scenario.network):
                    late = members.last_of(instance, partners(npu, some, scenario.network))
                # who need not wait for all (parts of no bytes) may have ended before the last one came
                came = raw.issue_ns[int(raw.node_start[class_of[late[0]]]) + late[1]]
                if issue[node] < came <= raw.finish_ns[where][node]:
                    npu, node = late
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
        # of those that ended then by chance, only the one in the node's slot made room for it
        held = candidates[program.slot[candidates] == program.slot[node]]
        node = parent[0] if parent else int((held if len(held) else candidates)[-1])
    return _columns(raw, programs, path[::-1])


def _columns(raw: RawRun, programs: list[Program], path: list[tuple[int, int]]) -> CriticalPath:
    """Columns of nodes that are given as NPU and place in its program."""
    npu, place = np.array(path, np.int64).reshape(-1, 2).T
    node, name, kind = (np.zeros(len(npu), np.int64) for _ in range(3))
    actor = raw.partition.class_of[npu]
    at = raw.node_start[actor] + place
    names: dict[str, int] = {}
    for one, mine in rows_by(actor).items():
        program = programs[one]
        index = program.order[place[mine]]
        node[mine] = program.trace.ids[index].astype(np.int64)
        codes, inverse = np.unique(program.trace.name_codes[index], return_inverse=True)
        texts = [program.trace.name_table[code] for code in codes.tolist()]
        name[mine] = np.array([names.setdefault(text, len(names)) for text in texts])[inverse.reshape(-1)]
        kind[mine] = program.engine[place[mine]]
    return CriticalPath(npu, node, name, kind, raw.issue_ns[at], raw.finish_ns[at], list(names))


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

    def last_of(self, instance: int, npus: I64) -> tuple[int, int]:
        """The same of some NPUs alone."""
        first, end = np.searchsorted(self.instance, [instance, instance + 1]).tolist()
        actors = self.raw.partition.class_of[npus]
        mine = first + np.flatnonzero(np.isin(self.actor[first:end], actors))
        late = mine[self.issue[mine] == self.issue[mine[0]]]
        npu = int(npus[np.isin(actors, self.actor[late])].min())
        return npu, int(self.node[late[self.actor[late] == self.raw.partition.class_of[npu]][0]])


class _Senders:
    """Finds the send that a receive waits for: the one of equal peers, tag and place among those."""

    def __init__(self, raw: RawRun, programs: list[Program], workload: Workload) -> None:
        self.raw, self.programs, self.workload = raw, programs, workload
        self.known: dict[tuple[int, Op], dict[tuple[int, int], list[int]]] = {}
        self.places: dict[int, dict[int, int]] = {}

    def sender(self, receiver: int, node: int) -> tuple[int, int] | None:
        """NPU and node of the send for a receive of an NPU."""
        program = self.programs[int(self.raw.partition.class_of[receiver])]
        peer = int(self.workload.peers.of(receiver)[program.p2p_peer[int(program.call[node])]])
        tag = int(program.trace.comm_tag[int(program.order[node])])
        place = self._places(receiver)[node]
        sends = self._messages(peer, Op.SEND).get((receiver, tag), [])
        return (peer, sends[place]) if place < len(sends) else None

    def _places(self, npu: int) -> dict[int, int]:
        """Place of each receive of an NPU among those of its peer and tag."""
        if npu not in self.places:
            same = self._messages(npu, Op.RECV).values()
            self.places[npu] = {node: place for nodes in same for place, node in enumerate(nodes)}
        return self.places[npu]

    def _messages(self, npu: int, op: Op) -> dict[tuple[int, int], list[int]]:
        """Sends or receives of an NPU by peer and tag, in the order of their issue."""
        if (npu, op) not in self.known:
            actor = int(self.raw.partition.class_of[npu])
            program = self.programs[actor]
            nodes = np.flatnonzero(program.op == op)
            nodes = nodes[np.argsort(self.raw.issue_ns[self.raw.nodes(actor)][nodes], kind="stable")]
            peers = self.workload.peers.of(npu)[program.p2p_peer[program.call[nodes]]]
            tags = program.trace.comm_tag[program.order[nodes]]
            found = self.known[npu, op] = {}
            for node, peer, tag in zip(nodes.tolist(), peers.tolist(), tags.tolist(), strict=True):
                found.setdefault((peer, tag), []).append(node)
        return self.known[npu, op]
