"""Time below which no algorithm can run a collective: what must cross each cut between its members over its bandwidth.

A cut takes the members apart. What must get out of a part, and into it, follows from what the collective does: each
byte of an all-reduce's sum needs something of every part, and every part needs the sum. Where no switch reduces or
copies, all parts together must send more: of m parts all but the one that first knows a byte of the sum have sent
theirs by then, and all but that one get it later. Traces do not name roots: a root is where it takes least.

Latencies and steps are no part of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import F64, I64
from chakra.replay.config.model import CollectiveKind, bytes_per_ns
from chakra.replay.networks.cuts import Cut


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
        CollectiveKind.SCATTER,
    ):
        return 1.0, (n - 1) / n
    return 1.0, 1.0  # BROADCAST, REDUCE


def bound_ns(
    kind: CollectiveKind, size: int, cuts: Sequence[Cut], *, switched: I64 | None, uneven: bool
) -> float | None:
    """Time below which a collective cannot end where messages share links, ns; None: it moves nothing.

    Parameters
    ----------
    kind
        What it does.
    size
        comm_size, bytes. Of unequal shares that of the even collective that brings as many bytes through its ports as
        the busiest member does.
    cuts
        Between its members, first between each and the others.
    switched
        For each member the number of the part of the network in which switches reduce and copy for it; None: they do not.
    uneven
        Whether shares are unequal: the busiest member's bytes are known then, not who that is.
    """
    n = int(cuts[0].members.sum()) if cuts else 0
    if n < 2 or kind is CollectiveKind.BARRIER:
        return None
    if uneven:
        scale, factor = bus_factor(kind, n)
        most = bytes_per_ns(float(cuts[0].out_gibps.max()))
        return size * scale * factor / most if most else None
    times = [_least_ns(kind, float(size), cut, switched is not None and cut.splits(switched)) for cut in cuts]
    return max(times) or None


@dataclass(frozen=True, slots=True)
class _Needs:
    """Bytes that each part must send and receive, and those that all parts together must, at least."""

    out: F64
    into: F64
    all_out: float = 0.0
    all_into: float = 0.0


def _least_ns(kind: CollectiveKind, size: float, cut: Cut, switches: bool) -> float:
    members = cut.members.astype(np.float64)
    n, parts = float(members.sum()), len(members)
    rest = n - members
    whole = np.full(parts, size)
    # without switches that copy and reduce, all that is received has been sent by a part, and the other way round
    together = 0.0 if switches else 1.0
    if kind is CollectiveKind.ALL_REDUCE:
        twice = together * 2 * (parts - 1) * size
        return _time_ns(_Needs(whole, whole, twice, twice), cut)
    if kind is CollectiveKind.ALL_GATHER:
        return _time_ns(_Needs(members * size, rest * size, together * float(rest.sum()) * size), cut)
    if kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.REDUCE_SCATTER_BLOCK):
        block = size / n
        return _time_ns(_Needs(rest * block, members * block, 0.0, together * float(rest.sum()) * block), cut)
    if kind is CollectiveKind.ALL_TO_ALL:
        across = members * rest * (size / n)
        return _time_ns(_Needs(across, across), cut)
    out, into = (np.asarray(_over(np.ones(parts), speed)) for speed in (cut.out_gibps, cut.into_gibps))
    if kind is CollectiveKind.GATHER:
        return _rooted_ns(rest * size * into, members * size * out)
    if kind is CollectiveKind.SCATTER:
        return _rooted_ns(rest * (size / n) * out, members * (size / n) * into)
    some = together * (parts - 1) * size
    all_ns = _time_ns(_Needs(np.zeros(parts), np.zeros(parts), some, some), cut)
    if kind is CollectiveKind.REDUCE:
        return max(all_ns, _rooted_ns(size * into, size * out))
    return max(all_ns, _rooted_ns(size * out, size * into))


def _rooted_ns(root: F64, others: F64) -> float:
    """Least time of all places of the root: of that of its part, and those of the other parts."""
    order = np.argsort(others)
    others_most = np.full(len(others), others[order[-1]])
    others_most[order[-1]] = others[order[-2]]
    return float(np.maximum(root, others_most).min())


def _time_ns(needs: _Needs, cut: Cut) -> float:
    """How long what must cross takes."""
    sums = (
        (np.array([needs.all_out]), cut.out_gibps.sum(keepdims=True)),
        (np.array([needs.all_into]), cut.into_gibps.sum(keepdims=True)),
    )
    each = ((needs.out, cut.out_gibps), (needs.into, cut.into_gibps))
    return max(float(_over(size, gibps).max()) for size, gibps in (*each, *sums))


def _over(size: F64, gibps: F64) -> F64:
    """Sizes over bandwidths in ns; 0 where no link is known."""
    speed = gibps * bytes_per_ns(1.0)
    return np.divide(size, speed, out=np.zeros(len(size)), where=speed > 0)
