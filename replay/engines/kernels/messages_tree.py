"""Double binary tree: an all-reduce up and down one of two trees (replay semantics, section 4.3)."""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_bus import bus_request
from chakra.replay.engines.kernels.messages_events import set_timer
from chakra.replay.engines.kernels.messages_transfer import post_receive, send_data

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


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
    n, index = m[x + L.S_RING_N], m[x + L.S_INDEX]
    if m[x + L.S_TREE] == 0:
        return 0 if index == n - 1 else index + 1
    return index


def tree_index(s: State, x: int, place: int) -> int:
    """Ring position of an in-order number."""
    m = s.m
    if m[x + L.S_TREE] == 0:
        return m[x + L.S_RING_N] - 1 if place == 0 else place - 1
    return place


def tree_send(s: State, x: int, place: int, p: int, p_there: int) -> None:
    """Send the whole chunk along an edge."""
    m = s.m
    m[x + L.S_EDGES_SENT] |= 1 << p
    send_data(s, x, tree_index(s, x, place), p, p_there, m[x + L.S_SIZE])


def tree_post(s: State, x: int, place: int, p: int, p_there: int) -> None:
    """Post the receive of an edge's message."""
    m = s.m
    m[x + L.S_POSTED] |= 1 << p
    post_receive(s, x, tree_index(s, x, place), p, p_there, m[x + L.S_SIZE])


def tree_child(place: int, n: int, right: int) -> int:
    """A child of an in-order number; the root's only child is the middle."""
    if place == 0:
        return n >> 1
    low = place & -place
    return place + (low >> 1) if right else place - (low >> 1)


def tree_start(s: State, x: int) -> None:
    """Leaves start their delay, the others wait for their children."""
    m = s.m
    n = m[x + L.S_RING_N]
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
    npu = m[x + L.S_NPU]
    if m[x + L.S_DELAY] < 0:
        back = not leaf and (tree_place(s, x) == 0 or m[x + L.S_RECEIVED] != 1)
        bus_request(s, npu, x, 0, m[x + L.S_SIZE], start, not leaf, back, True)
    else:
        set_timer(s, npu, m[L.C_NOW] + m[x + L.S_DELAY], L.TM_TREE if leaf else L.TM_TREE_REDUCE, x, 0)


def tree_reduce(s: State, x: int) -> None:
    """The reduction of a tree node starts."""
    m = s.m
    set_timer(s, m[x + L.S_NPU], m[L.C_NOW] + m[x + L.S_REDUCE], L.TM_TREE, x, 0)


def tree_step(s: State, x: int) -> bool:
    """A local delay ended; True if the phase ends with it."""
    m = s.m
    m[x + L.S_DELAYS] += 1
    step = m[x + L.S_DELAYS]
    n = m[x + L.S_RING_N]
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
