"""Groups and collectives of all ranks, brought together: who belongs to which communicator, and what meets what."""

from chakra.replay.workload.communicators import GroupTable, Membership, resolve_groups
from chakra.replay.workload.match_sizes import match_sizes
from chakra.replay.workload.model import Workload
from chakra.replay.workload.node_order import match_dimensions
from chakra.replay.workload.process_groups import metadata_groups, with_metadata_groups
from chakra.replay.workload.replicate import repeat_blocks


def match_ranks(
    workload: Workload,
    groups: GroupTable,
    *,
    dims: int,
    astra: bool = False,
    traced: int | None = None,
    unused_groups: bool = False,
) -> tuple[Workload, Membership]:
    """Resolve the groups of all NPUs and give collectives that mean the same one form.

    Parameters
    ----------
    workload
        Programs and bindings of all NPUs.
    groups
        Groups by name, each with rows of ranks; those that traces define themselves are added.
    dims
        Dimensions of the network, which `involved_dim` is compared with.
    astra
        Whether names of groups are read as ASTRA-sim reads them.
    traced
        Number of ranks whose traces the others repeat; None if each has its own.
    unused_groups
        Whether groups that no node names are read, too, so that all definitions are checked.

    Raises
    ------
    WorkloadError
        For a name that no group has, a group without the NPU that uses it, or definitions that contradict each other.
    """
    if unused_groups:
        known: GroupTable = {**metadata_groups(workload.traces, astra=astra), **groups}
    else:
        known = with_metadata_groups(workload, groups, astra=astra)
    placed = workload
    if traced is not None:
        placed, known = repeat_blocks(workload, known, traced)
    membership = resolve_groups(placed, known)
    return match_sizes(match_dimensions(placed, dims), membership, astra=astra), membership
