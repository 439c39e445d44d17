"""What is run on what: the prepared workload and the machine, as engines and accounts take them."""

from dataclasses import dataclass

from chakra.replay.config.model import Memory, Network, System
from chakra.replay.options import RunOptions
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.model import Workload


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run's inputs, read and checked."""

    workload: Workload
    #: which NPU belongs to which groups
    membership: Membership
    system: System
    network: Network
    memory: Memory
    options: RunOptions
