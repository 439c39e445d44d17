"""The plan of every collective of a run, made once and handed on to whoever needs it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from chakra.arrays import I64
from chakra.replay.collectives.call import Call, Uneven
from chakra.replay.collectives.library.in_effect import PlacedLibrary, placed_library
from chakra.replay.collectives.plan import Phase, Plan
from chakra.replay.collectives.select import make_plan, steps_of
from chakra.replay.collectives.steps import Do, Steps
from chakra.replay.collectives.uneven import uneven_steps
from chakra.replay.config.model import CollectiveKind, Network, System
from chakra.replay.options import RunOptions

#: what plans depend on beside the machine: kind, bytes, unequal shares, dimensions that take part, whether all NPUs,
#: members
Key = tuple[CollectiveKind, int, Uneven | None, tuple[bool, ...] | None, bool, int]


@dataclass(frozen=True)
class PlanTable:
    """Plans of calls on communicators; equal calls on communicators of equal shape share one."""

    system: System
    network: Network
    options: RunOptions
    #: members of the run's communicators
    groups: Sequence[I64] = ()
    _plans: dict[Key, Plan] = field(default_factory=dict)
    _uneven: dict[tuple[str, Do, Uneven], Steps] = field(default_factory=dict)

    @cached_property
    def library(self) -> PlacedLibrary | None:
        """The collective library whose times collectives take, if any."""
        return placed_library(self.system, self.network, self.options, self.groups)

    @property
    def slows(self) -> bool:
        """Whether collectives and computing slow each other down."""
        return self.library is not None and self.library.slows

    def library_ns(self, phase: Phase, npus: I64) -> int:
        """Time of a phase that is a whole collective of a library, of these NPUs."""
        assert self.library is not None
        return self.library.phase_ns(phase, npus)

    def of(self, call: Call, size: int, *, whole: bool) -> Plan:
        """How a call is cut on a communicator of `size` members, `whole` if those are all NPUs.

        Raises
        ------
        ConfigError, WorkloadError
            If the system has no algorithm for it, or none that runs on that many members.
        """
        key = (call.kind, call.bytes, call.uneven, call.involved, whole, size)
        if key not in self._plans:
            self._plans[key] = make_plan(
                call, size, whole, self.system, self.network, self.options, self.library
            )
        return self._plans[key]

    def steps(self, phase: Phase, *, whole: bool) -> Steps:
        """The schedule of a phase whose algorithm is a table of steps."""
        if phase.sizes is not None:
            key = (phase.algorithm.steps, phase.do, phase.sizes)
            if key not in self._uneven:
                made = uneven_steps(*key, phase.bytes)
                assert made is not None, "a plan has only phases whose messages are known"
                self._uneven[key] = made
            return self._uneven[key]
        return steps_of(phase, whole, self.network, self.system, self.options)
