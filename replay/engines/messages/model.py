"""What the message-level engine is given and what it answers: plain values.

Programs (distinct traces), actors (NPUs, each running a program), groups and collectives (chunks and phases); nothing
here reads a trace or a configuration. Ticks and durations are ns, sizes bytes.
"""

from dataclasses import dataclass
from enum import IntEnum

from chakra.arrays import I64
from chakra.replay.collectives.steps import Do as Do
from chakra.replay.collectives.steps import Steps
from chakra.replay.config.model import Topology
from chakra.replay.engines.kernels import messages_layout as lay
from chakra.replay.networks.interface import LinkUse, OutsideNetwork
from chakra.replay.networks.routes import LinkGraph as LinkGraph


class Algorithm(IntEnum):
    """Algorithm of a phase."""

    RING = lay.RING
    DIRECT = lay.DIRECT
    HALVING_DOUBLING = lay.HALVING_DOUBLING
    TREE = lay.TREE
    CUSTOM = lay.CUSTOM
    STEPS = lay.STEPS


class Rule(IntEnum):
    """Which of its dimension's queues a phase takes (replay semantics, 3.4)."""

    ANY = lay.RULE_ANY
    FIRST = lay.RULE_FIRST
    LAST = lay.RULE_LAST
    #: always the dimension's queue 0, without moving a cursor (custom algorithms)
    FIXED = lay.RULE_FIXED


class Ring(IntEnum):
    """Logical ring of a phase."""

    #: the NPUs that differ only in the coordinate of the phase's dimension; whole-system groups only
    DIM = lay.RING_DIM
    #: all NPUs in order of number; whole-system groups only
    FLAT = lay.RING_FLAT
    #: the group's members in the order of its list
    GROUP = lay.RING_GROUP


class Mode(IntEnum):
    """How a collective runs."""

    NATIVE = lay.MODE_NATIVE
    #: a program of sends and receives per member
    CUSTOM = lay.MODE_CUSTOM
    #: no messages: ends on all members when the last one has issued it
    TOGETHER = lay.MODE_TOGETHER
    #: ends at once on each member, like a zero-time node
    INSTANT = lay.MODE_INSTANT


@dataclass(frozen=True, slots=True)
class Phase:
    """One algorithm on one logical ring."""

    dim: int
    algorithm: Algorithm
    do: Do
    rule: Rule = Rule.ANY
    ring: Ring = Ring.DIM
    #: messages in flight of `DIRECT`; 0 = ring size - 1
    window: int = 0
    #: whether `DIRECT` counts its plain packets as in a group smaller than the system (Z of replay semantics 4.2)
    sub_cluster: bool = False
    #: `STEPS`: per chunk its table of rounds
    steps: tuple[Steps, ...] = ()
    #: `STEPS`: all members of a ring start with the last one and end with the last one
    joint: bool = False


@dataclass(frozen=True, slots=True)
class Collective:
    """A distinct collective: what every member does."""

    #: bytes of each chunk that enter the first phase
    chunk_bytes: I64
    phases: tuple[Phase, ...]
    #: local delay before every send, ns
    endpoint_delay_ns: int = 10
    #: whether the shared bus, if there is one, replaces the local delay
    bus: bool = False
    #: least size of a message, bytes
    least_bytes: int = 1
    mode: Mode = Mode.NATIVE
    #: collectives that share the alternation between the two trees of `TREE` (0 to 9), such as one kind's
    tree_counter: int = 0
    #: `Mode.CUSTOM`: for each member the index of its program among the engine's programs
    custom_programs: tuple[int, ...] = ()
    #: `Mode.CUSTOM`: for each member the NPU at the other end of each of the program's point-to-point nodes
    custom_peers: tuple[I64, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A distinct trace (or custom algorithm); nodes in ascending id, arrays with one entry per node."""

    #: 0 timer, 1 no time, 2 collective, 3 send, 4 receive, 5 memory server
    op: I64
    #: slot that the node occupies, an index into `slot_cap`
    slot: I64
    #: ns of timers and service ns of memory accesses, final
    duration_ns: I64
    #: children of node i: child[child_start[i]:child_start[i + 1]], ascending
    child_start: I64
    child: I64
    #: collectives: index into the actor's calls; point to point: ordinal among the program's such nodes; else -1
    index: I64
    #: per point-to-point node
    p2p_bytes: I64
    p2p_tag: I64
    #: nodes that each slot runs at once; ignored for custom algorithms
    slot_cap: I64


@dataclass(frozen=True, slots=True)
class Actor:
    """An NPU: the program it runs and what the program's names stand for here."""

    program: int
    #: per call of the program: index of the collective, index of the group, shape (calls, 2)
    calls: I64
    #: per point-to-point node of the program: NPU at the other end
    peers: I64
    #: memory server of its memory accesses
    server: int = 0


@dataclass(frozen=True, slots=True)
class NetworkDim:
    """One dimension: a building block of equal links."""

    topology: Topology
    npus: int
    bytes_per_ns: float
    latency_ns: float


@dataclass(frozen=True, slots=True)
class Bus:
    """Shared memory bus (replay semantics, 4.5)."""

    latency_ns: int
    overhead_ns: int
    gap_ns: int
    gap_per_byte_ns: float
    #: local-reduction-delay
    reduction_ns: int = 1


@dataclass(frozen=True, slots=True)
class EngineModel:
    """The machine and the rules."""

    dims: tuple[NetworkDim, ...]
    aware: bool
    graph: LinkGraph | None = None
    #: who simulates the messages instead of the kernel; `dims` are then what it states of itself
    outside: OutsideNetwork | None = None
    queues_per_dim: int = 1
    #: streams that each queue runs at once
    streams_per_queue: int = 1
    rendezvous: bool = False
    #: bytes per s of the local memory; 0: reductions take no time
    reduce_bytes_per_s: float = 0.0
    bus: Bus | None = None
    n_servers: int = 1
    #: unaware: charge a message in every dimension that it crosses (C5), not only in the lowest
    sum_dims: bool = True
    #: repeat the issue pass after zero-time nodes (C10)
    repeat_pass: bool = True
    #: when all is blocked by full queues, let each start one more stream (C13)
    relieve: bool = True


@dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """A collective that was issued, in order of first issue. Ticks in ns; -1: did not happen."""

    collective: int
    group: int
    ordinal: int
    start_ns: int
    #: when the last member had issued it
    ready_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class LinkStats:
    """Totals per link that carried something (aware). `dim` is -1 and the ends are link numbers for a graph.

    For a switch one end is -1, the switch.
    """

    dim: I64
    src: I64
    dst: I64
    bytes: I64
    messages: I64
    busy_ns: I64
    queued_ns: I64


@dataclass(frozen=True, slots=True)
class WaitingCollective:
    """A collective that is not over: who has issued it and who has not."""

    collective: int
    group: int
    ordinal: int
    issued: tuple[int, ...]
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A send or receive without its partner; `node` is an index into the program, -1 for a custom algorithm's."""

    npu: int
    node: int
    is_send: bool
    peer: int
    tag: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing can happen any more, but some NPUs are not finished."""

    unfinished: I64
    collectives: tuple[WaitingCollective, ...]
    messages: tuple[WaitingMessage, ...]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Members of a group issued different collectives at the same position."""

    npu: int
    node: int


@dataclass(frozen=True, slots=True)
class EngineResult:
    """Outcome of a run. Nodes of actor i lie at node_start[i]:node_start[i + 1]; ticks in ns, -1: did not happen."""

    finish_ns: I64
    node_start: I64
    issue_ns: I64
    node_finish_ns: I64
    #: when the last partner of a communication node had issued its part (collectives: last member; receives: the send)
    partner_ns: I64
    collectives: tuple[CollectiveRecord, ...]
    links: LinkStats | None
    #: what an outside network says of its links
    outside_links: tuple[LinkUse, ...]
    #: per dimension: bytes sent into it by all NPUs, and bytes times hops
    dim_bytes: I64
    dim_byte_hops: I64
    events: int
    hops: int
    #: times that blocked queues were given one more place (C13)
    relieved: int
    compiled: bool
    stall: Stall | None = None
    mismatch: Mismatch | None = None
    #: messages that arrived but were never received: (npu, node, ...) of their sends
    unreceived: tuple[WaitingMessage, ...] = ()
