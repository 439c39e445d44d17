"""The shared memory bus of an NPU: two LogGP buses of two ends each (replay semantics, section 4.5).

Ends of an NPU: 0 NPU and 1 memory of the outer bus, 2 NPU and 3 memory of the inner bus (on the NPU's side).
"""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_events import set_timer, take_row

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False

#: sends in a row after which an end lets the other go first
PATIENCE = 8


def append(s: State, end: int, head: int, row: int) -> None:
    """Add a request to one of an end's lists; `head` is BE_..._HEAD, its tail lies behind it."""
    m = s.m
    at = m[L.C_BUS_ENDS] + end * L.BUS_ROW + head
    m[row + L.NEXT] = L.NIL
    tail = m[at + 1]
    if tail == L.NIL:
        m[at] = row
    else:
        m[tail + L.NEXT] = row
    m[at + 1] = row


def pop(s: State, end: int, head: int) -> int:
    """Take the first request of one of an end's lists."""
    m = s.m
    at = m[L.C_BUS_ENDS] + end * L.BUS_ROW + head
    row = m[at]
    after = m[row + L.NEXT]
    m[at] = after
    if after == L.NIL:
        m[at + 1] = L.NIL
    return row


def try_start(s: State, end: int) -> None:
    """Start an end's next transfer if the end is free; give way to the other end after many sends in a row."""
    m = s.m
    me = m[L.C_BUS_ENDS] + end * L.BUS_ROW
    if m[me + L.BE_STATE] != L.BUS_FREE or m[me + L.BE_OUT_HEAD] == L.NIL:
        return
    other = end ^ 1
    if m[me + L.BE_SENDS] > PATIENCE:
        you = m[L.C_BUS_ENDS] + other * L.BUS_ROW
        if m[you + L.BE_OUT_HEAD] != L.NIL and m[you + L.BE_SENDS] <= PATIENCE:
            if m[you + L.BE_STATE] == L.BUS_FREE:
                start(s, other)
            return
    start(s, end)


def start(s: State, end: int) -> None:
    """Start the transfer of an end's first request."""
    m = s.m
    me = m[L.C_BUS_ENDS] + end * L.BUS_ROW
    you = m[L.C_BUS_ENDS] + (end ^ 1) * L.BUS_ROW
    now = m[L.C_NOW]
    row = pop(s, end, L.BE_OUT_HEAD)
    delta = m[L.C_BUS_O]
    if m[me + L.BE_PREVIOUS] == L.BUS_SENDING and m[me + L.BE_LAST] + m[L.C_BUS_G] >= now + delta:
        delta = m[L.C_BUS_G] - (now - m[me + L.BE_LAST])
    gap = s.f[L.F_BUS_G] if end & 3 < 2 else s.f[L.F_INNER_G]
    busy = delta + gap * (m[row + L.BQ_SIZE] - 1)
    append(s, end ^ 1, L.BE_IN_HEAD, row)
    m[you + L.BE_IN_N] += 1
    m[you + L.BE_PREVIOUS] = m[you + L.BE_STATE]
    m[you + L.BE_STATE] = L.BUS_RECEIVING
    m[you + L.BE_SENDS] = 0
    m[me + L.BE_STATE] = L.BUS_SENDING
    npu = end >> 2
    set_timer(s, npu, now + int(busy + m[L.C_BUS_L] + m[L.C_BUS_O]), L.TM_BUS_RECEIVED, end ^ 1, 0)
    set_timer(s, npu, now + int(busy), L.TM_BUS_SENT, end, 0)


def request_send(s: State, end: int, row: int) -> None:
    """Queue a transfer at an end."""
    append(s, end, L.BE_OUT_HEAD, row)
    try_start(s, end)


def bus_request(
    s: State, npu: int, stream: int, p: int, size: int, plain: bool, reduce: bool, back: bool, tree: bool
) -> None:
    """Move a packet: a plain one from the NPU to memory, another from memory to the NPU and perhaps back."""
    m = s.m
    row = take_row(s)
    m[row + L.BQ_SIZE] = ((size + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
    m[row + L.BQ_REDUCE] = 1 if reduce else 0
    m[row + L.BQ_LATER] = 1 if reduce else 0
    m[row + L.BQ_BACK] = 1 if back else 0
    m[row + L.BQ_STREAM] = stream
    m[row + L.BQ_PACKET] = p
    m[row + L.BQ_TREE] = 1 if tree else 0
    m[row + L.BQ_STAGE] = L.STAGE_SEND
    m[row + L.BQ_INNER_BACK] = 0
    if plain:
        request_send(s, 4 * npu + 3, row)
    else:
        request_send(s, 4 * npu + 1, row)


def bus_sent(s: State, end: int) -> None:
    """An end has finished a transfer."""
    m = s.m
    me = m[L.C_BUS_ENDS] + end * L.BUS_ROW
    m[me + L.BE_LAST] = m[L.C_NOW]
    m[me + L.BE_PREVIOUS] = m[me + L.BE_STATE]
    m[me + L.BE_STATE] = L.BUS_FREE
    m[me + L.BE_SENDS] += 1
    try_start(s, end)


def start_unit(s: State, end: int) -> None:
    """Start the reduction unit of an NPU end on its next packet."""
    m = s.m
    me = m[L.C_BUS_ENDS] + end * L.BUS_ROW
    if m[me + L.BE_UNIT_BUSY] == 0 and m[me + L.BE_UNIT_HEAD] != L.NIL:
        size = m[m[me + L.BE_UNIT_HEAD] + L.BQ_SIZE]
        m[me + L.BE_UNIT_BUSY] = 1
        set_timer(s, end >> 2, m[L.C_NOW] + size // 100 * m[L.C_BUS_REDUCE] + 50, L.TM_BUS_REDUCED, end, 0)


def cross_inner(s: State, end: int, row: int, stage: int, back: int) -> None:
    """Send a packet of the outer NPU end over the inner bus to memory, and back if `back`; then do `stage`."""
    m = s.m
    m[row + L.BQ_STAGE] = stage
    m[row + L.BQ_INNER_BACK] = back
    request_send(s, end + 2, row)


def leave_unit(s: State, end: int) -> None:
    """The reduction unit of an NPU end has finished a packet."""
    m = s.m
    me = m[L.C_BUS_ENDS] + end * L.BUS_ROW
    m[me + L.BE_UNIT_BUSY] = 0
    row = pop(s, end, L.BE_UNIT_HEAD)
    if m[row + L.BQ_BACK]:
        m[row + L.BQ_BACK] = 0
        cross_inner(s, end, row, L.STAGE_SEND, 1)
    else:
        cross_inner(s, end, row, L.STAGE_RETIRE, 0)
    start_unit(s, end)
    try_start(s, end)


def bus_received(s: State, end: int) -> int:
    """An end has received a packet: the packet if its way is over, NIL if it goes on.

    In the first case the caller tells the stream and then calls `after_received`; in the other that is done here.
    """
    m = s.m
    me = m[L.C_BUS_ENDS] + end * L.BUS_ROW
    m[me + L.BE_LAST] = m[L.C_NOW]
    m[me + L.BE_PREVIOUS] = m[me + L.BE_STATE]
    if m[me + L.BE_IN_N] < 2:
        m[me + L.BE_STATE] = L.BUS_FREE
    m[me + L.BE_IN_N] -= 1
    row = pop(s, end, L.BE_IN_HEAD)
    which = end & 3
    if which == 1:
        return row
    if which == 0:
        if m[row + L.BQ_REDUCE]:
            m[row + L.BQ_REDUCE] = 0
            cross_inner(s, end, row, L.STAGE_REDUCE, 1)
            start_unit(s, end)
        elif m[row + L.BQ_BACK]:
            m[row + L.BQ_BACK] = 0
            cross_inner(s, end, row, L.STAGE_SEND, 1)
        else:
            cross_inner(s, end, row, L.STAGE_RETIRE, 0)
    elif m[row + L.BQ_INNER_BACK]:
        m[row + L.BQ_INNER_BACK] = 0
        append(s, end, L.BE_OUT_HEAD, row)
    else:
        outer = end & ~3
        stage = m[row + L.BQ_STAGE]
        if stage == L.STAGE_RETIRE:
            return row
        if stage == L.STAGE_SEND:
            append(s, outer, L.BE_OUT_HEAD, row)
        else:
            append(s, outer, L.BE_UNIT_HEAD, row)
            start_unit(s, outer)
        try_start(s, outer)
    try_start(s, end)
    return L.NIL


def after_received(s: State, end: int) -> None:
    """Let the ends that were held up by the end of a packet's way go on."""
    if end & 3 >= 2:
        try_start(s, end & ~3)
    try_start(s, end)
