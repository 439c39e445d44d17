"""Do the collectives and messages of all ranks fit together? Counted per program and group, not per NPU.

Collectives of a group must be the same on all members: as many, of the same kinds, sizes and dimensions. Every send
needs a receive of the same source, destination, tag and size (replay semantics, section 5.1; correction C11). Their
order is decided by dependencies and times, so it is not judged here.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, U64, AnyArray, changes, distinct
from chakra.et.same_collective import Differs, agree
from chakra.io.readable import counted
from chakra.replay.collectives.call import Call
from chakra.replay.workload.communicators import Communicator, Membership, short
from chakra.replay.workload.match_sizes import side_of
from chakra.replay.workload.model import Op, Peers, Program, Workload

#: ASTRA-sim takes tags modulo this (correction C19)
ASTRA_TAGS = 500_000_000


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that does not fit together; `stall`: an end without a partner, for which a run would wait for ever."""

    message: str
    stall: bool = False


def some(numbers: AnyArray | list[int], shown: int = 6) -> str:
    """A list of numbers for a message, cut after a few."""
    text = ", ".join(str(int(x)) for x in numbers[:shown])
    return text + (f", ... ({len(numbers)} in all)" if len(numbers) > shown else "")


def group_text(comm: Communicator) -> str:
    """A communicator in a message."""
    if comm.name == "":
        return "the group of all ranks"
    return f"process group {short(comm.name)} (ranks {some(comm.members)})"


def call_text(call: Call) -> str:
    """A collective in a message."""
    dims = "" if call.involved is None else f" in dimensions {[int(x) for x in call.involved]}"
    shares = " in unequal shares" if call.uneven is not None else ""
    return f"{call.kind.value} of {call.bytes} bytes{shares}{dims}"


# --------------------------------------------------------------------------------------------------------------
# Collectives


def collective_nodes(program: Program, slot: int) -> I64:
    """Nodes (program order) of a program that are collectives of its group number `slot`."""
    nodes = np.flatnonzero(program.op == Op.COLLECTIVE)
    groups = np.array([call.group for call in program.calls] or [0], np.int64)
    return np.asarray(nodes[groups[program.call[nodes]] == slot])


def profiles(workload: Workload, width: int) -> I64:
    """Equal numbers for programs that run the same collectives in a group slot, -1 for none; (programs, width, 2).

    The second number leaves dimensions out, which mean nothing in groups that do not span the system.
    """
    out = np.full((len(workload.programs), width, 2), -1, np.int64)
    known: dict[tuple[object, ...], int] = {}
    for p, program in enumerate(workload.programs):
        if not program.calls:
            continue
        counts = np.bincount(program.call[program.op == Op.COLLECTIVE], minlength=len(program.calls))
        used: dict[int, tuple[Counter[object], Counter[object]]] = {}
        for call, count in zip(program.calls, counts.tolist(), strict=True):
            full, plain = used.setdefault(call.group, (Counter(), Counter()))
            full[call.kind, call.bytes, call.uneven, call.involved] += count
            plain[call.kind, call.bytes, call.uneven] += count
        for slot, pair in used.items():
            for k, content in enumerate(pair):
                key = (k, frozenset(content.items()))
                out[p, slot, k] = known.setdefault(key, len(known))
    return out


def collective_problems(workload: Workload, membership: Membership) -> list[Problem]:
    """Groups whose members do not run the same collectives."""
    width = membership.comm.shape[1]
    if not width or not membership.comms:
        return []
    of_npu = profiles(workload, width)[workload.program_of]
    uses = (membership.comm >= 0) & (of_npu[..., 0] >= 0)
    comm = membership.comm[uses]
    if not len(comm):
        return []
    order = np.argsort(comm, kind="stable")
    comm = comm[order]
    first = np.flatnonzero(changes(comm))
    users = np.diff(np.r_[first, len(comm)])
    present = comm[first]
    sizes = np.array([membership.comms[c].size for c in present.tolist()], np.int64)
    whole = np.array([membership.comms[c].whole for c in present.tolist()], bool)
    unequal = np.zeros(len(present), bool)
    for k, where in ((0, whole), (1, ~whole)):
        profile = of_npu[..., k][uses][order]
        differs = np.minimum.reduceat(profile, first) != np.maximum.reduceat(profile, first)
        unequal |= differs & where
    # split sizes that no partner agrees with, even if all members run one program
    lonely = np.zeros((len(workload.programs), width), bool)
    for p, program in enumerate(workload.programs):
        for call in program.calls if len(program.trace.split_nodes) else ():
            lonely[p, call.group] |= call.alone
    if lonely.any():
        unequal |= np.logical_or.reduceat(lonely[workload.program_of][uses][order], first)
    bad = present[(users < sizes) | unequal]
    return [_collective_problem(workload, membership, int(c)) for c in bad]


def _collective_problem(workload: Workload, membership: Membership, c: int) -> Problem:
    """What differs between the members of a communicator."""
    comm = membership.comms[c]
    members = np.sort(comm.members)
    slot = np.where(
        (membership.comm[members] == c).any(axis=1), np.argmax(membership.comm[members] == c, axis=1), -1
    )
    nodes: dict[tuple[int, int], I64] = {}
    lists: list[I64] = []
    for npu, s in zip(members.tolist(), slot.tolist(), strict=True):
        key = (int(workload.program_of[npu]), s)
        if key not in nodes:
            program = workload.programs[key[0]]
            nodes[key] = collective_nodes(program, s) if s >= 0 else np.zeros(0, np.int64)
        lists.append(nodes[key])
    counts = np.array([len(x) for x in lists])
    where = group_text(comm)
    if len(distinct(counts)) > 1:
        usual = int(Counter(counts.tolist()).most_common(1)[0][0])
        if usual == 0:
            usual = int(counts.max())
        odd = members[counts != usual]
        at = int(np.flatnonzero(counts != usual)[0])
        like = int(members[np.flatnonzero(counts == usual)[0]])
        text = (
            f"{where}: rank {int(members[at])} runs {_collectives(int(counts[at]))} "
            f"({source_of(workload, int(members[at]))}), rank {like} runs {usual}"
        )
        if len(odd) > 1:
            text += f"; in all {len(odd)} ranks differ from the others: {some(odd)}"
        return Problem(text, stall=True)
    of_member = [workload.programs[int(number)] for number in workload.program_of[comm.members]]
    place = {npu: i for i, npu in enumerate(members.tolist())}
    ringed = [lists[place[npu]].tolist() for npu in comm.members.tolist()]
    for ordinal in range(int(counts[0])):
        nodes_here = [own[ordinal] for own in ringed]
        calls = [
            program.calls[int(program.call[node])]
            for program, node in zip(of_member, nodes_here, strict=True)
        ]
        found = _difference(calls, whole=comm.whole)
        if found is not None:
            return Problem(_difference_text(workload, comm, ordinal, nodes_here, calls, found))
    return Problem(f"{where}: members run different collectives")


def _difference(calls: list[Call], *, whole: bool) -> Differs | None:
    """Why the calls of a communicator's members are not one collective; None if they are."""
    if len({call.uneven for call in calls}) > 1 or all(call.uneven is None for call in calls):
        found = agree([side_of(call) for call in calls])
        if isinstance(found, Differs):
            return found
        if found.sizes is not None:
            return Differs(0, 0, "comm_size", "comm_size differs: ASTRA-sim has no uneven collectives")
    if whole:
        for k, call in enumerate(calls):
            if call.involved != calls[0].involved:
                return Differs(0, k, "involved_dim", "involved_dim differs")
    return None


def _difference_text(
    workload: Workload, comm: Communicator, ordinal: int, nodes: list[int], calls: list[Call], found: Differs
) -> str:
    """A difference between two members of a communicator, or between a member's own numbers."""
    one, other = (
        f"{call_text(calls[k])} on rank {int(comm.members[k])} "
        f"({node_text(workload, int(comm.members[k]), nodes[k])})"
        for k in (found.one, found.other)
    )
    start = f"{group_text(comm)}: collective number {ordinal} is {one}"
    if found.one == found.other:
        return f"{start}: {found.why}"
    return f"{start}, but {other}: {found.why}"


def _collectives(count: int) -> str:
    return "no collective" if count == 0 else f"{counted(count, 'collective')}"


def source_of(workload: Workload, npu: int) -> str:
    """File of an NPU's trace."""
    return workload.traces[int(workload.trace_of[npu])].source


def node_text(workload: Workload, npu: int, node: int) -> str:
    """A node (program order) of an NPU in a message: file, id and name."""
    trace = workload.traces[int(workload.trace_of[npu])]
    return f"{trace.source}: {node_name(workload, npu, node)}"


def node_name(workload: Workload, npu: int, node: int) -> str:
    """Id and name of a node (program order) of an NPU."""
    trace = workload.traces[int(workload.trace_of[npu])]
    index = int(trace.order_by_id()[node])
    name = trace.name_table[int(trace.name_codes[index])]
    return f"node {int(trace.ids[index])}" + (f" {name!r}" if name else "")


# --------------------------------------------------------------------------------------------------------------
# Point-to-point messages


def _mix(x: U64) -> U64:
    """Spread the bits of 64-bit numbers (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _kind_hash(tag: I64, size: I64) -> U64:
    return _mix(_mix(tag.astype(np.uint64)) + size.astype(np.uint64))


def tags_of(program: Program, *, astra: bool) -> I64:
    """Tags by which messages are matched."""
    return program.p2p_tag % ASTRA_TAGS if astra else program.p2p_tag


def _balanced(workload: Workload, peers: Peers, *, astra: bool) -> bool:
    """Whether sends and receives cancel out in a sum of hashes of (source, destination, tag, size)."""
    total = np.uint64(0)
    offsets: I64 | None = None
    if workload.relative and len(workload.bindings) == 1:
        # all NPUs run one trace with relative peers: what rank 0 sends forward it must receive from behind
        offsets = workload.bindings[0].peers % workload.npus
    for p, program in enumerate(workload.programs):
        if not len(program.p2p_peer):
            continue
        npus = workload.npus_of_program[p]
        if offsets is not None:
            npus = npus[:1]
        width = int(program.p2p_peer.max()) + 1
        kind = _kind_hash(tags_of(program, astra=astra), program.p2p_bytes)
        own = npus[:, None].astype(np.uint64) << np.uint64(32)
        other = peers.rows(npus, width).astype(np.uint64)
        for send in (True, False):
            nodes = np.flatnonzero(program.p2p_is_send == send)
            if not len(nodes):
                continue
            pair = own + other if send else (other << np.uint64(32)) + (own >> np.uint64(32))
            if offsets is not None:
                pair = (offsets if send else -offsets % workload.npus)[None, :width].astype(np.uint64)
            slot, hashed = program.p2p_peer[nodes], kind[nodes]
            # equal rows of a program are counted once, which is what makes many NPUs cheap
            key = hashed ^ _mix(slot.astype(np.uint64))
            _, index, count = np.unique(key, return_index=True, return_counts=True)
            amount = (_mix(_mix(pair)[:, slot[index]] ^ hashed[index]) * count.astype(np.uint64)).sum(
                dtype=np.uint64
            )
            with np.errstate(over="ignore"):
                total = total + amount if send else total - amount
    return bool(total == 0)


@dataclass(frozen=True, slots=True)
class _Messages:
    """All messages of all NPUs, one row per node."""

    npu: I64
    node: I64  # program order
    send: AnyArray
    key: I64  # (rows, 4): source, destination, tag, size


def _messages(workload: Workload, peers: Peers, *, astra: bool) -> _Messages:
    npu, node, send, keys = [], [], [], []
    for p, program in enumerate(workload.programs):
        nodes = np.flatnonzero((program.op == Op.SEND) | (program.op == Op.RECV))
        npus = workload.npus_of_program[p]
        if not len(nodes) or not len(npus):
            continue
        shape = (len(npus), len(nodes))
        own = np.broadcast_to(npus[:, None], shape)
        other = peers.at(npus[:, None], program.p2p_peer)
        is_send = np.broadcast_to(program.p2p_is_send.astype(bool), shape)
        columns = [
            np.where(is_send, own, other),
            np.where(is_send, other, own),
            np.broadcast_to(tags_of(program, astra=astra), shape),
            np.broadcast_to(program.p2p_bytes, shape),
        ]
        npu.append(own.reshape(-1))
        node.append(np.broadcast_to(nodes, shape).reshape(-1))
        send.append(is_send.reshape(-1))
        keys.append(np.stack(columns, axis=-1).reshape(-1, 4))
    return _Messages(np.concatenate(npu), np.concatenate(node), np.concatenate(send), np.concatenate(keys))


def message_problems(
    workload: Workload, peers: Peers, *, astra: bool = False, lost_sends: bool = False
) -> Iterator[Problem]:
    """Sends without a receive and receives without a send, with the field that differs where there is a near miss.

    `lost_sends` lets a send end although nobody receives it, as ASTRA-sim does under the eager protocol.
    """
    if not any(len(program.p2p_peer) for program in workload.programs):
        return
    if _balanced(workload, peers, astra=astra):
        return
    rows = _messages(workload, peers, astra=astra)
    _, inverse = np.unique(rows.key, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    # the j-th send of a key meets its j-th receive: rows beyond the number of the other side have no partner
    order = np.lexsort((rows.node, rows.send, inverse))
    group = inverse[order] * 2 + rows.send[order]
    ordinal = np.arange(len(order)) - np.searchsorted(group, group)
    other = np.bincount(inverse * 2 + rows.send, minlength=2 * int(inverse.max()) + 2)
    alone = order[ordinal >= other[(group ^ 1)]]
    sends, receives = alone[rows.send[alone]], alone[~rows.send[alone]]
    used = np.zeros(len(rows.node), bool)
    near: dict[tuple[int, int], list[int]] = {}
    for r in sends.tolist():
        near.setdefault((int(rows.key[r, 0]), int(rows.key[r, 1])), []).append(r)
    by_target: dict[int, list[int]] = {}
    for r in sends.tolist():
        by_target.setdefault(int(rows.key[r, 1]), []).append(r)
    for r in receives.tolist():
        source, target, tag, size = (int(x) for x in rows.key[r])
        text = (
            f"rank {target} ({node_text(workload, target, int(rows.node[r]))}) receives {size} bytes "
            f"with tag {tag} from rank {source}"
        )
        candidates = [s for s in near.get((source, target), ()) if not used[s]]
        if not candidates:
            candidates = [
                s
                for s in by_target.get(target, ())
                if not used[s] and int(rows.key[s, 2]) == tag and int(rows.key[s, 3]) == size
            ]
        if not candidates:
            yield Problem(f"{text}, which never sends it", stall=True)
            continue
        best = min(candidates, key=lambda s: (rows.key[s] != rows.key[r]).sum())
        used[best] = True
        source2, _, tag2, size2 = (int(x) for x in rows.key[best])
        names = ("comm_src", "comm_dst", "comm_tag", "comm_size")
        fields = [n for n, a, b in zip(names, rows.key[best], rows.key[r], strict=True) if a != b]
        yield Problem(
            f"{text}, but rank {source2} ({node_text(workload, source2, int(rows.node[best]))}) sends {size2} "
            f"bytes with tag {tag2}: {' and '.join(fields)} differ{'s' * (len(fields) == 1)}",
            stall=True,
        )
    if lost_sends:
        return
    for s in sends[~used[sends]].tolist():
        source, target, tag, size = (int(x) for x in rows.key[s])
        yield Problem(
            f"rank {source} ({node_text(workload, source, int(rows.node[s]))}) sends {size} bytes with tag {tag} to "
            f"rank {target}, which never receives them",
            stall=True,
        )
