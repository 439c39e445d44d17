"""Phases that the switch of a dimension carries out (`chakra.replay.collectives.in_network`).

All members begin with the last one. After its endpoint delay each sends what it brings up to the switch and gets the
result down from it, over the two directions of its own link; when everybody has it, the phase ends for all after another
endpoint delay. Where the network stores and forwards, the switch sends the results when it has all; where it cuts
through, both ways are under way at once.
"""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import flow_rows as R
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_events import free_row, take_row
from chakra.replay.engines.kernels.messages_steps import for_all, joint_member
from chakra.replay.engines.kernels.messages_transfer import ring_npu, twin
from chakra.replay.engines.kernels.network import from_switch, goes_both_ways, over_switch, stops_at_switch

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def switch_begins(s: State, x: int) -> None:
    """A member starts a phase; after the last one's start all of them send."""
    m = s.m
    if joint_member(s, x, 0):
        for_all(s, x, m[x + L.S_DELAY], L.TM_SWITCH)


def switch_dimension(s: State, x: int) -> int:
    """The dimension whose switch joins the members of a stream's ring: the highest in which they differ."""
    m = s.m
    n_dims = m[L.C_DIMS]
    here = m[L.C_COORDS] + ring_npu(s, x, 0) * n_dims
    k = 0
    for place in range(1, m[x + L.S_RING_N] if m[L.C_EVERY_DIM] == 0 else 2):
        there = m[L.C_COORDS] + ring_npu(s, x, place) * n_dims
        for above in range(k, n_dims):
            if m[here + above] != m[there + above]:
                k = above
    return k


def has_trees(s: State) -> bool:
    """Whether switches are joined to trees: on links, where they carry collectives out as flows."""
    m = s.m
    return m[L.C_NET] == L.NET_FLOW and m[m[L.C_FLOW] + R.FH_GROUPS] != 0


def tree_number(s: State, x: int, dim: int) -> int:
    """Number of the switch that joins the members: that of the dimension, on links that of the communicator's tree."""
    m = s.m
    if not has_trees(s):
        return dim
    view, flow = m[m[x + L.S_ROW] + L.PH_VIEW], m[L.C_FLOW]
    if view >= 0:
        return m[flow + R.FH_GROUPS_N] + view
    return (m[m[x + L.S_INSTANCE] + L.I_GROUP] - m[flow + R.FH_GROUPS]) // L.GROUP_ROW


def weighted(s: State, x: int, back: int) -> int:
    """1 if what a link of a tree carries grows with the members below it: parts on their way up, or down."""
    return 1 if has_trees(s) and s.m[x + L.S_DO] == (K.DO_REDUCE_SCATTER if back else K.DO_ALL_GATHER) else 0


def port_bytes(s: State, x: int, down: int) -> int:
    """Bytes that a member sends up to the switch (`down` = 1: gets down from it)."""
    m = s.m
    size, n = m[x + L.S_BYTES], m[x + L.S_RING_N]
    if down == 0 or m[x + L.S_DO] == K.DO_ALL_REDUCE:
        return size
    return size * n if m[x + L.S_DO] == K.DO_ALL_GATHER else -(-size // n)


def message_of(s: State, x: int, back: int) -> int:
    """A message of a member to the switch, or with `back` = 1 from it."""
    m = s.m
    row = take_row(s)
    m[row + L.KIND] = L.MSG_SWITCH
    m[row + L.M_DST] = m[x + L.S_NPU]
    m[row + L.MD_STREAM] = x
    m[row + L.MD_PACKET] = back
    return row


def cross(s: State, x: int) -> None:
    """A member sends to the switch, after its endpoint delay."""
    npu, dim = s.m[x + L.S_NPU], switch_dimension(s, x)
    tree = tree_number(s, x, dim)
    parts = weighted(s, x, 0)
    over_switch(s, message_of(s, x, 0), npu, dim, tree, parts, port_bytes(s, x, 0), port_bytes(s, x, 1))
    if goes_both_ways(s):
        from_switch(s, message_of(s, x, 1), npu, dim, tree, weighted(s, x, 1), port_bytes(s, x, 1))


def count_member(s: State, x: int, end: int) -> int:
    """Count what a member has begun, or with `end` = 1 ended, in a joint phase; returns how much there is of it."""
    m = s.m
    leader = twin(s, x, 0, ring_npu(s, x, 0))
    at = leader + m[x + L.S_COUNTS] - x + 2 * m[x + L.S_PHASE] + end
    m[at] += 1
    return m[at]


def crossed(s: State, message: int) -> None:
    """A member has its result, or the switch has what the member brings.

    The last result ends the phase for all; what comes last to the switch has it send all results.
    """
    m = s.m
    x, back = m[message + L.MD_STREAM], m[message + L.MD_PACKET]
    free_row(s, message)
    parts = m[x + L.S_RING_PARTS]
    if back == 0 and stops_at_switch(s):
        if count_member(s, x, 0) < 2 * parts:  # behind the starts of all
            return
        dim = switch_dimension(s, x)
        for index in range(parts):
            y = twin(s, x, index, ring_npu(s, x, index))
            from_switch(s, message_of(s, y, 1), m[y + L.S_NPU], dim, dim, 0, port_bytes(s, y, 1))
    elif count_member(s, x, 1) == (2 * parts if goes_both_ways(s) else parts):
        for_all(s, x, m[x + L.S_DELAY], L.TM_JOINT_END)
