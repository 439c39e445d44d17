"""Classes of NPUs that behave alike, found by colour refinement, so that one NPU of each is simulated.

Two NPUs may share a class when they run the same program, and every collective and message of theirs meets partners of
the same classes in the same arrangement. A ring whose members are all of one class and which looks alike from each of
them keeps its symmetry; on any other ring the position counts too, so its members end up in classes of their own.
Refinement starts with the programs and splits classes until nothing changes (the coarsest equitable partition that this
test can see); simulating one NPU per class then gives every NPU's times exactly.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from chakra.arrays import I64, AnyArray, Rows, distinct, rows_by
from chakra.replay.collectives.algorithms import Family
from chakra.replay.config.model import Network, Topology
from chakra.replay.symmetry.rings_used import RingsUsed
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.model import Workload

#: kind of the way from each of some NPUs to another; equal ones take equally long, -1: to itself
Kinds = Callable[[I64, I64], I64]
#: sub-cluster groups larger than this are not tested for symmetry under algorithms that use all pairs
MAX_PAIRS = 1024
#: rounds in which classes may split each other. In a row of NPUs each round splits off one at either end, so without a
#: bound the work grows with the square of its length; longer rows run unfolded, which gives the same results.
MOST_ROUNDS = 256


@dataclass(frozen=True)
class Partition:
    """Classes of NPUs: `class_of[i]`, and `representative[c]`, the first NPU of each class."""

    class_of: I64
    representative: I64

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.representative)

    @cached_property
    def members(self) -> Rows:
        """NPUs of each class, ascending."""
        return rows_by(self.class_of)


def discrete(npus: int) -> Partition:
    """Every NPU a class of its own."""
    return Partition(np.arange(npus), np.arange(npus))


def coordinates(network: Network, npus: I64) -> I64:
    """Coordinates of NPUs, one column per dimension."""
    out = np.empty((*npus.shape, len(network.dims)), np.int64)
    rest = npus
    for k, dim in enumerate(network.dims):
        out[..., k] = rest % dim.npus
        rest = rest // dim.npus
    return out


def booked_dims(network: Network, a: I64, b: I64) -> AnyArray:
    """Whether a message between NPUs a and b is booked in each dimension; last axis = dimension.

    In all in which its ends differ on building blocks, in the highest of them where dimensions are names.
    """
    differ: AnyArray = coordinates(network, a) != coordinates(network, b)
    if network.crosses_every_dim:
        return differ
    above = np.cumsum(differ[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(differ & (above == 1))


def hops_between(network: Network, a: I64, b: I64) -> I64:
    """Hops per dimension between NPUs a and b (arrays of equal shape); last axis = dimension."""
    first, second = coordinates(network, a), coordinates(network, b)
    out = np.zeros(first.shape, np.int64)
    for k, dim in enumerate(network.dims):
        differ = first[..., k] != second[..., k]
        if dim.topology is Topology.RING:
            forward = (second[..., k] - first[..., k]) % dim.npus
            out[..., k] = np.minimum(forward, dim.npus - forward)
        else:
            out[..., k] = np.where(differ, 2 if dim.topology is Topology.SWITCH else 1, 0)
    return out


def _far(network: Network, own: I64, peers: I64, kinds: Kinds | None) -> I64:
    """How far NPUs are from their peers (arrays of equal shape), one column for each thing that tells; last axis."""
    if kinds is None:
        return hops_between(network, own, peers)
    return np.stack([kinds(own, peers), kinds(peers, own)], axis=-1)


def partners(size: int, families: frozenset[Family]) -> list[I64] | None:
    """Whom each member of a ring talks to, one array of positions per kind of message.

    None if that cannot be said in a few arrays; such a ring is unlike every other and has no symmetry.
    """
    if Family.TREE in families:
        return None
    found: list[I64] = []
    index = np.arange(size)
    if families & {Family.RING, Family.DIRECT, Family.NONE} or not families:
        steps: Sequence[int] = [1]
        if Family.DIRECT in families:
            if size > MAX_PAIRS:
                return None
            steps = range(1, size)
        found += [(index + k) % size for k in steps]
    if Family.HALVING_DOUBLING in families:
        if size & (size - 1):
            return None
        found += [index ^ (1 << k) for k in range(size.bit_length() - 1)]
    return found


def ring_labels(
    network: Network, members: I64, families: frozenset[Family], *, node: int = 1, by_links: bool = False
) -> tuple[AnyArray, I64]:
    """Whether rings look alike from each member, and a label of their distances.

    Parameters
    ----------
    members : (n_rings, size) NPU numbers
    node : NPUs of a node of the collective library; 1: none
    by_links : links will tell how members lie to each other

    Returns
    -------
    alike : (n_rings,) bool
    label : (n_rings,) int64, equal labels mean equal distances
    """
    n, size = members.shape
    if size < 2:
        return np.ones(n, bool), np.arange(n)
    if by_links:
        return np.full(n, Family.TREE not in families), np.zeros(n, np.int64)
    found = partners(size, families)
    if found is None:
        return np.zeros(n, bool), np.arange(n)
    alike = np.ones(n, bool)
    first = [_nesting(network, node, members)] if Family.LIBRARY in families else []
    for partner in found:
        hops = hops_between(network, members, members[:, partner])
        alike &= (hops == hops[:, :1, :]).all(axis=(1, 2))
        first.append(hops[:, 0, :])
    label = np.empty(n, np.int64)
    label[alike] = row_codes(np.concatenate(first, axis=1)[alike])
    odd = np.flatnonzero(~alike)
    if len(odd):
        # distances differ from member to member, so all of them count
        rows = [hops_between(network, members[odd], members[odd][:, p]).reshape(len(odd), -1) for p in found]
        if Family.LIBRARY in families:
            rows.append(_nesting(network, node, members[odd]))
        label[odd] = n + row_codes(np.concatenate(rows, axis=1))
    return alike, label


def _apart(
    network: Network,
    members: I64,
    usage: RingsUsed,
    alike: AnyArray,
    label: I64,
    odd: AnyArray,
) -> tuple[AnyArray, I64]:
    """The answer of `ring_labels` where the members of some rings (`odd`) play different roles."""
    families, node = usage.groups, usage.node_npus
    found = partners(members.shape[1], families)
    if not odd.any() or found is None:
        return alike & ~odd, label
    rows = [
        hops_between(network, members[odd], members[odd][:, p]).reshape(int(odd.sum()), -1) for p in found
    ]
    if Family.LIBRARY in families:
        rows.append(_together(network, node, members[odd]))
    if not rows:
        return alike & ~odd, label
    label = label.copy()
    label[odd] = int(label.max()) + 1 + row_codes(np.concatenate(rows, axis=1))
    return alike & ~odd, label


def distance_key(
    network: Network, members: I64, families: frozenset[Family], *, node: int, alike: bool
) -> bytes:
    """Equal for groups (members in ring order) whose members lie at equal distances; one member speaks for equals."""
    found = partners(len(members), families)
    if found is None:
        return members.tobytes()
    own = members[:1] if alike else members
    nesting = _nesting(network, node, members[None, :]).tobytes() if Family.LIBRARY in families else b""
    return nesting + b"".join(hops_between(network, own, members[p[: len(own)]]).tobytes() for p in found)


def _blocks(network: Network, node: int) -> list[int]:
    """NPUs of the blocks of neighbouring numbers on which members lie: inner dimensions, and nodes of a library.

    These are the same on building blocks; dimensions of single links are names, and may say nothing of nodes.
    """
    inner = np.cumprod([dim.npus for dim in network.dims[:-1]], dtype=np.int64).tolist()
    return sorted({*inner, node} - {1})


def _nesting(network: Network, node: int, members: I64) -> I64:
    """How groups (n_rings, size) lie on blocks of neighbouring NPUs: for each, how many blocks, and the fullest."""
    columns = []
    for block in _blocks(network, node):
        blocks = np.sort(members // block, axis=1)
        begins = np.ones(blocks.shape, bool)
        begins[:, 1:] = blocks[:, 1:] != blocks[:, :-1]
        number = np.cumsum(begins, axis=1)
        count = number[:, -1]
        place = number + np.arange(len(members))[:, None] * (members.shape[1] + 1)
        each = np.bincount(place.reshape(-1), minlength=len(members) * (members.shape[1] + 1))
        columns += [count, each.reshape(len(members), -1).max(axis=1)]
    return np.stack(columns, axis=1) if columns else np.zeros((len(members), 0), np.int64)


def _together(network: Network, node: int, members: I64) -> I64:
    """Which members of groups (n_rings, size) share blocks of neighbouring NPUs: for each, the first in its own."""
    columns = [np.zeros((len(members), 0), np.int64)]
    places = np.arange(members.shape[1])
    for block in _blocks(network, node):
        order = np.argsort(members // block, axis=1, kind="stable")
        blocks = np.take_along_axis(members // block, order, axis=1)
        begins = np.ones(blocks.shape, bool)
        begins[:, 1:] = blocks[:, 1:] != blocks[:, :-1]
        first = np.take_along_axis(order, np.maximum.accumulate(np.where(begins, places, 0), axis=1), axis=1)
        column = np.empty_like(members)
        np.put_along_axis(column, order, first, axis=1)
        columns.append(column)
    return np.concatenate(columns, axis=1)


def row_codes(rows: I64) -> I64:
    """Number of each distinct row; equal rows have equal numbers.

    Column by column for tall tables (sorting integers is far cheaper than sorting rows), by content for wide ones.
    """
    if rows.shape[1] > rows.shape[0]:
        numbers: dict[bytes, int] = {}
        rows = np.ascontiguousarray(rows)
        return np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows], np.int64)
    code = np.zeros(len(rows), np.int64)
    for column in rows.T:
        if not len(column) or (column == column[0]).all():
            continue
        _, value = np.unique(column, return_inverse=True)
        _, code = np.unique(code * (int(value.max()) + 1) + value.reshape(-1), return_inverse=True)
        code = code.reshape(-1)
    return code


def list_codes(values: I64, start: I64) -> I64:
    """Number of each list among those that lie end to end (`start` has their bounds); equal ones have equal numbers."""
    length = np.diff(start)
    code = np.zeros(len(length), np.int64)
    base = 1
    for width, lists in rows_by(length).items():
        if not width:
            continue
        code[lists] = base + row_codes(values[start[lists][:, None] + np.arange(width)])
        base = int(code[lists].max()) + 1
    return code


def periods(colours: I64, alike: AnyArray) -> I64:
    """After how many positions the colours of each ring (n_rings, size) repeat; its size where members are not alike."""
    size = colours.shape[1]
    out = np.full(len(colours), size, np.int64)
    for period in range(size // 2, 0, -1):
        if size % period == 0:
            out[alike & (colours[:, period:] == colours[:, :-period]).all(axis=1)] = period
    return out


def ring_codes(colours: I64, alike: AnyArray, label: I64) -> tuple[I64, AnyArray]:
    """Code of every ring from its members' colours (n_rings, size), and whether its members are all of one class."""
    uniform = alike & (colours == colours[:, :1]).all(axis=1)
    rows = np.where(uniform[:, None], -1, colours)
    rows = np.concatenate([rows, np.stack([np.where(uniform, colours[:, 0], -1), label], axis=1)], axis=1)
    return row_codes(rows), uniform


@dataclass(frozen=True, slots=True)
class _Rings:
    """Rings of equal size: members, the group slot under which each member knows the ring, and their symmetry."""

    members: I64  # (n_rings, size)
    slot: I64  # (n_rings, size); the column of the signature that the ring's code goes to
    column: I64  # (n_rings, size)
    alike: AnyArray
    label: I64


def _rings(
    workload: Workload, membership: Membership, network: Network, usage: RingsUsed
) -> tuple[list[_Rings], int]:
    """All rings that collectives use, in batches of equal size, and the number of signature columns."""
    n = workload.npus
    width = membership.comm.shape[1]
    batches: list[_Rings] = []
    columns = width
    by_size: dict[int, list[int]] = {}
    slot_in: list[I64] = [np.full(comm.size, -1, np.int64) for comm in membership.comms]
    for s in range(width):
        column = membership.comm[:, s]
        for c in distinct(column[column >= 0]):
            comm = membership.comms[c]
            here = column[comm.members] == c
            slot_in[c][here] = s
    for c, comm in enumerate(membership.comms):
        if not comm.whole:
            by_size.setdefault(comm.size, []).append(c)
    for numbers in by_size.values():
        members = np.stack([membership.comms[c].members for c in numbers])
        slots = np.stack([slot_in[c] for c in numbers])
        alike, label = ring_labels(
            network, members, usage.groups, node=usage.node_npus, by_links=usage.by_links
        )
        if usage.uneven:
            alike, label = _apart(network, members, usage, alike, label, np.isin(numbers, list(usage.uneven)))
        batches.append(_Rings(members, slots, slots, alike, label))
    whole = [c for c, comm in enumerate(membership.comms) if comm.whole]
    everyone = np.arange(n)
    for c in whole:
        of_npu = np.full(n, -1, np.int64)
        of_npu[membership.comms[c].members] = slot_in[c]
        grid = everyone.reshape([dim.npus for dim in reversed(network.dims)])
        for k, families in enumerate(usage.dims):
            if not families:
                continue
            axis = len(network.dims) - 1 - k
            members = np.moveaxis(grid, axis, -1).reshape(-1, network.dims[k].npus)
            alike = np.full(len(members), Family.TREE not in families)
            batches.append(
                _Rings(
                    members,
                    of_npu[members],
                    np.full_like(members, columns),
                    alike,
                    np.zeros(len(members), np.int64),
                )
            )
            columns += 1
        if usage.flat:
            members = membership.comms[c].members[None, :]
            alike, label = ring_labels(
                network, members, usage.flat, node=usage.node_npus, by_links=usage.by_links
            )
            if c in usage.uneven:
                alike[:] = False
            batches.append(_Rings(members, of_npu[members], np.full_like(members, columns), alike, label))
            columns += 1
    return batches, columns


def partition(
    workload: Workload,
    membership: Membership,
    network: Network,
    usage: RingsUsed,
    begin: I64 | None = None,
    *,
    kinds: Kinds | None = None,
) -> Partition:
    """The coarsest classes such that one NPU of each can stand for all; every NPU alone where these are not found soon.

    Parameters
    ----------
    begin
        Classes lie within those of equal numbers here.
    kinds
        Kinds of ways between NPUs; None: hops over building blocks tell them.
    """
    n = workload.npus
    peers = workload.peers
    batches, columns = _rings(workload, membership, network, usage)
    colour = (workload.program_of if begin is None else begin).copy()
    own = peers.owners()
    # signed: which of two NPUs has the lower number decides the order of events at equal ticks, so a message
    # that wraps around the last NPU is unlike the others
    ways = np.concatenate([(peers.flat - own)[:, None], _far(network, own, peers.flat, kinds)], axis=1)
    way = row_codes(ways)
    n_ways = int(way.max(initial=0)) + 1
    n_colours = int(colour.max()) + 1
    for _ in range(MOST_ROUNDS):
        if n_colours == n:
            break
        signature = np.full((n, 2 * columns), -1, np.int64)
        width = membership.comm.shape[1] + 1
        base = 0
        for rings in batches:
            code, uniform = ring_codes(colour[rings.members] * width + rings.slot, rings.alike, rings.label)
            ring = np.broadcast_to(np.arange(rings.members.shape[0])[:, None], rings.members.shape)
            position = np.broadcast_to(np.arange(rings.members.shape[1]), rings.members.shape)
            known = rings.slot >= 0
            npus, column = rings.members[known], rings.column[known]
            signature[npus, 2 * column] = base + code[ring[known]]
            place = position[known]
            if usage.by_links:  # every message is simulated: members repeat where colours do
                place = place % periods(colour[rings.members], rings.alike)[ring[known]]
            signature[npus, 2 * column + 1] = np.where(uniform[ring[known]], -1, place)
            base += len(code) + 1
        met = list_codes(colour[peers.flat] * n_ways + way, peers.start)
        rows = np.concatenate([colour[:, None], signature, met[:, None]], axis=1)
        colour = row_codes(rows)
        now = int(colour.max()) + 1
        if now == n_colours:
            break
        n_colours = now
    else:
        return discrete(n)
    _, first, class_of = np.unique(colour, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return Partition(rank[class_of.reshape(-1)], np.sort(first))
