"""Collectives: streams, their queues, and the algorithms as machines that send and receive (replay semantics, 3 and 4).

A *stream* is one chunk of a collective on one member; the streams of a collective lie in one block, ordered by member
and chunk, so a message knows its receiver's stream before that has been issued. A message carries its packet number,
and the receiver's p-th receive takes packet p: every native algorithm posts its receives in packet order.
"""

from chakra.replay.kernels.messages_bus import bus_request
from chakra.replay.kernels.messages_events import free_row, schedule, set_timer, take_row
from chakra.replay.kernels.messages_layout import (
    ALL_GATHER,
    ALL_REDUCE,
    C_BUS,
    C_COORDS,
    C_DIM_ROWS,
    C_DIMS,
    C_NOW,
    C_RENDEZVOUS,
    C_STREAMS,
    CUSTOM,
    D_N,
    D_STRIDE,
    DIM_ROW,
    DIRECT,
    EV_STREAM_GO,
    EV_STREAM_RECEIVED,
    F_REDUCE_BW,
    G_MEMBERS,
    G_N,
    HALVING_DOUBLING,
    I_GROUP,
    I_PLAN,
    I_RECORD,
    KIND,
    M_DST,
    M_OWNER,
    M_P,
    M_SIZE,
    M_X,
    M_Y,
    MSG_CONTROL,
    MSG_DATA,
    NEXT,
    NIL,
    NODE_ROW,
    O_CHILD,
    O_CHILD_END,
    O_INDEX,
    O_NS,
    O_OP,
    O_SIZE,
    OP_SEND,
    OP_TIMER,
    P2P_ROW,
    P_BUS,
    P_CUSTOM,
    P_DELAY,
    P_PHASE,
    PH_ALGORITHM,
    PH_DIM,
    PH_DO,
    PH_RING,
    PH_SUB,
    PH_WINDOW,
    PHASE_ROW,
    Q_HEAD,
    Q_RUNNING,
    Q_TAIL,
    REC_ROW,
    REDUCE_SCATTER,
    RING,
    RING_FLAT,
    RING_GROUP,
    RQ_RECV,
    RQ_SEND,
    S_ALGORITHM,
    S_ARMED,
    S_ARRIVED,
    S_BITS,
    S_BYTES,
    S_CONTROLS,
    S_CREDITS,
    S_CYCLE,
    S_DELAY,
    S_DIRECTION,
    S_DO,
    S_EARLY,
    S_INBOX,
    S_INDEX,
    S_INSTANCE,
    S_LEAST,
    S_LIST,
    S_MEMBER,
    S_NEXT,
    S_NPU,
    S_ODD,
    S_PHASE,
    S_PLACE,
    S_POSTED,
    S_QUEUE,
    S_RECEIVED,
    S_REDUCE,
    S_RING_BASE,
    S_RING_N,
    S_RING_STRIDE,
    S_SENT,
    S_SIZE,
    S_STEP,
    S_TOTAL,
    S_TREE,
    S_TWIN,
    S_WINDOW,
    TM_CREDIT,
    TM_CUSTOM,
    TM_REDUCE,
    TM_TREE,
    TM_TREE_REDUCE,
    TREE,
    State,
)
from chakra.replay.kernels.messages_network import launch
from chakra.replay.kernels.messages_p2p import CONTROL_SIZE, new_request, post

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False

#: messages carry packet << PHASE_SHIFT | phase
PHASE_SHIFT = 6
PHASE_MASK = 63
#: packets of an inbox word: 32
WORD_SHIFT = 5
WORD_MASK = 31


def reduction(s: State, size: int) -> int:
    """Time of reducing a message: two reads and a write of the local memory, ns (4.1)."""
    bandwidth = s.f[F_REDUCE_BW]
    if bandwidth == 0.0:
        return 0
    return 3 * int(size / bandwidth * 1e9)


# --- members and rings ---------------------------------------------------------------------------------------------


def ring_npu(s: State, x: int, index: int) -> int:
    """NPU at a position of a stream's logical ring."""
    m = s.m
    stride = m[x + S_RING_STRIDE]
    if stride == 0:
        return m[m[x + S_RING_BASE] + index]
    return m[x + S_RING_BASE] + index * stride


def twin(s: State, x: int, index: int, npu: int) -> int:
    """The stream of the same chunk on the member at a position of the ring."""
    m = s.m
    member = index if m[x + S_RING_STRIDE] == 0 else npu
    return m[x + S_TWIN] + member * m[x + S_STEP]


# --- inboxes: messages that arrive before their receive is posted ------------------------------------------------------


def inbox_word(s: State, x: int, p: int, control: int) -> int:
    """Where packet p's bit lies; `control` is 1 for control messages."""
    m = s.m
    return m[x + S_INBOX] + control * m[x + S_BITS] + (p >> WORD_SHIFT)


def arrived_early(s: State, x: int, p: int, control: int) -> bool:
    """Whether packet p is in the inbox. A ring has one source, whose messages stay in order: a count is enough."""
    m = s.m
    if m[x + S_ALGORITHM] == RING:
        return m[x + S_ARRIVED + control] > p
    if m[x + S_ALGORITHM] == TREE:
        return (m[x + S_ARRIVED + control] >> p) & 1 != 0
    return (m[inbox_word(s, x, p, control)] >> (p & WORD_MASK)) & 1 != 0


def put_in_inbox(s: State, x: int, p: int, control: int) -> None:
    """Remember that packet p arrived."""
    m = s.m
    if m[x + S_ALGORITHM] == RING:
        m[x + S_ARRIVED + control] += 1
    elif m[x + S_ALGORITHM] == TREE:
        m[x + S_ARRIVED + control] |= 1 << p
    else:
        m[inbox_word(s, x, p, control)] |= 1 << (p & WORD_MASK)


# --- messages ------------------------------------------------------------------------------------------------------


def send_data(s: State, x: int, index: int, p: int, p_there: int, size: int) -> None:
    """Issue the send of a packet to a position of the ring, where it is packet `p_there`."""
    m = s.m
    if m[C_RENDEZVOUS] and not arrived_early(s, x, p, 1):
        return  # the control message will become the data
    npu = ring_npu(s, x, index)
    row = take_row(s)
    m[row + M_DST] = npu
    m[row + M_SIZE] = size
    m[row + M_OWNER] = twin(s, x, index, npu)
    m[row + M_P] = p_there << PHASE_SHIFT | m[x + S_PHASE]
    if m[C_RENDEZVOUS]:
        m[row + KIND] = EV_STREAM_GO
        m[row + M_X] = m[x + S_NPU]
        schedule(s, m[C_NOW], row)
    else:
        m[row + KIND] = MSG_DATA
        launch(s, row, m[x + S_NPU])


def go_data(s: State, row: int) -> None:
    """The data of a send whose control message had arrived leave."""
    m = s.m
    m[row + KIND] = MSG_DATA
    launch(s, row, m[row + M_X])


def post_receive(s: State, x: int, index: int, p: int, p_there: int, size: int) -> None:
    """Post the receive of packet p, which its sender at a position of the ring calls `p_there`."""
    m = s.m
    if m[C_RENDEZVOUS]:
        npu = ring_npu(s, x, index)
        row = take_row(s)
        m[row + KIND] = MSG_CONTROL
        m[row + M_DST] = npu
        m[row + M_SIZE] = CONTROL_SIZE
        m[row + M_OWNER] = twin(s, x, index, npu)
        m[row + M_P] = (p_there << PHASE_SHIFT | m[x + S_PHASE]) << 24 | p
        m[row + M_X] = x
        m[row + M_Y] = size
        launch(s, row, m[x + S_NPU])
    elif arrived_early(s, x, p, 0):
        row = take_row(s)
        m[row + KIND] = EV_STREAM_RECEIVED
        m[row + M_OWNER] = x
        schedule(s, m[C_NOW], row)


def arrive_control(s: State, row: int) -> None:
    """A control message arrived at the data's sender: the data leave if their send was issued."""
    m = s.m
    x = m[row + M_OWNER]
    code = m[row + M_P] >> 24
    p, phase = code >> PHASE_SHIFT, code & PHASE_MASK
    now_in = m[x + S_PHASE]
    if now_in < phase:
        m[row + NEXT] = m[x + S_EARLY]
        m[x + S_EARLY] = row
        return
    issued = now_in > phase
    if not issued:
        if m[x + S_ALGORITHM] == TREE:
            issued = (m[x + S_SENT] >> p) & 1 != 0
        else:
            issued = p < m[x + S_SENT]
        put_in_inbox(s, x, p, 1)
    if not issued:
        free_row(s, row)
        return
    y = m[row + M_X]
    src = m[row + M_DST]
    m[row + KIND] = MSG_DATA
    m[row + M_P] = (m[row + M_P] & 0xFFFFFF) << PHASE_SHIFT | phase
    m[row + M_DST] = m[y + S_NPU]
    m[row + M_SIZE] = m[row + M_Y]
    m[row + M_OWNER] = y
    launch(s, row, src)


def arrive_data(s: State, row: int) -> bool:
    """Data arrived at a stream; True if a posted receive takes them now."""
    m = s.m
    x = m[row + M_OWNER]
    p, phase = m[row + M_P] >> PHASE_SHIFT, m[row + M_P] & PHASE_MASK
    if m[x + S_PHASE] != phase:
        m[row + NEXT] = m[x + S_EARLY]
        m[x + S_EARLY] = row
        return False
    free_row(s, row)
    if m[x + S_ALGORITHM] == TREE:
        posted = (m[x + S_POSTED] >> p) & 1 != 0
    else:
        posted = p < m[x + S_SENT]
    if not posted or m[x + S_ALGORITHM] == RING:
        put_in_inbox(s, x, p, 0)
    return posted


def sort_early(s: State, x: int) -> None:
    """Move the messages of the phase that a stream just joined to its inboxes."""
    m = s.m
    row = m[x + S_EARLY]
    m[x + S_EARLY] = NIL
    while row != NIL:
        after = m[row + NEXT]
        control = 1 if m[row + KIND] == MSG_CONTROL else 0
        code = m[row + M_P] >> 24 if control else m[row + M_P]
        if code & PHASE_MASK == m[x + S_PHASE]:
            put_in_inbox(s, x, code >> PHASE_SHIFT, control)
            free_row(s, row)
        else:
            m[row + NEXT] = m[x + S_EARLY]
            m[x + S_EARLY] = row
        row = after


# --- credit machine: ring, direct, halving-doubling (4.1, 4.2) ---------------------------------------------------------


def packet_size(s: State, x: int, p: int) -> int:
    """Bytes of packet p."""
    m = s.m
    if m[x + S_ALGORITHM] != HALVING_DOUBLING:
        return m[x + S_SIZE]
    entering = m[x + S_BYTES]
    if m[x + S_DO] == ALL_GATHER:
        size = entering << p
    else:
        levels = m[x + S_TOTAL] >> 1
        if m[x + S_DO] == REDUCE_SCATTER or p < levels:
            size = entering >> (p + 1)
        else:
            size = 2 * (entering >> (levels + 1)) << (p - levels)
    return max(size, m[x + S_LEAST])


def arm(s: State, x: int) -> None:
    """Start the local delay of the next packet."""
    m = s.m
    p = m[x + S_ARMED]
    m[x + S_ARMED] = p + 1
    window, cycle = m[x + S_WINDOW], m[x + S_CYCLE]
    place = m[x + S_PLACE]
    plain = place < window
    reduce = not plain and (
        m[x + S_DO] == REDUCE_SCATTER or (m[x + S_DO] == ALL_REDUCE and m[x + S_ODD] == 0)
    )
    if place + 1 < cycle:
        m[x + S_PLACE] = place + 1
    else:
        m[x + S_PLACE] = 0
        m[x + S_ODD] ^= 1
    npu = m[x + S_NPU]
    if m[x + S_DELAY] < 0:
        bus_request(
            s, npu, x, p, packet_size(s, x, p), plain, reduce, not plain and place < cycle - window, False
        )
    elif reduce:
        set_timer(s, npu, m[C_NOW] + m[x + S_DELAY], TM_REDUCE, x, p)
    else:
        set_timer(s, npu, m[C_NOW] + m[x + S_DELAY], TM_CREDIT, x, p)


def reduce_packet(s: State, x: int, p: int) -> None:
    """The reduction of a packet starts; its end is a credit."""
    m = s.m
    time = m[x + S_REDUCE]
    if m[x + S_ALGORITHM] == HALVING_DOUBLING:
        time = reduction(s, packet_size(s, x, p))
    set_timer(s, m[x + S_NPU], m[C_NOW] + time, TM_CREDIT, x, p)


def send_next(s: State, x: int) -> bool:
    """Send the oldest armed packet and post its receive; False if there is none, or no credit."""
    m = s.m
    p = m[x + S_SENT]
    if p >= m[x + S_TOTAL] or p >= m[x + S_ARMED] or m[x + S_CREDITS] == 0:
        return False
    m[x + S_SENT] = p + 1
    m[x + S_CREDITS] -= 1
    n, index = m[x + S_RING_N], m[x + S_INDEX]
    algorithm = m[x + S_ALGORITHM]
    if algorithm == HALVING_DOUBLING:
        levels = m[x + S_TOTAL]
        do = m[x + S_DO]
        if do == ALL_REDUCE:
            levels >>= 1
        up = do == REDUCE_SCATTER or (do == ALL_REDUCE and p < levels)
        step = p if up else (levels - 1 - p if do == ALL_GATHER else 2 * levels - 1 - p)
        to = index ^ (1 << step)
        source = to
    else:
        distance = 1
        if algorithm == DIRECT:
            distance = p + 1 if p < n - 1 else p + 2 - n
        distance *= m[x + S_DIRECTION]
        to = index + distance
        source = index - distance
        if to >= n:
            to -= n
        elif to < 0:
            to += n
        if source >= n:
            source -= n
        elif source < 0:
            source += n
    size = packet_size(s, x, p)
    send_data(s, x, to, p, p, size)
    post_receive(s, x, source, p, p, size)
    return True


def credit(s: State, x: int) -> bool:
    """A local delay ended; True if the phase ends with it."""
    m = s.m
    m[x + S_CREDITS] += 1
    half = m[x + S_RING_N] - 1
    if m[x + S_ALGORITHM] == DIRECT and m[x + S_DO] == ALL_REDUCE and m[x + S_SENT] >= half:
        if m[x + S_RECEIVED] < half:
            return False
        for _ in range(m[x + S_WINDOW]):
            if not send_next(s, x):
                break
    else:
        send_next(s, x)
    return m[x + S_SENT] == m[x + S_TOTAL] and m[x + S_CREDITS] == m[x + S_WINDOW]


def received(s: State, x: int) -> None:
    """A message was received: it arms the next packet, or moves the tree on."""
    m = s.m
    m[x + S_RECEIVED] += 1
    if m[x + S_ALGORITHM] == TREE:
        tree_delay(s, x, False)
    else:
        arm(s, x)


# --- double binary tree (4.3) --------------------------------------------------------------------------------------

PARENT = 2  # inbox bits: 0 and 1 are the children's messages
UP = 0  # sends: up, to the left child, to the right child


def tree_parent(place: int, n: int) -> int:
    """Parent of an in-order number 1..n-1 in a perfect tree; 0: the root above it."""
    low = place & -place
    if low == n >> 1:
        return 0
    return (place ^ low) | (low << 1)


def tree_place(s: State, x: int) -> int:
    """In-order number of a stream's NPU in its tree; 0 is the root."""
    m = s.m
    n, index = m[x + S_RING_N], m[x + S_INDEX]
    if m[x + S_TREE] == 0:
        return 0 if index == n - 1 else index + 1
    return index


def tree_index(s: State, x: int, place: int) -> int:
    """Ring position of an in-order number."""
    m = s.m
    if m[x + S_TREE] == 0:
        return m[x + S_RING_N] - 1 if place == 0 else place - 1
    return place


def tree_send(s: State, x: int, place: int, p: int, p_there: int) -> None:
    """Send the whole chunk along an edge."""
    m = s.m
    m[x + S_SENT] |= 1 << p
    send_data(s, x, tree_index(s, x, place), p, p_there, m[x + S_SIZE])


def tree_post(s: State, x: int, place: int, p: int, p_there: int) -> None:
    """Post the receive of an edge's message."""
    m = s.m
    m[x + S_POSTED] |= 1 << p
    post_receive(s, x, tree_index(s, x, place), p, p_there, m[x + S_SIZE])


def tree_child(place: int, n: int, right: int) -> int:
    """A child of an in-order number; the root's only child is the middle."""
    if place == 0:
        return n >> 1
    low = place & -place
    return place + (low >> 1) if right else place - (low >> 1)


def tree_start(s: State, x: int) -> None:
    """Leaves start their delay, the others wait for their children."""
    m = s.m
    n = m[x + S_RING_N]
    place = tree_place(s, x)
    if place & 1:
        tree_delay(s, x, True)
        return
    tree_post(s, x, tree_child(place, n, 0), 0, UP)
    if place != 0:
        tree_post(s, x, tree_child(place, n, 1), 1, UP)


def tree_delay(s: State, x: int, start: bool) -> None:
    """The local delay after a start or a reception; inner nodes and the root reduce, even on the way down."""
    m = s.m
    leaf = tree_place(s, x) & 1 != 0
    npu = m[x + S_NPU]
    if m[x + S_DELAY] < 0:
        back = not leaf and (tree_place(s, x) == 0 or m[x + S_RECEIVED] != 1)
        bus_request(s, npu, x, 0, m[x + S_SIZE], start, not leaf, back, True)
    else:
        set_timer(s, npu, m[C_NOW] + m[x + S_DELAY], TM_TREE if leaf else TM_TREE_REDUCE, x, 0)


def tree_reduce(s: State, x: int) -> None:
    """The reduction of a tree node starts."""
    m = s.m
    set_timer(s, m[x + S_NPU], m[C_NOW] + m[x + S_REDUCE], TM_TREE, x, 0)


def tree_step(s: State, x: int) -> bool:
    """A local delay ended; True if the phase ends with it."""
    m = s.m
    m[x + S_CREDITS] += 1
    step = m[x + S_CREDITS]
    n = m[x + S_RING_N]
    place = tree_place(s, x)
    if place & 1:
        if step == 2:
            return True
        tree_to_parent(s, x, place, n)
        return False
    if place == 0:
        tree_send(s, x, n >> 1, 1, PARENT)
        return True
    if step == 2:
        tree_to_parent(s, x, place, n)
    elif step == 3:
        tree_send(s, x, tree_child(place, n, 0), 1, PARENT)
        tree_send(s, x, tree_child(place, n, 1), 2, PARENT)
        return True
    return False


def tree_to_parent(s: State, x: int, place: int, n: int) -> None:
    """Send to the parent and wait for its answer."""
    parent = tree_parent(place, n)
    side = 1 if parent != 0 and place > parent else 0
    tree_send(s, x, parent, UP, side)
    tree_post(s, x, parent, PARENT, 1 + side)


# --- custom algorithms (4.6) ---------------------------------------------------------------------------------------


def custom_call(s: State, x: int) -> int:
    """Where the program of a custom collective's member is described: first node, nodes, first channel."""
    m = s.m
    plan = m[m[x + S_INSTANCE] + I_PLAN]
    return m[plan + P_CUSTOM] + 3 * m[x + S_MEMBER]


def custom_issue(s: State, x: int, node: int) -> None:
    """Issue one node of a custom algorithm; there are no slots."""
    m = s.m
    call = custom_call(s, x)
    row = m[call] + node * NODE_ROW
    npu = m[x + S_NPU]
    op = m[row + O_OP]
    if op == OP_TIMER:
        set_timer(s, npu, m[C_NOW] + m[row + O_NS], TM_CUSTOM, x, node)
        return
    what = RQ_SEND if op == OP_SEND else RQ_RECV
    channel = m[call + 2] + P2P_ROW * m[row + O_INDEX]
    post(s, new_request(s, npu, node, x, what, m[row + O_SIZE], channel))


def custom_start(s: State, x: int) -> None:
    """Issue the nodes without parents, in ascending order."""
    m = s.m
    call = custom_call(s, x)
    first, n = m[call], m[call + 1]
    for node in range(n):
        m[x + S_LIST + 1 + node] = 0
    for node in range(n):
        row = first + node * NODE_ROW
        for at in range(m[row + O_CHILD], m[row + O_CHILD_END]):
            m[x + S_LIST + 1 + m[at]] += 1
    m[x + S_TOTAL] = n
    for node in range(n):
        if m[x + S_LIST + 1 + node] == 0:
            custom_issue(s, x, node)


def custom_done(s: State, x: int, node: int) -> bool:
    """A node ended and frees its children; True if it was the last."""
    m = s.m
    row = m[custom_call(s, x)] + node * NODE_ROW
    m[x + S_TOTAL] -= 1
    for at in range(m[row + O_CHILD], m[row + O_CHILD_END]):
        child = m[at]
        m[x + S_LIST + 1 + child] -= 1
        if m[x + S_LIST + 1 + child] == 0:
            custom_issue(s, x, child)
    return m[x + S_TOTAL] == 0


# --- phases and queues ---------------------------------------------------------------------------------------------


def phase_row(s: State, x: int) -> int:
    """Description of the phase that a stream is in."""
    m = s.m
    plan = m[m[x + S_INSTANCE] + I_PLAN]
    return m[plan + P_PHASE] + m[x + S_PHASE] * PHASE_ROW


def set_ring(s: State, x: int, phase: int) -> None:
    """Set a stream's logical ring for a phase."""
    m = s.m
    npu = m[x + S_NPU]
    ring = m[phase + PH_RING]
    if ring == RING_GROUP:
        group = m[m[x + S_INSTANCE] + I_GROUP]
        m[x + S_RING_N] = m[group + G_N]
        m[x + S_RING_BASE] = m[group + G_MEMBERS]
        m[x + S_RING_STRIDE] = 0
        m[x + S_INDEX] = m[x + S_MEMBER]
    elif ring == RING_FLAT:
        group = m[m[x + S_INSTANCE] + I_GROUP]
        m[x + S_RING_N] = m[group + G_N]
        m[x + S_RING_BASE] = 0
        m[x + S_RING_STRIDE] = 1
        m[x + S_INDEX] = npu
    else:
        dim = m[phase + PH_DIM]
        row = m[C_DIM_ROWS] + dim * DIM_ROW
        stride = m[row + D_STRIDE]
        index = m[m[C_COORDS] + npu * m[C_DIMS] + dim]
        m[x + S_RING_N] = m[row + D_N]
        m[x + S_RING_BASE] = npu - index * stride
        m[x + S_RING_STRIDE] = stride
        m[x + S_INDEX] = index


def enter_phase(s: State, x: int, phase_index: int) -> None:
    """Set a stream up for a phase, before it joins the phase's queue."""
    m = s.m
    m[x + S_PHASE] = phase_index
    phase = phase_row(s, x)
    plan = m[m[x + S_INSTANCE] + I_PLAN]
    algorithm = m[phase + PH_ALGORITHM]
    do = m[phase + PH_DO]
    set_ring(s, x, phase)
    n = m[x + S_RING_N]
    entering = m[x + S_BYTES]
    m[x + S_ALGORITHM] = algorithm
    m[x + S_DO] = do
    m[x + S_ARMED] = 0
    m[x + S_SENT] = 0
    m[x + S_RECEIVED] = 0
    m[x + S_CREDITS] = 0
    m[x + S_ARRIVED] = 0
    m[x + S_CONTROLS] = 0
    m[x + S_POSTED] = 0
    m[x + S_WINDOW] = 1
    m[x + S_PLACE] = 0
    m[x + S_ODD] = 0
    m[x + S_DELAY] = -1 if m[C_BUS] and m[plan + P_BUS] else m[plan + P_DELAY]
    code = m[x + S_LIST + phase_index]
    m[x + S_TREE] = code & 1
    m[x + S_DIRECTION] = -1 if code & 2 else 1
    m[x + S_QUEUE] = code >> 2
    least = m[x + S_LEAST]
    if algorithm == CUSTOM:
        return
    if algorithm == TREE:
        m[x + S_SIZE] = max(entering, least)
    else:
        size = entering if do == ALL_GATHER else entering // n
        m[x + S_SIZE] = max(size, least)
        if algorithm == HALVING_DOUBLING:
            levels = 0
            while 2 << levels <= n:
                levels += 1
            m[x + S_TOTAL] = 2 * levels if do == ALL_REDUCE else levels
            m[x + S_CYCLE] = levels
        elif algorithm == RING:
            m[x + S_TOTAL] = n - 1
            if do == ALL_REDUCE:
                m[x + S_TOTAL] = 2 * (n - 1)
            elif do != ALL_GATHER and do != REDUCE_SCATTER:
                m[x + S_TOTAL] = n * (n - 1) // 2
            m[x + S_CYCLE] = n
        else:
            m[x + S_TOTAL] = 2 * (n - 1) if do == ALL_REDUCE else n - 1
            window = m[phase + PH_WINDOW]
            if window == 0 or window > n - 1:
                window = n - 1
            m[x + S_WINDOW] = window
            m[x + S_CYCLE] = window + ((n - 1) * window if m[phase + PH_SUB] else window)
    m[x + S_REDUCE] = reduction(s, m[x + S_SIZE])
    if algorithm != RING and algorithm != TREE:
        first = m[x + S_INBOX]
        for at in range(first, first + 2 * m[x + S_BITS]):
            m[at] = 0
    if m[x + S_EARLY] != NIL:
        sort_early(s, x)


def leave_phase(s: State, x: int) -> None:
    """Bytes that leave a phase; note its end."""
    m = s.m
    n = m[x + S_RING_N]
    if m[x + S_ALGORITHM] != TREE and m[x + S_ALGORITHM] != CUSTOM:
        if m[x + S_DO] == REDUCE_SCATTER:
            m[x + S_BYTES] = max(m[x + S_BYTES] // n, m[x + S_LEAST])
        elif m[x + S_DO] == ALL_GATHER:
            m[x + S_BYTES] *= n
    at = m[m[x + S_INSTANCE] + I_RECORD] + REC_ROW + 2 * m[x + S_PHASE]
    m[at + 1] = max(m[at + 1], m[C_NOW])


def start_stream(s: State, x: int) -> None:
    """A stream gets a place in its queue: its phase begins."""
    m = s.m
    at = m[m[x + S_INSTANCE] + I_RECORD] + REC_ROW + 2 * m[x + S_PHASE]
    if m[at] < 0:
        m[at] = m[C_NOW]
    algorithm = m[x + S_ALGORITHM]
    if algorithm == TREE:
        tree_start(s, x)
    elif algorithm == CUSTOM:
        custom_start(s, x)
    else:
        for _ in range(m[x + S_WINDOW]):
            arm(s, x)


def start_first(s: State, queue: int) -> None:
    """Start the first waiting stream of a queue."""
    m = s.m
    x = m[queue + Q_HEAD]
    m[queue + Q_HEAD] = m[x + S_NEXT]
    if m[x + S_NEXT] == NIL:
        m[queue + Q_TAIL] = NIL
    m[queue + Q_RUNNING] += 1
    start_stream(s, x)


def start_waiting(s: State, queue: int) -> None:
    """Start waiting streams while the queue has places."""
    m = s.m
    while m[queue + Q_HEAD] != NIL and m[queue + Q_RUNNING] < m[C_STREAMS]:
        start_first(s, queue)


def join_queue(s: State, x: int) -> None:
    """A stream joins the back of its phase's queue."""
    m = s.m
    queue = m[x + S_QUEUE]
    m[x + S_NEXT] = NIL
    tail = m[queue + Q_TAIL]
    if tail == NIL:
        m[queue + Q_HEAD] = x
    else:
        m[tail + S_NEXT] = x
    m[queue + Q_TAIL] = x
