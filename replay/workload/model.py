"""A workload as the engines run it: programs, what the names in them stand for, and which NPU runs which.

A *program* is a distinct trace prepared for the engines: nodes in ascending id, durations resolved to ns, collectives
and point-to-point messages described once each. NPUs whose traces differ only in the names of their groups and the
numbers of their peers share a program; their *bindings* say which groups and peers those are. `programs` makes them.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np

from chakra.arrays import I32, I64, AnyArray, Rows, bounds, rows_by
from chakra.et import Trace
from chakra.replay.collectives.call import Call
from chakra.replay.engines.kernels import codes


class Op(IntEnum):
    """What a node does when it is issued."""

    TIMER = codes.OP_TIMER
    ZERO = codes.OP_ZERO
    COLLECTIVE = codes.OP_COLLECTIVE
    SEND = codes.OP_SEND
    RECV = codes.OP_RECV
    SERVER = codes.OP_SERVER
    #: in the rows of a run only, where programs have `TIMER`
    COMPUTE = codes.OP_COMPUTE


class Engine(IntEnum):
    """Which of an NPU's engines a node occupies, for accounts and timelines."""

    CPU = 0
    GPU = 1
    COMM = 2
    MEMORY = 3
    NONE = 4
    #: a stream of the accelerator that waits (`chakra.et.idle_nodes`): a node that takes time in which nothing runs
    IDLE = 5


@dataclass(frozen=True, slots=True)
class Program:
    """A distinct trace, ready to be simulated. Arrays have one entry per node, in ascending node id."""

    trace: Trace
    #: file index of each node
    order: I64
    op: I64
    engine: I64
    slot: I64
    duration_ns: I64
    child_start: I64
    child: I32
    parents: I32
    #: index among the communication nodes (collectives, sends, receives), -1 for others
    comm: I64
    #: collectives: index into `calls`; p2p: index into the p2p arrays; -1 for others
    call: I64
    calls: tuple[Call, ...]
    #: number of nodes of each slot, and how many it runs at once
    slot_nodes: I64
    slot_cap: I64
    #: per p2p node: index into the bindings' peers, bytes, tag
    p2p_peer: I64
    p2p_bytes: I64
    p2p_tag: I64
    p2p_is_send: AnyArray
    #: how often each correction of ASTRA-sim changed something in this program
    corrections: Counter[str] = field(default_factory=Counter)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.op)

    @property
    def n_comm(self) -> int:
        """Number of communication nodes."""
        return int((self.comm >= 0).sum())

    def ids(self) -> AnyArray:
        """Node ids in program order."""
        return self.trace.ids[self.order]


@dataclass(frozen=True, slots=True)
class Bindings:
    """What the names in an NPU's trace stand for."""

    #: group names in order of first use ("" = all NPUs)
    groups: tuple[str, ...]
    #: peers in order of first use: NPU numbers, or offsets if the trace is written for relative peers
    peers: I64

    @property
    def world(self) -> int:
        """Index of all NPUs among the groups, -1 if no collective is of all."""
        return self.groups.index("") if "" in self.groups else -1


@dataclass(frozen=True, slots=True)
class Peers:
    """Peers of all NPUs, end to end: one NPU may have as many as there are NPUs, while the others have a few.

    Attributes
    ----------
    flat
        NPU at the other end of each slot, NPU by NPU.
    start
        Where each NPU's slots begin, and the end.
    """

    flat: I64
    start: I64

    def of(self, npu: int) -> I64:
        """Peers of an NPU."""
        return self.flat[self.start[npu] : self.start[npu + 1]]

    def at(self, npus: I64, slots: I64 | int) -> I64:
        """Peers at slots of NPUs, which are broadcast."""
        return np.asarray(self.flat[self.start[npus] + slots])

    def rows(self, npus: I64, width: int) -> I64:
        """The first peers of NPUs that have at least as many, shape (npus, width)."""
        return self.at(npus[:, None], np.arange(width))

    def owners(self) -> I64:
        """NPU of each slot."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


@dataclass(frozen=True)
class Workload:
    """All NPUs' programs and bindings."""

    programs: tuple[Program, ...]
    #: program of each NPU
    program_of: I64
    #: trace of each NPU (index into `traces`) and its bindings
    traces: tuple[Trace, ...]
    trace_of: I64
    bindings: tuple[Bindings, ...]
    #: whether peers are offsets to the NPU's own number
    relative: bool = False

    @property
    def has_collectives(self) -> bool:
        """Whether any NPU runs a collective."""
        return any(program.calls for program in self.programs)

    @property
    def has_messages(self) -> bool:
        """Whether any NPU sends to another or receives from it."""
        return any(len(program.p2p_peer) for program in self.programs)

    @property
    def npus(self) -> int:
        """Number of NPUs."""
        return len(self.program_of)

    @cached_property
    def npus_of_program(self) -> Rows:
        """NPUs that run each program, ascending."""
        return rows_by(self.program_of)

    @cached_property
    def npus_of_trace(self) -> Rows:
        """NPUs of each trace, ascending."""
        return rows_by(self.trace_of)

    @cached_property
    def peers(self) -> Peers:
        """NPU at the other end of every NPU's peer slots; none of those whose messages are replayed by duration."""
        n = self.npus
        slots = np.array([len(bindings.peers) for bindings in self.bindings], np.int64)
        talks = np.array([len(program.p2p_peer) > 0 for program in self.programs], np.bool_)
        start = bounds(np.where(talks[self.program_of], slots[self.trace_of], 0))
        flat = np.empty(int(start[-1]), np.int64)
        for t, bindings in enumerate(self.bindings):
            npus = self.npus_of_trace[t]
            npus = npus[talks[self.program_of[npus]]]
            places = start[npus][:, None] + np.arange(len(bindings.peers))
            flat[places] = (bindings.peers + npus[:, None]) % n if self.relative else bindings.peers
        return Peers(flat, start)
