"""Collectives in which the members of a communicator meet: from the first issue to the last end.

An instance's streams lie in one block, ordered by member and chunk, so that a message or a phase knows the stream of
every member before that has been issued. Blocks of ended instances are used again.
"""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.nodes import comm_row, comm_state
from chakra.replay.engines.kernels.queues import take_code
from chakra.replay.engines.kernels.scheduling import balance, take_turns

ENTRY_POINTS = ()
ALLOCATES = False


def join_instance(s: State, npu: int, node: int) -> int:
    """An NPU issues a collective: the stream of its first chunk; NIL where another member issued a different one."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    row = comm_row(s, npu, node)
    call = m[me + L.N_CALLS] + L.CALL_ROW * m[row + L.K_INDEX]
    plan = m[call + L.CA_PLAN]
    membership = m[call + L.CA_MEMBERSHIP]
    group = m[membership + L.GM_GROUP]
    ordinal = m[membership + L.GM_ISSUED]
    m[membership + L.GM_ISSUED] = ordinal + 1
    if m[L.C_BY_ID] != 0:
        ordinal = m[row + L.K_ORDINAL]
    instance = m[group + L.G_INSTANCES] + ordinal * L.INSTANCE_ROW
    m[comm_state(s, npu, node) + L.CS_INSTANCE] = instance
    if m[instance + L.I_PLAN] == L.NIL:
        open_instance(s, instance, plan, group)
    elif m[instance + L.I_PLAN] != plan:
        m[L.C_STATUS] = L.MISMATCH
        m[L.C_ERROR_NPU] = npu
        m[L.C_ERROR_NODE] = node
        return L.NIL
    m[instance + L.I_ISSUED] += 1
    if m[instance + L.I_ISSUED] == m[group + L.G_N]:
        m[instance + L.I_READY] = m[L.C_NOW]
    issued = m[me + L.N_COLLECTIVES]
    m[me + L.N_COLLECTIVES] = issued + 1
    member = m[membership + L.GM_MEMBER]
    step = m[plan + L.P_CHUNKS] * m[plan + L.P_WIDTH]
    head = m[instance + L.I_BLOCK] + member * step
    m[head + L.S_NPU] = npu
    m[head + L.S_INSTANCE] = instance
    m[head + L.S_MEMBER] = member
    m[head + L.S_STEP] = step
    m[head + L.S_RANK] = (m[row + L.K_PRIORITY] << 32) + (issued if m[L.C_NEWEST] != 0 else -issued)
    m[head + L.S_LEFT] = m[instance + L.I_CHUNKS]
    m[head + L.S_NODE] = node
    return head


def open_instance(s: State, instance: int, plan: int, group: int) -> None:
    """The first member issues a collective: room for its streams, and their phases if they are chosen now."""
    m = s.m
    m[instance + L.I_PLAN] = plan
    m[instance + L.I_GROUP] = group
    free = m[plan + L.P_CLASS]
    block = m[free]
    if block != L.NIL:
        m[free] = m[block]
    else:
        block = m[L.C_TOP]
        m[L.C_TOP] = block + m[plan + L.P_BLOCK]
    m[instance + L.I_BLOCK] = block
    chunks, width, counts = m[plan + L.P_CHUNKS], m[plan + L.P_WIDTH], m[plan + L.P_COUNTS]
    for x in range(block, block + m[group + L.G_N] * chunks * width, width):
        m[x + L.S_PHASE] = -1
        for at in range(x + width - counts, x + width):
            m[at] = 0
    if m[plan + L.P_SCHEDULE] == K.SCHEDULE_ROUND_ROBIN:
        take_turns(s, plan, block + m[plan + L.P_CHOSEN])
    elif m[plan + L.P_SCHEDULE] != K.SCHEDULE_PLAN:
        chunks = balance(s, plan, block + m[plan + L.P_CHOSEN])
    m[instance + L.I_CHUNKS] = chunks


def open_stream(s: State, head: int, chunk: int) -> int:
    """A member's stream of a chunk, before its first phase; the first chunk's is `head`."""
    m = s.m
    instance = m[head + L.S_INSTANCE]
    plan = m[instance + L.I_PLAN]
    x = head + chunk * m[plan + L.P_WIDTH]
    if m[plan + L.P_SCHEDULE] != K.SCHEDULE_PLAN:
        row = m[m[instance + L.I_BLOCK] + m[plan + L.P_CHOSEN] + chunk]
    else:
        row = m[m[plan + L.P_VARIANTS] + m[m[plan + L.P_CHUNK_VARIANTS] + chunk]]
    npu = m[head + L.S_NPU]
    m[x + L.S_NPU] = npu
    m[x + L.S_INSTANCE] = instance
    m[x + L.S_MEMBER] = m[head + L.S_MEMBER]
    m[x + L.S_STEP] = m[head + L.S_STEP]
    m[x + L.S_RANK] = m[head + L.S_RANK]
    m[x + L.S_HEAD] = head
    m[x + L.S_PHASE] = 0
    m[x + L.S_ROW] = row
    codes = x + m[plan + L.P_CODES]
    m[x + L.S_CODES] = codes
    m[x + L.S_COUNTS] = x + m[plan + L.P_WIDTH] - m[plan + L.P_COUNTS]
    for k in range(m[row + L.PH_LEFT]):
        m[codes + k] = take_code(s, npu, row + k * L.PHASE_ROW)
    return x


def in_last_phase(s: State, x: int) -> bool:
    """Whether a stream is in its last phase."""
    return s.m[s.m[x + L.S_ROW] + L.PH_LEFT] == 1


def end_stream(s: State, x: int) -> bool:
    """A stream has ended its last phase; True if the collective is over for its member.

    The block is free when it is over for all members: the caller reads what it needs of the stream before.
    """
    m = s.m
    m[x + L.S_PHASE] += 1
    head = m[x + L.S_HEAD]
    m[head + L.S_LEFT] -= 1
    if m[head + L.S_LEFT] > 0:
        return False
    instance = m[x + L.S_INSTANCE]
    m[instance + L.I_ENDED] += 1
    if m[instance + L.I_ENDED] == m[m[instance + L.I_GROUP] + L.G_N]:
        free = m[m[instance + L.I_PLAN] + L.P_CLASS]
        m[m[instance + L.I_BLOCK]] = m[free]
        m[free] = m[instance + L.I_BLOCK]
    return True
