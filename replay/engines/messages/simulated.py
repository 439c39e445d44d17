"""Who is simulated by the message-level engine: every NPU, or where flows cannot tell NPUs apart, one of each class."""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, distinct
from chakra.replay.config.model import Network
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.phases.channels import UnfoldableError
from chakra.replay.engines.phases.communicators import ActorComm, ActorComms, actor_communicators
from chakra.replay.engines.state import Block
from chakra.replay.symmetry.classes import Partition, discrete
from chakra.replay.symmetry.rings_used import RingsUsed
from chakra.replay.workload.communicators import Communicator, Membership


@dataclass(frozen=True, slots=True)
class ClassRing:
    """A ring of a communicator of classes, as one of its members sees it.

    Attributes
    ----------
    comm, view, member
        Number of the communicator, and of the ring's dimension or flat view; which of the communicator's members.
    index
        Position of the NPU that stands for the member.
    npus, places
        NPU at each position, and the member that stands for it.
    real
        Number of the communicator that the NPU that stands for the member is in.
    """

    comm: int
    view: int
    member: int
    index: int
    npus: I64
    places: I64
    real: int


@dataclass(frozen=True, slots=True)
class Simulated:
    """The NPUs that are simulated.

    Attributes
    ----------
    partition
        For whom each of them stands.
    comms
        Communicators of classes; None where every NPU is simulated.
    rings
        Rings of the communicators of classes.
    """

    partition: Partition
    comms: ActorComms | None = None
    rings: tuple[ClassRing, ...] = ()

    @property
    def npus(self) -> I64:
        """Their numbers."""
        return self.partition.representative


def everybody(npus: int) -> Simulated:
    """All NPUs, each for itself."""
    return Simulated(discrete(npus))


def one_of_each(
    partition: Partition, membership: Membership, network: Network, rings: RingsUsed
) -> Simulated:
    """The first NPU of each class.

    Raises
    ------
    UnfoldableError
        If the members of a ring do not repeat evenly.
    """
    comms = actor_communicators(membership, partition, network, rings)
    found: list[ClassRing] = []
    for actor, npu in enumerate(partition.representative.tolist()):
        for slot, real in enumerate(membership.comm[npu].tolist()):
            if real < 0:
                continue
            number = comms.comm_of(actor, slot)
            comm = comms.comms[number]
            member = int(comms.group_member[comms.group_start[actor] + slot])
            for view, npus in enumerate(_rings_of(membership.comms[real], npu, network)):
                places = _places(comm, partition.class_of[npus])
                if _used(rings, comm, view, len(network.dims)):
                    _check_even(places)
                index = int(np.flatnonzero(npus == npu)[0])
                found.append(ClassRing(number, view, member, index, npus, places, real))
    return Simulated(partition, comms, tuple(found))


def add_class_rings(block: Block, rows: I64, who: Simulated) -> None:
    """Rings of the members of communicators of classes, into the rows of these.

    Each member has rows of its own, since its partners are those of the NPU that stands for its class.
    """
    assert who.comms is not None
    comms = who.comms.comms
    tables = [np.zeros((len(comm.views), len(comm.actors)), np.int64) for comm in comms]
    for ring in who.rings:
        row = np.zeros(L.RING_ROW, np.int64)
        row[L.RG_INDEX], row[L.RG_PARTS] = ring.index, len(distinct(ring.places))
        row[L.RG_PLACES], row[L.RG_NPUS] = block.add(ring.places), block.add(ring.npus)
        tables[ring.comm][ring.view, ring.member] = block.add(row)
    for number, table in enumerate(tables):
        rows[number, L.G_N] = len(comms[number].actors)
        rows[number, L.G_FLAT] = len(table) - 1
        at = block.add(table)
        rows[number, L.G_VIEWS] = block.add(at + np.arange(len(table)) * table.shape[1])


def _rings_of(comm: Communicator, npu: int, network: Network) -> list[I64]:
    """The rings of a communicator that an NPU is on: of all NPUs one for each dimension, then the flat one."""
    if not comm.whole:
        return [comm.members]
    out = []
    stride = 1
    for dim in network.dims:
        at = npu // stride % dim.npus
        out.append(npu + (np.arange(dim.npus) - at) * stride)
        stride *= dim.npus
    return [*out, np.sort(comm.members)]


def _used(rings: RingsUsed, comm: ActorComm, view: int, dims: int) -> bool:
    """Whether a ring carries messages."""
    if not comm.whole:
        return bool(rings.groups)
    return bool(rings.flat if view == dims else rings.dims[view])


def _places(comm: ActorComm, classes: I64) -> I64:
    """Members of a communicator that stand for classes."""
    known = np.array(comm.actors, np.int64)
    order = np.argsort(known)
    out: I64 = order[np.searchsorted(known[order], classes)]
    return out


def _check_even(places: I64) -> None:
    """Members of a ring repeat after as many positions as there are different ones."""
    parts = len(distinct(places))
    if len(places) % parts or (places.reshape(-1, parts) != places[:parts]).any():
        raise UnfoldableError
