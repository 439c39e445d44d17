"""What is run on what: the prepared workload and the machine, and what follows from both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from chakra.replay.collectives.plan_table import PlanTable
from chakra.replay.config.model import Memory, Network, System
from chakra.replay.networks.answers import EarlyAnswers, early_answers
from chakra.replay.networks.ways import Ways
from chakra.replay.options import RunOptions
from chakra.replay.symmetry.classes import Partition, discrete, partition, row_codes
from chakra.replay.symmetry.library_talk import places_of_links
from chakra.replay.symmetry.rings_used import RingsUsed, rings_used
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.custom import CustomAlgorithms
from chakra.replay.workload.model import Op, Workload
from chakra.replay.workload.recorded import all_ranks_told


@dataclass(frozen=True)
class Scenario:
    """One run's inputs, read and checked, made by `chakra.replay.prepare`.

    What follows from them is derived here when it is first asked for, and only here: engines, checks and results
    share the same plans, rings and classes.
    """

    workload: Workload
    #: which NPU belongs to which groups
    membership: Membership
    system: System
    network: Network
    memory: Memory
    options: RunOptions
    #: custom algorithms of single nodes: node id -> prefix of its traces
    custom_of_node: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def custom_algorithms(self) -> CustomAlgorithms:
        """Custom algorithms that collectives name."""
        return CustomAlgorithms(self.system, self.options.astra)

    @cached_property
    def plans(self) -> PlanTable:
        """How each collective is cut."""
        groups = [comm.members for comm in self.membership.comms]
        return PlanTable(self.system, self.network, self.options, groups)

    @cached_property
    def answers(self) -> EarlyAnswers:
        """What the network says before a run."""
        return early_answers(self.network, self.options.backend)

    @cached_property
    def rings_used(self) -> RingsUsed:
        """Logical rings that the collectives use."""
        return rings_used(self.workload, self.membership, self.plans)

    @cached_property
    def classes(self) -> Partition:
        """Classes of equal NPUs, or every NPU its own class where a resource that all share breaks the symmetry."""
        shared = any((program.op == Op.SERVER).any() for program in self.workload.programs)
        # recorded collectives meet members whose starts no program tells
        recorded = self.system.replay_only and not self.options.astra and len(self.workload.traces) > 1
        if not self.options.fold or shared or (recorded and all_ranks_told(self.workload.traces)):
            return discrete(self.workload.npus)
        kinds = None if self.ways is None else self.ways.kinds
        begin = places_of_links(self.workload, self.membership, self.plans)
        if begin is not None:
            begin = row_codes(np.stack([self.workload.program_of, begin], axis=1))
        return partition(self.workload, self.membership, self.network, self.rings_used, begin, kinds=kinds)

    @cached_property
    def ways(self) -> Ways | None:
        """Ways of the point-to-point messages over single links, both back and forth; None on building blocks."""
        if self.network.links is None:
            return None
        peers = self.workload.peers
        ends = np.stack([peers.owners(), peers.flat], axis=1)
        both = np.concatenate([ends, ends[:, ::-1]])
        return Ways(self.network, both, charged_once=self.options.astra)
