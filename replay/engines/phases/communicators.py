"""Communicators between actors: which classes of NPUs meet in a group, and on which logical rings."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from chakra.arrays import I64, distinct
from chakra.replay.config.model import Network
from chakra.replay.symmetry.classes import Partition, distance_key, ring_labels, row_codes
from chakra.replay.symmetry.rings_used import RingsUsed
from chakra.replay.workload.communicators import Communicator, Membership, first_places


@dataclass(frozen=True, slots=True)
class ActorComm:
    """A communicator as the actors see it."""

    name: str
    whole: bool
    size: int
    #: distinct actors, in order of first position
    actors: tuple[int, ...]
    #: per view: list of rings, each a tuple (NPUs by position, actors by position)
    views: tuple[tuple[tuple[I64, I64], ...], ...]
    #: label of its distances and whether it looks alike from every member (flat ring)
    label: tuple[int, bool]

    def on_ring(self, stand: I64) -> I64:
        """Distinct actors of a ring, given by position, in ascending order."""
        return stand[:1] if len(self.actors) == 1 else distinct(stand)


@dataclass(frozen=True, slots=True)
class ActorComms:
    """All communicators, and which of them an actor's groups are: group g of actor a is cell group_start[a] + g."""

    comms: tuple[ActorComm, ...]
    group_start: I64
    #: index into `comms`
    group_comm: I64
    #: which of the communicator's actors this one is
    group_member: I64

    #: which of them stands for each of the groups of NPUs
    stands_for: I64

    def comm_of(self, actor: int, group: int) -> int:
        """Index of the communicator that is a group of an actor."""
        return int(self.group_comm[self.group_start[actor] + group])


def actor_communicators(
    membership: Membership, classes_of_npus: Partition, network: Network, usage: RingsUsed
) -> ActorComms:
    """Communicators between actors; groups whose members lie and behave alike are one."""
    class_of, npu_of = classes_of_npus.class_of, classes_of_npus.representative
    found: dict[tuple[Any, ...], int] = {}
    comms: list[ActorComm] = []
    group_comm: list[int] = []
    group_member: list[int] = []
    group_start = [0]
    slots_of: dict[int, I64] = {}
    for npu in npu_of.tolist():
        for c in membership.comm[npu].tolist():
            if c < 0:
                continue
            comm = membership.comms[c]
            classes = class_of[comm.members]
            families = usage.flat if comm.whole else usage.groups
            if comm.whole:
                key: tuple[Any, ...] = ("whole", comm.name)
            else:
                by_links = usage.by_links
                alike, _ = ring_labels(
                    network, comm.members[None, :], families, node=usage.node_npus, by_links=by_links
                )
                alike &= c not in usage.uneven
                distance = b""
                if not by_links:
                    distance = distance_key(
                        network, comm.members, families, node=usage.node_npus, alike=bool(alike[0])
                    )
                if c not in slots_of:
                    slots_of[c] = np.argmax(membership.comm[comm.members] == c, axis=1)
                slots = slots_of[c]
                if bool(alike[0]) and (classes == classes[0]).all():
                    key = ("alike", len(classes), int(classes[0]), int(slots[0]), distance)
                else:
                    key = ("group", tuple(classes.tolist()), tuple(slots.tolist()), distance)
            if key not in found:
                found[key] = len(comms)
                comms.append(_actor_comm(comm, class_of, network, usage, uneven=c in usage.uneven))
            number = found[key]
            group_comm.append(number)
            group_member.append(comms[number].actors.index(int(class_of[npu])))
        group_start.append(len(group_comm))
    start, comm_of, member_of = (np.array(v, np.int64) for v in (group_start, group_comm, group_member))
    numbers, first = first_places(membership)
    npu, slot = np.divmod(first, membership.comm.shape[1])
    stands_for = np.full(len(membership.comms), -1, np.int64)
    stands_for[numbers] = comm_of[start[class_of[npu]] + slot]
    return ActorComms(tuple(comms), start[:-1], comm_of, member_of, stands_for)


def _actor_comm(
    comm: Communicator, class_of: I64, network: Network, usage: RingsUsed, *, uneven: bool
) -> ActorComm:
    """A communicator as the actors see it."""
    classes = class_of[comm.members]
    actors = tuple(dict.fromkeys(classes.tolist()))
    index = np.zeros(max(actors) + 1, np.int64)
    index[list(actors)] = np.arange(len(actors))
    local = index[classes]
    views: list[tuple[tuple[I64, I64], ...]] = []
    if comm.whole:
        n = network.npus
        grid = np.arange(n).reshape([dim.npus for dim in reversed(network.dims)])
        for k in range(len(network.dims)):
            lines = np.moveaxis(grid, len(network.dims) - 1 - k, -1).reshape(-1, network.dims[k].npus)
            stand = index[class_of[lines]]
            first = [0] if len(actors) == 1 else np.unique(row_codes(stand), return_index=True)[1]
            views.append(tuple((lines[i], stand[i]) for i in np.sort(first)))
    families = usage.flat if comm.whole else usage.groups
    alike, _ = ring_labels(network, comm.members[None, :], families, node=usage.node_npus)
    views.append(((comm.members, local),))
    return ActorComm(
        comm.name, comm.whole, comm.size, actors, tuple(views), (0, bool(alike[0]) and not uneven)
    )
