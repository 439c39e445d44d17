"""Whether configurations that are right one by one fit each other."""

from collections.abc import Sequence

from chakra.arguments import checked
from chakra.errors import ConfigError
from chakra.io.readable import counted
from chakra.replay.config.keys import IMPLEMENTATION_KEYS, N_NODES, NPUS_PER_NODE
from chakra.replay.config.model import Memory, MemoryKind, Network, System, Topology


@checked
def check_fit(network: Network, system: System, memory: Memory | None = None) -> None:
    """Check system and memory against the network.

    Parameters
    ----------
    network
        The network.
    system
        The system.
    memory
        Remote memory, if there is any.

    Raises
    ------
    ConfigError
        if an algorithm list is longer than the network has dimensions (ASTRA-sim asserts), or NPUs are left
        without a memory node
    """
    for kind, names in system.implementations.items():
        if len(names) > len(network.dims):
            raise ConfigError(
                f"{system.source}: key '{IMPLEMENTATION_KEYS[kind]}' names {counted(len(names), 'algorithm')}, but the "
                f"network ({network.source}) has {counted(len(network.dims), 'dimension')}"
            )
    if memory is not None and memory.kind is MemoryKind.PER_NODE:
        served = memory.n_nodes * memory.npus_per_node
        if served < network.npus:
            raise ConfigError(
                f"{memory.source}: key '{N_NODES.name}' ({memory.n_nodes}) times '{NPUS_PER_NODE.name}' "
                f"({memory.npus_per_node}) serves {counted(served, 'NPU')}, but the network has {network.npus}"
            )


def idle_dimensions(names: Sequence[str], network: Network) -> list[int]:
    """Dimensions of more than one NPU that a list of algorithms leaves out, so that they carry nothing.

    A list that is shorter than the network has dimensions stands for the first of them (replay semantics, section 3.2).
    """
    if any(name.startswith("one") for name in names):
        return []
    return [d for d in range(len(names), len(network.dims)) if network.dims[d].npus > 1]


def whole_list(names: Sequence[str], network: Network) -> list[str]:
    """The list with an algorithm for each dimension that it leaves out, one that suits the dimension."""
    found = list(names)
    for dim in network.dims[len(names) :]:
        power_of_two = not dim.npus & (dim.npus - 1)
        of_switch = "halvingDoubling" if power_of_two else "direct"
        if dim.topology == Topology.RING:
            found.append("ring")
        else:
            found.append(of_switch if dim.topology == Topology.SWITCH else "direct")
    return found
