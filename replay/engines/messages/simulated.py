"""Who is simulated by the message-level engine: every NPU, or where flows cannot tell NPUs apart, one of each class."""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives.plan import FLAT
from chakra.replay.config.model import Network
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.phases.channels import UnfoldableError
from chakra.replay.engines.phases.communicators import ActorComm, ActorComms, actor_communicators
from chakra.replay.engines.state import Block
from chakra.replay.symmetry.classes import Partition, discrete
from chakra.replay.symmetry.rings_used import RingsUsed
from chakra.replay.workload.communicators import Communicator, Membership


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
        Which rings carry messages, where classes are simulated.
    """

    partition: Partition
    comms: ActorComms | None = None
    rings: RingsUsed | None = None

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
    """The first NPU of each class."""
    return Simulated(partition, actor_communicators(membership, partition, network, rings), rings)


def add_class_rings(
    block: Block, rows: I64, who: Simulated, membership: Membership, network: Network
) -> None:
    """Rings of the members of communicators of classes, into the rows of these.

    Each member has rows of its own, since its partners are those of the NPU that stands for its class.

    Raises
    ------
    UnfoldableError
        If members of a ring are neither all alike nor all different.
    """
    comms, rings = who.comms, who.rings
    if comms is None or rings is None:
        return
    tables = [np.zeros((len(comm.views), len(comm.actors)), np.int64) for comm in comms.comms]
    for actor, npu in enumerate(who.npus.tolist()):
        for slot, real in enumerate(membership.comm[npu].tolist()):
            if real < 0:
                continue
            number = comms.comm_of(actor, slot)
            comm = comms.comms[number]
            member = int(comms.group_member[comms.group_start[actor] + slot])
            for view, npus in enumerate(_rings_of(membership.comms[real], npu, network)):
                used = _used(rings, comm, view, len(network.dims))
                tables[number][view, member] = _add_ring(block, who, comm, npus, npu, used=used)
    for number, table in enumerate(tables):
        rows[number, L.G_N] = len(comms.comms[number].actors)
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
    if not comm.whole:
        return bool(rings.groups)
    return bool(rings.flat if view in (FLAT, dims) else rings.dims[view])


def _add_ring(block: Block, who: Simulated, comm: ActorComm, npus: I64, npu: int, *, used: bool) -> int:
    """Add a ring as one of its NPUs sees it."""
    place = {actor: k for k, actor in enumerate(comm.actors)}
    classes = who.partition.class_of[npus]
    places = np.array([place[c] for c in classes.tolist()], np.int64)
    parts = len(set(classes.tolist()))
    if used and 1 < parts < len(npus):
        raise UnfoldableError
    row = np.zeros(L.RING_ROW, np.int64)
    row[L.RG_INDEX] = int(np.flatnonzero(npus == npu)[0])
    row[L.RG_PARTS] = parts
    row[L.RG_PLACES], row[L.RG_NPUS] = block.add(places), block.add(npus)
    return block.add(row)
