"""Rows that both engines have: rules of a run, programs, NPUs, queues, communicators, dimensions of the network."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chakra.arrays import F64, I64, AnyArray, bounds, distinct, rows_by
from chakra.et import ABSENT
from chakra.replay.collectives.plan import OLD_MODEL, QUEUE_ORDERS
from chakra.replay.config.model import Dimension, Network, System, Topology
from chakra.replay.engines.kernels import codes
from chakra.replay.engines.kernels import layout as L
from chakra.replay.engines.scenario import Scenario
from chakra.replay.engines.state import Block
from chakra.replay.options import RunOptions
from chakra.replay.workload.model import Engine, Op, Program
from chakra.replay.workload.node_order import ordinals

#: explicit priorities are cut to this range
MOST_URGENT = 1 << 28

TOPOLOGIES = {
    Topology.RING: codes.TOPO_RING,
    Topology.SWITCH: codes.TOPO_SWITCH,
    Topology.FULLY_CONNECTED: codes.TOPO_FULL,
}


def concat(parts: list[Any], dtype: Any = np.int64) -> Any:
    """Concatenate arrays of one type; an empty list gives an empty array."""
    return np.ascontiguousarray(np.concatenate(parts), dtype=dtype) if parts else np.zeros(0, dtype)


def ints(values: Any) -> I64:
    """Values as an array of at least one cell."""
    return np.asarray(values if len(values) else [0], np.int64)


@dataclass(frozen=True, slots=True)
class Members:
    """Communicators of every actor: group g of actor a is cell start[a] + g."""

    start: I64
    #: number of the communicator, and the actor's place in it
    comm: I64
    member: I64


@dataclass(frozen=True, slots=True)
class Code:
    """Nodes of a program, or of a custom algorithm, as the kernels take them."""

    op: I64
    slot: I64
    duration_ns: I64
    child_start: I64
    child: AnyArray
    #: number among the communication nodes, -1: none
    comm: I64
    #: per communication node: what the node says of itself
    index: I64
    priority: I64
    ordinal: I64


def code_of(program: Program, scenario: Scenario) -> Code:
    """A program's nodes; ASTRA-sim has no priority that takes effect (replay semantics, section 3.4)."""
    astra = scenario.options.astra
    op = program.op
    if scenario.plans.slows:
        op = np.where(computes(program), codes.OP_COMPUTE, op)
    nodes = np.flatnonzero(program.comm >= 0)
    priority = np.zeros(len(nodes), np.int64)
    ordinal = priority
    if len(nodes):
        ordinal = ordinals(program)[nodes]
        if not astra:
            given = program.trace.comm_priority[program.order[nodes]]
            priority = np.clip(np.where(given == ABSENT, 0, given), -MOST_URGENT, MOST_URGENT)
    return Code(
        op=op,
        slot=program.slot,
        duration_ns=program.duration_ns,
        child_start=program.child_start,
        child=program.child,
        comm=program.comm,
        index=program.call[nodes],
        priority=priority,
        ordinal=ordinal,
    )


def computes(program: Program) -> AnyArray:
    """Nodes of a program that compute on the NPU for a while."""
    mask: AnyArray = (program.op == Op.TIMER) & (program.engine == Engine.GPU) & (program.duration_ns > 0)
    return mask


def add_code(block: Block, code: Code) -> tuple[int, int]:
    """Add the rows of a program's nodes, and those of its communication nodes; returns where each begin."""
    n = len(code.op)
    rows = np.zeros((n + 1, L.NODE_ROW), np.int64)
    rows[:n, L.O_OP] = code.op
    rows[:n, L.O_SLOT] = code.slot
    rows[:n, L.O_NS] = code.duration_ns
    rows[:, L.O_CHILD] = code.child_start
    rows[:, L.O_CHILD] += block.add(code.child)
    rows[:n, L.O_COMM] = code.comm
    comms = np.zeros((len(code.index), L.COMM_ROW), np.int64)
    comms[:, L.K_INDEX] = code.index
    comms[:, L.K_PRIORITY] = code.priority
    comms[:, L.K_ORDINAL] = code.ordinal
    return block.add(rows), block.add(comms)


def set_rules(head: I64, scenario: Scenario, contexts: int) -> None:
    """Switches of the workload and system layers; `contexts` collectives may be in flight on an NPU."""
    system, options = scenario.system, scenario.options
    old = options.compat == OLD_MODEL
    head[L.C_REPEAT] = head[L.C_RELIEVE] = old or not options.astra
    head[L.C_QUEUES] = options.queues_per_dim
    head[L.C_STREAMS] = -(-system.active_chunks // options.queues_per_dim)
    head[L.C_ORDER] = QUEUE_ORDERS[system.intra_dimension_scheduling]
    head[L.C_NEWEST] = old and system.scheduling_policy == "LIFO"
    head[L.C_BY_ID] = contexts > 1 or any(
        call.uneven is not None for program in scenario.workload.programs for call in program.calls
    )
    head[L.C_DECIDED] = -1
    library = scenario.plans.library
    if library is not None:
        # the queues of a dimension are ASTRA-sim's: a library's collectives are in flight as the workload issues them,
        # and meet on links where these are shared
        head[L.C_STREAMS] = max(int(head[L.C_STREAMS]), contexts)
    head[L.C_RATE_COMPUTING] = head[L.C_RATE_COLLECTIVE] = L.ONE
    if library is not None and library.slows:
        head[L.C_OVERLAP] = 1
        head[L.C_RATE_COMPUTING] = _parts(library.computing_rate)
        head[L.C_RATE_COLLECTIVE] = _parts(library.collective_rate)
    _set_delays(head, options)


def _parts(rate: float) -> int:
    """A rate as the kernels have it."""
    return max(round(rate * L.ONE), 1)


def _set_delays(head: I64, options: RunOptions) -> None:
    """What decides the delay of a message without contention."""
    old = options.compat == OLD_MODEL
    head[L.C_OLD] = old
    head[L.C_CHARGE] = L.CHARGE_HIGHEST if old else L.CHARGE_LOWEST if options.astra else L.CHARGE_ALL
    head[L.C_RENDEZVOUS] = options.rendezvous


def collectives_in_flight(programs: Sequence[Program]) -> int:
    """Collectives that an NPU may have in flight."""
    most = 1
    for program in programs:
        nodes = program.op == Op.COLLECTIVE
        used = distinct(program.slot[nodes])
        room = int(program.slot_cap[used].sum()) if len(used) else 0
        most = max(most, min(room, int(nodes.sum())))
    return most


def _topology(dim: Dimension) -> int:
    return TOPOLOGIES[dim.topology] if isinstance(dim.topology, Topology) else codes.TOPO_SWITCH


def dimension_rows(network: Network) -> I64:
    """Rows of the network's dimensions; a network of single links has one, whose building block does not matter."""
    dims = network.dims
    rows = np.zeros((len(dims), L.DIM_ROW), np.int64)
    sizes = [dim.npus for dim in dims]
    rows[:, L.D_TOPOLOGY] = [_topology(dim) for dim in dims]
    rows[:, L.D_N] = sizes
    rows[:, L.D_STRIDE] = np.cumprod([1, *sizes[:-1]])
    return rows


def head_floats(network: Network, system: System) -> F64:
    """Numbers of the local memory, and speeds of the dimensions."""
    out = np.zeros(L.F_SPEED + 2 * len(network.dims))
    out[L.F_REDUCE_BW] = system.local_mem_bw_gbps * 1e9
    out[L.F_SPEED :: 2] = [dim.latency_ns for dim in network.dims]
    out[L.F_SPEED + 1 :: 2] = [dim.bytes_per_ns for dim in network.dims]
    return out


def loads_and_shares(network: Network) -> F64:
    """Loads of the dimensions in the eyes of the greedy schedule, and their bandwidths over that of the first."""
    dims = network.dims
    shares = [dim.bandwidth_gibps / dims[0].bandwidth_gibps for dim in dims]
    return np.array([0.0] * len(dims) + shares, np.float64)


def free_network(network: Network, system: System, options: RunOptions) -> L.State:
    """A state that knows the network only, for `free_delay`, `free_occupancy` and `reduction` before a run."""
    head = np.zeros(L.NPU_BASE, np.int64)
    _set_delays(head, options)
    head[L.C_DIMS] = len(network.dims)
    head[L.C_DIM_ROWS] = len(head)
    m = [*head.tolist(), *dimension_rows(network).reshape(-1).tolist()]
    return L.State(m, head_floats(network, system).tolist())


class Actors:
    """Rows and states of the NPUs (or of the classes of NPUs) that are simulated."""

    def __init__(self, block: Block, programs: Sequence[Program], program_of: I64, dims: int, queues: int):
        self.block = block
        self.programs = [programs[p] for p in program_of.tolist()]
        self.n = len(self.programs)
        n_slots = max((len(p.slot_cap) for p in self.programs), default=1)
        self.n_slots = n_slots
        self.node_start = bounds([p.n_nodes for p in self.programs])
        self.comm_start = bounds([p.n_comm for p in self.programs])
        nodes, comms = int(self.node_start[-1]), int(self.comm_start[-1])
        self.rows = np.zeros((self.n, L.NPU_ROW), np.int64)
        self.rows_at = block.room(self.n * L.NPU_ROW)
        self.states = block.room(nodes * L.NODE_STATE)
        self.comm_states = block.room(comms * L.COMM_STATE)
        self.order = block.room(nodes)
        self.deferred = block.room(max((p.n_nodes for p in self.programs), default=0))
        self.queue_rows = block.room(self.n * dims * queues * L.QUEUE_ROW)
        cursors = block.room(self.n * dims * L.CURSORS)
        ready = block.room(nodes)
        npu = np.arange(self.n)
        self.rows[:, L.N_NODES] = self.states + self.node_start[:-1] * L.NODE_STATE
        self.rows[:, L.N_COMM_STATES] = self.comm_states + self.comm_start[:-1] * L.COMM_STATE
        self.rows[:, L.N_ORDER] = self.order + self.node_start[:-1]
        self.rows[:, L.N_QUEUES] = self.queue_rows + npu * (dims * queues * L.QUEUE_ROW)
        self.rows[:, L.N_CURSORS] = cursors + npu * (dims * L.CURSORS)
        self.rows[:, L.N_FINISH] = -1
        slots = np.zeros((self.n, n_slots, L.SLOT_ROW), np.int64)
        self._fill(programs, program_of, ready, slots)
        self.rows[:, L.N_SLOTS] = block.add(slots) + npu * (n_slots * L.SLOT_ROW)

    def _fill(self, programs: Sequence[Program], program_of: I64, ready: int, slots: I64) -> None:
        """States, ready nodes and slots before anything is issued; actors of one program begin alike."""
        at_ready = ready + self.node_start[:-1]
        for p, mine in rows_by(program_of).items():
            program = programs[p]
            state = np.full((program.n_nodes, L.NODE_STATE), -1, np.int64)
            state[:, L.NS_PENDING] = program.parents
            comm = np.zeros((program.n_comm, L.COMM_STATE), np.int64)
            comm[:, L.CS_PARTNER] = -1
            roots = np.flatnonzero(program.parents == 0)
            first = bounds(np.bincount(program.slot, minlength=self.n_slots))
            heap = np.zeros(program.n_nodes, np.int64)
            for k, cap in enumerate(program.slot_cap.tolist()):
                own = roots[program.slot[roots] == k]
                heap[first[k] : first[k] + len(own)] = own  # ascending, which is a heap
                slots[mine, k, L.SL_FREE] = cap
                slots[mine, k, L.SL_N] = len(own)
            slots[mine, :, L.SL_BASE] = at_ready[mine, None] + first[:-1]
            self.rows[mine, L.N_READY] = len(roots)
            for a in mine.tolist():
                self.block.put(self.rows[a, L.N_NODES], state)
                self.block.put(self.rows[a, L.N_COMM_STATES], comm)
                self.block.put(at_ready[a], heap)

    def set_programs(self, rows_of: Sequence[tuple[int, int]], program_of: I64) -> None:
        """Say where each program's rows lie."""
        table = np.array(rows_of, np.int64).reshape(-1, 2)
        self.rows[:, L.N_PROGRAM] = table[program_of, 0]
        self.rows[:, L.N_COMMS] = table[program_of, 1]

    def set_calls(self, members: Members, group_rows: I64, plan_of_call: I64, call_group: I64) -> None:
        """Plans and communicators of every actor's calls, and its place in its communicators."""
        rows = np.zeros((len(members.comm), L.MEMBERSHIP_ROW), np.int64)
        rows[:, L.GM_GROUP] = group_rows[members.comm]
        rows[:, L.GM_MEMBER] = members.member
        memberships = self.block.add(rows)
        counts = [len(p.calls) for p in self.programs]
        first = bounds(counts)
        calls = np.zeros((len(plan_of_call), L.CALL_ROW), np.int64)
        calls[:, L.CA_PLAN] = plan_of_call
        group = np.repeat(members.start[: self.n], counts) + call_group
        calls[:, L.CA_MEMBERSHIP] = memberships + group * L.MEMBERSHIP_ROW
        self.rows[:, L.N_CALLS] = self.block.add(calls) + first[:-1] * L.CALL_ROW

    def set_overlap(self, contexts: int) -> int:
        """Room for compute nodes and collectives that run and slow each other down; returns how many nodes an NPU has."""
        works = 0
        for program in {id(program): program for program in self.programs}.values():
            nodes = np.bincount(program.slot[computes(program)], minlength=len(program.slot_cap))
            works = max(works, int(np.minimum(nodes, program.slot_cap).sum()))
        npu = np.arange(self.n)
        self.rows[:, L.N_WORKS] = self.block.room(self.n * works * L.WORK_ROW) + npu * (works * L.WORK_ROW)
        self.rows[:, L.N_BESIDES] = self.block.room(self.n * contexts) + npu * contexts
        return works

    def done(self) -> None:
        """Write the rows of the NPUs, when all is known."""
        self.block.put(self.rows_at, self.rows)


def instances_of(members: Members, programs: Sequence[Program], comms: int) -> I64:
    """Collectives of each communicator that may be under way: as many as its busiest actor calls."""
    out = np.zeros(comms, np.int64)
    known: dict[int, I64] = {}
    for a, program in enumerate(programs):
        if id(program) not in known:
            calls = program.call[program.op == Op.COLLECTIVE]
            groups = np.array([call.group for call in program.calls], np.int64)
            known[id(program)] = np.bincount(groups[calls]) if len(calls) else np.zeros(0, np.int64)
        count = known[id(program)]
        if len(count):
            first = int(members.start[a])
            np.maximum.at(out, members.comm[first : first + len(count)], count)
    return out


def instance_numbers(rows: I64, first: int) -> I64:
    """Numbers of instances that are given by their rows; -1 for `NIL`."""
    out = rows - first
    out //= L.INSTANCE_ROW
    out[rows == L.NIL] = -1
    return out


def add_instances(block: Block, counts: I64) -> tuple[int, I64]:
    """Add a row per instance, communicator after communicator; returns where they begin, and of each communicator."""
    rows = np.zeros((int(counts.sum()), L.INSTANCE_ROW), np.int64)
    rows[:, L.I_READY] = -1
    first = block.add(rows)
    return first, first + bounds(counts)[:-1] * L.INSTANCE_ROW
