"""Matching host-trace nodes to Kineto operators (rule R-PAIR of the conversion).

In this order: record-function ids; External ids; the sequence of names per thread (equal windows chosen by
autograd sequence numbers, else an edit-script alignment).
"""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, rows_by
from chakra.converters.pytorch.read.device import DeviceTrace
from chakra.converters.pytorch.read.host import HostTrace
from chakra.errors import ConversionError
from chakra.io.readable import counted, percent_text, verb
from chakra.jit import compiled

#: Share of equal names below which ids belong to different runs.
SAME_RUN = 0.95
#: Most edits that the alignment of one thread may need, and the work (ops x edits) it may cost.
MAX_EDITS = 4000
MAX_WORK = 400_000_000


@dataclass(slots=True)
class Pairing:
    """Which Kineto operator each host node is. ``op`` and ``node`` are inverse maps with -1 where
    unmatched.
    """

    op: I64
    node: I64
    method: str
    candidates: int
    """Host nodes that could match: all but process and thread roots."""
    agreeing: float
    """Share of pairs whose names agree."""
    notes: list[str]

    @property
    def matched(self) -> int:
        """Number of matched host nodes."""
        return int((self.op >= 0).sum())


def pair(host: HostTrace, device: DeviceTrace) -> Pairing:
    """Match the operators of both traces.

    Raises
    ------
    ConversionError
        Nothing matches: the traces are of different programs.
    """
    notes: list[str] = []
    real = np.flatnonzero(host.nodes.root == 0)
    best: Pairing | None = None
    for method, keys in (("record function id", device.ops.rf_id), ("External id", device.ops.external)):
        found = _by_key(host, device, real, keys, method, notes)
        if (
            found is not None
            and found.agreeing >= SAME_RUN
            and found.matched >= 0.5 * min(len(real), len(device.ops.name))
        ):
            return found
        if (
            found is not None
            and found.agreeing >= SAME_RUN
            and (best is None or found.matched > best.matched)
        ):
            best = found
    structural = _by_structure(host, device, real, notes)
    if best is not None and best.matched >= structural.matched:
        return best
    if not structural.matched:
        raise ConversionError(
            f"{host.source}: none of its {counted(len(real), 'operator')} is found in {device.source} "
            f"({counted(len(device.ops.name), 'operator')}), by id or by name: the files are of different programs"
        )
    return structural


def _inverse(op: I64, n_ops: int) -> I64:
    node = np.full(n_ops, -1, np.int64)
    matched = np.flatnonzero(op >= 0)
    node[op[matched]] = matched
    return node


def _by_key(
    host: HostTrace, device: DeviceTrace, real: I64, keys: I64, method: str, notes: list[str]
) -> Pairing | None:
    """Match by a number that both sides carry; 0 means absent, repeated numbers are left out."""
    rf_id = host.nodes.rf_id[real]
    if not (rf_id != 0).any() or not (keys != 0).any():
        notes.append(
            f"{method}: absent or zero on {'host nodes' if not (rf_id != 0).any() else 'all operators'}"
        )
        return None
    values, first, counts = np.unique(keys, return_index=True, return_counts=True)
    usable = (values != 0) & (counts == 1)
    values, first = values[usable], first[usable]
    own, own_counts = np.unique(rf_id, return_counts=True)
    repeated = own[(own_counts > 1) & (own != 0)]
    if len(repeated):
        notes.append(
            f"{method}: {counted(len(repeated), 'id')} {verb(len(repeated), 'appears', 'appear')} on several host "
            "nodes and are not used"
        )
    if not len(values):
        return None
    at = np.minimum(np.searchsorted(values, rf_id), len(values) - 1)
    hit = (values[at] == rf_id) & (rf_id != 0) & ~np.isin(rf_id, repeated)
    if not hit.any():
        notes.append(f"{method}: no id in common")
        return None
    rows, ops = real[hit], first[at[hit]]
    same = host.nodes.name[rows] == device.ops.name[ops]
    share = float(same.mean())
    if share < SAME_RUN:
        notes.append(
            f"{method}: only {percent_text(share)} of names agree, so the files are from different runs"
        )
        return Pairing(
            np.full(len(host.nodes.id), -1), np.full(len(device.ops.name), -1), method, len(real), share, []
        )
    op = np.full(len(host.nodes.id), -1, np.int64)
    op[rows[same]] = ops[same]
    return Pairing(op, _inverse(op, len(device.ops.name)), method, len(real), share, notes)


def _windows(names: I64, stream: I64) -> I64:
    """Positions in ``stream`` where ``names`` occurs as a whole."""
    haystack, needle = stream.astype("<i4").tobytes(), names.astype("<i4").tobytes()
    out, at = [], haystack.find(needle)
    while at >= 0:
        if at % 4 == 0:
            out.append(at // 4)
            at += 3
        at = haystack.find(needle, at + 1)
    return np.array(out, np.int64)


def _by_structure(host: HostTrace, device: DeviceTrace, real: I64, notes: list[str]) -> Pairing:
    """Match per thread by the sequence of names in order of entry."""
    op = np.full(len(host.nodes.id), -1, np.int64)
    threads = list(rows_by(host.nodes.tid, real).values())
    rows_of = rows_by(device.ops.thread)
    windows, edits = 0, 0
    taken: set[int] = set()
    for rows in sorted(threads, key=len, reverse=True):
        names = host.nodes.name[rows]
        anchor = int(device.ops.start[op[op >= 0]].mean()) if (op >= 0).any() else None
        choice = _best_window(host, device, rows, names, rows_of, taken, anchor)
        if choice is not None:
            thread, ops, equal = choice
            op[rows] = ops
            taken.add(thread)
            windows += 1
            if equal < 1.0:
                notes.append(
                    f"structure: best window of thread {int(host.nodes.tid[rows[0]])} has {percent_text(equal)} of its "
                    "autograd sequence numbers equal: another iteration of the same program"
                )
            continue
        alike = _most_alike(names, device, rows_of, taken)
        if alike is None:
            continue
        thread = alike
        matched, d = _align(names, device.ops.name[rows_of[thread]])
        if d < 0:
            notes.append(f"structure: thread {int(host.nodes.tid[rows[0]])} differs too much to be aligned")
            continue
        ok = matched >= 0
        if ok.sum() < 0.5 * min(len(rows), len(rows_of[thread])):
            continue
        op[rows[ok]] = rows_of[thread][matched[ok]]
        taken.add(thread)
        edits += d
    method = "structure: " + (
        "equal windows" if windows and not edits else f"aligned with {counted(edits, 'edit')}"
    )
    return Pairing(op, _inverse(op, len(device.ops.name)), method, len(real), 1.0, notes)


def _best_window(
    host: HostTrace,
    device: DeviceTrace,
    rows: I64,
    names: I64,
    rows_of: dict[int, I64],
    taken: set[int],
    anchor: int | None,
) -> tuple[int, I64, float] | None:
    """Thread, operators and share of equal sequence numbers of the best place where all names agree.

    Among equally good places the one nearest in time to ``anchor`` (what other threads matched) is the same iteration.
    """
    own = host.nodes.seq_id[rows]
    has = own >= 0
    best: tuple[int, I64, float] | None = None
    nearest = 0
    for thread, ops in rows_of.items():
        if thread in taken or len(ops) < len(rows):
            continue
        for at in _windows(names, device.ops.name[ops]):
            chosen = ops[at : at + len(rows)]
            theirs = device.ops.sequence[chosen]
            both = has & (theirs >= 0)
            equal = (
                float((own[both] == theirs[both]).mean())
                if both.any()
                else 1.0
                if len(ops) == len(rows)
                else 0.0
            )
            away = abs(int(device.ops.start[chosen[0]]) - anchor) if anchor is not None and len(chosen) else 0
            if best is None or equal > best[2] or (equal == best[2] and away < nearest):
                best, nearest = (thread, chosen, equal), away
    return best


def _most_alike(names: I64, device: DeviceTrace, rows_of: dict[int, I64], taken: set[int]) -> int | None:
    """Thread whose multiset of names has most in common with ``names``."""
    size = int(max(names.max(initial=0), device.ops.name.max(initial=0))) + 1
    own = np.bincount(names, minlength=size)
    best, score = None, 0.0
    for thread, ops in rows_of.items():
        if thread in taken:
            continue
        common = np.minimum(own, np.bincount(device.ops.name[ops], minlength=size)).sum()
        value = float(common) / max(len(names), len(ops))
        if value > score:
            best, score = thread, value
    return best


def _align(a: I64, b: I64) -> tuple[I64, int]:
    """Matched position in ``b`` of every entry of ``a`` (-1 where none) and the number of edits (-1: too
    many).
    """
    out = np.full(len(a), -1, np.int64)
    limit = abs(len(a) - len(b)) + 64
    ceiling = min(len(a) + len(b), MAX_EDITS)
    size = max(len(a) + len(b), 1)
    while True:
        limit = min(limit, ceiling)
        if limit * size > MAX_WORK or limit * limit * 2 > MAX_WORK:
            return out, -1
        if limit * size > 200_000:
            kernel = compiled("chakra.converters.pytorch.match.sweeps")
        else:
            from chakra.converters.pytorch.match import sweeps as kernel
        d = int(kernel.align(a, b, limit, out))
        if d >= 0 or limit >= ceiling:
            return out, d
        limit *= 4
