"""A scenario in which collectives run one after the other with nothing beside them: what their messages take alone."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from chakra.arrays import I64, bounds
from chakra.et import TraceColumns
from chakra.replay.collectives.call import Call
from chakra.replay.collectives.plan import Phase
from chakra.replay.config.model import CollectiveKind, Network
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.scenario import Scenario
from chakra.replay.workload.communicators import Communicator, Membership
from chakra.replay.workload.model import Bindings, Engine, Op, Program, Workload

#: ticks over which the starts of the collectives are spread: none lasts until the next one
SPREAD_NS = 1 << 60


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A collective of a library on one communicator."""

    call: Call
    phase: Phase
    comm: Communicator
    #: members in the order of the communicator's ring
    npus: I64
    #: equal for collectives that are known to take as long as each other when each is alone
    like: tuple[int, int] | None = None

    @property
    def kind(self) -> CollectiveKind:
        """Which collective."""
        return CollectiveKind(self.phase.algorithm.kind)

    def place(self, network: Network) -> tuple[object, ...]:
        """Equal for collectives that take as long as each other when each is alone."""
        where = place_of(network, self.npus) if self.like is None else self.like
        return self.kind, self.phase.bytes, self.phase.sizes, *where


def place_of(network: Network, npus: I64) -> tuple[object, ...]:
    """Equal for members that lie alike: shifted by whole positions within dimensions of building blocks.

    The order of their numbers counts, too, since the library goes around a node in that order.
    """
    if network.outside is not None or network.links is not None:
        return (npus.tobytes(),)
    shifts, rest = [], npus
    for dim in network.dims:
        place = rest % dim.npus
        shifts.append((place - place[0]) % dim.npus)
        rest = rest // dim.npus
    return np.argsort(npus, kind="stable").tobytes(), np.stack(shifts).tobytes()


class Alone:
    """Collectives, each begun by all of its members at a time of its own.

    Attributes
    ----------
    scenario
        What runs them.
    """

    def __init__(self, calls: Sequence[LibraryCall], scenario: Scenario) -> None:
        self._calls = calls
        self._apart = SPREAD_NS // len(calls)
        npus = scenario.network.npus
        count = np.zeros(npus, np.int64)
        for item in calls:
            count[item.npus] += 1
        comm = np.full((npus, int(count.max())), -1, np.int64)
        member = np.full_like(comm, -1)
        count[:] = 0
        for k, item in enumerate(calls):  # the groups of an NPU are its first slots
            slot = count[item.npus]
            comm[item.npus, slot], member[item.npus, slot] = k, np.arange(len(item.npus))
            count[item.npus] += 1
        kinds, program_of = np.unique(comm, axis=0, return_inverse=True)
        #: collectives of each program
        self._of_program = [row[row >= 0].tolist() for row in kinds]
        programs = tuple(self._program(own) for own in self._of_program)
        self._program_of = program_of.reshape(-1).astype(np.int64)
        workload = Workload(
            programs=programs,
            program_of=self._program_of,
            traces=tuple(program.trace for program in programs),
            trace_of=self._program_of,
            bindings=tuple(Bindings((), np.zeros(0, np.int64)) for _ in programs),
        )
        # each has a communicator of its own, and those of all NPUs are known by their names
        comms = tuple(replace(item.comm, name=f"{k}: {item.comm.name}") for k, item in enumerate(calls))
        membership = Membership(comms, comm, member)
        self.scenario = replace(scenario, workload=workload, membership=membership, custom_of_node={})

    def _program(self, own: Sequence[int]) -> Program:
        """A timer before each collective; all timers run at once, one collective at a time."""
        n = 2 * len(own)
        timers = np.arange(n) % 2 == 0
        index = np.full(n, -1, np.int64)
        index[1::2] = np.arange(len(own))
        duration = np.zeros(n, np.int64)
        duration[::2] = [k * self._apart for k in own]
        empty = np.zeros(0, np.int64)
        return Program(
            trace=TraceColumns(n).build(),
            order=np.arange(n),
            op=np.where(timers, Op.TIMER, Op.COLLECTIVE).astype(np.int64),
            engine=np.where(timers, Engine.CPU, Engine.COMM).astype(np.int64),
            slot=np.where(timers, 0, 1).astype(np.int64),
            duration_ns=duration,
            child_start=bounds(timers),
            child=np.arange(1, n, 2, dtype=np.int32),
            parents=np.where(timers, 0, 1).astype(np.int32),
            comm=index,
            call=index.copy(),
            calls=tuple(replace(self._calls[k].call, group=slot) for slot, k in enumerate(own)),
            slot_nodes=np.full(2, len(own), np.int64),
            slot_cap=np.array([max(n, 1), 1], np.int64),
            p2p_peer=empty,
            p2p_bytes=empty,
            p2p_tag=empty,
            p2p_is_send=empty.astype(bool),
            corrections=Counter(),
        )

    def times_ns(self, raw: RawRun) -> list[int]:
        """How long each collective took in a run of the scenario."""
        out = []
        for k, item in enumerate(self._calls):
            npu = int(item.npus[0])
            place = self._of_program[int(self._program_of[npu])].index(k)
            actor = int(raw.partition.class_of[npu])
            end = int(raw.finish_ns[int(raw.node_start[actor]) + 2 * place + 1])
            out.append(end - k * self._apart)
        return out
