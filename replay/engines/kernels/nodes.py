"""Nodes of the traces: ready sets, slots, issue passes and their ends (replay semantics, section 2.1).

An engine makes a pass as follows: `next_node` until there is none, doing what each node does; `end_zero_node` for those
that take no time; then `end_pass`, and once more if that says so.
"""

from chakra.replay.engines.kernels import layout as L
from chakra.replay.engines.kernels.layout import State

ENTRY_POINTS = ()
ALLOCATES = False


def row_of(s: State, npu: int, node: int) -> int:
    """Row of a node of an NPU's program."""
    return s.m[L.NPU_BASE + npu * L.NPU_ROW + L.N_PROGRAM] + node * L.NODE_ROW


def comm_row(s: State, npu: int, node: int) -> int:
    """Row of a communication node of an NPU's program."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    return m[me + L.N_COMMS] + m[m[me + L.N_PROGRAM] + node * L.NODE_ROW + L.O_COMM] * L.COMM_ROW


def comm_state(s: State, npu: int, node: int) -> int:
    """State of a communication node on an NPU."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    return m[me + L.N_COMM_STATES] + m[m[me + L.N_PROGRAM] + node * L.NODE_ROW + L.O_COMM] * L.COMM_STATE


def add_ready(s: State, npu: int, node: int) -> None:
    """A node's parents have finished: put it among the ready ones of its slot, a heap with the least id first."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    at = m[me + L.N_SLOTS] + m[m[me + L.N_PROGRAM] + node * L.NODE_ROW + L.O_SLOT] * L.SLOT_ROW
    base = m[at + L.SL_BASE]
    i = m[at + L.SL_N]
    m[at + L.SL_N] = i + 1
    m[me + L.N_READY] += 1
    while i > 0:
        up = (i - 1) >> 1
        if m[base + up] < node:
            break
        m[base + i] = m[base + up]
        i = up
    m[base + i] = node


def pop_ready(s: State, slot: int) -> None:
    """Remove the lowest ready node of a slot."""
    m = s.m
    base = m[slot + L.SL_BASE]
    n = m[slot + L.SL_N] - 1
    m[slot + L.SL_N] = n
    node = m[base + n]
    i = 0
    down = 1
    while down < n:
        if down + 1 < n and m[base + down + 1] < m[base + down]:
            down += 1
        if node < m[base + down]:
            break
        m[base + i] = m[base + down]
        i = down
        down = 2 * i + 1
    m[base + i] = node


def next_node(s: State, npu: int) -> int:
    """The lowest ready node whose slot is free, issued now and occupying the slot; -1 if there is none."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    if m[me + L.N_READY] == 0:
        return -1
    node = -1
    slot = 0
    first = m[me + L.N_SLOTS]
    for at in range(first, first + m[L.C_SLOTS] * L.SLOT_ROW, L.SLOT_ROW):
        if m[at + L.SL_N] > 0 and m[at + L.SL_FREE] > 0:
            candidate = m[m[at + L.SL_BASE]]
            if node < 0 or candidate < node:
                node = candidate
                slot = at
    if node < 0:
        return -1
    pop_ready(s, slot)
    m[slot + L.SL_FREE] -= 1
    m[me + L.N_READY] -= 1
    m[me + L.N_RUNNING] += 1
    m[m[me + L.N_NODES] + L.NODE_STATE * node + L.NS_ISSUE] = m[L.C_NOW]
    n = m[me + L.N_ISSUED]
    m[me + L.N_ISSUED] = n + 1
    m[m[me + L.N_ORDER] + n] = node
    return node


def finish_node(s: State, npu: int, node: int) -> int:
    """A node ends now and frees its slot; returns its row."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    at = m[me + L.N_PROGRAM] + node * L.NODE_ROW
    m[m[me + L.N_NODES] + L.NODE_STATE * node + L.NS_FINISH] = m[L.C_NOW]
    m[me + L.N_RUNNING] -= 1
    m[m[me + L.N_SLOTS] + m[at + L.O_SLOT] * L.SLOT_ROW + L.SL_FREE] += 1
    m[L.C_NODES_DONE] += 1
    return at


def end_node(s: State, npu: int, node: int) -> None:
    """A node ends now: children without other parents become ready. The caller makes an issue pass."""
    m = s.m
    at = finish_node(s, npu, node)
    base = m[L.NPU_BASE + npu * L.NPU_ROW + L.N_NODES]
    for k in range(m[at + L.O_CHILD], m[at + L.NODE_ROW + L.O_CHILD]):
        pending = base + L.NODE_STATE * m[k] + L.NS_PENDING
        m[pending] -= 1
        if m[pending] == 0:
            add_ready(s, npu, m[k])


def end_zero_node(s: State, npu: int, node: int, deferred: int) -> int:
    """A node ends inside the pass that issued it: children that become ready wait for the next pass.

    `deferred` children wait so far; returns how many do now.
    """
    m = s.m
    at = finish_node(s, npu, node)
    base = m[L.NPU_BASE + npu * L.NPU_ROW + L.N_NODES]
    for k in range(m[at + L.O_CHILD], m[at + L.NODE_ROW + L.O_CHILD]):
        pending = base + L.NODE_STATE * m[k] + L.NS_PENDING
        m[pending] -= 1
        if m[pending] == 0:
            m[m[L.C_DEFERRED] + deferred] = m[k]
            deferred += 1
    return deferred


def end_pass(s: State, npu: int, deferred: int) -> bool:
    """All that can be issued has been; True if zero-time nodes made others ready that are issued at once (C10).

    An NPU is finished at the first pass after which nothing is ready and nothing runs.
    """
    m = s.m
    for k in range(deferred):
        add_ready(s, npu, m[m[L.C_DEFERRED] + k])
    if deferred > 0 and m[L.C_REPEAT] != 0:
        return True
    me = L.NPU_BASE + npu * L.NPU_ROW
    if m[me + L.N_READY] == 0 and m[me + L.N_RUNNING] == 0 and m[me + L.N_FINISH] < 0:
        m[me + L.N_FINISH] = m[L.C_NOW]
        m[L.C_UNFINISHED] -= 1
    return False
