"""What the message-level engine asks of a network inside the kernel: the compiled door.

The engine knows rows of messages and the order of events; a network knows where bytes are. They meet in these calls,
and this module is the only place that tells networks apart (`C_NET`):

`send(s, message, src)`
    A message leaves NPU `src`, now (`C_NOW`). Set are `KIND`, `M_DST` and `M_SIZE` (bytes, at least 0), and what
    its owner keeps (the words from `MESSAGE_HEAD` on), which a network does not touch. Until the message is there,
    the network owns the row's other words: `NEXT`, `M_AT`, `M_HOPS`, `M_LINK`, `M_DOWN`. Called in the order in
    which the engine's rules send (replay semantics, section 5.5), and for messages between different NPUs only.
`reached(s, message)`
    A message that the network scheduled (`schedule(s, tick, message)`) has its turn. True: it is at its
    destination, the row is the engine's again, and the network does not look at it any more. False: it goes on, and
    the network has scheduled it again, or keeps it in a queue of its own.
`wake(s, row)`
    A row of kind `EV_LINK` that the network scheduled for itself has its turn: a link is free, rates change. Scheduled
    events cannot be withdrawn; a network that changes its mind marks the row (a number of the plan it belongs to)
    and ignores it here.
`occupancy(s, npu, partner, size, back)`
    For how many ns a message to a partner (`back`: from it) keeps the narrowest part of its way busy, when nothing else
    is under way. No effect on anything. Tables of steps ask it for the time after which a member may send again.
`over_switch(s, message, src, dim, tree, weighted, up, down)`
    As `send`, of a message that goes up to the switch of a dimension with so many bytes, and with others down again to
    the NPU itself. `stops_at_switch(s)` says that it is there when the switch has it: the engine then sends what comes
    back by `from_switch(s, message, dst, dim, tree, weighted, down)`, when the switch has all that it needs.
    `goes_both_ways(s)`: the engine sends both at once, since the switch cuts through. `tree` numbers the switch, or on
    links the members' tree of switches; `weighted`: its links carry as often these bytes as there are members below them.

Where classes of equal NPUs are simulated (`tables.py`: flows only), senders are classes, and receivers are the NPUs that
the first of the class sends to.

What a network may rely on, and must keep to:

- It writes its own tables (what `messages/tables.py` built for it: links, `C_ROUTE_START`, ...), the words above of
  messages that it holds, and for the accounts `C_MESSAGES` and `D_BYTES`, `D_BYTE_HOPS` of the dimensions. It reads
  the coordinates and `F_SPEED`. It takes rows for its own use by `take_row` and gives them back by `free_row`; the
  most that one call can take belongs into the margin of `messages/tables.py`.
- Ticks are int64 ns, never before `C_NOW`. Events of one tick run in the order in which they were scheduled, so a
  network that schedules in a fixed order is deterministic. An event scheduled for the running tick runs at its end.
- Every message that was sent is there exactly once. One that never comes stalls the run, which ends with who waits
  for whom.
- It has no memory beside the block `s.m` and the numbers `s.f`: leaving the kernel and coming back, also with a longer
  copy of the block, changes nothing. Positions in the block are stable.

A further network is one more module beside `network_delays` and `network_links`, one more `NET_` number, a branch in
each function below, and its tables in `messages/tables.py`. What it can answer before a run is asked in
`chakra.replay.networks.answers`. Networks that are not compiled with the engine: `network_outside`.
"""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_events import schedule
from chakra.replay.engines.kernels.network_delays import (
    over_switch_by_delay,
    send_by_delay,
    send_by_route_delay,
    slowest_link,
)
from chakra.replay.engines.kernels.network_flow import flow_occupancy, start_flow, start_port, wake_flows
from chakra.replay.engines.kernels.network_links import (
    enter_dimension,
    enter_port,
    enter_route,
    next_link,
    release_link,
)
from chakra.replay.engines.kernels.network_outside import hand_over
from chakra.replay.engines.kernels.packets import free_occupancy

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def send(s: State, message: int, src: int) -> None:
    """A message leaves `src`. One to the NPU itself never meets a network: it is there at the end of this tick."""
    m = s.m
    net = m[L.C_NET]
    if net == L.NET_FLOW:
        start_flow(s, message, src)
    elif src == m[message + L.M_DST]:
        m[message + L.M_AT] = src
        m[message + L.M_HOPS] = 1
        schedule(s, m[L.C_NOW], message)
    elif net == L.NET_AWARE:
        enter_dimension(s, message, src)
    elif net == L.NET_UNAWARE:
        send_by_delay(s, message, src)
    elif net == L.NET_GRAPH:
        enter_route(s, message, src)
    elif net == L.NET_GRAPH_UNAWARE:
        send_by_route_delay(s, message, src)
    else:
        hand_over(s, message, src)


def over_switch(
    s: State, message: int, src: int, dim: int, tree: int, weighted: int, up: int, down: int
) -> None:
    """A message leaves `src` for the switch of a dimension, and comes back with other bytes if it does not stop there."""
    net = s.m[L.C_NET]
    if net == L.NET_AWARE:
        enter_port(s, message, src, dim, up, 0)
    elif net == L.NET_FLOW:
        start_port(s, message, src, dim, tree, up, 2 * weighted)
    else:
        over_switch_by_delay(s, message, src, dim, up, down)


def stops_at_switch(s: State) -> bool:
    """Whether what goes over a switch is stored there, so that results leave when the switch has all of them."""
    return s.m[L.C_NET] == L.NET_AWARE


def goes_both_ways(s: State) -> bool:
    """Whether results leave a switch while what they are made of still comes in, as messages of their own."""
    return s.m[L.C_NET] == L.NET_FLOW


def from_switch(s: State, message: int, dst: int, dim: int, tree: int, weighted: int, down: int) -> None:
    """A message leaves the switch of a dimension for `dst`."""
    if s.m[L.C_NET] == L.NET_FLOW:
        start_port(s, message, dst, dim, tree, down, 2 * weighted + 1)
    else:
        enter_port(s, message, dst, dim, down, 1)


def reached(s: State, message: int) -> bool:
    """A message came to the end of a link or of its delay; True if that is its destination."""
    m = s.m
    m[L.C_MESSAGES] += 1
    hops = m[message + L.M_HOPS] - 1
    m[message + L.M_HOPS] = hops
    if hops > 0:
        next_link(s, message)
        return False
    at = m[message + L.M_AT]
    if at == m[message + L.M_DST]:
        return True
    enter_dimension(s, message, at)
    return False


def wake(s: State, row: int) -> None:
    """An event of the network itself: a link is free, or rates of flows change."""
    if s.m[L.C_NET] == L.NET_FLOW:
        wake_flows(s, row)
    else:
        release_link(s, row)


def occupancy(s: State, npu: int, partner: int, size: int, back: bool) -> int:
    """Time for which a message to a partner (`back`: from it) keeps the narrowest part of its way busy, ns."""
    m = s.m
    net = m[L.C_NET]
    if net == L.NET_FLOW:
        return flow_occupancy(s, npu, partner, size, back)
    if npu == partner:
        return 0
    src, dst = (partner, npu) if back else (npu, partner)
    if net == L.NET_GRAPH or net == L.NET_GRAPH_UNAWARE:
        return slowest_link(s, src, dst, size)
    return free_occupancy(s, src, dst, size)
