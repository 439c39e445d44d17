"""Which logical rings the collectives of a workload use, and under which families of algorithms."""

from dataclasses import dataclass

from chakra.arrays import distinct
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.plan import FLAT
from chakra.replay.collectives.plan_table import PlanTable
from chakra.replay.collectives.steps import Do, Symmetry
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.model import Workload

#: phases whose members all end together, when the last one does
ROOTED = (Do.BROADCAST, Do.REDUCE)
#: the native family whose rings have the same symmetry as a table of steps
SYMMETRIES = {
    Symmetry.NONE: Family.TREE,
    Symmetry.CYCLIC: Family.DIRECT,
    Symmetry.XOR: Family.HALVING_DOUBLING,
}


@dataclass(frozen=True, slots=True)
class RingsUsed:
    """Logical rings that collectives use, each with the families of algorithms that run on it."""

    #: per dimension of whole-cluster communicators
    dims: tuple[frozenset[Family], ...]
    #: flat ring of whole-cluster communicators (the one* algorithms)
    flat: frozenset[Family]
    #: flat ring of smaller groups
    groups: frozenset[Family]
    #: communicators with collectives of unequal shares, in which no member is like another
    uneven: frozenset[int] = frozenset()
    #: links tell how members lie to each other, so that distances need not
    by_links: bool = False
    #: NPUs of a node of the collective library, which counts how members lie on nodes; 1: no library
    node_npus: int = 1


def rings_used(
    workload: Workload, membership: Membership, plans: PlanTable, *, each_message: bool = False
) -> RingsUsed:
    """Which rings the collectives of a workload use, and under which families of algorithms.

    `each_message`: every message counts on its links; members that send in their own places are unlike, even where the
    time of the whole is all that counts elsewhere.
    """
    dims: list[set[Family]] = [set() for _ in plans.network.dims]
    flat: set[Family] = set()
    groups: set[Family] = set()
    seen: set[tuple[object, ...]] = set()
    uneven: set[int] = set()
    for number, program in enumerate(workload.programs):
        npus = workload.npus_of_program[number]
        for call in program.calls:
            for c in distinct(membership.comm[npus, call.group]):
                comm = membership.comms[c]
                key = (call.kind, call.bytes, call.uneven, call.involved, comm.whole, comm.size)
                if call.uneven is not None:
                    uneven.add(int(c))
                if key in seen:
                    continue
                seen.add(key)
                plan = plans.of(call, comm.size, whole=comm.whole)
                pairs = [phase for pair in plan.templates for phase in pair]
                for phase in (*(phase for variant in plan.variants for phase in variant), *pairs):
                    family = phase.algorithm.family
                    if family is Family.LIBRARY and comm.whole and not each_message:
                        continue  # all NPUs wait for all, and take as long
                    if phase.do in ROOTED and not (each_message and family is Family.STEPS):
                        family = Family.DIRECT  # all members end together; how long depends on their places
                    elif phase.sizes is not None and family is Family.STEPS:
                        family = Family.DIRECT  # no member is like another, and all distances may count
                    elif family is Family.SWITCH:
                        family = Family.NONE  # all members send alike, and end together
                    elif family is Family.STEPS:
                        family = SYMMETRIES[plans.steps(phase, whole=comm.whole).symmetry]
                    if not comm.whole:
                        groups.add(family)
                    elif phase.view == FLAT:
                        flat.add(family)
                    else:
                        dims[phase.view].add(family)
    return RingsUsed(
        tuple(frozenset(d) for d in dims),
        frozenset(flat),
        frozenset(groups),
        frozenset(uneven),
        each_message,
        1 if plans.library is None else plans.library.node_npus,
    )
