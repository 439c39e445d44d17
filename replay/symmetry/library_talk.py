"""Messages of a library's collectives on communicators that lie alike, and which of these their links cannot tell apart.

A library's collective takes what its messages take alone, and a delay that makes up the library's time
(`chakra.replay.engines.messages.library`). So communicators whose members are to share a class must have equal times
alone: their messages cross the same links but for names. That is told exactly, link by link.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, distinct
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.library.in_effect import Layout
from chakra.replay.collectives.library.messages import PairRoles, pair_roles
from chakra.replay.collectives.plan import Phase
from chakra.replay.collectives.plan_table import PlanTable
from chakra.replay.config.model import CollectiveKind
from chakra.replay.networks.flow.sections import Sections
from chakra.replay.symmetry.classes import row_codes
from chakra.replay.workload.communicators import Communicator, Membership
from chakra.replay.workload.model import Workload

#: pairs whose links are listed at a time
PAIRS_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class LibraryTalk:
    """A collective on communicators whose members lie alike on nodes.

    Attributes
    ----------
    kind, size_bytes
        The collective, as the library counts its size.
    comms
        Numbers of the communicators.
    members
        NPUs by position, shape (communicators, members).
    slots
        Under which slot each member knows its communicator.
    roles
        Pairs of positions that exchange messages.
    """

    kind: CollectiveKind
    size_bytes: int
    comms: I64
    members: I64
    slots: I64
    roles: PairRoles

    def pairs(self) -> tuple[I64, I64]:
        """NPUs at both ends of each pair, shape (communicators, pairs)."""
        return self.members[:, self.roles.source], self.members[:, self.roles.target]


def by_position(comm: Communicator) -> I64:
    """Members as a library's messages count them."""
    return np.sort(comm.members) if comm.whole else np.asarray(comm.members, np.int64)


def library_phases(
    workload: Workload, membership: Membership, plans: PlanTable
) -> Iterator[tuple[int, Phase]]:
    """Communicators and the phases of a run's library that run on them."""
    for number, program in enumerate(workload.programs):
        npus = workload.npus_of_program[number]
        for call in program.calls:
            for c in distinct(membership.comm[npus, call.group]).tolist():
                plan = plans.of(call, membership.comms[c].size, whole=membership.comms[c].whole)
                for phase in [phase for variant in plan.variants for phase in variant]:
                    if phase.algorithm.family is Family.LIBRARY:
                        yield c, phase


def library_talk(workload: Workload, membership: Membership, plans: PlanTable) -> list[LibraryTalk]:
    """All collectives of a run's library, each on all communicators on which it has the same messages."""
    library = plans.library
    if library is None:
        return []
    members = [by_position(comm) for comm in membership.comms]
    used: dict[tuple[CollectiveKind, int, Layout], set[int]] = {}
    layouts: dict[int, Layout] = {}
    for c, phase in library_phases(workload, membership, plans):
        if c not in layouts:
            layouts[c] = library.layout(members[c])
        kind = CollectiveKind(phase.algorithm.kind)
        used.setdefault((kind, phase.bytes, layouts[c]), set()).add(c)
    out = []
    for (kind, size, _), comms in used.items():
        numbers = np.array(sorted(comms), np.int64)
        rows = np.stack([members[c] for c in numbers])
        slots = np.argmax(membership.comm[rows] == numbers[:, None, None], axis=2)
        roles = pair_roles(library.lanes(kind, size, rows[0]), rows.shape[1])
        out.append(LibraryTalk(kind, size, numbers, rows, slots, roles))
    return out


def places_of_links(workload: Workload, membership: Membership, plans: PlanTable) -> I64 | None:
    """A number for each NPU, equal where single links give the library's collectives of its groups equal times.

    Where messages never meet: the rates of ports tell, and what links with faults need. None: there is no difference.
    """
    library = plans.library
    if library is None or library.rates is None:
        return None
    members = [by_position(comm) for comm in membership.comms]
    found: dict[int, list[object]] = {}
    for c, phase in library_phases(workload, membership, plans):
        if c not in found:
            found[c] = [library.layout(members[c])[-1] or library.nic_gbps]
        found[c].append(library.fault_ns(phase, members[c]))
    numbers: dict[tuple[object, ...], int] = {}
    code = np.full(len(membership.comms) + 1, -1, np.int64)  # the last one: no communicator
    for c, said in found.items():
        faulty = library.loads is not None and any(said[1:])
        code[c] = numbers.setdefault(tuple(said) if faulty else (said[0],), len(numbers))
    return row_codes(code[membership.comm]) if len(numbers) > 1 else None


#: kind, bytes and communicator -> what is equal for those that take equal times alone
AloneLike = dict[tuple[CollectiveKind, int, int], tuple[int, int]]


def alone_like(said: Sequence[LibraryTalk], routes: Sections, npus: int) -> AloneLike:
    """Which of the collectives of a kind and size take equal times when each is alone."""
    codes: dict[tuple[bytes, bytes, bytes], I64] = {}
    out: AloneLike = {}
    for number, item in enumerate(said):
        ends = item.comms.tobytes(), item.roles.source.tobytes(), item.roles.target.tobytes()
        if ends not in codes:  # else the same pairs, with messages of another size
            codes[ends] = _codes(item, routes, npus)
        for comm, code in zip(item.comms.tolist(), codes[ends].tolist(), strict=True):
            out[item.kind, item.size_bytes, comm] = number, code
    return out


def places_of_npus(like: AloneLike, membership: Membership) -> I64:
    """A number for each NPU, equal where the library's collectives of its groups take equal times alone."""
    of_comm: dict[int, list[tuple[int, int]]] = {}
    for (_, _, comm), place in like.items():
        of_comm.setdefault(comm, []).append(place)
    numbers: dict[tuple[tuple[int, int], ...], int] = {}
    code = np.full(len(membership.comms) + 1, -1, np.int64)  # the last one: no communicator
    for comm, places in of_comm.items():
        code[comm] = numbers.setdefault(tuple(places), len(numbers))
    return row_codes(code[membership.comm])


def _codes(item: LibraryTalk, routes: Sections, npus: int) -> I64:
    """Number of each communicator, equal where its messages cross links that differ in nothing but their names."""
    src, dst = item.pairs()
    apart = item.roles.source != item.roles.target
    pairs = np.searchsorted(routes.src * npus + routes.dst, (src * npus + dst)[:, apart])
    numbers: dict[tuple[bytes, bytes, bytes], int] = {}
    out = []
    for some in np.array_split(pairs, max(1, pairs.size // PAIRS_AT_ONCE)):
        out += [numbers.setdefault(key, len(numbers)) for key in _crossed(some, routes)]
    return np.array(out, np.int64)


def _crossed(pair: I64, routes: Sections) -> Iterator[tuple[bytes, bytes, bytes]]:
    """What the pairs of each communicator (communicators, pairs) cross, but for names of links."""
    n = len(pair)
    count, link, weight = routes.hops_of(pair.reshape(-1))
    count = count.reshape(pair.shape)
    comm = np.repeat(np.arange(n), count.sum(axis=1))
    # links by the order in which a communicator meets them
    links = len(routes.bytes_per_ns)
    known, first, place = np.unique(comm * links + link, return_index=True, return_inverse=True)
    order = np.empty(len(known), np.int64)
    order[np.argsort(first)] = np.arange(len(known))
    order -= np.searchsorted(known, np.arange(n) * links)[known // links]
    hops = np.stack([order[place.reshape(-1)], weight, routes.bytes_per_ns[link].view(np.int64)], axis=1)
    ends = np.searchsorted(comm, np.arange(n + 1))
    latency = routes.latency_ns[pair]
    for k in range(n):
        yield hops[ends[k] : ends[k + 1]].tobytes(), count[k].tobytes(), latency[k].tobytes()
