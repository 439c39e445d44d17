"""The host's time, cut into nodes: operators, waits and the gaps between them.

Rules R-EXCL, R-BLOCK, R-GAP and R-THREAD of the conversion. Every instant of a thread between its first and
last operator belongs to one piece. The first piece of an operator is its node. A piece that begins where the
thread stopped waiting (for the device, or for another thread) is a node of its own, because what it waits
for must not wait for it. Other pieces, behind a child, are either moved in front (small ones of operators:
the operator's self time stays one number) or become nodes of their own where they are, so that launches keep
their place in time.
"""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, Bool, changes, rows_by
from chakra.converters.pytorch.match.attach import kernels

#: A thread idle for longer starts a new burst, which somebody must have started (rule R-THREAD 2).
IDLE_NS = 1_000_000
#: Self time behind children that may be moved in front of them, at most, per operator.
FRONT_NS = 10_000
#: Operators that a thread may run while it waits for a burst, at most.
MOST_INNER = 16
#: Shorter gaps join the next node.
GAP_NS = 1_000

CUT_SYNC, CUT_JOIN, CUT_PLAIN, CUT_AFTER = range(4)
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
    """What one thread started on another and waited for, in order of time; one row per start or wait."""

    first: I64
    """First operator (row) of the burst; -1 on a row that only waits on."""
    last: I64
    """Operator whose end the source waits for; -1 when it does not wait."""
    thread: I64
    """Thread of the burst."""
    source_thread: I64
    start: I64
    """When the burst begins, or when the source goes on waiting."""
    waited_until: I64
    started: int
    """How many bursts another thread started."""
    waited: int
    """How many of them it waited for."""


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
    search = _BurstSearch(thread, start, end, parent, cause_thread, blocking)
    rows = search.run()
    table = np.array(rows, np.int64).reshape(-1, 6)
    started = int((table[:, 1] >= 0).sum())
    waited = int(((table[:, 1] >= 0) & (table[:, 2] >= 0)).sum())
    return Bursts(
        table[:, 1], table[:, 2], table[:, 3], table[:, 4], table[:, 0], table[:, 5], started, waited
    )


class _BurstSearch:
    """Goes through the outermost operators of all threads in order of time."""

    def __init__(
        self, thread: I64, start: I64, end: I64, parent: I64, cause: I64, blocking: tuple[I64, I64]
    ) -> None:
        self.start, self.end, self.parent, self.cause = start, end, parent, cause
        self.rows = rows_by(thread)
        self.threads = list(self.rows)
        self.starts = {t: start[rows] for t, rows in self.rows.items()}
        everywhere = np.concatenate([thread, thread, blocking[0]])
        times = np.concatenate([start, end, blocking[1]])
        order = np.argsort(times, kind="stable")
        alive = rows_by(everywhere[order])
        self.boundaries = {t: times[order[alive[t]]] for t in self.threads}
        self.tops = {t: rows[parent[rows] < 0] for t, rows in self.rows.items()}
        self.top_start = {t: start[own] for t, own in self.tops.items()}
        self.top_end = {t: np.maximum.accumulate(end[own]) for t, own in self.tops.items()}
        self.awake = dict.fromkeys(self.threads, -1)
        #: per thread, places of outermost operators behind which it is idle for long
        self.pauses = {
            t: np.flatnonzero(self.top_start[t][1:] - self.top_end[t][:-1] > IDLE_NS) for t in self.threads
        }
        # all operators by start, of equal ones the lowest thread last; behind each the last of another thread
        by_start = np.lexsort((-thread, start))
        self.all_starts, self.all_threads = start[by_start], thread[by_start]
        places = np.arange(len(by_start))
        self.other_before = np.maximum.accumulate(np.where(changes(self.all_threads), places, 0)) - 1

    def run(self) -> list[tuple[int, int, int, int, int, int]]:
        """Rows of `Bursts`: (start, first, last, thread, source thread, waited until)."""
        out: list[tuple[int, int, int, int, int, int]] = []
        candidates = self._candidates()
        earliest = min((int(s[0]) for s in self.top_start.values()), default=0)
        for begin, t, i in candidates:
            if begin == earliest and i == 0:
                continue
            out += self._burst(begin, t, i)
        out.sort()
        return out

    def _candidates(self) -> list[tuple[int, int, int]]:
        """Outermost operators that begin after idleness which is long, or in which another thread did
        something.
        """
        everything = np.sort(np.concatenate(list(self.boundaries.values())))
        out: list[tuple[int, int, int]] = []
        for t in self.threads:
            starts, ends = self.top_start[t], self.top_end[t]
            before = np.append(np.int64(-1), ends[:-1])
            idle = starts - before
            spoke = _count_between(everything, before, starts) - _count_between(
                self.boundaries[t], before, starts
            )
            caused = self.cause[self.tops[t]]
            named = (caused >= 0) & (caused != t) & changes(caused)
            wanted = (idle > IDLE_NS) | ((idle > 0) & ((spoke > 0) | named))
            wanted[0] = True
            out += [(int(starts[i]), t, i) for i in np.flatnonzero(wanted).tolist()]
        out.sort()
        return out

    def _burst(self, begin: int, t: int, i: int) -> list[tuple[int, int, int, int, int, int]]:
        own, ends = self.tops[t], self.top_end[t]
        since = max(int(ends[i - 1]) if i else -(1 << 62), self.awake[t])
        idle = begin - since
        caused = int(self.cause[own[i]])
        source = caused if caused >= 0 and caused != t else -1
        if source < 0 or int(self.starts[source][0]) > begin:
            source = self._latest_started(t, begin)
        if source < 0 or idle <= 0:
            return []
        waits = self._waits(begin, t, i, source)
        # After a short idleness only a call and return counts: the other thread spoke meanwhile, then waited.
        spoke = int(_count_between(self.boundaries[source], np.array([since]), np.array([begin]))[0]) > 0
        if idle <= IDLE_NS and i and not (waits and spoke):
            return []
        if not waits:
            return [(begin, int(own[i]), -1, t, source, begin)]
        self.awake[source] = max(self.awake[source], waits[-1][1])
        out = []
        for k, (cut, until, last) in enumerate(waits):
            out.append((cut, int(own[i]) if k == 0 else -1, last, t, source, until))
        return out

    def _latest_started(self, thread: int, time: int) -> int:
        """Other thread whose last operator before ``time`` started last."""
        at = int(np.searchsorted(self.all_starts, time, "right")) - 1
        if at >= 0 and self.all_threads[at] == thread:
            at = int(self.other_before[at])
        return int(self.all_threads[at]) if at >= 0 else -1

    def _waits(self, begin: int, t: int, i: int, source: int) -> list[tuple[int, int, int]]:
        """When the source stops and goes on while the burst runs: (stop, resume, operator waited for).

        It waits if nothing happens on it until the burst, or what is there of it, is over; also if what
        happens meanwhile is little (the autograd engine gives its caller's thread a node or two).
        """
        own, ends, starts = self.tops[t], self.top_end[t], self.top_start[t]
        bounds = self.boundaries[source]
        at = int(np.searchsorted(bounds, begin, "right"))
        nxt = int(bounds[at]) if at < len(bounds) else 1 << 62
        j = int(np.searchsorted(starts, nxt, "left")) - 1
        if j >= i and int(ends[j]) <= nxt < 1 << 62:
            more = j + 1 < len(own) and int(starts[j + 1]) - int(ends[j]) <= IDLE_NS
            if not more or nxt - int(ends[j]) < IDLE_NS:
                first = [(begin, int(ends[j]), int(own[j]))]
                return first + (self._later_waits(t, i, j, source, nxt) if more else [])
        return self._later_waits(t, i, i - 1, source, begin)

    def _later_waits(self, t: int, i: int, j: int, source: int, time: int) -> list[tuple[int, int, int]]:
        """Waits from ``time`` on, between the few operators that the source runs while the burst goes on."""
        own, ends, pauses = self.tops[t], self.top_end[t], self.pauses[t]
        pause = int(np.searchsorted(pauses, i))
        last = int(pauses[pause]) if pause < len(pauses) else len(own) - 1
        finish = int(ends[last])
        rows, row_starts = self.rows[source], self.starts[source]
        low = int(np.searchsorted(row_starts, time, "right" if j < i else "left"))
        high = int(np.searchsorted(row_starts, finish, "left"))
        top_starts = self.top_start[source]
        if (
            np.searchsorted(top_starts, finish, "left") - np.searchsorted(top_starts, time, "right")
            > MOST_INNER
        ):
            return []
        inner = rows[low:high]
        inner = inner[(self.parent[inner] < 0) | (self.start[np.maximum(self.parent[inner], 0)] < time)]
        busy = int((self.end[inner] - self.start[inner]).sum()) if len(inner) else 0
        if not len(inner) or len(inner) > MOST_INNER or busy > 0.1 * (finish - time):
            return []
        if int(self.end[inner].max()) > finish:
            return []
        out: list[tuple[int, int, int]] = []
        clock = time
        for row in inner.tolist():
            k = int(np.searchsorted(ends, int(self.start[row]), "right")) - 1
            if k > j and int(ends[k]) > clock:
                out.append((clock, int(ends[k]), int(own[k])))
            clock = int(self.end[row])
        bounds = self.boundaries[source]
        at = int(np.searchsorted(bounds, clock, "right"))
        if at < len(bounds) and int(bounds[at]) >= finish > clock:
            out.append((clock, finish, int(own[last])))
        return out


def _count_between(times: I64, after: I64, before: I64) -> I64:
    """How many of the sorted ``times`` lie strictly between two times, for each pair of them."""
    out: I64 = np.searchsorted(times, before, "left") - np.searchsorted(times, after, "right")
    return np.maximum(out, 0)


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


@dataclass(frozen=True, slots=True)
class _Cut:
    """Time of all threads in pieces, one entry each: a node, or time that goes to one, or is left out."""

    #: operator, -1 for time that none covers
    owner: I64
    begin: I64
    finish: I64
    #: whether it is the operator's first
    own: Bool
    #: the cut that ends it (-1: none) and its kind
    cut: I64
    cut_kind: I64
    thread: I64
    #: its time goes to the operator's first piece; to the next node; nowhere
    moved: Bool
    folded: Bool
    dropped: Bool


def cut_time(
    thread: I64, start: I64, end: I64, annotation: Bool, cuts: Cuts, skip_gap: I64, gaps: str
) -> Pieces:
    """Cut the threads' time into host nodes.

    Parameters
    ----------
    gaps
        ``node``: uncovered time and annotations' own time become gap nodes; ``fold``: it is added to the
        next node;
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
    moved = _moved(owner, length, tail & (cut_kind != CUT_AFTER), annotation)
    is_gap = tail & ~moved
    dropped = is_gap & (gaps == "drop")
    folded = is_gap & ~dropped & ((gaps == "fold") | (length < GAP_NS))
    # What ends at a cut starts something (a launch, another thread): it must not wait for what follows.
    folded[:-1] &= (cut[1:] < 0) | (where[1:] != where[:-1])
    folded &= _node_follows(~moved & ~folded & ~dropped, where)
    own = head == 1
    return _nodes(n, cuts, _Cut(owner, begin, finish, own, cut, cut_kind, where, moved, folded, dropped))


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
    """Pieces of self time behind children that move in front: small ones of operators, up to a sum per
    operator.
    """
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


def _nodes(n: int, cuts: Cuts, pieces: _Cut) -> Pieces:
    """The nodes of `n` operators, with the time that is theirs."""
    owner, where, moved, folded = pieces.owner, pieces.thread, pieces.moved, pieces.folded
    length = pieces.finish - pieces.begin
    is_node = ~moved & ~folded & ~pieces.dropped
    count = len(owner)
    index = np.cumsum(is_node) - 1  # last node at or before each piece
    n_nodes = int(is_node.sum())
    rows = np.flatnonzero(is_node)
    node_of_op = np.full(n, -1, np.int64)
    heads = rows[pieces.own[rows]]
    node_of_op[owner[heads]] = index[heads]
    # The piece before on the same thread hands its time on: folded pieces belong to the next node.
    node = np.where(is_node, index, np.where(folded, index + 1, index))
    before = np.where(folded & (index >= 0), index, node)
    strange = where[rows[np.maximum(before, 0)]] != where if count else before < 0
    before = np.where(strange, node, before)
    duration = np.zeros(n_nodes, np.int64)
    add = is_node | folded
    np.add.at(duration, node[add], length[add])
    np.add.at(duration, node_of_op[owner[moved]], length[moved])
    start = pieces.begin[rows].copy()
    f = np.flatnonzero(folded)
    if len(f):
        np.minimum.at(start, node[f], pieces.begin[f])
    kind = np.full(n_nodes, NODE_GAP, np.int64)
    kind[pieces.own[rows]] = NODE_OP
    kind[(pieces.cut_kind[rows] == CUT_SYNC) & ~pieces.own[rows]] = NODE_SYNC
    kind[(pieces.cut_kind[rows] == CUT_JOIN) & ~pieces.own[rows]] = NODE_JOIN
    cut = pieces.cut[rows]
    ref = np.where(cut >= 0, cuts.ref[cut] if len(cuts.ref) else -1, -1)
    return Pieces(
        kind=kind,
        op=owner[rows],
        thread=where[rows],
        start=start,
        end=pieces.finish[rows],
        duration=duration,
        ref=np.where((kind == NODE_SYNC) | (kind == NODE_JOIN), ref, -1),
        target_end=(pieces.finish + _late(n, pieces))[rows],
        piece_start=pieces.begin,
        piece_thread=where,
        piece_node=np.minimum(before, n_nodes - 1),
        node_of_op=node_of_op,
        moved_ns=int(length[moved].sum()),
        dropped_ns=int(length[pieces.dropped].sum()),
    )


def _late(n: int, pieces: _Cut) -> I64:
    """By how much pieces end late: self time moved to the front delays what follows until its own place is passed."""
    delta = np.zeros(len(pieces.owner) + 1, np.int64)
    head_piece = np.full(n, -1, np.int64)
    head_piece[pieces.owner[pieces.own]] = np.flatnonzero(pieces.own)
    moved = np.flatnonzero(pieces.moved)
    length = pieces.finish[moved] - pieces.begin[moved]
    np.add.at(delta, head_piece[pieces.owner[moved]], length)
    np.add.at(delta, moved, -length)
    out: I64 = np.cumsum(delta)[:-1]
    return out


def node_before(pieces: Pieces, thread: I64, time: I64, *, inclusive: bool) -> I64:
    """Node whose time holds an instant of a thread (-1: none).

    With ``inclusive`` an instant where one node ends and the next begins belongs to the next, else to the
    one that ends there. The latter is the node before a cut: what a waiting call itself launched.
    """
    span = int(max(pieces.piece_start.max(initial=0), time.max(initial=0))) + 2
    keys = pieces.piece_thread * span + pieces.piece_start
    wanted = thread * span + time
    at = np.searchsorted(keys, wanted, "right" if inclusive else "left") - 1
    ok = (at >= 0) & (thread >= 0)
    at = np.maximum(at, 0)
    ok &= pieces.piece_thread[at] == thread if len(keys) else False
    return np.where(ok, pieces.piece_node[at], -1) if len(keys) else np.full(len(thread), -1, np.int64)
