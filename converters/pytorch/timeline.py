"""The host's time, cut into nodes: operators, waits and the gaps between them.

Rules R-EXCL, R-BLOCK, R-GAP and R-THREAD of the conversion. Every instant of a thread between its first and last
operator belongs to one piece. The first piece of an operator is its node. A piece that begins where the thread
stopped waiting (for the device, or for another thread) is a node of its own, because what it waits for must not wait
for it. Other pieces, behind a child, are either moved in front (small ones of operators: the operator's self time
stays one number) or become gap nodes where they are, so that launches keep their place in time.
"""

from dataclasses import dataclass, field

import numpy as np

from chakra.arrays import I64, Bool
from chakra.converters.pytorch.attach import kernels

#: A thread idle for longer starts a new burst, which somebody must have started (rule R-THREAD 2).
IDLE_NS = 1_000_000
#: Self time behind children that may be moved in front of them, at most, per operator.
FRONT_NS = 10_000
#: Shorter gaps join the next node.
GAP_NS = 1_000

CUT_SYNC, CUT_JOIN, CUT_PLAIN = range(3)
NODE_OP, NODE_SYNC, NODE_JOIN, NODE_GAP = range(4)


@dataclass(slots=True)
class Cuts:
    """Places where a thread's time is cut, ordered by (thread, time)."""

    thread: I64
    time: I64
    resume: I64
    kind: I64
    ref: I64
    """Sync: row of the call. Join: row of the burst. Plain: -1."""


@dataclass(slots=True)
class Bursts:
    """Bursts of activity of a thread that another thread started, in order of time."""

    first: I64
    """First operator (row)."""
    last: I64
    """Last operator that the starting thread waits for; -1 when it does not wait."""
    source_thread: I64
    start: I64
    waited_until: I64
    back: int
    """How many have a back edge."""


@dataclass(slots=True)
class Pieces:
    """Host nodes in order of (thread, time), and the pieces they come from."""

    kind: I64
    op: I64
    """Row of the operator whose time it is, -1 where no operator covers it."""
    thread: I64
    start: I64
    end: I64
    duration: I64
    ref: I64
    """Row of the call (sync) or burst (join), else -1."""
    target_end: I64
    """When the node ends in a replay that runs as recorded (moved self time included)."""
    piece_start: I64
    piece_thread: I64
    piece_node: I64
    """Node that a piece of time belongs to: to find the node of an instant."""
    node_of_op: I64
    moved_ns: int = 0
    dropped_ns: int = 0
    first_of_thread: dict[int, int] = field(default_factory=dict)


def top_level(thread: I64, start: I64, end: I64, parent: I64) -> I64:
    """Rows of operators that no other encloses."""
    return np.flatnonzero(parent < 0)


def find_bursts(
    thread: I64, start: I64, end: I64, parent: I64, cause_thread: I64, blocking: tuple[I64, I64]
) -> Bursts:
    """Bursts that other threads started, and whether those wait for them.

    Parameters
    ----------
    cause_thread
        Per operator: thread whose operator started it as the trace says (``fw_parent``), or -1.
    blocking
        Threads and start times of host calls that wait for the device: they are signs of life.
    """
    tops = np.flatnonzero(parent < 0)
    threads = np.unique(thread)
    boundaries = {
        int(t): np.sort(np.concatenate([start[thread == t], end[thread == t], blocking[1][blocking[0] == t]]))
        for t in threads
    }
    starts_of = {int(t): start[thread == t] for t in threads}
    tops_of = {int(t): tops[thread[tops] == t] for t in threads}
    earliest = int(start[tops].min()) if len(tops) else 0
    rows: list[tuple[int, int, int, int, int]] = []
    back = 0
    for t, own in tops_of.items():
        own_end = np.maximum.accumulate(end[own])
        idle = np.empty(len(own), np.int64)
        idle[0] = 1 << 62
        idle[1:] = start[own][1:] - own_end[:-1]
        caused = cause_thread[own]
        new = (idle > IDLE_NS) | ((caused >= 0) & (caused != t) & (idle > 0) & _changes(caused))
        for i in np.flatnonzero(new):
            begin = int(start[own[i]])
            if begin == earliest and i == 0:
                continue
            source = int(caused[i]) if caused[i] >= 0 and caused[i] != t else -1
            if source < 0 or not _started_before(starts_of, source, begin):
                source = _latest_started(starts_of, t, begin)
            if source < 0:
                continue
            nxt = _next_boundary(boundaries[source], begin)
            j = int(np.searchsorted(start[own], nxt, "left")) - 1
            # The source waits when nothing happens on it until the burst is over.
            waits = j >= i and int(own_end[j]) <= nxt < (1 << 62)
            last = int(own[j]) if waits else -1
            until = int(own_end[j]) if waits else begin
            back += waits
            rows.append((begin, int(own[i]), last, source, until))
    rows.sort()
    table = np.array(rows, np.int64).reshape(-1, 5)
    return Bursts(table[:, 1], table[:, 2], table[:, 3], table[:, 0], table[:, 4], back)


def _changes(values: I64) -> Bool:
    out = np.ones(len(values), np.bool_)
    out[1:] = values[1:] != values[:-1]
    return out


def _started_before(starts_of: dict[int, I64], thread: int, time: int) -> bool:
    starts = starts_of.get(thread)
    return starts is not None and len(starts) > 0 and int(starts[0]) <= time


def _latest_started(starts_of: dict[int, I64], thread: int, time: int) -> int:
    """Other thread whose last operator before ``time`` started last."""
    best, latest = -1, -1
    for other, starts in starts_of.items():
        if other == thread:
            continue
        at = int(np.searchsorted(starts, time, "right")) - 1
        if at >= 0 and int(starts[at]) > latest:
            best, latest = other, int(starts[at])
    return best


def _next_boundary(boundaries: I64, time: int) -> int:
    at = int(np.searchsorted(boundaries, time, "right"))
    return int(boundaries[at]) if at < len(boundaries) else 1 << 62


def sort_cuts(parts: list[tuple[I64, I64, I64, int, I64]]) -> Cuts:
    """Join cuts given as (thread, time, resume, kind, ref) and order them by (thread, time)."""
    empty = np.zeros(0, np.int64)
    thread = np.concatenate([p[0] for p in parts] or [empty])
    time = np.concatenate([p[1] for p in parts] or [empty])
    resume = np.concatenate([p[2] for p in parts] or [empty])
    kind = np.concatenate([np.full(len(p[0]), p[3], np.int64) for p in parts] or [empty])
    ref = np.concatenate([p[4] for p in parts] or [empty])
    order = np.lexsort((kind, time, thread))
    return Cuts(thread[order], time[order], resume[order], kind[order], ref[order])


def cut_time(
    thread: I64, start: I64, end: I64, annotation: Bool, cuts: Cuts, skip_gap: I64, gaps: str
) -> Pieces:
    """Cut the threads' time into host nodes.

    Parameters
    ----------
    gaps
        ``node``: uncovered time and annotations' own time become gap nodes; ``fold``: it is added to the next node;
        ``drop``: it is left out.
    """
    n, m = len(thread), len(cuts.thread)
    size = 2 * n + m + 1
    owner, begin, finish = (np.empty(size, np.int64) for _ in range(3))
    head, cut = np.empty(size, np.int64), np.empty(size, np.int64)
    count = int(
        kernels(n + m).pieces(
            thread, start, end, skip_gap, cuts.thread, cuts.time, cuts.resume, owner, begin, finish, head, cut
        )
    )
    owner, begin, finish, head, cut = (a[:count] for a in (owner, begin, finish, head, cut))
    cut_kind = np.where(cut >= 0, cuts.kind[cut] if m else -1, -1)
    where = _piece_threads(thread, cuts, owner, head, cut, count)
    length = finish - begin
    waits = (cut_kind == CUT_SYNC) | (cut_kind == CUT_JOIN)
    tail = (head == 0) & ~waits
    moved = _moved(owner, length, tail, annotation)
    is_gap = tail & ~moved
    dropped = is_gap & (gaps == "drop")
    folded = is_gap & ~dropped & ((gaps == "fold") | (length < GAP_NS))
    folded &= _node_follows(~moved & ~folded & ~dropped, where)
    is_node = ~moved & ~folded & ~dropped
    return _nodes(
        n,
        cuts,
        owner,
        begin,
        finish,
        head,
        cut,
        cut_kind,
        where,
        length,
        moved,
        folded,
        dropped,
        is_node,
        is_gap,
    )


def _piece_threads(thread: I64, cuts: Cuts, owner: I64, head: I64, cut: I64, count: int) -> I64:
    """Thread of every piece: its operator's, its cut's, or for a plain gap that of the piece before."""
    where = np.where(owner >= 0, thread[owner], -1)
    if len(cuts.thread):
        where = np.where((where < 0) & (cut >= 0), cuts.thread[cut], where)
    known = np.where(where >= 0, np.arange(count), 0)
    out: I64 = where[np.maximum.accumulate(known)] if count else where
    return out


def _node_follows(is_node: Bool, where: I64) -> Bool:
    """Whether a node stands behind each piece on its thread."""
    count = len(where)
    following = np.where(is_node, np.arange(count), count)[::-1]
    following = np.minimum.accumulate(following)[::-1] if count else following
    found = following < count
    out = found.copy()
    out[found] = where[following[found]] == where[found]
    return out


def _moved(owner: I64, length: I64, tail: Bool, annotation: Bool) -> Bool:
    """Pieces of self time behind children that move in front: small ones of operators, up to a sum per operator."""
    candidate = tail & (owner >= 0)
    candidate[candidate] = ~annotation[owner[candidate]]
    rows = np.flatnonzero(candidate)
    moved = np.zeros(len(owner), np.bool_)
    if not len(rows):
        return moved
    order = rows[np.argsort(owner[rows], kind="stable")]
    sums = np.cumsum(length[order])
    first = np.append(True, owner[order][1:] != owner[order][:-1])
    base = np.maximum.accumulate(np.where(first, sums - length[order], 0))
    moved[order] = (sums - base) <= FRONT_NS
    return moved


def _nodes(
    n: int,
    cuts: Cuts,
    owner: I64,
    begin: I64,
    finish: I64,
    head: I64,
    cut: I64,
    cut_kind: I64,
    where: I64,
    length: I64,
    moved: Bool,
    folded: Bool,
    dropped: Bool,
    is_node: Bool,
    is_gap: Bool,
) -> Pieces:
    count = len(owner)
    index = np.cumsum(is_node) - 1  # last node at or before each piece
    n_nodes = int(is_node.sum())
    rows = np.flatnonzero(is_node)
    node_of_op = np.full(n, -1, np.int64)
    heads = rows[head[rows] == 1]
    node_of_op[owner[heads]] = index[heads]
    # The piece before on the same thread hands its time on: folded pieces belong to the next node.
    node = np.where(is_node, index, np.where(folded, index + 1, index))
    duration = np.zeros(n_nodes, np.int64)
    add = is_node | folded
    np.add.at(duration, node[add], length[add])
    np.add.at(duration, node_of_op[owner[moved]], length[moved])
    start = begin[rows].copy()
    f = np.flatnonzero(folded)
    if len(f):
        np.minimum.at(start, node[f], begin[f])
    # Self time moved to the front makes what follows late until its own place is passed.
    delta = np.zeros(count + 1, np.int64)
    head_piece = np.full(n, -1, np.int64)
    head_piece[owner[head == 1]] = np.flatnonzero(head == 1)
    m = np.flatnonzero(moved)
    np.add.at(delta, head_piece[owner[m]], length[m])
    np.add.at(delta, m, -length[m])
    late = np.cumsum(delta)[:count]
    kind = np.full(n_nodes, NODE_GAP, np.int64)
    kind[head[rows] == 1] = NODE_OP
    kind[(cut_kind[rows] == CUT_SYNC) & (head[rows] == 0)] = NODE_SYNC
    kind[(cut_kind[rows] == CUT_JOIN) & (head[rows] == 0)] = NODE_JOIN
    ref = np.where(cut[rows] >= 0, cuts.ref[cut[rows]] if len(cuts.ref) else -1, -1)
    return Pieces(
        kind=kind,
        op=owner[rows],
        thread=where[rows],
        start=start,
        end=finish[rows],
        duration=duration,
        ref=np.where((kind == NODE_SYNC) | (kind == NODE_JOIN), ref, -1),
        target_end=finish[rows] + late[rows],
        piece_start=begin,
        piece_thread=where,
        piece_node=np.minimum(node, n_nodes - 1),
        node_of_op=node_of_op,
        moved_ns=int(length[moved].sum()),
        dropped_ns=int(length[dropped].sum()),
    )


def node_before(pieces: Pieces, thread: I64, time: I64, *, inclusive: bool) -> I64:
    """Node whose time holds an instant of a thread (-1: none).

    With ``inclusive`` an instant where one node ends and the next begins belongs to the next, else to the one that
    ends there. The latter is the node before a cut: what a waiting call itself launched.
    """
    span = int(max(pieces.piece_start.max(initial=0), time.max(initial=0))) + 2
    keys = pieces.piece_thread * span + pieces.piece_start
    wanted = thread * span + time
    at = np.searchsorted(keys, wanted, "right" if inclusive else "left") - 1
    ok = (at >= 0) & (thread >= 0)
    at = np.maximum(at, 0)
    ok &= pieces.piece_thread[at] == thread if len(keys) else False
    return np.where(ok, pieces.piece_node[at], -1) if len(keys) else np.full(len(thread), -1, np.int64)
